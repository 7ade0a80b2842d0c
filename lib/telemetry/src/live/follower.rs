//! Finds and follows the event logs of a machine.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use plmkit_contract::{io_text, path_text};

use super::LiveRuns;
use super::log_tail::LogTail;

/// Follows event logs: files, and all `*.jsonl` of folders, including later ones.
///
/// A given file is read whatever its name. A file in a folder is read if its name is not hidden, it begins like an event
/// log, and it was written to within the time that is set. Subfolders are not searched.
#[derive(Debug, Default)]
pub struct Follower {
    paths: Vec<PathBuf>,
    keep: Duration,
    tails: BTreeMap<PathBuf, LogTail>,
    noted: HashSet<PathBuf>,
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

    /// Reads new events into `runs`. Returns messages for people, each once. A path that cannot be read is tried again at the next
    /// read.
    pub fn read_new(&mut self, runs: &mut LiveRuns) -> Vec<String> {
        let (mut notes, mut found) = (Vec::new(), HashSet::new());
        for given in self.paths.clone() {
            let logs = self.logs_of(&given).unwrap_or_else(|error| {
                self.note_once(&given, &error, &mut notes);
                Vec::new()
            });
            for path in logs {
                let new = || LogTail::new(path.clone());
                let tail = self.tails.entry(path.clone()).or_insert_with(new);
                match tail.read(|event, written| runs.add(&event, written)) {
                    Ok(bad_line) => notes.extend(bad_line),
                    // A folder may have other files.
                    Err(error) if path != given && error.kind() == io::ErrorKind::InvalidData => {}
                    Err(error) => self.note_once(&path, &error, &mut notes),
                }
                found.insert(path);
            }
        }
        self.tails.retain(|path, _| found.contains(path));
        notes
    }

    /// Returns the logs that a given path stands for: the file itself, or the recent logs of the folder.
    fn logs_of(&self, given: &Path) -> io::Result<Vec<PathBuf>> {
        if !fs::metadata(given)?.is_dir() {
            return Ok(vec![given.to_owned()]);
        }
        let now = SystemTime::now();
        let is_recent = |path: &Path| {
            // After a clock went back, files may have times in the future: they are recent.
            let written = fs::metadata(path).and_then(|metadata| metadata.modified());
            written.is_ok_and(|time| now.duration_since(time).unwrap_or_default() <= self.keep)
        };
        let mut paths: Vec<PathBuf> = fs::read_dir(given)?
            .filter_map(Result::ok)
            .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
            .filter(|path| self.tails.contains_key(path) || is_recent(path))
            .collect();
        paths.sort();
        Ok(paths)
    }

    fn note_once(&mut self, path: &Path, error: &io::Error, notes: &mut Vec<String>) {
        if self.noted.insert(path.to_owned()) {
            notes.push(format!("{}: {}", path_text(path), io_text(error)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

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
        fs::create_dir(case.path("folder.jsonl")).unwrap();
        let read = |names: &[&str]| (names.iter().map(|&name| name.to_owned()).collect(), vec![]);
        assert_eq!(case.read(&mut follower), read(&["a"]));
        case.write_run("c.jsonl", "c");
        assert_eq!(case.read(&mut follower), read(&["a", "c"]));
        fs::remove_file(case.path("a.jsonl")).unwrap();
        assert_eq!(
            case.read(&mut follower),
            read(&["a", "c"]),
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
        fs::write(case.path("other.txt"), "other").unwrap();
        let mut follower = Follower::new(vec![case.path("other.txt"), case.path("late")], HOUR);
        let (_, notes) = case.read(&mut follower);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(
            notes[0].ends_with("other.txt: not a run event log"),
            "{notes:?}"
        );
        assert!(notes[1].contains("late: "), "{notes:?}");
        case.write_run("late", "late");
        assert_eq!(case.read(&mut follower), (vec!["late".to_owned()], vec![]));
    }
}
