//! The lists of rejects of a dataset.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use plmkit_contract::{ByteDigest, ListedDataset, ListedFile, Reject, RejectsList};
use plmkit_store::{ListWriter, StoreError};
use serde_json::{Value, json};

use crate::aliases::Record;
use crate::listing::{add_to, read_lists};
use crate::{DatasetError, Part};

/// The list of rows that were not embedded, of all parts.
const ROWS: &str = "rejects/rows.csv";
/// The list of records that are in no shard.
const RECORDS: &str = "rejects/records.csv";
const FOLDER: &str = "rejects";

/// The lists of rejects that a dataset has.
#[derive(Debug, Default)]
pub(crate) struct Rejects {
    /// Of records; none if the dataset has no shards.
    records: Option<RejectsList>,
    /// Of rows, by their digests.
    rows: BTreeMap<String, RejectsList>,
    /// Rows of records whose representatives were rejected.
    copies: Vec<Reject>,
    /// Those of several samples: the digests of their lists, records, and rows.
    joined: (Vec<String>, Vec<Reject>, Vec<Reject>),
}

impl Rejects {
    /// Reads the lists that `listed` lists. There must be those that `parts` know.
    pub(crate) fn read(
        listed: &ListedDataset,
        folder: &Path,
        parts: &[Part],
    ) -> Result<Self, DatasetError> {
        let mut rejects = Self::default();
        for list in read_lists(listed, folder)? {
            if list.of_rows {
                rejects.rows.insert(list.digest.clone(), list);
            } else {
                rejects.records = Some(list);
            }
        }
        let empty = empty();
        for part in parts {
            let digest = part.provenance.rejects.as_ref();
            if let Some(digest) = digest.filter(|digest| **digest != empty)
                && !rejects.rows.contains_key(digest)
            {
                let what = format!(
                    "rows were rejected, and expected their list {digest} among {}/*.csv",
                    folder.join(FOLDER).display()
                );
                return Err(DatasetError::missing(&part.path, what));
            }
        }
        let known = |digest: &String| {
            parts
                .iter()
                .any(|part| part.provenance.rejects.as_ref() == Some(digest))
        };
        rejects.rows.retain(|digest, _| known(digest));
        Ok(rejects)
    }

    /// Adds a record whose representative was rejected. Returns false if it was not.
    pub(crate) fn add_copy(&mut self, record: &Record) -> bool {
        let of = |line: &&Reject| line.ordinal == record.representative;
        let copies: Vec<Reject> = self
            .lines()
            .filter(of)
            .map(|line| Reject {
                ordinal: record.ordinal,
                id: record.id.clone(),
                length: record.length.into(),
                ..line.clone()
            })
            .collect();
        let was_rejected = !copies.is_empty();
        self.copies.extend(copies);
        was_rejected
    }

    /// Adds the copies to the counts of `dataset.json`.
    pub(crate) fn count_copies(&self, listed: &mut ListedDataset) {
        if let Some(Value::Object(counts)) = listed.others.get_mut("rejected") {
            for copy in &self.copies {
                let reason = copy.reason.to_string();
                counts.entry(&reason).or_insert(json!(0));
                add_to(counts, &reason, 1);
            }
        }
    }

    /// Adds the lists of a further sample, to whose ordinals `offset` is added. Returns the last ordinal in them.
    pub(crate) fn join(&mut self, other: &Self, offset: u64) -> Option<u64> {
        let (digests, records, rows) = &mut self.joined;
        digests.extend(other.digests().into_iter().cloned());
        let shifted = |line: &Reject| Reject {
            ordinal: line.ordinal + offset,
            ..line.clone()
        };
        let of_records = other.records.iter().flat_map(|list| &list.lines);
        records.extend(of_records.map(shifted));
        rows.extend(other.lines().map(shifted));
        let lines = records.iter().chain(&*rows);
        lines.map(|line| line.ordinal).max()
    }

    /// Returns the digests of all lists.
    pub(crate) fn digests(&self) -> Vec<&String> {
        let records = self.records.iter().map(|list| &list.digest);
        let own = records.chain(self.rows.keys());
        own.chain(&self.joined.0).collect()
    }

    /// Writes one list of rows, in the order of the input, and a copy of the list of records. No empty list is written. Returns the
    /// digest of the list of rows, and the written lists.
    pub(crate) fn write(&self, folder: &Path) -> Result<(String, Vec<ListedFile>), DatasetError> {
        let mut rows: Vec<&Reject> = self.lines().chain(&self.copies).collect();
        rows.sort_unstable_by_key(|line| (line.ordinal, line.start));
        let records = self.records.iter().flat_map(|list| &list.lines);
        let records = records.chain(&self.joined.1).collect();
        let mut digest = empty();
        let mut listed = Vec::new();
        for (name, lines) in [(RECORDS, records), (ROWS, rows)] {
            if lines.is_empty() {
                continue;
            }
            let path = folder.join(name);
            let made = fs::create_dir_all(folder.join(FOLDER));
            made.map_err(StoreError::cannot_create(&path))?;
            let mut writer = if name == ROWS {
                ListWriter::create_rejected_rows(&path)
            } else {
                ListWriter::create_rejects(&path)
            }?;
            for line in &lines {
                writer.push(line)?;
            }
            let finished = writer.finish()?;
            if name == ROWS {
                digest.clone_from(finished.summary());
            }
            listed.push(ListedFile::new(
                name,
                lines.len() as u64,
                finished.summary(),
            ));
            finished.publish()?;
        }
        Ok((digest, listed))
    }

    fn lines(&self) -> impl Iterator<Item = &Reject> {
        let lists = self.rows.values();
        lists.flat_map(|list| &list.lines).chain(&self.joined.2)
    }
}

/// The digest of a list of rows without rows.
fn empty() -> String {
    ByteDigest::compute(b"ordinal,id,length,reason,start\n").to_string()
}
