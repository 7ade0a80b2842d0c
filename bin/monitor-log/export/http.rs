//! The HTTP endpoint that Prometheus scrapes.

use std::io::{self, Cursor};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use plmkit_cli::{Exit, Fault};
use plmkit_contract::io_text;
use plmkit_telemetry::export::{Family, Format, encode};
use tiny_http::{Header, Method, Request, Response, Server};
use tracing::info;

/// A client that does not read its answer keeps one of these, and not the others.
const HANDLERS: usize = 4;

const INDEX: &str = "<!DOCTYPE html>\n<title>plmkit monitor-log</title>\n<p>plmkit monitor-log: <a href=\"/metrics\">metrics</a></p>\n";

/// A port that is held and not served yet.
pub(super) struct Endpoint {
    server: Server,
}

/// What scrapes are answered with.
#[derive(Clone)]
pub(super) struct Snapshot(Arc<Mutex<Arc<Vec<Family>>>>);

impl Endpoint {
    /// Takes the port, so that one in use is said before anything else is done.
    pub(super) fn listen(address: SocketAddr) -> Result<Self, Fault> {
        let cannot = |reason: &str| {
            Fault::new(
                Exit::CannotCreate,
                format!("--listen {address}: cannot listen: {reason}"),
            )
        };
        let listener = TcpListener::bind(address).map_err(|error| cannot(&io_text(&error).to_string()))?;
        let server =
            Server::from_listener(listener, None).map_err(|error| cannot(&error.to_string()))?;
        Ok(Self { server })
    }

    /// Answers with `families`, and with what they are replaced by, until the process ends.
    pub(super) fn serve(self, families: Vec<Family>) -> io::Result<Snapshot> {
        let snapshot = Snapshot(Arc::new(Mutex::new(Arc::new(families))));
        let server = Arc::new(self.server);
        for number in 0..HANDLERS {
            let (server, snapshot) = (Arc::clone(&server), snapshot.clone());
            thread::Builder::new()
                .name(format!("http-{number}"))
                .spawn(move || {
                    for request in server.incoming_requests() {
                        let response = answer(&request, &snapshot);
                        // A client that has gone needs no answer.
                        let _ = request.respond(response);
                    }
                })?;
        }
        info!("serving http://{}/metrics", server.server_addr());
        Ok(snapshot)
    }
}

impl Snapshot {
    /// From now on scrapes are answered with `families`.
    pub(super) fn replace(&self, families: Vec<Family>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(families);
    }

    fn get(&self) -> Arc<Vec<Family>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn answer(request: &Request, snapshot: &Snapshot) -> Response<Cursor<Vec<u8>>> {
    let path = request.url().split('?').next().unwrap_or_default();
    let known = matches!(path, "/" | "/metrics");
    if !known {
        return text("not found: see /metrics\n", "text/plain; charset=utf-8").with_status_code(404);
    }
    if !matches!(request.method(), Method::Get | Method::Head) {
        return text("only GET and HEAD\n", "text/plain; charset=utf-8")
            .with_status_code(405)
            .with_header(header("Allow", "GET, HEAD"));
    }
    if path == "/" {
        return text(INDEX, "text/html; charset=utf-8");
    }
    let accept = request.headers().iter().filter(|header| header.field.equiv("Accept"));
    let accept: Vec<&str> = accept.map(|header| header.value.as_str()).collect();
    let format = Format::accepted(&accept.join(","));
    text(&encode(&snapshot.get(), format), format.content_type())
        // A cache between must not give one form to who asked for the other.
        .with_header(header("Vary", "Accept"))
}

fn text(body: &str, content_type: &str) -> Response<Cursor<Vec<u8>>> {
    Response::from_data(body).with_header(header("Content-Type", content_type))
}

fn header(name: &str, value: &str) -> Header {
    Header::from_bytes(name, value).expect("headers of this file are ASCII")
}
