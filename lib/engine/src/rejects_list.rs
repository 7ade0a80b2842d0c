//! The list of sequences without vectors.
//!
//! The output records the digest of its list, so neither can be mistaken for that of another run. An empty list has no file: the
//! digest says that nothing was rejected.

use plmkit_contract::Reject;
use plmkit_kit::path_text;
use plmkit_store::{ListWriter, StoreError, read_rejects, remove_published, remove_unfinished};

use crate::checkpoint::RunFolder;
use crate::config::Job;

/// Begins the list of a run before anything is computed, so that an unwritable path is an error in time. An existing list stays
/// until it is replaced; it may be replaced if a killed run of this output published it, or with `--force`.
pub(crate) fn begin(job: &Job, folder: &RunFolder) -> Result<ListWriter, StoreError> {
    let path = job.rejects();
    // From here on, no other process publishes a list at this path.
    let writer = ListWriter::create_rejected_rows(&path)?;
    if !job.force && path.exists() {
        let found = read_rejects(&path).map_err(StoreError::of_existing)?.digest;
        if !folder.published_lists().contains(&found) {
            let difference = "a list of rejects that is not of this run";
            return Err(StoreError::exists(&path, difference));
        }
    }
    Ok(writer)
}

/// Publishes the list in the order of the input. Returns its digest. Instead of an empty list, none is published, and what an earlier
/// run published is removed.
pub(crate) fn publish(
    job: &Job,
    folder: &RunFolder,
    mut writer: ListWriter,
    mut rejects: Vec<Reject>,
) -> Result<String, StoreError> {
    rejects.sort_by_key(|reject| (reject.ordinal, reject.start));
    for reject in &rejects {
        writer.push(reject)?;
    }
    let (digest, list) = writer.finish()?;
    if rejects.is_empty() {
        remove_published(&job.rejects())?;
    } else {
        // If the run is killed before the output is published, the next run recognises the list.
        folder.note_list(&digest)?;
        list.finish()?;
    }
    Ok(digest)
}

/// Checks the list of a complete output: it must exist if rows are `rejected`, and have the `digest` that the output records.
pub(crate) fn verify(job: &Job, digest: Option<&str>, rejected: u64) -> Result<(), StoreError> {
    let path = job.rejects();
    remove_unfinished(&path);
    let exists = path.exists();
    if rejected == 0 && !exists {
        return Ok(());
    }
    let out = path_text(&job.out);
    let what = if !exists {
        format!("missing: the list of {rejected} rows that {out} lacks; --force makes both again")
    } else if Some(&*read_rejects(&path).map_err(StoreError::of_existing)?.digest) == digest {
        return Ok(());
    } else {
        format!("not the list of what {out} lacks, or altered; --force makes both again")
    };
    Err(StoreError::Malformed { path, what })
}
