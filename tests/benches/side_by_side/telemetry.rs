//! What telemetry costs (E39): the same work through the API of a worker that says nothing, of one that logs as it does by
//! itself, of one that is scraped every second, and of one that sends its spans.
//!
//! Counting is always on, so it is part of every row. The row of spans is there where the bench is built with it: `cargo bench -p
//! bosun-tests --features otel --bench side_by_side -- telemetry`. Its collector takes everything at once and looks at nothing.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::through_api::Remote;
use super::{ROUNDS, median, parked, timed};

const RUNS: usize = 64;
const STEPS: u64 = 10;

/// One way to run the worker, and what was measured of it.
struct Contender<'a> {
    name: &'static str,
    remote: Remote<'a>,
    is_scraped: bool,
    rates: Vec<f64>,
    /// Of the worker's process, in microseconds a step.
    cpu: Vec<f64>,
}

impl Contender<'_> {
    fn round(&mut self) {
        let scraper = self.is_scraped.then(|| Scraper::start(self.remote.door()));
        let before = parked::cpu_ticks(self.remote.pid());
        let took = timed(|| {
            // Longer than a scrape and a batch of spans wait.
            for _ in 0..8 {
                self.remote.run_many("steps-machine", RUNS, STEPS);
            }
        });
        let used = parked::cpu_ticks(self.remote.pid()) - before;
        drop(scraper);
        let steps = (8 * RUNS * STEPS as usize) as f64;
        self.rates.push(steps / took.as_secs_f64());
        self.cpu.push(used as f64 * 10_000.0 / steps);
    }
}

/// Prints a row for each.
pub(crate) fn measure(runtime: &tokio::runtime::Runtime) {
    let collector = Collector::start();
    let off = ("BOSUN_LOG", "off".to_owned());
    let mut rows = vec![("off", off.clone(), false), ("logs", ("BOSUN_LOG", "info".to_owned()), false)];
    rows.push(("metrics, scraped every second", off, true));
    if cfg!(feature = "otel") {
        rows.push(("otel, every span sent", ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address.clone()), false));
    }
    let contender = |(name, variable, is_scraped)| {
        let remote = Remote::start_in(runtime, &[], &[variable]);
        Contender { name, remote, is_scraped, rates: Vec::new(), cpu: Vec::new() }
    };
    let mut contenders: Vec<Contender<'_>> = rows.into_iter().map(contender).collect();
    for _ in 0..ROUNDS {
        contenders.iter_mut().for_each(Contender::round);
    }
    let off = (median(contenders[0].rates.clone()), median(contenders[0].cpu.clone()));
    for Contender { name, rates, cpu, .. } in contenders {
        let (rate, cpu) = (median(rates), median(cpu));
        println!(
            "telemetry, {RUNS} runs x {STEPS}, API, {name}: {rate:.0} steps/s ({:.2} of off), {cpu:.1} us of CPU a step ({:.2})",
            rate / off.0,
            cpu / off.1
        );
    }
    if cfg!(feature = "otel") {
        let bytes = collector.bytes.load(Ordering::SeqCst);
        assert!(bytes > 0, "no span was sent");
        println!("telemetry: {} KiB of spans were sent", bytes >> 10);
    } else {
        println!("telemetry, otel: build with --features otel");
    }
}

/// Whatever scrapes, once a second, until it is dropped.
struct Scraper {
    ended: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Scraper {
    fn start((address, token): (String, String)) -> Scraper {
        let ended = Arc::new(AtomicBool::new(false));
        let mine = ended.clone();
        let thread = std::thread::spawn(move || {
            while !mine.load(Ordering::SeqCst) {
                scrape(&address, &token);
                std::thread::park_timeout(Duration::from_secs(1));
            }
        });
        Scraper { ended, thread: Some(thread) }
    }
}

impl Drop for Scraper {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join().expect("the scraper");
        }
    }
}

fn scrape(address: &str, token: &str) {
    let address = address.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("a worker");
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("bosun_commit_duration"), "{text:.300}");
}

/// Takes whatever is sent to it.
struct Collector {
    address: String,
    bytes: Arc<AtomicU64>,
}

impl Collector {
    fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let bytes = Arc::new(AtomicU64::new(0));
        let counted = bytes.clone();
        // Both end with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = counted.clone();
                std::thread::spawn(move || take_all(stream, &counted));
            }
        });
        Collector { address, bytes }
    }
}

/// Answers each request of a connection.
fn take_all(mut stream: TcpStream, counted: &AtomicU64) -> Option<()> {
    let mut read: Vec<u8> = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let end = loop {
            if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            let more = stream.read(&mut buffer).ok().filter(|more| *more > 0)?;
            read.extend_from_slice(&buffer[..more]);
        };
        let head = String::from_utf8_lossy(&read[..end]).to_lowercase();
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length:"))?.trim().parse::<usize>().ok()?;
        while read.len() < end + length {
            let more = stream.read(&mut buffer).ok().filter(|more| *more > 0)?;
            read.extend_from_slice(&buffer[..more]);
        }
        counted.fetch_add(length as u64, Ordering::SeqCst);
        read.drain(..end + length);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")
            .ok()?;
    }
}
