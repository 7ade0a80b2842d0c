//! Records that are in no shard, because another row has their residues.

use std::path::Path;

use plmkit_contract::{ALIASES_FILE, AliasRow, KNOWN_FILE, Kind, Provenance, SequenceDigest};
use plmkit_store::{AliasesWriter, FileSummary, Finished, StoreError};

use crate::id_table::IdTable;
use crate::known::KnownSequences;
use crate::protein::Protein;

/// Finds the records whose residues another row has, and lists them.
pub(crate) struct Aliases {
    /// The ordinals of the proteins in shards, and the list of their duplicates.
    own: Option<(IdTable, AliasesWriter)>,
    /// The proteins of known datasets, and the list of those that came again.
    known: Option<(KnownSequences, AliasesWriter)>,
}

impl Aliases {
    /// Starts the lists that are asked for.
    pub(crate) fn new(
        folder: &Path,
        dedup: bool,
        known: Option<KnownSequences>,
    ) -> Result<Self, StoreError> {
        let list = |name, kind| AliasesWriter::create(&folder.join(name), kind);
        let own = dedup.then(|| Ok((IdTable::default(), list(ALIASES_FILE, Kind::Aliases)?)));
        let known = known.map(|known| Ok((known, list(KNOWN_FILE, Kind::Known)?)));
        Ok(Self {
            own: own.transpose()?,
            known: known.transpose()?,
        })
    }

    /// Lists a protein, whose residues have the digest `whole`, if another row has them. Otherwise it must become rows of a shard.
    ///
    /// A sequence of a known dataset is never the representative of another record: each of its records is known.
    pub(crate) fn take(
        &mut self,
        protein: Protein<'_>,
        whole: SequenceDigest,
    ) -> Result<bool, StoreError> {
        let embedded = || {
            if protein.is_truncated() {
                SequenceDigest::new(protein.residues)
            } else {
                whole
            }
        };
        let row = |dataset, representative| AliasRow {
            ordinal: protein.ordinal,
            id: protein.id,
            description: protein.description,
            length: protein.length,
            truncated: protein.is_truncated(),
            digest: embedded(),
            dataset,
            representative,
        };
        if let Some((known, list)) = &mut self.known
            && let Some((dataset, representative)) = known.find(embedded())
        {
            list.push(&row(Some(dataset), representative))?;
            return Ok(true);
        }
        if let Some((seen, list)) = &mut self.own
            && let Some(representative) = seen.add(whole.value(), protein.ordinal)
        {
            list.push(&row(None, representative))?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Completes the lists: of duplicates, and of records that are known.
    pub(crate) fn finish(
        self,
        provenance: &Provenance,
    ) -> Result<[Option<Finished<FileSummary>>; 2], StoreError> {
        let finish = |list: AliasesWriter| list.finish(provenance);
        Ok([
            self.own.map(|(_, list)| finish(list)).transpose()?,
            self.known.map(|(_, list)| finish(list)).transpose()?,
        ])
    }
}
