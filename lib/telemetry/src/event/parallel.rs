//! Reading a long log with all cores.

use std::io::{self, Read};
use std::num::NonZero;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

use plmkit_store::open_input;

use super::{Event, EventReader};
use crate::TelemetryError;
use crate::log::MAX_LINE;

/// Bytes that a thread parses at a time, a line more or less: enough that handing them on costs nothing, few enough that
/// their events fit into a cache. No less than the longest line.
const CHUNK: usize = MAX_LINE as usize;

/// More threads than this wait for the one that takes the events.
const MOST_THREADS: usize = 4;

/// Chunks that may wait before and behind each thread.
const WAITING: usize = 2;

/// Hands every event of the log at `path` to `each`, in the order of the lines. Whether a last line without its newline was
/// left out.
///
/// It says the same as an [`EventReader`], and what comes before a line with an error was handed over; but lines are parsed
/// by several threads, since a parse takes ten times as long as what a report does with the event.
///
/// ```
/// use plmkit_telemetry::event::{Event, for_each_event};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("events.jsonl");
/// std::fs::write(&path, "{\"type\":\"run\",\"run\":\"r\"}\n{\"type\":\"ba")?;
/// let mut events = Vec::new();
/// let torn = for_each_event(&path, |event| events.push(event))?;
/// assert!(torn && matches!(&events[..], [Event::Run(run)] if run.run == "r"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn for_each_event(path: &Path, each: impl FnMut(Event)) -> Result<bool, TelemetryError> {
    let source = open_input(path)?;
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    read(source, path, cores.min(MOST_THREADS), each)
}

/// What a thread made of a chunk.
struct Parsed {
    events: Vec<Event>,
    /// Lines of the chunk up to its end or to an error.
    lines: u64,
    torn: bool,
    error: Option<TelemetryError>,
}

fn read(
    source: impl Read + Send,
    path: &Path,
    threads: usize,
    mut each: impl FnMut(Event),
) -> Result<bool, TelemetryError> {
    thread::scope(|scope| {
        let mut parsers = Vec::new();
        let mut parsed = Vec::new();
        for _ in 0..threads {
            let (to_parser, chunks) = mpsc::sync_channel(WAITING);
            let (to_caller, results) = mpsc::sync_channel(WAITING);
            scope.spawn(move || parse(&chunks, &to_caller, path));
            parsers.push(to_parser);
            parsed.push(results);
        }
        // Chunks go round the threads and come back in the same order. Who is not wanted any more finds its channel closed.
        scope.spawn(move || deal(source, &parsers));
        let (mut before, mut torn) = (0, false);
        for results in parsed.iter().cycle() {
            let Ok(chunk) = results.recv() else { break };
            chunk.events.into_iter().for_each(&mut each);
            if let Some(error) = chunk.error {
                return Err(after(error, before));
            }
            before += chunk.lines;
            torn |= chunk.torn;
        }
        Ok(torn)
    })
}

/// Cuts what is read behind the last newline of each chunk, and deals the chunks out.
fn deal(mut source: impl Read, parsers: &[SyncSender<io::Result<Vec<u8>>>]) {
    let mut rest = Vec::new();
    for parser in parsers.iter().cycle() {
        let mut chunk = std::mem::take(&mut rest);
        let length = chunk.len();
        if let Err(error) = source.by_ref().take(CHUNK as u64).read_to_end(&mut chunk) {
            let _ = parser.send(Err(error));
            return;
        }
        if chunk.len() == length {
            // The end: what is left is a torn line.
            let _ = parser.send(Ok(chunk));
            return;
        }
        // A chunk without a newline is longer than any line: the reader says so.
        if let Some(newline) = chunk.iter().rposition(|&byte| byte == b'\n') {
            rest = chunk.split_off(newline + 1);
        }
        if parser.send(Ok(chunk)).is_err() {
            return;
        }
    }
}

fn parse(chunks: &Receiver<io::Result<Vec<u8>>>, parsed: &SyncSender<Parsed>, path: &Path) {
    for chunk in chunks {
        let result = match chunk {
            Ok(chunk) => parse_chunk(&chunk, path),
            Err(source) => Parsed {
                events: Vec::new(),
                lines: 0,
                torn: false,
                error: Some(TelemetryError::Read {
                    path: path.to_owned(),
                    source,
                }),
            },
        };
        if parsed.send(result).is_err() {
            return;
        }
    }
}

fn parse_chunk(chunk: &[u8], path: &Path) -> Parsed {
    let mut reader = EventReader::new(chunk, path);
    let mut events = Vec::new();
    let mut error = None;
    for event in reader.by_ref() {
        match event {
            Ok(event) => events.push(event),
            Err(found) => error = Some(found),
        }
    }
    Parsed {
        events,
        lines: reader.line_number(),
        torn: reader.torn(),
        error,
    }
}

/// The error of a chunk with its line counted from the start of the log.
fn after(error: TelemetryError, lines: u64) -> TelemetryError {
    match error {
        TelemetryError::Line { path, line, reason } => TelemetryError::Line {
            path,
            line: line + lines,
            reason,
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    /// Events, whether a line is torn, and the error.
    type Found = (Vec<Event>, bool, Option<String>);

    fn in_turn(log: &[u8]) -> Found {
        let mut reader = EventReader::new(log, "e.jsonl");
        let (mut events, mut error) = (Vec::new(), None);
        for event in reader.by_ref() {
            match event {
                Ok(event) => events.push(event),
                Err(found) => error = Some(found.to_string()),
            }
        }
        (events, reader.torn(), error)
    }

    fn in_parallel(log: &[u8], threads: usize) -> Found {
        let mut events = Vec::new();
        let read = read(log, Path::new("e.jsonl"), threads, |event| {
            events.push(event);
        });
        match read {
            Ok(torn) => (events, torn, None),
            Err(error) => (events, false, Some(error.to_string())),
        }
    }

    /// Several chunks of batches.
    fn log() -> String {
        let mut log = "{\"type\":\"run\",\"run\":\"r\"}\n".to_owned();
        for batch in 0..40_000 {
            let _ = writeln!(
                log,
                "{{\"type\":\"batch\",\"run\":\"r\",\"batch\":{batch},\"wait_ms\":0.25,\"sequences\":1,\"tokens\":4,\"residues\":2}}"
            );
        }
        assert!(log.len() > 3 * CHUNK);
        log
    }

    #[test]
    fn several_threads_say_what_one_reader_says() {
        let whole = log();
        let torn = &whole[..whole.len() - 7];
        let damaged = whole.replace("\"batch\":33333,", "\"batch\":x,");
        let blank = whole.replace("\"batch\":7,", "\"batch\":7,\n\n");
        let endless = format!("{whole}{}\n{whole}", "x".repeat(3 * CHUNK));
        let torn_long = format!("{whole}{}", "x".repeat(CHUNK));
        for log in [
            &whole[..],
            torn,
            &damaged,
            &blank,
            &endless,
            &torn_long,
            "",
            "\n",
            "{\"type\":\"r",
        ] {
            let expected = in_turn(log.as_bytes());
            for threads in [1, 2, 3] {
                assert!(
                    in_parallel(log.as_bytes(), threads) == expected,
                    "{:?}",
                    expected.2
                );
            }
        }
        let error = in_turn(damaged.as_bytes()).2.unwrap();
        assert!(
            error.starts_with("e.jsonl: line 33335: not a run event"),
            "{error}"
        );
    }

    #[test]
    fn a_disk_that_fails_is_an_error_after_what_was_read() {
        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("bad sector"))
            }
        }
        let log = log();
        let mut count = 0;
        let error = read(log.as_bytes().chain(Fails), Path::new("e.jsonl"), 2, |_| {
            count += 1;
        })
        .unwrap_err();
        assert_eq!(error.to_string(), "e.jsonl: cannot read: bad sector");
        assert!(count > 20_000, "{count}");
    }
}
