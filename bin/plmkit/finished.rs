//! Samples that are finished: an earlier run judged them, and nothing has changed since.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf, absolute};
use std::time::SystemTime;

use plmkit_contract::DATASET_FILE;
use plmkit_dataset::dataset_folder;
use plmkit_kit::path_text;
use plmkit_store::{read_input, write_json};
use serde::{Deserialize, Serialize};

use crate::layout::verdict_file;
use crate::programs::Programs;
use crate::samples::Sample;

/// In nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// Before the path of a report that a user asked for.
const REPORT: &str = "report ";

/// What a verdict is about: how a sample was made and judged, and the files that it was made of.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Judged {
    version: String,
    /// All parameters.
    parameters: String,
    /// Size, and the times of the last change of content and of anything, in nanoseconds; none of a file that does not exist.
    files: BTreeMap<String, Option<[i64; 3]>>,
}

impl Judged {
    /// Looks at all files of a sample.
    pub(crate) fn look(parameters: &str, out: &Path, sample: &Sample, programs: &Programs) -> Self {
        let folder = out.join(&sample.name);
        let known = programs.fasta_shard.options.known.iter();
        let known = known.map(|path| dataset_folder(path.clone()).join(DATASET_FILE));
        let validate = &programs.validate_embeddings.options;
        let others = [
            programs.gpu_embed.options.scores_positions.as_ref(),
            validate.reference.as_ref(),
        ];
        let others = others.into_iter().flatten().cloned().chain(known);
        let mut paths: Vec<PathBuf> = others.chain(sample.fasta.iter().cloned()).collect();
        add_below(&folder, &mut paths);
        if let Some(saved) = &programs.gpu_embed.options.checkpoint_dir {
            add_below(&saved.join(&sample.name), &mut paths);
        }
        let files = paths.iter().map(|path| {
            let name = absolute(path).unwrap_or_default();
            let name = name.strip_prefix(absolute(&folder).unwrap_or_default());
            let name = name.map_or_else(|_| path_text(path), path_text);
            (name, state(path))
        });
        let reports = [&validate.report, &validate.html].into_iter().flatten();
        let reports = reports.map(|path| (format!("{REPORT}{}", path_text(path)), state(path)));
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            parameters: parameters.to_owned(),
            files: files.chain(reports).collect(),
        }
    }

    /// Whether this is what the sample was judged by.
    pub(crate) fn is_kept(&self, out: &Path, sample: &str) -> bool {
        let text = read_input(&verdict_file(out, sample)).unwrap_or_default();
        let kept = serde_json::from_slice::<Self>(&text).ok();
        // What can be read once may be something else now.
        kept.as_ref() == Some(self) && self.files.values().all(Option::is_some)
    }

    /// Keeps what a sample was judged by, unless a file has changed since `before`. What cannot be written is judged again.
    pub(crate) fn keep(&self, before: &Self, out: &Path, sample: &str) {
        let is_verdict = |name: &str| {
            name == DATASET_FILE || name.starts_with("reports/") || name.starts_with(REPORT)
        };
        let of = |judged: &Self| {
            let files = judged.files.clone().into_iter();
            files
                .filter(|(name, _)| !is_verdict(name))
                .collect::<Vec<_>>()
        };
        // Where times are whole seconds, a later change may have the same.
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let settled = now.as_nanos() as i64 - 2 * SECOND;
        let is_settled = |time: &i64| time % SECOND != 0 || *time < settled;
        let mut states = of(self).into_iter().filter_map(|(_, state)| state);
        let are_settled = states.all(|[_, times @ ..]| times.iter().all(is_settled));
        let path = verdict_file(out, sample);
        if of(self) == of(before)
            && are_settled
            && let Some(folder) = path.parent()
            && fs::create_dir_all(folder).is_ok()
        {
            let _ = write_json(&path, self);
        }
    }
}

/// The samples that are finished.
pub(crate) fn finished(
    parameters: &str,
    out: &Path,
    samples: &[Sample],
    programs: &Programs,
) -> BTreeSet<String> {
    let is_finished = |sample: &&Sample| {
        verdict_file(out, &sample.name).exists()
            && Judged::look(parameters, out, sample, programs).is_kept(out, &sample.name)
    };
    let finished = samples.iter().filter(is_finished);
    finished.map(|sample| sample.name.clone()).collect()
}

/// Adds all files below a folder but those of locks. A hidden folder is what a killed run left: it is added, and is no file.
fn add_below(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && !name.as_encoded_bytes().starts_with(b".") {
            add_below(&path, files);
        } else if name != ".plmkit-lock" {
            files.push(path);
        }
    }
}

/// Size and times of a file.
fn state(path: &Path) -> Option<[i64; 3]> {
    let found = path.metadata().ok().filter(fs::Metadata::is_file)?;
    let nanoseconds = |seconds: i64, rest: i64| seconds.wrapping_mul(SECOND) + rest;
    Some([
        found.size().cast_signed(),
        nanoseconds(found.mtime(), found.mtime_nsec()),
        nanoseconds(found.ctime(), found.ctime_nsec()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_on_files_that_just_changed_is_kept_only_where_times_are_fine() {
        let folder = tempfile::tempdir().expect("temp folder");
        let out = folder.path();
        let now = SystemTime::UNIX_EPOCH
            .elapsed()
            .expect("a time")
            .as_secs()
            .cast_signed()
            * SECOND;
        for (time, is_kept) in [(now, false), (now + 1, true), (now - 9 * SECOND, true)] {
            let judged = Judged {
                version: String::new(),
                parameters: String::new(),
                files: [("a".to_owned(), Some([3, time, time]))].into(),
            };
            judged.keep(&judged, out, "a");
            assert_eq!(judged.is_kept(out, "a"), is_kept, "{time}");
        }
    }
}
