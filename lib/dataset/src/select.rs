//! Selects rows by their ids.

use std::collections::HashSet;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use plmkit_contract::{ByteDigest, COMBINED, Kind, Provenance, Stop};
use plmkit_store::{EmbeddingsWriter, find_existing};
use serde_json::json;

use crate::{AskedIds, DatasetError, Merge, Parts};

/// The rows that were selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selected {
    /// Their number.
    pub rows: u64,
    /// Whether the file was there already.
    pub existing: bool,
}

/// Writes the rows of `ids` to an embeddings file at `path`, in the order of the input. Ids without rows are missing: they are an
/// error unless `allow_missing`. `force` replaces other work.
pub fn select(
    parts: &Parts,
    ids: &AskedIds,
    path: &Path,
    (allow_missing, force): (bool, bool),
    stop: &Stop,
) -> Result<Selected, DatasetError> {
    let provenance = provenance(parts, ids);
    if !force && let Some((_, digest)) = find_existing(path, Kind::Embeddings, &provenance, stop)? {
        return Ok(Selected {
            rows: digest.rows(),
            existing: true,
        });
    }
    let columns = 0..parts.layout.columns.len();
    let mut merge = Merge::new(parts, columns, stop).of_ids(ids);
    let mut writer = EmbeddingsWriter::create(path, &parts.layout)?;
    let mut missing = Missing::new(ids);
    while let Some(rows) = merge.next_rows()? {
        missing.remove_rows(&rows);
        writer.write(&rows)?;
    }
    missing.check(allow_missing)?;
    let rows = writer.finish(&provenance)?.rows();
    Ok(Selected {
        rows,
        existing: false,
    })
}

/// The asked ids without a row so far.
pub(crate) struct Missing<'a> {
    ids: &'a AskedIds,
    missing: HashSet<&'a str>,
}

impl<'a> Missing<'a> {
    pub(crate) fn new(ids: &'a AskedIds) -> Self {
        let missing = ids.in_order().iter().map(String::as_str).collect();
        Self { ids, missing }
    }

    /// Takes the ids of `rows` out.
    pub(crate) fn remove_rows(&mut self, rows: &RecordBatch) {
        let ids = rows["id"].as_string::<i32>().iter().flatten();
        ids.for_each(|id| self.remove(id));
    }

    /// Takes an id out.
    pub(crate) fn remove(&mut self, id: &str) {
        self.missing.remove(id);
    }

    /// Checks that none is missing, or that those may be.
    pub(crate) fn check(self, allow_missing: bool) -> Result<(), DatasetError> {
        let Self { ids, missing } = self;
        // They are of no protein: of these, no one wants to leave out those that are missing.
        let headers = missing.iter().any(|id| id.starts_with('>'));
        if !headers && (allow_missing || missing.is_empty()) {
            return Ok(());
        }
        let mut error = DatasetError::unknown(ids, |id| missing.contains(id));
        if let DatasetError::Unknown { why, .. } = &mut error
            && headers
        {
            why.push_str("; --fasta takes the ids of a FASTA file");
        }
        Err(error)
    }
}

fn provenance(parts: &Parts, ids: &AskedIds) -> Provenance {
    let mut sorted: Vec<&String> = ids.in_order().iter().collect();
    sorted.sort_unstable();
    let dataset = parts.digest().to_string();
    let work = ByteDigest::compute(json!([dataset, sorted]).to_string().as_bytes());
    Provenance {
        inputs: vec![dataset],
        rejects: None,
        ..parts.provenance()
    }
    .with(COMBINED, work.to_string())
}
