//! Spans for a collector, by OTLP over HTTP (feature `otel`, E39): each run when it closes, each live turn, attempt of an
//! activity, model call, commit and request.
//!
//! ```text
//!   tracing span closes ──► Spans (a layer) ──► the SDK: batches, a bound, its own thread ──► http/protobuf ──► the collector
//! ```
//!
//! A run is a trace, and its turns and attempts are below the span of the run. The ids of its spans are made of the run and of what
//! happened in it, so that the attempt after a crash belongs to the same trace, and links to the one before, whether that one was ever
//! sent or not. A child links to its parent, and a run that goes on to the one before it. Names and attributes of model calls
//! are those of the GenAI conventions.
//!
//! Invariant: only what runs live is sent: replayed code runs under no subscriber. Spans hold ids and counts, never what was said.
//! Nobody waits for the collector: what does not fit is dropped by the SDK, which says so. It is on where the environment names a
//! collector, by the names of the protocol (`OTEL_EXPORTER_OTLP_ENDPOINT` …), and only in a worker.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use opentelemetry::trace::{
    Link, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState, Tracer,
    TracerProvider,
};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SdkTracer, SdkTracerProvider};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::filter::{FilterFn, Filtered};
use tracing_subscriber::layer::{Context as LayerContext, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::capability::http::{HttpConfig, guarded_client};

/// How long a request to the collector may take.
const SEND_MAX: Duration = Duration::from_secs(10);

static STARTED: OnceLock<SdkTracerProvider> = OnceLock::new();

/// The layer that sends, with the spans that it takes.
pub(crate) type Sending<S> = Filtered<Spans, FilterFn, S>;

/// The layer, where the environment names a collector.
///
/// # Errors
/// What of the environment makes no sense.
pub(crate) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Sending<S>>, String> {
    let named = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
    let endpoint = match (named("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), named("OTEL_EXPORTER_OTLP_ENDPOINT")) {
        (Some(whole), _) => whole,
        (None, Some(base)) => format!("{}/v1/traces", base.trim_end_matches('/')),
        (None, None) => return Ok(None),
    };
    if named("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    let exporter = SpanExporter::builder().with_http().with_http_client(Collector::at(&endpoint)?);
    let exporter = exporter.with_endpoint(endpoint).with_timeout(SEND_MAX).build().map_err(|why| why.to_string())?;
    let service = named("OTEL_SERVICE_NAME").unwrap_or_else(|| "bosun".to_owned());
    let version = KeyValue::new("service.version", crate::cli::VERSION);
    let resource = Resource::builder().with_service_name(service).with_attribute(version).build();
    let provider = SdkTracerProvider::builder()
        .with_id_generator(Told::default())
        .with_resource(resource)
        .with_batch_exporter(exporter)
        .build();
    let tracer = provider.tracer("bosun");
    // A second start in one process (tests) sends by its own provider, which nobody flushes.
    let _ = STARTED.set(provider);
    let ours: fn(&Metadata<'_>) -> bool = |metadata| metadata.is_span() && metadata.target().starts_with("bosun");
    let filter = FilterFn::new(ours).with_max_level_hint(LevelFilter::DEBUG);
    Ok(Some(Spans { tracer }.with_filter(filter)))
}

/// Sends what is left. The worker leaves.
pub(crate) fn flush() {
    if let Some(why) = STARTED.get().and_then(|provider| provider.shutdown_with_timeout(SEND_MAX).err()) {
        tracing::warn!(%why, "the last spans were not sent");
    }
}

/// The client of the collector, with a runtime of its own: the SDK asks from a thread that has none.
struct Collector {
    client: reqwest::Client,
    runtime: tokio::runtime::Runtime,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Collector")
    }
}

impl Collector {
    fn at(endpoint: &str) -> Result<Collector, String> {
        let url = reqwest::Url::parse(endpoint).map_err(|why| format!("the collector {endpoint:?}: {why}"))?;
        // The owner named it, wherever it is.
        let allow_hosts = vec![url.host_str().unwrap_or_default().to_owned()];
        let client = guarded_client(&Arc::new(HttpConfig { allow_hosts, ..HttpConfig::default() }));
        let client = client.map_err(|why| why.to_string())?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Ok(Collector { client, runtime: runtime.map_err(|why| why.to_string())? })
    }
}

type Sent<'a> = std::pin::Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for Collector {
    fn send_bytes<'life, 'out>(&'life self, request: Request<Bytes>) -> Sent<'out>
    where
        'life: 'out,
        Self: 'out,
    {
        let (parts, body) = request.into_parts();
        let sent = self.client.request(parts.method, parts.uri.to_string()).headers(parts.headers).body(body);
        let sent = self.runtime.spawn(async move {
            let answer = sent.timeout(SEND_MAX).send().await?;
            let (status, body) = (answer.status(), answer.bytes().await?);
            Ok::<_, HttpError>((status, body))
        });
        Box::pin(async move {
            let (status, body) = sent.await??;
            Ok(Response::builder().status(status).body(body)?)
        })
    }
}

thread_local! {
    static NEXT: Cell<Option<(TraceId, SpanId)>> = const { Cell::new(None) };
}

/// Gives the ids that the layer has made, and random ones where it made none.
#[derive(Debug, Default)]
struct Told(RandomIdGenerator);

impl IdGenerator for Told {
    fn new_trace_id(&self) -> TraceId {
        NEXT.get().map_or_else(|| self.0.new_trace_id(), |(trace, _)| trace)
    }
    fn new_span_id(&self) -> SpanId {
        NEXT.get().map_or_else(|| self.0.new_span_id(), |(_, span)| span)
    }
}

/// What the span of a whole run is called among those of the run.
const WHOLE: &str = "run";

/// Ids of what happens in a run: the same whoever makes them, and whenever.
fn trace_of(run: &str) -> TraceId {
    let hash = blake3::derive_key("bosun 2026 trace of a run", run.as_bytes());
    TraceId::from_bytes(hash[..16].try_into().unwrap_or_default())
}

fn span_of(run: &str, what: &str) -> SpanId {
    let hash = blake3::derive_key("bosun 2026 span of a run", format!("{run}/{what}").as_bytes());
    SpanId::from_bytes(hash[..8].try_into().unwrap_or_default())
}

fn context_of(trace: TraceId, span: SpanId) -> SpanContext {
    SpanContext::new(trace, span, TraceFlags::SAMPLED, true, TraceState::default())
}

/// A span while it is open.
#[derive(Debug)]
struct Open {
    began: SystemTime,
    fields: BTreeMap<&'static str, Value>,
    ids: (TraceId, SpanId),
    parent: Option<(TraceId, SpanId)>,
    links: Vec<Link>,
}

/// The layer.
#[derive(Debug)]
pub(crate) struct Spans {
    tracer: SdkTracer,
}

struct Fields<'a>(&'a mut BTreeMap<&'static str, Value>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}").into());
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned().into());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name(), value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name(), i64::try_from(value).unwrap_or(i64::MAX).into());
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name(), value.into());
    }
}

impl Open {
    /// Its place: of what happens in a run by the run, of all else below what it happens in.
    fn of(name: &str, fields: BTreeMap<&'static str, Value>, parent: Option<(TraceId, SpanId)>) -> Open {
        let text = |key: &str| fields.get(key).map(|value| value.as_str().into_owned());
        let number =
            |key: &str| fields.get(key).and_then(|value| if let Value::I64(n) = value { Some(*n) } else { None });
        let began = SystemTime::now();
        let random = RandomIdGenerator::default();
        let Some(run) = text("run_id").filter(|_| name != "chat") else {
            let trace = parent.map_or_else(|| random.new_trace_id(), |(trace, _)| trace);
            return Open { began, fields, ids: (trace, random.new_span_id()), parent, links: Vec::new() };
        };
        let trace = trace_of(&run);
        if name == "run" {
            return Open::of_run((trace, span_of(&run, WHOLE)), fields, began);
        }
        let (what, before) = match (name, number("seq"), number("attempt")) {
            ("activity", Some(seq), Some(attempt)) => {
                let of = |attempt: i64| format!("activity/{seq}/{attempt}");
                (of(attempt), (attempt > 1).then(|| of(attempt - 1)))
            }
            _ => (format!("turn/{}/{}", number("event_id").unwrap_or_default(), text("job").unwrap_or_default()), None),
        };
        let links = before.map(|before| Link::with_context(context_of(trace, span_of(&run, &before))));
        let links = links.into_iter().collect();
        let parent = Some((trace, span_of(&run, WHOLE)));
        Open { began, ids: (trace, span_of(&run, &what)), parent, links, fields }
    }

    /// The span of a whole run: it began with the run, and comes after others.
    fn of_run(ids: (TraceId, SpanId), mut fields: BTreeMap<&'static str, Value>, now: SystemTime) -> Open {
        let began = match fields.remove("started_at_us") {
            Some(Value::I64(micros)) => SystemTime::UNIX_EPOCH + Duration::from_micros(micros.max(0).unsigned_abs()),
            _ => now,
        };
        let others = ["parent_run", "run_before"].into_iter().filter_map(|key| fields.get(key));
        let whole = |run: &Value| context_of(trace_of(&run.as_str()), span_of(&run.as_str(), WHOLE));
        let links = others.map(|run| Link::with_context(whole(run))).collect();
        // A clock that was set back makes no span of less than no time.
        Open { began: began.min(now), ids, parent: None, links, fields }
    }

    /// The name and kind by which people look for it.
    fn shown(&self, name: &str) -> (String, SpanKind) {
        let text = |key: &str| self.fields.get(key).map(|value| value.as_str().into_owned()).unwrap_or_default();
        match name {
            "activity" => (format!("activity {}", text("activity_type")), SpanKind::Consumer),
            "run" => (format!("run {}", text("workflow_type")), SpanKind::Internal),
            "workflow_turn" => (format!("turn {}", text("workflow_type")), SpanKind::Internal),
            "chat" => (format!("chat {}", text("gen_ai.request.model")), SpanKind::Client),
            "request" => (format!("{} {}", text("method"), text("route")), SpanKind::Server),
            other => (other.to_owned(), SpanKind::Internal),
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: LayerContext<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        let mut fields = BTreeMap::new();
        attributes.record(&mut Fields(&mut fields));
        let parent = span.parent().and_then(|parent| parent.extensions().get::<Mutex<Open>>().map(ids));
        let open = Open::of(span.name(), fields, parent);
        span.extensions_mut().insert(Mutex::new(open));
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, ctx: LayerContext<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        let extensions = span.extensions();
        if let Some(open) = extensions.get::<Mutex<Open>>() {
            record.record(&mut Fields(&mut open.lock().unwrap_or_else(PoisonError::into_inner).fields));
        }
    }

    fn on_close(&self, id: Id, ctx: LayerContext<'_, S>) {
        let Some(span) = ctx.span(&id) else { return };
        let Some(open) = span.extensions_mut().remove::<Mutex<Open>>() else { return };
        let mut open = open.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (name, kind) = open.shown(span.name());
        let failed = open.fields.remove("error.type");
        let mut attributes: Vec<KeyValue> =
            std::mem::take(&mut open.fields).into_iter().map(|(key, value)| KeyValue::new(key, value)).collect();
        if let Some(failed) = &failed {
            attributes.push(KeyValue::new("error.type", failed.clone()));
        }
        let builder = SpanBuilder::from_name(name)
            .with_kind(kind)
            .with_start_time(open.began)
            .with_attributes(attributes)
            .with_links(open.links);
        let above = match open.parent {
            Some((trace, span)) => Context::new().with_remote_span_context(context_of(trace, span)),
            None => Context::new(),
        };
        NEXT.set(Some(open.ids));
        let mut sent = self.tracer.build_with_context(builder, &above);
        NEXT.set(None);
        if let Some(failed) = failed {
            opentelemetry::trace::Span::set_status(&mut sent, Status::error(failed.as_str().into_owned()));
        }
        opentelemetry::trace::Span::end(&mut sent);
    }
}

fn ids(open: &Mutex<Open>) -> (TraceId, SpanId) {
    open.lock().unwrap_or_else(PoisonError::into_inner).ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&'static str, Value)]) -> BTreeMap<&'static str, Value> {
        pairs.iter().cloned().collect()
    }

    #[test]
    fn an_attempt_has_the_same_ids_whoever_makes_them_and_links_to_the_one_before() {
        let attempt = |n: i64| {
            Open::of("activity", fields(&[("run_id", "r-1".into()), ("seq", 3.into()), ("attempt", n.into())]), None)
        };
        let (first, second) = (attempt(1), attempt(2));
        assert_eq!((first.ids, attempt(2).ids), (attempt(1).ids, second.ids));
        assert_eq!(first.ids.0, second.ids.0, "a run is a trace");
        assert!(first.links.is_empty());
        assert_eq!(second.links[0].span_context.span_id(), first.ids.1);
        let whole = Open::of("run", fields(&[("run_id", "r-1".into()), ("started_at_us", 1_000_000.into())]), None);
        assert_eq!((whole.parent, whole.began), (None, SystemTime::UNIX_EPOCH + Duration::from_secs(1)));
        assert_eq!((first.parent, second.parent), (Some(whole.ids), Some(whole.ids)), "attempts are below their run");
        let child = fields(&[("run_id", "r-2".into()), ("parent_run", "r-1".into())]);
        let child = Open::of("run", child, None);
        assert_ne!(child.ids.0, whole.ids.0);
        assert_eq!(child.links[0].span_context.span_id(), whole.ids.1, "a child links to its parent");
        let call = Open::of("chat", fields(&[("run_id", "r-1".into())]), Some(first.ids));
        assert_eq!((call.ids.0, call.parent), (first.ids.0, Some(first.ids)));
    }
}
