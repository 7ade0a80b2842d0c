//! The HTTP endpoint that Prometheus scrapes (RFC 9112). Each connection has one request.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use httparse::{EMPTY_HEADER, Status};
use plmkit_cli::{Exit, Fault};
use plmkit_telemetry::export::CONTENT_TYPE;
use tracing::info;

/// Connections at a time: a few servers, and silent clients until their timeout or until newer ones come.
const MAX_CONNECTIONS: usize = 64;

/// Pause after a failed accept: a process without free file descriptors may have some again soon.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How long a client may take to send its request, and to read the answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Ten times the size of Prometheus' requests.
const MAX_REQUEST_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 64;

/// Older values are those of a sampler that hangs, as for the alert `PlmkitExporterStale`.
pub(super) const STALE: Duration = Duration::from_mins(1);

const INDEX: &str = "<!DOCTYPE html>\n<title>plmkit monitor-log</title>\n<p>plmkit monitor-log: <a href=\"/metrics\">metrics</a></p>\n";
const TEXT: &str = "text/plain; charset=utf-8";

/// The text that scrapes get, and when it was made.
#[derive(Clone)]
pub(super) struct ServedText(Arc<Mutex<(String, Instant)>>);

impl ServedText {
    /// Replaces the text for all later scrapes.
    pub(super) fn replace(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (text, Instant::now());
    }

    fn get(&self) -> (String, Instant) {
        let served = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        served.clone()
    }

    /// Returns the status, the media type and the text of `/healthz`.
    fn health(&self) -> (&'static str, &'static str, String) {
        let age = self.get().1.elapsed();
        if age <= STALE {
            return ("200 OK", TEXT, "ok\n".to_owned());
        }
        let text = format!("the last sample is {} s old\n", age.as_secs());
        ("503 Service Unavailable", TEXT, text)
    }
}

/// Takes the port, before anything else is done.
pub(super) fn listen(address: SocketAddr) -> Result<TcpListener, Fault> {
    TcpListener::bind(address).map_err(|error| {
        let what = format!("--listen {address}: cannot listen");
        Fault::of_system(Exit::CannotCreate, what, &error)
    })
}

/// Serves `text`, and its replacements, until the process ends.
pub(super) fn serve(listener: TcpListener, text: String) -> io::Result<ServedText> {
    let address = listener.local_addr()?;
    let text = ServedText(Arc::new(Mutex::new((text, Instant::now()))));
    let served = text.clone();
    thread::Builder::new()
        .name("http".to_owned())
        .spawn(move || accept(&listener, &served))?;
    info!("serving http://{address}/metrics");
    Ok(text)
}

/// Starts a thread for each connection. If there are too many, the oldest one ends: a client that is slow on purpose or by
/// mistake never keeps others out.
fn accept(listener: &TcpListener, served: &ServedText) {
    let mut connections: VecDeque<Weak<TcpStream>> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(ACCEPT_RETRY);
            continue;
        };
        connections.retain(|connection| connection.strong_count() > 0);
        if connections.len() >= MAX_CONNECTIONS {
            let oldest = connections.pop_front().and_then(|oldest| oldest.upgrade());
            // Fails if it has ended meanwhile.
            let _ = oldest.map(|oldest| oldest.shutdown(Shutdown::Both));
        }
        let (stream, served) = (Arc::new(stream), served.clone());
        connections.push_back(Arc::downgrade(&stream));
        // A lost client, or a system without room for a thread, needs no answer.
        let _ = thread::Builder::new()
            .name("scrape".to_owned())
            .spawn(move || answer(&stream, &served));
    }
}

/// Reads a request and answers it.
fn answer(mut stream: &TcpStream, served: &ServedText) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let bytes = read_request(stream)?;
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let is_whole = request.parse(&bytes).is_ok_and(|end| end.is_complete());
    let method = request.method.filter(|_| is_whole);
    let html = "text/html; charset=utf-8";
    let (status, content_type, text) =
        match (method, request.path.unwrap_or_default().split('?').next()) {
            (None, _) => ("400 Bad Request", TEXT, "not a request\n".to_owned()),
            (Some("GET" | "HEAD"), Some("/")) => ("200 OK", html, INDEX.to_owned()),
            (Some("GET" | "HEAD"), Some("/healthz")) => served.health(),
            (Some("GET" | "HEAD"), Some("/metrics")) => ("200 OK", CONTENT_TYPE, served.get().0),
            (_, Some("/" | "/healthz" | "/metrics")) => (
                "405 Method Not Allowed\r\nAllow: GET, HEAD",
                TEXT,
                "only GET and HEAD\n".to_owned(),
            ),
            _ => (
                "404 Not Found",
                TEXT,
                "not found: see /metrics\n".to_owned(),
            ),
        };
    let length = text.len();
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    if method != Some("HEAD") {
        answer.push_str(&text);
    }
    stream.write_all(answer.as_bytes())?;
    stream.shutdown(Shutdown::Write)
}

/// Reads the head of a request, or what there is of one that is malformed or too long.
fn read_request(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
    let end = Instant::now() + TIMEOUT;
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    while bytes.len() < MAX_REQUEST_BYTES && is_partial(&bytes) {
        // The timeout is for the entire request.
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&part[..count]);
    }
    Ok(bytes)
}

fn is_partial(bytes: &[u8]) -> bool {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    httparse::Request::new(&mut headers).parse(bytes) == Ok(Status::Partial)
}
