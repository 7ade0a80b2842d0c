//! The HTTP endpoint that Prometheus scrapes (RFC 9112). Each connection has one request.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use httparse::{EMPTY_HEADER, Status};
use plmkit_cli::{Exit, Fault};
use plmkit_contract::io_text;
use plmkit_telemetry::export::CONTENT_TYPE;
use tracing::info;

/// Connections at a time: a few servers, and silent clients until their timeout.
const MAX_CONNECTIONS: usize = 64;

/// Pause after a failed accept: a process without free file descriptors may have some again soon.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How long a client may take to send its request, and to read the answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Ten times the size of Prometheus' requests.
const MAX_REQUEST_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 64;

const INDEX: &str = "<!DOCTYPE html>\n<title>plmkit monitor-log</title>\n<p>plmkit monitor-log: <a href=\"/metrics\">metrics</a></p>\n";
const TEXT: &str = "text/plain; charset=utf-8";

/// The text that scrapes get.
#[derive(Clone)]
pub(super) struct ServedText(Arc<Mutex<String>>);

impl ServedText {
    /// Replaces the text for all later scrapes.
    pub(super) fn replace(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    fn get(&self) -> String {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text.clone()
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
    let text = ServedText(Arc::new(Mutex::new(text)));
    let served = text.clone();
    thread::Builder::new()
        .name("http".to_owned())
        .spawn(move || accept(&listener, &served))?;
    info!("serving http://{address}/metrics");
    Ok(text)
}

/// Starts a thread for each connection, so that slow clients do not delay others.
fn accept(listener: &TcpListener, served: &ServedText) {
    // Each thread holds a reference while it runs.
    let connections = Arc::new(());
    loop {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(ACCEPT_RETRY);
            continue;
        };
        if Arc::strong_count(&connections) > MAX_CONNECTIONS {
            continue;
        }
        let (served, connection) = (served.clone(), Arc::clone(&connections));
        // A lost client, or a system without room for a thread, needs no answer.
        let _ = thread::Builder::new()
            .name("scrape".to_owned())
            .spawn(move || {
                let _ = answer(stream, &served);
                drop(connection);
            });
    }
}

/// Reads a request and answers it.
fn answer(mut stream: TcpStream, served: &ServedText) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = read_request(&mut stream)?;
    let is_head = request.as_ref().is_some_and(|(method, _)| method == "HEAD");
    let html = "text/html; charset=utf-8";
    let (status, content_type, body) = match request {
        None => ("400 Bad Request", TEXT, "not a request\n".to_owned()),
        Some((method, target)) => match path_of(&target) {
            path @ ("/" | "/metrics") => match (method.as_str(), path) {
                ("GET" | "HEAD", "/") => ("200 OK", html, INDEX.to_owned()),
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
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let body = if is_head { "" } else { &body };
    stream.write_all(format!("{head}{body}").as_bytes())?;
    stream.shutdown(Shutdown::Write)
}

/// Returns the path of a target. A proxy gets targets with scheme and host (RFC 9112, 3.2.2).
fn path_of(target: &str) -> &str {
    let path = match target.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |path| &rest[path..]),
        None => target,
    };
    path.split('?').next().unwrap_or_default()
}

/// Reads the method and the target of a request. Returns `None` for a malformed or too long request.
fn read_request(stream: &mut TcpStream) -> io::Result<Option<(String, String)>> {
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
fn parse(bytes: &[u8]) -> Result<Option<(String, String)>, httparse::Error> {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    if request.parse(bytes)? == Status::Partial {
        return Ok(None);
    }
    let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
    Ok(Some((text(request.method), text(request.path))))
}
