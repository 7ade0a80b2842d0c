//! The HTTP endpoint that Prometheus scrapes.

mod connection;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use plmkit_cli::{Exit, Fault};
use plmkit_contract::io_text;
use plmkit_telemetry::export::CONTENT_TYPE;
use tracing::info;

use connection::{Answer, Request};

/// Connections at a time: those of a few servers, and of clients that say nothing until they are hung up on.
const MOST: usize = 64;

/// Where no connection can be taken, as when this process has no file descriptors left, some may be free soon.
const BREATH: Duration = Duration::from_millis(100);

const INDEX: &str = "<!DOCTYPE html>\n<title>plmkit monitor-log</title>\n<p>plmkit monitor-log: <a href=\"/metrics\">metrics</a></p>\n";
const TEXT: &str = "text/plain; charset=utf-8";

/// A port that is held and not served yet.
pub(super) struct Endpoint {
    listener: TcpListener,
    address: SocketAddr,
}

/// What scrapes are answered with.
#[derive(Clone)]
pub(super) struct ServedText(Arc<Mutex<String>>);

impl Endpoint {
    /// Takes the port, so that one in use is said before anything else is done.
    pub(super) fn listen(address: SocketAddr) -> Result<Self, Fault> {
        let taken = TcpListener::bind(address)
            .and_then(|listener| Ok((listener.local_addr()?, listener)))
            .map_err(|error| {
                Fault::new(
                    Exit::CannotCreate,
                    format!("--listen {address}: cannot listen: {}", io_text(&error)),
                )
            });
        taken.map(|(address, listener)| Self { listener, address })
    }

    /// Answers with `text`, and with what replaces it, until the process ends.
    pub(super) fn serve(self, text: String) -> io::Result<ServedText> {
        let text = ServedText(Arc::new(Mutex::new(text)));
        let served = text.clone();
        thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || accept(&self.listener, &served))?;
        info!("serving http://{}/metrics", self.address);
        Ok(text)
    }
}

impl ServedText {
    /// Replaces the text for all scrapes to come.
    pub(super) fn replace(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    fn get(&self) -> String {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A thread for each connection: a client that does not read its answer keeps its own, for a time.
fn accept(listener: &TcpListener, served: &ServedText) {
    // Each thread holds one as long as it runs.
    let connections = Arc::new(());
    loop {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(BREATH);
            continue;
        };
        if Arc::strong_count(&connections) > MOST {
            continue;
        }
        let (served, connection) = (served.clone(), Arc::clone(&connections));
        // A client that has gone or says nothing, and a system without room for a thread, need no answer.
        let _ = thread::Builder::new()
            .name("scrape".to_owned())
            .spawn(move || {
                let _ = connection::serve(stream, |request| answer(request, &served));
                drop(connection);
            });
    }
}

/// The path of a target, which a proxy may be given with scheme and host (RFC 9112, 3.2.2).
fn path_of(target: &str) -> &str {
    let path = match target.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |path| &rest[path..]),
        None => target,
    };
    path.split('?').next().unwrap_or_default()
}

fn answer(request: &Request, served: &ServedText) -> Answer {
    let path = path_of(&request.target);
    if !matches!(path, "/" | "/metrics") {
        return Answer::new("404 Not Found", TEXT, "not found: see /metrics\n");
    }
    if !matches!(request.method.as_str(), "GET" | "HEAD") {
        return Answer::new("405 Method Not Allowed", TEXT, "only GET and HEAD\n")
            .with("Allow: GET, HEAD");
    }
    if path == "/" {
        return Answer::new("200 OK", "text/html; charset=utf-8", INDEX);
    }
    Answer::new("200 OK", CONTENT_TYPE, &served.get())
}
