//! The event logs of a machine, found and update.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use plmkit_contract::{io_text, path_text};

use super::LiveRuns;
use super::log_tail::LogTail;

/// What is read of a log at once: a screen must not stand still while a long log is read for the first time.
const LIMIT_BYTES: u64 = 32 << 20;

/// Follows event logs: files, and all `*.jsonl` of folders, also those that come later.
///
/// A file that is named is update whatever it is called, one in a folder only if it was written to within the time
/// that is set, if it begins as an event log does, and if its name is not hidden. Folders in folders are not searched.
#[derive(Debug)]
pub struct Follower {
    paths: Vec<PathBuf>,
    keep: Duration,
    tails: BTreeMap<PathBuf, LogTail>,
    noted: HashSet<PathBuf>,
}

/// What reading all logs found out.
#[derive(Debug, Default)]
pub struct FollowerUpdate {
    /// A long log is not read to its end yet: the next read goes on.
    pub behind: bool,
    /// What people should know, each once.
    pub notes: Vec<String>,
}

impl Follower {
    /// Nothing is opened yet. Of the files in folders, those not written to for longer than `keep` are left out.
    pub fn new(paths: Vec<PathBuf>, keep: Duration) -> Self {
        Self {
            paths,
            keep,
            tails: BTreeMap::new(),
            noted: HashSet::new(),
        }
    }

    /// Reads what is new into `runs`. What cannot be read is a note, and tried again at the next read.
    pub fn read_new(&mut self, runs: &mut LiveRuns) -> FollowerUpdate {
        let mut update = FollowerUpdate::default();
        let mut there = HashSet::new();
        for given in self.paths.clone() {
            match fs::metadata(&given) {
                Ok(found) if found.is_dir() => {
                    let logs = self.logs_in(&given, &mut update);
                    for path in logs {
                        self.read_log(&path, false, runs, &mut update);
                        there.insert(path);
                    }
                }
                Ok(_) => {
                    self.read_log(&given, true, runs, &mut update);
                    there.insert(given);
                }
                Err(error) => self.note_once(&given, &io_text(&error), &mut update),
            }
        }
        self.tails.retain(|path, _| there.contains(path));
        update
    }

    fn logs_in(&mut self, folder: &Path, update: &mut FollowerUpdate) -> Vec<PathBuf> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => {
                self.note_once(folder, &io_text(&error), update);
                return Vec::new();
            }
        };
        let now = SystemTime::now();
        let fresh = |path: &Path| {
            // A clock that went back makes files of the future: they are fresh.
            let written = fs::metadata(path).and_then(|found| found.modified());
            written
                .is_ok_and(|written| now.duration_since(written).unwrap_or_default() <= self.keep)
        };
        let mut paths: Vec<PathBuf> = entries
            .filter_map(Result::ok)
            .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
            .map(|entry| entry.path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "jsonl")
            })
            .filter(|path| self.tails.contains_key(path) || fresh(path))
            .collect();
        paths.sort();
        paths
    }

    fn read_log(
        &mut self,
        path: &Path,
        given: bool,
        runs: &mut LiveRuns,
        update: &mut FollowerUpdate,
    ) {
        let tail = self
            .tails
            .entry(path.to_owned())
            .or_insert_with(|| LogTail::new(path.to_owned()));
        let read = tail.read(LIMIT_BYTES, |event, written| runs.add(&event, written));
        let other = tail.is_other();
        match read {
            Ok(read) => {
                update.behind |= read.behind;
                update.notes.extend(read.bad_line);
                if given && other {
                    self.note_once(path, "not a run event log", update);
                }
            }
            Err(error) => self.note_once(path, &io_text(&error), update),
        }
    }

    fn note_once(&mut self, path: &Path, what: &str, update: &mut FollowerUpdate) {
        if self.noted.insert(path.to_owned()) {
            update.notes.push(format!("{}: {what}", path_text(path)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use plmkit_logs::Timestamp;

    const HOUR: Duration = Duration::from_hours(1);

    fn run(name: &str) -> String {
        format!("{{\"type\":\"run\",\"run\":\"{name}\"}}\n")
    }

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

        fn write(&self, name: &str, text: &str) {
            fs::write(self.path(name), text).unwrap();
        }

        fn names(&self) -> Vec<String> {
            let mut names: Vec<String> = self
                .runs
                .status(Timestamp::now())
                .into_iter()
                .map(|status| status.summary.run)
                .collect();
            names.sort();
            names
        }
    }

    #[test]
    fn a_folder_is_searched_for_logs_and_those_that_come_later_are_found() {
        let mut case = Case::new();
        let mut follower = Follower::new(vec![case.path("")], HOUR);
        case.write("a.jsonl", &run("a"));
        case.write("b.json", &run("not a log by its name"));
        case.write(".hidden.jsonl", &run("hidden"));
        case.write("other.jsonl", "{\"level\":\"info\"}\n");
        fs::create_dir(case.path("folder.jsonl")).unwrap();
        let notes = follower.read_new(&mut case.runs).notes;
        assert_eq!(case.names(), ["a"]);
        assert!(notes.is_empty(), "{notes:?}");
        case.write("c.jsonl", &run("c"));
        follower.read_new(&mut case.runs);
        assert_eq!(case.names(), ["a", "c"]);
        fs::remove_file(case.path("a.jsonl")).unwrap();
        let notes = follower.read_new(&mut case.runs).notes;
        assert!(notes.is_empty(), "{notes:?}");
        assert_eq!(case.names(), ["a", "c"], "a run outlives its log");
    }

    #[test]
    fn an_old_log_of_a_folder_is_left_out_unless_it_is_named() {
        let mut case = Case::new();
        case.write("old.jsonl", &run("old"));
        File::options()
            .write(true)
            .open(case.path("old.jsonl"))
            .unwrap()
            .set_modified(SystemTime::now() - 2 * HOUR)
            .unwrap();
        Follower::new(vec![case.path("")], HOUR).read_new(&mut case.runs);
        assert!(case.names().is_empty());
        Follower::new(vec![case.path("old.jsonl")], HOUR).read_new(&mut case.runs);
        assert_eq!(case.names(), ["old"]);
    }

    #[test]
    fn what_is_named_and_is_no_log_or_not_there_is_told_of_once() {
        let mut case = Case::new();
        case.write("other.txt", "other");
        let mut follower = Follower::new(vec![case.path("other.txt"), case.path("late")], HOUR);
        let notes = follower.read_new(&mut case.runs).notes;
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(
            notes[0].ends_with("other.txt: not a run event log"),
            "{notes:?}"
        );
        assert!(notes[1].contains("late: "), "{notes:?}");
        assert!(follower.read_new(&mut case.runs).notes.is_empty());
        case.write("late", &run("late"));
        follower.read_new(&mut case.runs);
        assert_eq!(case.names(), ["late"]);
    }
}
