//! Finds and follows the event logs of a machine.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use chrono::{DateTime, Utc};
use plmkit_kit::{Exit, Failure};
use plmkit_logs::event::{Event, EventReader};
use plmkit_logs::{Note, log_name, logs_below};
use plmkit_store::StoreError;

use super::LiveRuns;

/// Follows event logs: files, and all `*.jsonl` of folders and their subfolders, including later ones.
///
/// A given file is read whatever its name. A file in a folder is read if its name is not hidden, it begins like an event
/// log, and it was written to within the time that is set.
#[derive(Default)]
pub struct Follower {
    paths: Vec<PathBuf>,
    keep: Duration,
    logs: BTreeMap<PathBuf, Log>,
    noted: HashSet<PathBuf>,
    /// When the folders are searched again.
    search_at: Option<Instant>,
}

/// A search that takes no longer is done at each read.
const QUICK: Duration = Duration::from_millis(50);

/// A log that is read as it grows. It is open only meanwhile: a folder may have more logs than a process may open files.
#[derive(Default)]
struct Log {
    /// Device and inode of the file, and the bytes that were read of it. Another file, or one that became shorter, is read from its
    /// beginning.
    file: (u64, u64),
    offset: u64,
    /// Whether it is known to be a log: it has an event.
    has_events: bool,
    /// `None` of a file that cannot be read, is no log, or has a malformed line.
    reader: Option<EventReader<Box<dyn BufRead + Send>>>,
}

impl Follower {
    /// Opens nothing yet. Files in folders are skipped if they were not written to for longer than `keep`.
    pub fn new(paths: Vec<PathBuf>, keep: Duration) -> Self {
        Self {
            paths,
            keep,
            ..Self::default()
        }
    }

    /// Reads new events into `runs`. Returns messages for people, one for each path. A path that cannot be read is tried again at
    /// the next read.
    pub fn read_new(&mut self, runs: &mut LiveRuns) -> Vec<String> {
        let mut told = Vec::new();
        if self.search_at <= Some(Instant::now()) {
            self.search(&mut told);
        }
        for (path, log) in &mut self.logs {
            if let Err(error) = log.read(path, runs) {
                // A folder may have other files, and lose some.
                let is_other = error.exit() == Exit::Data && !log.has_events || !path.exists();
                if !is_other || self.paths.contains(path) {
                    told.push((path.clone(), error.to_string()));
                }
            }
        }
        let new = told
            .into_iter()
            .filter(|(path, _)| self.noted.insert(path.clone()));
        new.map(|(_, note)| note).collect()
    }

    /// Finds the logs that the given paths stand for: files themselves, and the recent logs of folders.
    fn search(&mut self, told: &mut Vec<Note>) {
        let (start, now) = (Instant::now(), SystemTime::now());
        let is_recent = |path: &Path| {
            // After a clock went back, files may have times in the future: they are recent.
            let written = fs::metadata(path).and_then(|metadata| metadata.modified());
            written.is_ok_and(|time| now.duration_since(time).unwrap_or_default() <= self.keep)
        };
        let mut logs = BTreeMap::new();
        for given in &self.paths {
            let mut paths = vec![given.clone()];
            if given.is_dir() {
                paths = logs_below(given, "jsonl", told);
                paths.retain(|path| self.logs.contains_key(path) || is_recent(path));
            }
            for path in paths {
                let log = self.logs.remove(&path).unwrap_or_default();
                logs.entry(path).or_insert(log);
            }
        }
        self.logs = logs;
        // Large folders are searched for a tenth of the time.
        let pause = 9 * start.elapsed().saturating_sub(QUICK);
        self.search_at = Some(Instant::now() + pause);
    }
}

impl Log {
    /// Adds new events to `runs`. An event without a time has that of the last write to the file. After a malformed line, nothing more
    /// is read.
    fn read(&mut self, path: &Path, runs: &mut LiveRuns) -> Result<(), StoreError> {
        let metadata = fs::metadata(path).map_err(StoreError::cannot_open(path))?;
        if !metadata.is_file() {
            // Opening a pipe could wait forever.
            return Err(StoreError::malformed(path, "line 1: not a run event log"));
        }
        let file = (metadata.dev(), metadata.ino());
        if file != self.file || metadata.len() < self.offset {
            let closed: Box<dyn BufRead + Send> = Box::new(io::empty());
            let reader = Some(EventReader::new(closed, path));
            (self.file, self.offset, self.reader) = (file, 0, reader);
        }
        let reader = self.reader.as_mut();
        let Some(reader) = reader.filter(|_| self.offset < metadata.len()) else {
            return Ok(());
        };
        let written = metadata.modified().unwrap_or_else(|_| SystemTime::now());
        let written = DateTime::<Utc>::from(written);
        runs.log = log_name(path);
        let has_events = &mut self.has_events;
        let mut add = |event: Event| {
            *has_events = true;
            runs.add(&event, written.into());
        };
        let mut source = File::open(path).map_err(StoreError::cannot_open(path))?;
        let failed = StoreError::cannot_read(path);
        source.seek(SeekFrom::Start(self.offset)).map_err(failed)?;
        // The copy moves the place of both.
        let copy = source.try_clone().map_err(failed)?;
        *reader.source_mut() = Box::new(BufReader::new(copy));
        if let Err(error) = reader.try_for_each(|event| event.map(&mut add)) {
            self.reader = None;
            return Err(error);
        }
        *reader.source_mut() = Box::new(io::empty());
        self.offset = source.stream_position().map_err(failed)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;
    use plmkit_logs::Timestamp;

    const HOUR: Duration = Duration::from_hours(1);

    struct Case {
        folder: tempfile::TempDir,
        runs: LiveRuns,
    }

    impl Case {
        fn new() -> Self {
            Self {
                folder: tempfile::tempdir().unwrap(),
                runs: LiveRuns::default(),
            }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn write_run(&self, name: &str, run: &str) {
            let text = format!("{{\"type\":\"run\",\"run\":\"{run}\"}}\n");
            fs::write(self.path(name), text).unwrap();
        }

        /// The names of the runs after a read, and its notes.
        fn read(&mut self, follower: &mut Follower) -> (Vec<String>, Vec<String>) {
            let notes = follower.read_new(&mut self.runs);
            let runs = self.runs.status(Timestamp::now()).into_iter();
            let mut names: Vec<String> = runs.map(|status| status.summary.setup.run).collect();
            names.sort();
            (names, notes)
        }
    }

    #[test]
    fn a_folder_is_searched_for_logs_and_later_ones_are_found() {
        let mut case = Case::new();
        let mut follower = Follower::new(vec![case.path("")], HOUR);
        case.write_run("a.jsonl", "a");
        case.write_run("b.json", "not a log by its name");
        case.write_run(".hidden.jsonl", "hidden");
        fs::write(case.path("other.jsonl"), "{\"level\":\"info\"}\n").unwrap();
        fs::create_dir_all(case.path("folder.jsonl/logs")).unwrap();
        fs::create_dir(case.path(".hidden")).unwrap();
        case.write_run("folder.jsonl/logs/below.jsonl", "below");
        case.write_run(".hidden/hidden.jsonl", "hidden");
        symlink(case.path(""), case.path("circle")).unwrap();
        let read = |names: &[&str]| (names.iter().map(|&name| name.to_owned()).collect(), vec![]);
        assert_eq!(case.read(&mut follower), read(&["a", "below"]));
        case.write_run("c.jsonl", "c");
        assert_eq!(case.read(&mut follower), read(&["a", "below", "c"]));
        fs::remove_file(case.path("a.jsonl")).unwrap();
        assert_eq!(
            case.read(&mut follower),
            read(&["a", "below", "c"]),
            "a run outlives its log"
        );
    }

    #[test]
    fn an_old_log_of_a_folder_is_skipped_unless_it_is_given() {
        let mut case = Case::new();
        case.write_run("old.jsonl", "old");
        let file = File::options().write(true).open(case.path("old.jsonl"));
        file.unwrap()
            .set_modified(SystemTime::now() - 2 * HOUR)
            .unwrap();
        for (path, expected) in [("", &[][..]), ("old.jsonl", &["old"])] {
            let mut follower = Follower::new(vec![case.path(path)], HOUR);
            assert_eq!(case.read(&mut follower).0, expected);
        }
    }

    #[test]
    fn a_given_path_that_is_missing_or_no_log_is_noted_once() {
        let mut case = Case::new();
        fs::write(case.path("other.txt"), "other\n").unwrap();
        let mut follower = Follower::new(vec![case.path("other.txt"), case.path("late")], HOUR);
        let (_, notes) = case.read(&mut follower);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("late: "), "{notes:?}");
        assert!(
            notes[1].contains("other.txt: line 1: not a run event: "),
            "{notes:?}"
        );
        case.write_run("late", "late");
        assert_eq!(case.read(&mut follower), (vec!["late".to_owned()], vec![]));
    }

    fn batch(number: u64) -> String {
        format!(
            "{{\"type\":\"batch\",\"run\":\"r\",\"batch\":{number},\"sequences\":1,\"tokens\":4,\"residues\":2}}\n"
        )
    }

    /// A log that is read as it grows.
    struct Growing {
        case: Case,
        log: Log,
    }

    impl Growing {
        fn new(text: &str) -> Self {
            let (case, log) = (Case::new(), Log::default());
            let growing = Self { case, log };
            growing.append(text);
            growing
        }

        fn path(&self) -> PathBuf {
            self.case.path("events.jsonl")
        }

        fn append(&self, text: &str) {
            let file = File::options().create(true).append(true).open(self.path());
            file.unwrap().write_all(text.as_bytes()).unwrap();
        }

        fn replace(&self, text: &str) {
            let fresh = self.case.path("fresh");
            fs::write(&fresh, text).unwrap();
            fs::rename(fresh, self.path()).unwrap();
        }

        /// The batches that were read so far, and the outcome.
        fn read(&mut self) -> (u64, Result<(), StoreError>) {
            let path = self.path();
            let read = self.log.read(&path, &mut self.case.runs);
            let runs = self.case.runs.status(Timestamp::now());
            (
                runs.first().map_or(0, |run| run.summary.total.batches),
                read,
            )
        }

        fn batches(&mut self) -> u64 {
            let (batches, read) = self.read();
            read.unwrap();
            batches
        }
    }

    #[test]
    fn only_complete_lines_are_read_and_each_once() {
        let mut log = Growing::new("{\"ty");
        assert_eq!(log.batches(), 0, "too short to tell its kind");
        let line = batch(0);
        log.append(&line["{\"ty".len()..line.len() - 4]);
        assert_eq!(log.batches(), 0);
        log.append(&line[line.len() - 4..]);
        assert_eq!((log.batches(), log.batches()), (1, 1));
        log.append(&(batch(1) + &batch(2).replace("\":", "\": ")));
        assert_eq!(log.batches(), 3);
    }

    #[test]
    fn a_truncated_or_replaced_file_is_read_from_its_beginning() {
        let mut log = Growing::new(&(batch(0) + &batch(1)));
        assert_eq!(log.batches(), 2);
        fs::write(log.path(), batch(2)).unwrap();
        assert_eq!(log.batches(), 3, "truncated");
        log.replace(&(batch(3) + &batch(4) + &batch(5)));
        assert_eq!(log.batches(), 6, "another file");
    }

    #[test]
    fn a_log_is_read_up_to_a_bad_line_which_is_noted_once() {
        let log = Growing::new(&(batch(0) + "{\"type\":7}\n" + &batch(1)));
        // In a folder, too.
        for path in [log.path(), log.case.path("")] {
            let mut follower = Follower::new(vec![path], HOUR);
            let mut runs = LiveRuns::default();
            let notes = follower.read_new(&mut runs);
            let expected = "events.jsonl: line 2: not a run event";
            assert!(notes.len() == 1 && notes[0].contains(expected), "{notes:?}");
            log.append(&batch(2));
            assert!(follower.read_new(&mut runs).is_empty());
            assert_eq!(runs.status(Timestamp::now())[0].summary.total.batches, 1);
        }
    }

    #[test]
    fn another_kind_of_file_is_ignored_until_it_is_replaced() {
        let mut log = Growing::new("{\"level\":\"info\"}\n");
        assert_eq!(log.read().1.unwrap_err().exit(), Exit::Data);
        log.append(&batch(0));
        assert_eq!(log.batches(), 0);
        log.replace(&batch(1));
        assert_eq!(log.batches(), 1);
    }

    #[test]
    fn a_line_without_an_end_is_no_log() {
        let mut log = Growing::new(&(batch(0) + &"x".repeat(2 << 20)));
        let (batches, read) = log.read();
        assert_eq!((batches, read.unwrap_err().exit()), (1, Exit::Data));
    }
}
