//! The server loop: accepts connections and holds them to their limits (G34).
//!
//! Invariant: no socket can hold a connection by saying nothing: headers must arrive in time, a connection without a
//! request in flight is closed when idle, or when another one needs its place, and there is a fixed number of connections. One
//! that is refused is told so. hyper-util serves instead of
//! `axum::serve`, which installs no timer and so has no header timeout. Which requests are allowed is the guard's business.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use bosun_engine::{RunId, WorkflowId};
use bosun_replay::JsonLimits;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::accept::Door;
use super::crowd::{ConnectionActivity, Crowd, InFlight, NoPlace, Place};
use super::guard::{Guard, WorkerTime, guard};
use super::handlers::{Api, no_such_method, no_such_route};
use super::problem::Problem;
use super::routes::{self, is_exact};
use super::tokens::Tokens;

/// How much the server takes. Tests use smaller ones.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    pub body: usize,
    /// Of the one route that takes a whole history.
    pub history_body: usize,
    /// Bodies above `body` that are in memory at once; one more is told to come again.
    pub history_bodies: usize,
    pub headers: usize,
    pub connections: usize,
    pub header_timeout: Duration,
    pub body_timeout: Duration,
    pub idle_timeout: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            body: 4 * 1024 * 1024,
            // A file has at most 64 MiB, and payloads that are written as text there may be hexadecimal here.
            history_body: 2 * JsonLimits::default().bytes,
            history_bodies: 2,
            headers: 16 * 1024,
            connections: connections_for(handles()),
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
        }
    }
}

/// Connections at most.
const CONNECTIONS: usize = 512;
/// File handles that the log and the process itself need.
const HANDLES_OF_OUR_OWN: u64 = 64;
/// More than this is of no use.
const HANDLES: u64 = 65_536;
/// Connections that wait for a place, or are told that there is none; the next wait to be accepted.
const REFUSALS: usize = 64;
/// Connections that were refused, and whose last bytes are read so that the refusal arrives.
const LEAVING: usize = 32;
/// Of a connection of the reserve: its head comes within this time.
const RESERVE_HEADERS: Duration = Duration::from_secs(2);

/// Asks the system for as many file handles as it gives. Answers how many that is.
pub fn take_file_handles() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(HANDLES).min(HANDLES);
    if limit.current.is_some_and(|current| current < most) {
        let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum });
        if let Err(why) = raised {
            tracing::debug!(%why, "the limit of file handles stays as it is");
        }
    }
    handles()
}

fn handles() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(HANDLES)
}

/// Half of what the log does not need; what activities open takes the rest.
fn connections_for(handles: u64) -> usize {
    connections_most(handles).min(CONNECTIONS)
}

fn connections_most(handles: u64) -> usize {
    let half = handles.saturating_sub(HANDLES_OF_OUR_OWN) / 2;
    usize::try_from(half).unwrap_or(usize::MAX).max(4)
}

impl ServerLimits {
    /// As the owner says, with the default of everything else.
    ///
    /// # Errors
    /// [`ServeError::TooManyConnections`]: the limit of open files does not leave as many.
    pub fn of_connections(connections: Option<usize>) -> Result<ServerLimits, ServeError> {
        let (handles, limits) = (handles(), ServerLimits::default());
        match connections {
            None => Ok(limits),
            Some(wanted) if wanted > connections_most(handles) => {
                Err(ServeError::TooManyConnections { wanted, handles, most: connections_most(handles) })
            }
            Some(connections) => Ok(ServerLimits { connections, ..limits }),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{address} is not a loopback address; give --token-file FILE to serve the control API beyond this machine")]
    NotLoopback { address: SocketAddr },
    #[error("cannot listen on {address}: {why}")]
    Bind { address: SocketAddr, why: std::io::Error },
    #[error(
        "--connections {wanted} is more than the {most} that a limit of {handles} open files leaves room for; give less, or raise the limit of open files (`ulimit -Hn`, `LimitNOFILE=` in a unit)"
    )]
    TooManyConnections { wanted: usize, handles: u64, most: usize },
}

/// A bound server, not yet serving.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    limits: ServerLimits,
}

impl Server {
    /// Binds the address. `open_to_others` must be said for anything but loopback (G32: only with a token that was
    /// chosen for it).
    pub async fn bind(address: SocketAddr, open_to_others: bool, limits: ServerLimits) -> Result<Server, ServeError> {
        if !address.ip().is_loopback() && !open_to_others {
            return Err(ServeError::NotLoopback { address });
        }
        let bind = |why| ServeError::Bind { address, why };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        Ok(Server { listener, address, limits })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is true; then ends idle connections and lets requests in flight finish.
    /// Beside the API it serves these pages.
    pub async fn serve(
        self,
        api: Api,
        pages: Router<Api>,
        tokens: Tokens,
        hosts: &[String],
        mut stop: watch::Receiver<bool>,
    ) {
        let guarding = Guard::new(Arc::new(tokens), WorkerTime::of(&api), self.address, hosts, &self.limits);
        let crowd = Crowd::new(self.limits.connections);
        let routers = routers_of(api, pages, guarding, &crowd);
        let mut door = Door::new(self.listener);
        let (refusals, leaving) = (Arc::new(Semaphore::new(REFUSALS)), Arc::new(Semaphore::new(LEAVING)));
        let connections = TaskTracker::new();
        loop {
            let stream = tokio::select! {
                () = told(&mut stop) => break,
                stream = door.next() => stream,
            };
            let (routers, limits, stopping) = (routers.clone(), self.limits.clone(), stop.clone());
            let serve =
                |place: Place, stream| async move { connection(stream, &place.busy, routers, limits, stopping).await };
            if let Some(place) = crowd.place() {
                connections.spawn(serve(place, stream));
                continue;
            }
            // Who comes meanwhile waits to be accepted: a connection that is dropped without a word tells nobody when to
            // come again.
            let turn = tokio::select! {
                () = told(&mut stop) => break,
                turn = refusals.clone().acquire_owned() => turn,
            };
            let Ok(turn) = turn else { continue };
            let (crowd, most, leaving) = (crowd.clone(), self.limits.connections, leaving.clone());
            connections.spawn(async move {
                match crowd.place_of_another(&stream).await {
                    Ok(place) => {
                        drop(turn);
                        serve(place, stream).await;
                    }
                    Err(why) => send_away(why, stream, most, turn, &leaving).await,
                }
            });
        }
        connections.close();
        connections.wait().await;
    }
}

/// Everything that is served, behind the guard.
#[derive(Clone)]
struct Routers {
    /// The API in plain JSON, and pages.
    plain: Router,
    /// The API in exact values.
    exact: Router,
}

fn routers_of(api: Api, pages: Router<Api>, guarding: Guard, crowd: &Crowd) -> Routers {
    let finish = |router: Router<Api>| {
        router
            .fallback(no_such_route)
            .method_not_allowed_fallback(no_such_method)
            .with_state(api.clone())
            // The guard alone says how large a body may be; axum would refuse one of 2 MiB, in words of its own.
            .layer(DefaultBodyLimit::disable())
            .layer(middleware::from_fn_with_state(guarding.clone(), guard))
            .layer(middleware::from_fn_with_state(crowd.streams.clone(), count))
    };
    Routers { plain: finish(routes::router(false).merge(pages)), exact: finish(routes::router(true)) }
}

/// Resolves when the server is to stop, or whoever could say so is gone.
async fn told(stop: &mut watch::Receiver<bool>) {
    // The guard that `wait_for` gives must not live on in a `select!`.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Refuses a connection, which takes a turn, and then hears what it still sends, which takes none.
async fn send_away(why: NoPlace, stream: TcpStream, most: usize, turn: OwnedSemaphorePermit, leaving: &Semaphore) {
    let refused = refuse(stream, most).await;
    // Who has said nothing sends nothing that would be lost; nobody who leaves keeps others waiting.
    drop(turn);
    if let (NoPlace::Full, Some(stream), Ok(_leaving)) = (why, refused, leaving.try_acquire()) {
        hear_out(stream).await;
    }
}

/// One connection too many: says so, and says no more. Gives it back if that was written.
async fn refuse(mut stream: TcpStream, most: usize) -> Option<TcpStream> {
    let message = format!("all {most} connections are at work (`--connections` of the worker); try again later");
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, BUSY, message);
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let head =
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: application/json\r\nConnection: close";
    let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let refusal = async move {
        stream.write_all(answer.as_bytes()).await.ok()?;
        stream.shutdown().await.ok()?;
        Some(stream)
    };
    tokio::time::timeout(Duration::from_secs(1), refusal).await.ok().flatten()
}

/// Closed with something unread, a connection would be reset, and what was answered on it lost.
async fn hear_out(mut stream: TcpStream) {
    let _ = tokio::time::timeout(Duration::from_secs(1), tokio::io::copy(&mut stream, &mut tokio::io::sink())).await;
}

/// What a connection of the reserve answers to all that lasts.
fn only_short() -> Response {
    let message =
        "all connections but those for short requests are at work (`--connections` of the worker); try again later";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, BUSY, message).into_response()
}

/// The code of a refusal that is over in a moment.
pub(super) const BUSY: &str = "busy";

/// Whether a request may take long by its nature: it waits for a run, a person or the whole store. Those whose answers are
/// streams are known by these.
fn waits(method: &Method, route: &str, query: Option<&str>) -> bool {
    let is_update = *method == Method::POST && route.contains("/updates/");
    let for_people = route.ends_with("/approvals") && query.is_some_and(|query| query.contains("wait="));
    is_update || for_people || ["/result", "/store/verify", "/store/backup"].iter().any(|end| route.ends_with(end))
}

/// The run that an address names: its route says where.
#[derive(Debug, Default, PartialEq, Eq)]
struct NamedRun {
    workflow_id: Option<WorkflowId>,
    run_id: Option<RunId>,
}

impl NamedRun {
    fn of(route: &str, uri: &Uri) -> NamedRun {
        let mut places = route.split('/').zip(uri.path().split('/'));
        let id = places.find(|(place, _)| *place == "workflows").and_then(|_| places.next());
        let id = id.filter(|(place, _)| *place == "{id}").and_then(|(_, id)| decode(id));
        let query = uri.query().unwrap_or_default().split('&');
        let run = query.filter_map(|pair| pair.strip_prefix("run_id=")).find_map(|id| id.parse().ok());
        NamedRun { run_id: run.filter(|_| id.is_some()), workflow_id: id.and_then(|id| WorkflowId::new(id).ok()) }
    }
}

fn decode(part: &str) -> Option<String> {
    let part = format!("part={}", part.replace('+', "%2B").replace('&', "%26"));
    form_urlencoded::parse(part.as_bytes()).next().map(|(_, text)| text.into_owned())
}

async fn count(
    State(streams): State<Arc<Semaphore>>,
    Extension(busy): Extension<Arc<ConnectionActivity>>,
    request: Request,
    next: Next,
) -> Response {
    let is_reserve = busy.is_reserve;
    let in_flight = InFlight::begin(busy);
    // The counter lives as long as the body does: a stream that is being sent is not idle.
    // The route and not the path: that one holds ids, and tokens of activities, which let whoever reads them complete these.
    let route = request.extensions().get::<MatchedPath>().map_or("(no route)", MatchedPath::as_str);
    if is_reserve && waits(request.method(), route, request.uri().query()) {
        return only_short();
    }
    let NamedRun { workflow_id, run_id } = NamedRun::of(route, request.uri());
    let (workflow_id, run_id) = (workflow_id.map(tracing::field::display), run_id.map(tracing::field::display));
    let span = tracing::debug_span!("request", method = %request.method(), route, workflow_id, run_id);
    let answered = async {
        let response = next.run(request).await;
        tracing::debug!(status = response.status().as_u16(), "answered");
        response
    };
    let response = answered.instrument(span).await;
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    if is_reserve {
        return only_short();
    }
    // Streams last: they leave places to whoever asks something.
    match streams.try_acquire_owned() {
        Ok(place) => response.map(|body| super::stream::hold(body, (in_flight, place))),
        Err(_) => {
            let message = "too many streams are open; end some, or try again later";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, BUSY, message).into_response()
        }
    }
}

async fn connection(
    stream: TcpStream,
    busy: &Arc<ConnectionActivity>,
    routers: Routers,
    limits: ServerLimits,
    mut stop: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let plain = TowerToHyperService::new(routers.plain);
    let exact = TowerToHyperService::new(routers.exact);
    let counted = busy.clone();
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(counted.clone());
        if is_exact(request.headers()) { exact.call(request) } else { plain.call(request) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    let header_timeout =
        if busy.is_reserve { RESERVE_HEADERS.min(limits.header_timeout) } else { limits.header_timeout };
    http.timer(TokioTimer::new())
        .keep_alive(!busy.is_reserve)
        .header_read_timeout(header_timeout)
        .max_header_size(limits.headers)
        .max_headers(128);
    let served = http.serve_connection(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    tokio::select! {
        _ = served.as_mut() => return,
        () = busy.wait_until_idle(limits.idle_timeout) => return,
        () = busy.wait_for_others() => return,
        () = told(&mut stop) => served.as_mut().graceful_shutdown(),
    }
    // Streams that follow a run never end by themselves; the engine ends them when it closes, and this is the backstop.
    let _ = tokio::time::timeout(limits.header_timeout, served).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_handles_for_the_log() {
        assert_eq!([0, 64, 72, 256, 1_024, 65_536].map(connections_for), [4, 4, 4, 96, 480, 512]);
        assert_eq!(ServerLimits::of_connections(Some(300)).unwrap().connections, 300);
        let refused = ServerLimits::of_connections(Some(1_000_000)).unwrap_err().to_string();
        assert!(refused.contains("--connections 1000000") && refused.contains("open files"), "{refused}");
    }

    #[test]
    fn an_address_names_its_run_where_its_route_says_so() {
        let of = |route: &str, uri: &str| {
            let named = NamedRun::of(route, &uri.parse().unwrap());
            (named.workflow_id.map(|id| id.to_string()), named.run_id.is_some())
        };
        let run = RunId([7; 16]);
        let uri = format!("/api/v1/workflows/a%3Ab+c/history?limit=5&run_id={run}");
        assert_eq!(of("/api/v1/workflows/{id}/history", &uri), (Some("a:b+c".to_owned()), true));
        assert_eq!(of("/api/v1/workflows/{id}", "/api/v1/workflows/a"), (Some("a".to_owned()), false));
        assert_eq!(of("/api/v1/workflows", &format!("/api/v1/workflows?run_id={run}")), (None, false));
        // A token lets whoever reads it complete its attempt.
        assert_eq!(of("/api/v1/activities/{token}", "/api/v1/activities/secret"), (None, false));
    }
}
