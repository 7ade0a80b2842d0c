//! The list of what an output lacks.
//!
//! The output knows it by its digest, so neither can be taken for another's.

use plmkit_contract::{Reject, path_text};
use plmkit_store::{ListWriter, StoreError, read_rejects, remove_unfinished};

use crate::RunConfig;
use crate::checkpoint::RunFolder;

/// The list of a run, under construction.
pub(crate) struct RejectsList<'a> {
    config: &'a RunConfig,
    folder: &'a RunFolder,
    writer: ListWriter,
}

impl<'a> RejectsList<'a> {
    /// Begins the list, before anything is computed, so that a path that cannot be written is noticed in time. A list
    /// that is there may be replaced if a killed run of this output gave it its name, or with `force`; until then it
    /// stays.
    pub(crate) fn begin(config: &'a RunConfig, folder: &'a RunFolder) -> Result<Self, StoreError> {
        let path = config.rejects();
        // Nobody else gives a list this name from now on.
        let writer = ListWriter::create_rejected_rows(&path)?;
        if !config.force && path.exists() {
            let found = read_rejects(&path).map_err(StoreError::of_existing)?.digest;
            if !folder.announced().contains(&found) {
                return Err(StoreError::Exists {
                    path,
                    difference: "a list of rejects that is not of this run".to_owned(),
                });
            }
        }
        Ok(Self {
            config,
            folder,
            writer,
        })
    }

    /// Publishes the list, in the order of the input, if there is anything in it, it was asked for or there is an earlier
    /// one, which would speak of this output. Returns its digest.
    pub(crate) fn publish(mut self, mut rejects: Vec<Reject>) -> Result<String, StoreError> {
        rejects.sort_by_key(|reject| (reject.ordinal, reject.start));
        for reject in &rejects {
            self.writer.push(reject)?;
        }
        let list = self.writer.finish()?;
        let digest = list.summary().clone();
        let asked_for = self.config.rejects.is_some();
        if !rejects.is_empty() || asked_for || self.config.rejects().exists() {
            // A run that is killed before its output has its name finds its own list again.
            self.folder.announce(&digest)?;
            list.publish()?;
        }
        Ok(digest)
    }
}

/// Checks that the list of the complete output of `config` is there if any of its rows are `rejected`, and that one that is
/// there has the digest that the output knows. An empty one is written where it is asked for and is not there.
pub(crate) fn verify(
    config: &RunConfig,
    digest: Option<&str>,
    rejected: u64,
) -> Result<(), StoreError> {
    let path = config.rejects();
    remove_unfinished(&path);
    if rejected == 0 && !path.exists() {
        return match config.rejects {
            Some(_) => ListWriter::create_rejected_rows(&path)?.finish()?.publish(),
            None => Ok(()),
        };
    }
    if !path.exists() {
        let out = path_text(&config.out);
        return Err(StoreError::Malformed {
            path,
            what: format!(
                "missing: the list of {rejected} rows that {out} lacks; --force makes both again"
            ),
        });
    }
    let found = read_rejects(&path).map_err(StoreError::of_existing)?;
    if Some(found.digest.as_str()) == digest {
        Ok(())
    } else {
        let out = path_text(&config.out);
        Err(StoreError::Malformed {
            path,
            what: format!("not the list of what {out} lacks, or altered; --force makes both again"),
        })
    }
}
