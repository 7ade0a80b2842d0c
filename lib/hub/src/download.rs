//! Fetching a model in the background, with progress, a timeout and a stop.

use std::path::{PathBuf, absolute};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use plmkit_contract::{Stop, catch_decoder_panic, one_line};

use crate::fetch::{DownloadEvent, fetch};
use crate::{HubError, ModelId, Settings};

/// How long a server may send nothing. The Hub's own library may take as long to retry a request.
const SILENCE_LIMIT: Duration = Duration::from_mins(1);

/// Time between two checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Shows the progress of a download.
pub trait DownloadProgress {
    /// A file of `bytes` bytes is being fetched.
    fn start_file(&mut self, file: &str, bytes: u64);
    /// `bytes` more bytes of the file are present, those of an earlier attempt included.
    fn add_bytes(&mut self, bytes: u64);
    /// The file is complete.
    fn end_file(&mut self);
}

/// Fetches the model and returns its snapshot.
///
/// A file moves into the cache when it is complete, and a branch or tag is updated when all files of its snapshot are present. The
/// next run continues a partial file.
pub(crate) fn download(
    id: &ModelId,
    settings: &Settings,
    progress: &mut dyn DownloadProgress,
    stop: &Stop,
) -> Result<PathBuf, HubError> {
    let cache = settings.cache()?;
    check_access(settings)?;
    let cache = absolute(cache).unwrap_or_else(|_| cache.to_owned());
    let (job_id, settings) = (id.clone(), settings.clone());
    let (sender, events) = channel();
    // The client can neither be stopped nor time out on a silent server. So it has a thread of its own, which is abandoned if it
    // does not end. The thread leaves the same files as a killed process.
    thread::spawn(move || {
        let send = |event| drop(sender.send(event));
        let ended = catch_decoder_panic(|| fetch(&job_id, &cache, &settings, &send));
        let ended =
            ended.unwrap_or_else(|panic| Err(HubError::answer(&job_id.to_string(), &panic)));
        drop(sender.send(DownloadEvent::Ended(ended)));
    });
    wait(id, &events, progress, SILENCE_LIMIT, stop)
}

/// Passes events on until the download ends, fails or is stopped.
fn wait(
    id: &ModelId,
    events: &Receiver<DownloadEvent>,
    progress: &mut dyn DownloadProgress,
    silence_limit: Duration,
    stop: &Stop,
) -> Result<PathBuf, HubError> {
    let failed = |what: String| Err(HubError::network(&id.to_string(), &what));
    let mut last = Instant::now();
    let (mut announced, mut received, mut partial) = (u64::MAX, 0, PathBuf::new());
    loop {
        if stop.requested() {
            return Err(HubError::Stopped);
        }
        let event = match events.recv_timeout(POLL_INTERVAL) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) if last.elapsed() < silence_limit => continue,
            Err(_) => return failed(format!("nothing came for {} s", silence_limit.as_secs())),
        };
        last = Instant::now();
        match event {
            DownloadEvent::File { name, bytes, part } => {
                (announced, received, partial) = (bytes, 0, part);
                progress.start_file(&name, bytes);
            }
            DownloadEvent::Bytes(bytes) => {
                received += bytes;
                // The client itself would read as long as the server sends.
                if received > announced {
                    // The next run must not continue it.
                    let _ = std::fs::remove_file(&partial);
                    return failed(format!("expected {announced} bytes, the server sends more"));
                }
                progress.add_bytes(bytes);
            }
            DownloadEvent::Complete => progress.end_file(),
            DownloadEvent::Alive => {}
            DownloadEvent::Ended(ended) => return ended,
        }
    }
}

/// Checks the server's address, and that the token can be sent in a header.
fn check_access(settings: &Settings) -> Result<(), HubError> {
    if let Some(found) = &settings.endpoint
        && !found.starts_with("https://")
        && !found.starts_with("http://")
    {
        let found = one_line(found, 80);
        return Err(HubError::Setting(format!(
            "HF_ENDPOINT: expected an address beginning with https:// or http://, found '{found}'"
        )));
    }
    let mut token = settings.token.iter().flat_map(|token| token.bytes());
    if token.all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    let what = "HF_TOKEN: expected a token of letters, digits and signs, found a blank, a control character or one that is not ASCII in it";
    Err(HubError::Setting(what.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;

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
        silence_limit: Duration,
    ) -> (Result<PathBuf, HubError>, String) {
        let mut recorded = Recorded::default();
        let id = ModelId::parse("some/model").unwrap();
        (
            wait(&id, events, &mut recorded, silence_limit, stop),
            recorded.0,
        )
    }

    #[test]
    fn events_are_passed_on_up_to_the_announced_size() {
        let name = "a".to_owned();
        let begin = || DownloadEvent::File {
            name: name.clone(),
            bytes: 7,
            part: PathBuf::new(),
        };
        let ended = || DownloadEvent::Ended(Ok("snapshot".into()));
        let bytes = DownloadEvent::Bytes;
        for (sent, is_ok, shown) in [
            (
                vec![
                    begin(),
                    bytes(3),
                    bytes(4),
                    DownloadEvent::Complete,
                    ended(),
                ],
                true,
                "a 7: 3 4.",
            ),
            (vec![begin(), bytes(7), bytes(1), ended()], false, "a 7: 7"),
        ] {
            let (sender, events) = channel();
            for event in sent {
                sender.send(event).unwrap();
            }
            let (ended, recorded) = watched(&Stop::default(), &events, SILENCE_LIMIT);
            assert_eq!(recorded, shown);
            match ended {
                Ok(snapshot) => assert!(is_ok && snapshot == Path::new("snapshot")),
                Err(error) => assert!(matches!(error, HubError::Unavailable(_)) && !is_ok),
            }
        }
    }

    #[test]
    fn a_silent_server_and_a_stop_end_the_wait() {
        let (_sender, events) = channel();
        let (ended, _) = watched(&Stop::default(), &events, POLL_INTERVAL);
        assert!(matches!(ended, Err(HubError::Unavailable(_))), "{ended:?}");
        let stop = Stop::default();
        stop.request();
        let (ended, _) = watched(&stop, &events, SILENCE_LIMIT);
        assert!(matches!(ended, Err(HubError::Stopped)), "{ended:?}");
    }
}
