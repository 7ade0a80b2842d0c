//! Records that are in no shard, because another row has their residues.

use std::path::Path;

use plmkit_contract::{
    ALIASES_FILE, AliasRow, KNOWN_FILE, Kind, Provenance, RowDigest, RowKey, SequenceDigest,
    ShardRow,
};
use plmkit_store::{AtomicFile, RecordListWriter, StoreError};

use crate::id_table::IdTable;

/// Finds the records whose residues another row has, and lists them.
pub(crate) struct Aliases {
    /// The ordinals of the proteins in shards, and the list of their duplicates.
    own: Option<(IdTable, RecordListWriter)>,
    /// The ordinals of the rows of each known dataset, and the list of the proteins that came again.
    known: Option<(Vec<IdTable>, RecordListWriter)>,
}

impl Aliases {
    /// Starts the lists that are asked for.
    pub(crate) fn new(
        folder: &Path,
        dedup: bool,
        known: Option<Vec<IdTable>>,
    ) -> Result<Self, StoreError> {
        let list = |name, kind| RecordListWriter::create(&folder.join(name), kind);
        let own = dedup.then(|| Ok((IdTable::default(), list(ALIASES_FILE, Kind::Aliases)?)));
        let known = known.map(|known| Ok((known, list(KNOWN_FILE, Kind::Known)?)));
        Ok(Self {
            own: own.transpose()?,
            known: known.transpose()?,
        })
    }

    /// Lists a protein, all whose residues have the digest `whole`, if another row has them. Otherwise it must become rows of a
    /// shard.
    ///
    /// A sequence of a known dataset is never the representative of another record: each of its records is known.
    pub(crate) fn take(
        &mut self,
        protein: &ShardRow<'_>,
        whole: SequenceDigest,
    ) -> Result<bool, StoreError> {
        let embedded = || {
            if protein.key.truncated {
                SequenceDigest::new(protein.sequence.as_bytes())
            } else {
                whole
            }
        };
        let row = |dataset, representative| AliasRow {
            key: RowKey {
                digest: embedded(),
                ..protein.key
            },
            description: protein.description,
            dataset,
            representative,
        };
        if let Some((known, list)) = &mut self.known {
            let residues = embedded().value();
            let mut known = (0..).zip(known);
            let found = known.find_map(|(dataset, rows)| Some((dataset, rows.get(residues)?)));
            if let Some((dataset, representative)) = found {
                list.push(&row(Some(dataset), representative))?;
                return Ok(true);
            }
        }
        if let Some((seen, list)) = &mut self.own
            && let Some(representative) = seen.add(whole.value(), protein.key.ordinal)
        {
            list.push(&row(None, representative))?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Completes the lists, and returns their names and digests.
    pub(crate) fn finish(
        self,
        provenance: &Provenance,
    ) -> Result<Vec<(&'static str, RowDigest, AtomicFile)>, StoreError> {
        let own = self.own.map(|(_, list)| (ALIASES_FILE, list));
        let known = self.known.map(|(_, list)| (KNOWN_FILE, list));
        let lists = own.into_iter().chain(known).map(|(name, list)| {
            let (digest, file) = list.finish(provenance)?;
            Ok((name, digest, file))
        });
        lists.collect()
    }
}
