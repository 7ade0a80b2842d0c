//! Fetching a model, watched.

use std::path::{PathBuf, absolute};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use plmkit_contract::{Stop, guarded};

use crate::fetch::{DownloadEvent, DownloadJob};
use crate::{HubError, ModelId, Settings};

/// How long a server may send nothing: as long as a request of the Hub's own library may take to be retried.
const PATIENCE: Duration = Duration::from_mins(1);

/// How often a request to stop is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// Shows how far a download is.
pub trait DownloadProgress {
    /// A file of so many bytes is being fetched.
    fn start_file(&mut self, file: &str, bytes: u64);
    /// So many more bytes of the file are there, those of an earlier attempt included.
    fn add_bytes(&mut self, bytes: u64);
    /// The file is there.
    fn end_file(&mut self);
}

/// Fetches the model and gives its snapshot.
///
/// A file is fetched beside the cache's own and moved among them when it is whole, and a branch or tag leads to the
/// new snapshot only when all of its files are there. What an interrupted run has fetched of a file is kept for the
/// next one.
pub(crate) fn download(
    id: &ModelId,
    settings: &Settings,
    progress: &mut dyn DownloadProgress,
    stop: &Stop,
) -> Result<PathBuf, HubError> {
    let cache = settings.cache.as_deref().ok_or(HubError::NoCache)?;
    let job = DownloadJob {
        id: id.clone(),
        cache: absolute(cache).unwrap_or_else(|_| cache.to_owned()),
        endpoint: endpoint(settings)?,
        token: token(settings)?,
    };
    let (sender, events) = channel();
    // A thread of its own, which is left behind when it does not end: the client can neither be stopped nor
    // to give up on a server that says nothing. What it leaves on the disk is what a killed process leaves.
    thread::spawn(move || {
        let ended = guarded(|| job.run(&|event| drop(sender.send(event))));
        let ended = ended.map(|ended| match job.token {
            Some(_) => ended.map_err(HubError::with_token),
            None => ended,
        });
        let ended = ended.unwrap_or_else(|panic| Err(HubError::Answer(job.id.to_string(), panic)));
        drop(sender.send(DownloadEvent::Ended(ended)));
    });
    wait(id, &events, progress, PATIENCE, stop)
}

/// Passes events on until the download has ended, failed or been stopped.
fn wait(
    id: &ModelId,
    events: &Receiver<DownloadEvent>,
    progress: &mut dyn DownloadProgress,
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
                    DownloadEvent::File { name, bytes } => {
                        (announced, received) = (bytes, 0);
                        progress.start_file(&name, bytes);
                    }
                    DownloadEvent::Bytes(bytes) => {
                        received += bytes;
                        // The client would read on for as long as the server sends.
                        if received > announced {
                            return Err(HubError::Network(
                                id.to_string(),
                                format!("expected {announced} bytes, the server sends more"),
                            ));
                        }
                        progress.add_bytes(bytes);
                    }
                    DownloadEvent::Whole => progress.end_file(),
                    DownloadEvent::Alive => {}
                    DownloadEvent::Ended(ended) => return ended,
                }
            }
            Err(RecvTimeoutError::Timeout) if last.elapsed() < patience => {}
            Err(_) => {
                return Err(HubError::Network(
                    id.to_string(),
                    format!("nothing came for {} s", patience.as_secs()),
                ));
            }
        }
    }
}

/// The server that is to be asked, where it is not the Hub.
fn endpoint(settings: &Settings) -> Result<Option<String>, HubError> {
    match &settings.endpoint {
        Some(found) if !found.starts_with("https://") && !found.starts_with("http://") => {
            Err(HubError::Endpoint(found.clone()))
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
    struct Recorded(String);

    impl DownloadProgress for Recorded {
        fn start_file(&mut self, file: &str, bytes: u64) {
            let _ = write!(self.0, "{file} {bytes}:");
        }

        fn add_bytes(&mut self, bytes: u64) {
            let _ = write!(self.0, " {bytes}");
        }

        fn end_file(&mut self) {
            self.0 += ".";
        }
    }

    fn watched(
        stop: &Stop,
        events: &Receiver<DownloadEvent>,
        patience: Duration,
    ) -> (Result<PathBuf, HubError>, String) {
        let mut recorded = Recorded::default();
        let id = ModelId::parse("some/model").unwrap();
        (wait(&id, events, &mut recorded, patience, stop), recorded.0)
    }

    #[test]
    fn the_observer_sees_what_comes() {
        let (sender, events) = channel();
        for event in [
            DownloadEvent::File {
                name: "a".to_owned(),
                bytes: 7,
            },
            DownloadEvent::Bytes(3),
            DownloadEvent::Bytes(4),
            DownloadEvent::Whole,
            DownloadEvent::Ended(Ok("snapshot".into())),
        ] {
            sender.send(event).unwrap();
        }
        let (ended, recorded) = watched(&Stop::default(), &events, PATIENCE);
        assert_eq!(ended.unwrap(), PathBuf::from("snapshot"));
        assert_eq!(recorded, "a 7: 3 4.");
    }

    #[test]
    fn a_server_that_sends_more_than_it_announced_is_not_listened_to() {
        let (sender, events) = channel();
        let name = "a".to_owned();
        sender.send(DownloadEvent::File { name, bytes: 7 }).unwrap();
        sender.send(DownloadEvent::Bytes(7)).unwrap();
        sender.send(DownloadEvent::Bytes(1)).unwrap();
        let (ended, recorded) = watched(&Stop::default(), &events, PATIENCE);
        assert!(matches!(ended, Err(HubError::Network(..))), "{ended:?}");
        assert_eq!(recorded, "a 7: 7");
    }

    #[test]
    fn a_silent_server_and_a_stop_end_the_wait() {
        let (_sender, events) = channel();
        let (ended, _) = watched(&Stop::default(), &events, LOOK);
        assert!(matches!(ended, Err(HubError::Network(..))), "{ended:?}");
        let stop = Stop::default();
        stop.request();
        let (ended, _) = watched(&stop, &events, PATIENCE);
        assert!(matches!(ended, Err(HubError::Stopped)), "{ended:?}");
    }
}
