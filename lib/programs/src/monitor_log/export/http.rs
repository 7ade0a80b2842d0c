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

const TEXT: &str = "text/plain; charset=utf-8";

/// The text that scrapes get.
pub(super) type ServedText = Arc<Mutex<String>>;

/// Takes the port, before anything else is done.
pub(super) fn listen(address: SocketAddr) -> Result<TcpListener, Fault> {
    TcpListener::bind(address).map_err(|error| {
        let what = format!("--listen {address}: cannot listen");
        Fault::of_system(Exit::CannotCreate, what, &error)
    })
}

/// Serves a text in a new thread, until the process ends.
pub(super) fn serve(listener: TcpListener, served: ServedText) -> io::Result<()> {
    let address = listener.local_addr()?;
    let accept = move || {
        loop {
            let Ok((stream, _)) = listener.accept() else {
                thread::sleep(ACCEPT_RETRY);
                continue;
            };
            // A client that is slow keeps no other out. A lost one, or a system without room for a thread, needs no answer.
            let (scrape, served) = (thread::Builder::new(), Arc::clone(&served));
            let scrape = scrape.name("scrape".to_owned());
            let _ = scrape.spawn(move || answer(&stream, &served));
        }
    };
    let http = thread::Builder::new().name("http".to_owned());
    http.spawn(accept)?;
    info!("serving http://{address}/metrics");
    Ok(())
}

/// Reads the head of a request and answers it.
fn answer(mut stream: &TcpStream, served: &Mutex<String>) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let end = Instant::now() + TIMEOUT;
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    let (is_head, status, kind, text) = loop {
        let mut headers = [EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let parsed = request.parse(&bytes);
        let is_head = request.method == Some("HEAD");
        let path = request.path.and_then(|path| path.split('?').next());
        match (parsed, request.method) {
            (Ok(Status::Partial), _) if bytes.len() < MAX_REQUEST_BYTES => {}
            (Ok(Status::Complete(_)), Some("GET" | "HEAD")) if path == Some("/metrics") => {
                let text = served.lock().unwrap_or_else(PoisonError::into_inner);
                break (is_head, "200 OK", CONTENT_TYPE, text.clone());
            }
            (Ok(Status::Complete(_)), Some("GET" | "HEAD")) => {
                let text = "not found: see /metrics\n".to_owned();
                break (is_head, "404 Not Found", TEXT, text);
            }
            (Ok(Status::Complete(_)), _) => {
                let status = "405 Method Not Allowed\r\nAllow: GET, HEAD";
                break (false, status, TEXT, "only GET and HEAD\n".to_owned());
            }
            _ => break (false, "400 Bad Request", TEXT, "not a request\n".to_owned()),
        }
        // The timeout is for the entire request; a read without a time is an error.
        stream.set_read_timeout(Some(end.saturating_duration_since(Instant::now())))?;
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&part[..count]);
    };
    let (length, body) = (text.len(), if is_head { "" } else { &text });
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes())?;
    stream.shutdown(Shutdown::Write)
}
