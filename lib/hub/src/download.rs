//! Fetching a model in the background, with progress, a timeout and a stop.

use std::path::{PathBuf, absolute};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use plmkit_kit::{Fault, Stop, catch_decoder_panic, one_line};

use crate::fetch::{DownloadEvent, fetch};
use crate::{HubError, ModelId, Settings};

/// How long a server may send nothing. The Hub's own library may take as long to retry a request.
const SILENCE_LIMIT: Duration = Duration::from_mins(1);

/// Time between two checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Fetches the model and returns its snapshot.
///
/// A file moves into the cache when it is complete, and a branch or tag is updated when all files of its snapshot are present. The
/// next run continues a partial file.
pub(crate) fn download(
    id: &ModelId,
    settings: &Settings,
    show: &mut dyn FnMut(DownloadEvent),
    stop: &Stop,
) -> Result<PathBuf, HubError> {
    let cache = settings.cache()?;
    check_access(settings)?;
    let cache = absolute(cache).unwrap_or_else(|_| cache.to_owned());
    let (job_id, settings) = (id.clone(), settings.clone());
    let (sender, events) = channel();
    // The client can neither be stopped nor time out on a silent server. So it has a thread of its own, which is abandoned if it
    // does not end. The thread leaves the same files as a killed process.
    let thread = thread::spawn(move || {
        let send = |event| drop(sender.send(event));
        catch_decoder_panic(|| fetch(&job_id, &cache, &settings, &send))
    });
    wait(id, &events, show, SILENCE_LIMIT, stop)?;
    let ended = thread.join().unwrap_or_else(|_| Err("ended".to_owned()));
    ended.unwrap_or_else(|panic| Err(HubError::answer(&id.to_string(), &panic)))
}

/// Shows events until the download ends. It fails if the server is silent, or if it is stopped.
fn wait(
    id: &ModelId,
    events: &Receiver<DownloadEvent>,
    show: &mut dyn FnMut(DownloadEvent),
    silence_limit: Duration,
    stop: &Stop,
) -> Result<(), HubError> {
    let failed = |what: String| Err(HubError::network(&id.to_string(), &what));
    let mut last = Instant::now();
    loop {
        if stop.requested() {
            return Err(HubError::Stopped);
        }
        let event = match events.recv_timeout(POLL_INTERVAL) {
            Ok(event) => event,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(_) if last.elapsed() < silence_limit => continue,
            Err(_) => return failed(format!("nothing came for {} s", silence_limit.as_secs())),
        };
        last = Instant::now();
        show(event);
    }
}

/// Checks the server's address, and that the token can be sent in a header.
fn check_access(settings: &Settings) -> Result<(), HubError> {
    if let Some(found) = &settings.endpoint
        && !found.starts_with("https://")
        && !found.starts_with("http://")
    {
        let found = one_line(found, 80);
        let what = format!(
            "HF_ENDPOINT: expected an address beginning with https:// or http://, found '{found}'"
        );
        return Err(Fault::usage(what).into());
    }
    let mut token = settings.token.iter().flat_map(|token| token.bytes());
    if token.all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    let what = "HF_TOKEN: expected a token of letters, digits and signs, found a blank, a control character or one that is not ASCII in it";
    Err(Fault::usage(what).into())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use plmkit_kit::{Exit, Failure};

    use super::*;

    fn watched(
        stop: &Stop,
        events: &Receiver<DownloadEvent>,
        silence_limit: Duration,
    ) -> (Result<(), HubError>, String) {
        let mut recorded = String::new();
        let mut show = |event| match event {
            DownloadEvent::File(file, bytes) => _ = write!(recorded, "{file} {bytes}:"),
            DownloadEvent::Bytes(bytes) => _ = write!(recorded, " {bytes}"),
            DownloadEvent::Complete => recorded += ".",
        };
        let id = ModelId::parse("some/model").unwrap();
        let ended = wait(&id, events, &mut show, silence_limit, stop);
        (ended, recorded)
    }

    #[test]
    fn events_are_passed_on() {
        let (sender, events) = channel();
        for event in [
            DownloadEvent::File("a".to_owned(), 7),
            DownloadEvent::Bytes(3),
            DownloadEvent::Bytes(4),
            DownloadEvent::Complete,
        ] {
            sender.send(event).unwrap();
        }
        drop(sender);
        let (ended, recorded) = watched(&Stop::default(), &events, SILENCE_LIMIT);
        assert_eq!(recorded, "a 7: 3 4.");
        assert!(ended.is_ok());
    }

    #[test]
    fn a_silent_server_and_a_stop_end_the_wait() {
        let (_sender, events) = channel();
        let (ended, _) = watched(&Stop::default(), &events, POLL_INTERVAL);
        let error = ended.unwrap_err();
        assert_eq!(error.exit(), Exit::Transient, "{error}");
        assert!(matches!(error, HubError::Refused(_)));
        let stop = Stop::default();
        stop.request();
        let (ended, _) = watched(&stop, &events, SILENCE_LIMIT);
        assert!(matches!(ended, Err(HubError::Stopped)), "{ended:?}");
    }
}
