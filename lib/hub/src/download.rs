//! Fetching a model, watched.

use std::path::{PathBuf, absolute};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use plmkit_contract::{Stop, guarded};

use crate::job::{Event, Job};
use crate::{HubError, ModelId, Settings};

/// How long a server may send nothing: as long as a request of the Hub's own library may take to be retried.
const PATIENCE: Duration = Duration::from_mins(1);

/// How often a request to stop is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// The wish to fetch what the cache lacks.
///
/// A file is fetched beside the cache's own and moved among them when it is whole, and a branch or tag leads to the
/// new snapshot only when all of its files are there. What an interrupted run has fetched of a file is kept for the
/// next one.
pub struct Download<'a> {
    /// Sees how far it is.
    pub observer: &'a mut dyn Observer,
}

/// Sees how far a download is.
pub trait Observer {
    /// A file of so many bytes is being fetched.
    fn started(&mut self, file: &str, bytes: u64);
    /// So many more bytes of it are there, those of an earlier attempt included.
    fn advanced(&mut self, bytes: u64);
    /// It is there.
    fn ended(&mut self);
}

impl Download<'_> {
    /// Fetches the model and gives its snapshot.
    pub(crate) fn run(
        self,
        id: &ModelId,
        settings: &Settings,
        stop: &Stop,
    ) -> Result<PathBuf, HubError> {
        let cache = settings.cache.as_deref().ok_or(HubError::NoCache)?;
        let job = Job {
            id: id.clone(),
            cache: absolute(cache).unwrap_or_else(|_| cache.to_owned()),
            endpoint: endpoint(settings)?,
            token: token(settings)?,
        };
        let (sender, events) = channel();
        // A thread of its own, which is left behind when it does not end: the client can neither be told to stop nor
        // to give up on a server that says nothing. What it leaves on the disk is what a killed process leaves.
        thread::spawn(move || {
            let ended = guarded(|| job.run(&|event| drop(sender.send(event))));
            let ended = ended.map(|ended| match job.token {
                Some(_) => ended.map_err(HubError::with_token),
                None => ended,
            });
            let ended = ended.unwrap_or_else(|panic| {
                Err(HubError::Answer {
                    url: job.id.to_string(),
                    what: panic,
                })
            });
            drop(sender.send(Event::Ended(ended)));
        });
        self.watch(id, &events, PATIENCE, stop)
    }

    fn watch(
        self,
        id: &ModelId,
        events: &Receiver<Event>,
        patience: Duration,
        stop: &Stop,
    ) -> Result<PathBuf, HubError> {
        let mut last = Instant::now();
        let (mut announced, mut received) = (u64::MAX, 0);
        loop {
            if stop.requested() {
                return Err(HubError::Stopped);
            }
            match events.recv_timeout(LOOK) {
                Ok(event) => {
                    last = Instant::now();
                    match event {
                        Event::File { name, bytes } => {
                            (announced, received) = (bytes, 0);
                            self.observer.started(&name, bytes);
                        }
                        Event::Bytes(bytes) => {
                            received += bytes;
                            // The client would read on for as long as the server sends.
                            if received > announced {
                                return Err(HubError::Network {
                                    url: id.to_string(),
                                    what: format!(
                                        "expected {announced} bytes, the server sends more"
                                    ),
                                });
                            }
                            self.observer.advanced(bytes);
                        }
                        Event::Whole => self.observer.ended(),
                        Event::Alive => {}
                        Event::Ended(ended) => return ended,
                    }
                }
                Err(RecvTimeoutError::Timeout) if last.elapsed() < patience => {}
                Err(_) => {
                    return Err(HubError::Network {
                        url: id.to_string(),
                        what: format!("nothing came for {} s", patience.as_secs()),
                    });
                }
            }
        }
    }
}

/// The server that is to be asked, where it is not the Hub.
fn endpoint(settings: &Settings) -> Result<Option<String>, HubError> {
    match &settings.endpoint {
        Some(found) if !found.starts_with("https://") && !found.starts_with("http://") => {
            Err(HubError::Endpoint {
                found: found.clone(),
            })
        }
        endpoint => Ok(endpoint.clone()),
    }
}

/// The token that is to be sent. In the header of a request others than these characters would be an error of the client's.
fn token(settings: &Settings) -> Result<Option<String>, HubError> {
    match &settings.token {
        Some(token) if !token.bytes().all(|byte| byte.is_ascii_graphic()) => Err(HubError::Token),
        token => Ok(token.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[derive(Default)]
    struct Seen(String);

    impl Observer for Seen {
        fn started(&mut self, file: &str, bytes: u64) {
            let _ = write!(self.0, "{file} {bytes}:");
        }

        fn advanced(&mut self, bytes: u64) {
            let _ = write!(self.0, " {bytes}");
        }

        fn ended(&mut self) {
            self.0 += ".";
        }
    }

    fn watch(
        stop: &Stop,
        events: &Receiver<Event>,
        patience: Duration,
    ) -> (Result<PathBuf, HubError>, String) {
        let mut seen = Seen::default();
        let download = Download {
            observer: &mut seen,
        };
        let id = ModelId::parse("some/model").unwrap();
        (download.watch(&id, events, patience, stop), seen.0)
    }

    #[test]
    fn the_observer_sees_what_comes() {
        let (sender, events) = channel();
        for event in [
            Event::File {
                name: "a".to_owned(),
                bytes: 7,
            },
            Event::Bytes(3),
            Event::Bytes(4),
            Event::Whole,
            Event::Ended(Ok("snapshot".into())),
        ] {
            sender.send(event).unwrap();
        }
        let (ended, seen) = watch(&Stop::default(), &events, PATIENCE);
        assert_eq!(ended.unwrap(), PathBuf::from("snapshot"));
        assert_eq!(seen, "a 7: 3 4.");
    }

    #[test]
    fn a_server_that_sends_more_than_it_announced_is_not_listened_to() {
        let (sender, events) = channel();
        let name = "a".to_owned();
        sender.send(Event::File { name, bytes: 7 }).unwrap();
        sender.send(Event::Bytes(7)).unwrap();
        sender.send(Event::Bytes(1)).unwrap();
        let (ended, seen) = watch(&Stop::default(), &events, PATIENCE);
        assert!(matches!(ended, Err(HubError::Network { .. })), "{ended:?}");
        assert_eq!(seen, "a 7: 7");
    }

    #[test]
    fn a_silent_server_and_a_stop_end_the_wait() {
        let (_sender, events) = channel();
        let (ended, _) = watch(&Stop::default(), &events, LOOK);
        assert!(matches!(ended, Err(HubError::Network { .. })), "{ended:?}");
        let stop = Stop::default();
        stop.request();
        let (ended, _) = watch(&stop, &events, PATIENCE);
        assert!(matches!(ended, Err(HubError::Stopped)), "{ended:?}");
    }
}
