//! The lists of rejects of a dataset.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use plmkit_contract::{ByteDigest, ListedDataset, ListedFile, Reject};
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
    /// The digests of the lists.
    pub(crate) digests: Vec<String>,
    /// Records that are in no shard.
    records: Vec<Reject>,
    /// Rows that were not embedded.
    rows: Vec<Reject>,
    /// Rows of records whose representatives were rejected.
    copies: Vec<Reject>,
}

impl Rejects {
    /// Reads the lists that `listed` lists. There must be those that `parts` know.
    pub(crate) fn read(
        listed: &ListedDataset,
        folder: &Path,
        parts: &[Part],
    ) -> Result<Self, DatasetError> {
        let mut rejects = Self::default();
        let lists = read_lists(&listed.rejects, folder)?;
        let empty = empty();
        for part in parts {
            let digest = part.provenance.rejects.as_ref();
            if let Some(digest) = digest.filter(|digest| **digest != empty)
                && lists.iter().all(|list| list.digest != *digest)
            {
                let what = format!(
                    "rows were rejected, and expected their list {digest} among {}/*.csv",
                    folder.join(FOLDER).display()
                );
                return Err(DatasetError::missing(&part.path, what));
            }
        }
        let known: BTreeSet<_> = parts
            .iter()
            .map(|part| part.provenance.rejects.as_ref())
            .collect();
        for list in lists {
            if !list.of_rows {
                rejects.records.extend(list.lines);
            } else if known.contains(&Some(&list.digest)) {
                rejects.rows.extend(list.lines);
            } else {
                continue;
            }
            rejects.digests.push(list.digest);
        }
        rejects.digests.sort();
        Ok(rejects)
    }

    /// Adds a record whose representative was rejected. Returns false if it was not.
    pub(crate) fn add_copy(&mut self, record: &Record) -> bool {
        let of = |line: &&Reject| line.ordinal == record.representative;
        let copies: Vec<Reject> = self
            .rows
            .iter()
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

    /// Adds to all ordinals. Returns the last of them.
    pub(crate) fn shift(&mut self, offset: u64) -> Option<u64> {
        let lines = self.records.iter_mut().chain(&mut self.rows);
        let ordinals = lines.map(|line| {
            line.ordinal += offset;
            line.ordinal
        });
        ordinals.max()
    }

    /// Adds the lists of a further sample.
    pub(crate) fn extend(&mut self, other: Self) {
        self.digests.extend(other.digests);
        self.records.extend(other.records);
        self.rows.extend(other.rows);
    }

    /// Writes one list of rows, in the order of the input, and a copy of the list of records. No empty list is written. Returns the
    /// digest of the list of rows, and the written lists.
    pub(crate) fn write(&self, folder: &Path) -> Result<(String, Vec<ListedFile>), DatasetError> {
        let mut rows: Vec<&Reject> = self.rows.iter().chain(&self.copies).collect();
        rows.sort_unstable_by_key(|line| (line.ordinal, line.start));
        let records = self.records.iter().collect();
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
            let (own, file) = writer.finish()?;
            listed.push(ListedFile::new(name, lines.len() as u64, &own));
            if name == ROWS {
                digest = own;
            }
            file.finish()?;
        }
        Ok((digest, listed))
    }
}

/// The digest of a list of rows without rows.
fn empty() -> String {
    ByteDigest::compute(b"ordinal,id,length,reason,start\n").to_string()
}
