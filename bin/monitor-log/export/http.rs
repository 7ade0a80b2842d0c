//! The HTTP endpoint that Prometheus scrapes (RFC 9112). Each connection has one request.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use httparse::{EMPTY_HEADER, Status};
use plmkit_cli::{Exit, Fault};
use plmkit_telemetry::export::CONTENT_TYPE;
use tracing::info;

/// Pause after a failed accept: a process without free file descriptors may have some again soon.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How long a client may take to send its request, and to read the answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Ten times the size of Prometheus' requests.
const MAX_REQUEST_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 64;

/// The text that scrapes get.
#[derive(Clone)]
pub(super) struct ServedText(Arc<Mutex<String>>);

impl ServedText {
    /// Replaces the text for all later scrapes.
    pub(super) fn replace(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    /// Returns the status, the media type and the text of a path.
    fn answer(&self, path: &str) -> (&'static str, &'static str, String) {
        if path.split('?').next() == Some("/metrics") {
            let text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            return ("200 OK", CONTENT_TYPE, text.clone());
        }
        let text = "not found: see /metrics\n".to_owned();
        ("404 Not Found", TEXT, text)
    }
}

const TEXT: &str = "text/plain; charset=utf-8";

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
    let text = ServedText(Arc::new(Mutex::new(text)));
    let served = text.clone();
    thread::Builder::new()
        .name("http".to_owned())
        .spawn(move || accept(&listener, &served))?;
    info!("serving http://{address}/metrics");
    Ok(text)
}

/// Starts a thread for each connection: a client that is slow keeps no other out.
fn accept(listener: &TcpListener, served: &ServedText) {
    loop {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(ACCEPT_RETRY);
            continue;
        };
        let served = served.clone();
        // A lost client, or a system without room for a thread, needs no answer.
        let _ = thread::Builder::new()
            .name("scrape".to_owned())
            .spawn(move || answer(&stream, &served));
    }
}

/// Reads the head of a request and answers it.
fn answer(mut stream: &TcpStream, served: &ServedText) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let end = Instant::now() + TIMEOUT;
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    let (method, (status, content_type, text)) = loop {
        let mut headers = [EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let parsed = request.parse(&bytes);
        if let (Ok(Status::Complete(_)), Some(method)) = (parsed, request.method) {
            let answer = match method {
                "GET" | "HEAD" => served.answer(request.path.unwrap_or_default()),
                _ => (
                    "405 Method Not Allowed\r\nAllow: GET, HEAD",
                    TEXT,
                    "only GET and HEAD\n".to_owned(),
                ),
            };
            break (method.to_owned(), answer);
        }
        if parsed != Ok(Status::Partial) || bytes.len() >= MAX_REQUEST_BYTES {
            let refused = ("400 Bad Request", TEXT, "not a request\n".to_owned());
            break (String::new(), refused);
        }
        // The timeout is for the entire request; a read without a time is an error.
        stream.set_read_timeout(Some(end.saturating_duration_since(Instant::now())))?;
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&part[..count]);
    };
    let length = text.len();
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    if method != "HEAD" {
        answer.push_str(&text);
    }
    stream.write_all(answer.as_bytes())?;
    stream.shutdown(Shutdown::Write)
}
