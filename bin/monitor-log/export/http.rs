//! The HTTP endpoint that Prometheus scrapes (RFC 9112). Each connection has one request.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use httparse::{EMPTY_HEADER, Status};
use plmkit_cli::{Exit, Fault};
use plmkit_contract::io_text;
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
const STALE: Duration = Duration::from_mins(1);

const INDEX: &str = "<!DOCTYPE html>\n<title>plmkit monitor-log</title>\n<p>plmkit monitor-log: <a href=\"/metrics\">metrics</a></p>\n";
const TEXT: &str = "text/plain; charset=utf-8";

/// The text that scrapes get, and when it was made.
#[derive(Clone)]
pub(super) struct ServedText(Arc<Mutex<(String, Instant)>>);

impl ServedText {
    fn new(text: String) -> Self {
        Self(Arc::new(Mutex::new((text, Instant::now()))))
    }

    /// Replaces the text for all later scrapes.
    pub(super) fn replace(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (text, Instant::now());
    }

    fn get(&self) -> String {
        let served = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        served.0.clone()
    }

    /// Returns the status, the media type and the text of `/healthz`.
    fn health(&self) -> (&'static str, &'static str, String) {
        let served = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let age = served.1.elapsed();
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
        let reason = io_text(&error);
        let message = format!("--listen {address}: cannot listen: {reason}");
        Fault::new(Exit::CannotCreate, message)
    })
}

/// Serves `text`, and its replacements, until the process ends.
pub(super) fn serve(listener: TcpListener, text: String) -> io::Result<ServedText> {
    let address = listener.local_addr()?;
    let text = ServedText::new(text);
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
    let request = read_request(stream)?;
    let is_head = request
        .as_ref()
        .is_some_and(|request| request.method == "HEAD");
    let is_gzip = request.as_ref().is_some_and(|request| request.takes_gzip);
    let html = "text/html; charset=utf-8";
    let (status, content_type, body) = match request {
        None => ("400 Bad Request", TEXT, "not a request\n".to_owned()),
        Some(Request { method, target, .. }) => match path_of(&target) {
            path @ ("/" | "/metrics" | "/healthz") => match (method.as_str(), path) {
                ("GET" | "HEAD", "/") => ("200 OK", html, INDEX.to_owned()),
                ("GET" | "HEAD", "/healthz") => served.health(),
                ("GET" | "HEAD", _) => ("200 OK", CONTENT_TYPE, served.get()),
                _ => (
                    "405 Method Not Allowed\r\nAllow: GET, HEAD",
                    TEXT,
                    "only GET and HEAD\n".to_owned(),
                ),
            },
            _ => (
                "404 Not Found",
                TEXT,
                "not found: see /metrics\n".to_owned(),
            ),
        },
    };
    let (body, encoding) = if is_gzip {
        (gzip(body.as_bytes())?, "Content-Encoding: gzip\r\n")
    } else {
        (body.into_bytes(), "")
    };
    let length = body.len();
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{encoding}Vary: Accept-Encoding\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    )
    .into_bytes();
    if !is_head {
        answer.extend(body);
    }
    stream.write_all(&answer)?;
    stream.shutdown(Shutdown::Write)
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Returns the path of a target. A proxy gets targets with scheme and host (RFC 9112, 3.2.2).
fn path_of(target: &str) -> &str {
    let path = match target.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |path| &rest[path..]),
        None => target,
    };
    path.split('?').next().unwrap_or_default()
}

/// What is needed of a request.
struct Request {
    method: String,
    target: String,
    takes_gzip: bool,
}

/// Reads a request. Returns `None` for a malformed or too long one.
fn read_request(mut stream: &TcpStream) -> io::Result<Option<Request>> {
    let end = Instant::now() + TIMEOUT;
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    while bytes.len() < MAX_REQUEST_BYTES {
        // The timeout is for the entire request. A timeout of 0 would be none.
        let left = end.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&part[..count]);
        match parse(&bytes) {
            Ok(None) if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
            Ok(None) => {}
            Ok(request) => return Ok(request),
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}

/// Parses a request. Returns `None` if its head is incomplete.
fn parse(bytes: &[u8]) -> Result<Option<Request>, httparse::Error> {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    if request.parse(bytes)? == Status::Partial {
        return Ok(None);
    }
    let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
    let takes_gzip = request.headers.iter().any(|header| {
        header.name.eq_ignore_ascii_case("Accept-Encoding") && names_gzip(header.value)
    });
    Ok(Some(Request {
        method: text(request.method),
        target: text(request.path),
        takes_gzip,
    }))
}

/// Whether a list of codings has gzip, and not with a weight of 0 (RFC 9110, 12.5.3).
fn names_gzip(codings: &[u8]) -> bool {
    let codings = String::from_utf8_lossy(codings).to_ascii_lowercase();
    codings.split(',').any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map(str::parse::<f64>);
        name.trim() == "gzip" && weight != Some(Ok(0.0))
    })
}
