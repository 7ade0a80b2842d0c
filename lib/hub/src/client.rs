//! Requests to a Hub: redirects, and waits that a busy server asks for.

use std::cell::Cell;
use std::thread::sleep;
use std::time::Duration;

use chrono::{DateTime, Utc};
use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Body};

use crate::{DownloadEvent, HubError, Settings};

/// The most seconds that a download waits in all because a server asks for it.
const LONGEST_WAIT: u64 = 600;

/// The most redirects of a request.
const REDIRECTS: usize = 10;

/// Requests files, for a download.
pub(crate) struct Client<'a> {
    agent: Agent,
    token: Option<&'a str>,
    /// How many more seconds a server can ask to wait.
    left: Cell<u64>,
    send: &'a dyn Fn(DownloadEvent),
}

impl<'a> Client<'a> {
    pub(crate) fn new(settings: &'a Settings, send: &'a dyn Fn(DownloadEvent)) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("plmkit/", env!("CARGO_PKG_VERSION")))
            // A size and a range are those of the file.
            .accept_encoding("identity");
        let (agent, token) = (config.build().into(), settings.token.as_deref());
        let left = Cell::new(LONGEST_WAIT);
        Self {
            agent,
            token,
            left,
            send,
        }
    }

    /// Requests `url` from a byte on. Errors are those of `named`. Returns the headers of the Hub's own answer, which can lead to
    /// another server, and the last answer.
    pub(crate) fn get(
        &self,
        named: &str,
        url: &str,
        start: u64,
    ) -> Result<(HeaderMap, Response<Body>), HubError> {
        let (mut at, mut headers, mut redirects) = (url.to_owned(), None, 0);
        // Each wait shortens what is left of all.
        while redirects <= REDIRECTS {
            let mut request = self.agent.get(&at);
            if start > 0 {
                request = request.header("range", format!("bytes={start}-"));
            }
            // Another server gets no token.
            let token = self.token.filter(|_| origin(&at) == origin(url));
            if let Some(token) = token {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            let answer = request.call();
            let answer = answer.map_err(|error| HubError::from_request(named, error))?;
            let text = |name| header(answer.headers(), name);
            match answer.status().as_u16() {
                // 416: the range is beyond the file.
                200..300 | 416 => return Ok((headers.unwrap_or(answer.headers().clone()), answer)),
                300..400 => {
                    redirects += 1;
                    at = match text("location").unwrap_or_default() {
                        path if path.starts_with('/') => format!("{}{path}", origin(&at)),
                        other => other.to_owned(),
                    };
                    if origin(&at) != origin(url) {
                        headers.get_or_insert(answer.headers().clone());
                    }
                }
                status => self.wait(named, status, text("retry-after"), token.is_some())?,
            }
        }
        Err(HubError::answer(named, "too many redirects"))
    }

    /// Waits as a busy server asks. Any other status is an error, and so is a wait that is too long.
    fn wait(
        &self,
        named: &str,
        status: u16,
        told: Option<&str>,
        has_token: bool,
    ) -> Result<(), HubError> {
        let told = told.and_then(|told| seconds(told, Utc::now()));
        let left = told.and_then(|told| self.left.get().checked_sub(told));
        let (Some(told), Some(left), 408 | 429 | 500..) = (told, left, status) else {
            return Err(HubError::from_status(named, status, has_token, told));
        };
        tracing::warn!(
            "{named}: the server answers with status {status}; waiting {told} s, as it asks"
        );
        self.left.set(left);
        for _ in 0..told {
            sleep(Duration::from_secs(1));
            (self.send)(DownloadEvent::Bytes(0));
        }
        Ok(())
    }
}

/// Returns a header that is text.
pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Returns the seconds that a `Retry-After` asks for, which has them or a date.
fn seconds(told: &str, now: DateTime<Utc>) -> Option<u64> {
    let date = || DateTime::parse_from_rfc2822(told).ok();
    let until = || Some((date()?.to_utc() - now).num_seconds() + 1);
    let seconds = told.parse().ok().or_else(|| Some(until()?.max(0) as u64));
    seconds.map(|seconds| seconds.max(1))
}

/// Returns scheme and server of an address.
fn origin(url: &str) -> &str {
    let end = url.match_indices('/').nth(2);
    end.map_or(url, |(end, _)| &url[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_asks_for_a_wait_by_seconds_or_a_date() {
        let now = "2026-11-28T18:00:00Z".parse().unwrap();
        for (told, expected) in [
            ("30", Some(30)),
            ("0", Some(1)),
            ("Sat, 28 Nov 2026 18:02:00 GMT", Some(121)),
            ("Sat, 28 Nov 2026 17:00:00 GMT", Some(1)),
            ("soon", None),
            ("-1", None),
        ] {
            assert_eq!(seconds(told, now), expected, "{told}");
        }
    }

    #[test]
    fn a_token_is_for_one_server() {
        let of = "https://hub.org/some/model";
        for (url, same) in [
            ("https://hub.org", true),
            ("http://hub.org/some/model", false),
            ("https://hub.org:8443/some/model", false),
            ("https://hub.org.evil/some/model", false),
        ] {
            assert_eq!(origin(url) == origin(of), same, "{url}");
        }
    }
}
