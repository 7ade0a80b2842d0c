//! One request and its answer (RFC 9112); the connection ends with them.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use httparse::{EMPTY_HEADER, Status};

/// How long a client has for its request, and again for reading the answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Requests of Prometheus have a tenth of this.
const MOST_BYTES: usize = 16 << 10;
const MOST_HEADERS: usize = 64;

/// What a client asks for.
pub(super) struct Request {
    pub(super) method: String,
    /// The path, with what follows it.
    pub(super) target: String,
}

/// What it gets.
pub(super) struct Answer {
    head: String,
    body: String,
}

impl Answer {
    pub(super) fn new(status: &str, content_type: &str, body: &str) -> Self {
        let length = body.len();
        Self {
            head: format!(
                "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n"
            ),
            body: body.to_owned(),
        }
    }

    /// The same with one more header.
    pub(super) fn with(mut self, header: &str) -> Self {
        self.head += header;
        self.head += "\r\n";
        self
    }
}

/// Reads a request and answers it.
pub(super) fn serve(
    mut stream: TcpStream,
    answer: impl FnOnce(&Request) -> Answer,
) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let (answer, only_head) = match read(&mut stream)? {
        Some(request) => (answer(&request), request.method == "HEAD"),
        None => (
            Answer::new(
                "400 Bad Request",
                "text/plain; charset=utf-8",
                "not a request\n",
            ),
            false,
        ),
    };
    let body = if only_head { "" } else { &answer.body };
    stream.write_all(format!("{}\r\n{body}", answer.head).as_bytes())?;
    stream.shutdown(Shutdown::Write)
}

/// The request, without its body; `None` where it is none, or too long.
fn read(stream: &mut TcpStream) -> io::Result<Option<Request>> {
    let end = Instant::now() + TIMEOUT;
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    while bytes.len() < MOST_BYTES {
        // In all, and not for each byte. A timeout of nothing would be none.
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

/// The request, once all of its head is there.
fn parse(bytes: &[u8]) -> Result<Option<Request>, httparse::Error> {
    let mut headers = [EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    if request.parse(bytes)? == Status::Partial {
        return Ok(None);
    }
    Ok(Some(Request {
        method: request.method.unwrap_or_default().to_owned(),
        target: request.path.unwrap_or_default().to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_there_when_its_head_is() {
        let text = b"GET /metrics?a=b HTTP/1.1\r\nhost: x\r\n\r\n";
        assert!(parse(&text[..text.len() - 1]).unwrap().is_none());
        let request = parse(text).unwrap().unwrap();
        assert_eq!(
            (request.method.as_str(), request.target.as_str()),
            ("GET", "/metrics?a=b")
        );
        assert!(parse(b"\x16\x03\x01 a client that speaks TLS\r\n\r\n").is_err());
        assert!(parse(b"GET /metrics\r\n\r\n").is_err(), "HTTP 0.9");
    }
}
