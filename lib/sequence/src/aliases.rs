//! Records that are in no shard, because another row has their residues.

use plmkit_contract::{ALIASES_FILE, AliasRow, KNOWN_FILE, Kind, Provenance, SequenceDigest};
use plmkit_store::{AliasesWriter, FileSummary, Finished, StoreError};

use crate::folder::OutputFolder;
use crate::id_table::IdTable;
use crate::known::KnownSequences;
use crate::protein::Protein;

/// The digests of a protein.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Of all its residues.
    pub(crate) whole: SequenceDigest,
    /// Of the residues in its rows, all windows together.
    pub(crate) embedded: SequenceDigest,
}

/// Finds the records whose residues another row has, and lists them.
pub(crate) struct Aliases {
    /// The ordinals of the proteins in shards, and the list of their duplicates.
    own: Option<(IdTable, AliasesWriter)>,
    /// The proteins of known datasets, and the list of those that came again.
    known: Option<(KnownSequences, AliasesWriter)>,
}

/// The complete lists, which are not published yet.
#[derive(Default)]
pub(crate) struct FinishedAliases {
    pub(crate) aliases: Option<Finished<FileSummary>>,
    pub(crate) known: Option<Finished<FileSummary>>,
}

impl Aliases {
    /// Starts the lists that are asked for.
    pub(crate) fn new(
        folder: &OutputFolder,
        dedup: bool,
        known: Option<KnownSequences>,
    ) -> Result<Self, StoreError> {
        let list = |name, kind| AliasesWriter::create(&folder.path().join(name), kind);
        let own = dedup.then(|| Ok((IdTable::default(), list(ALIASES_FILE, Kind::Aliases)?)));
        let known = known.map(|known| Ok((known, list(KNOWN_FILE, Kind::Known)?)));
        Ok(Self {
            own: own.transpose()?,
            known: known.transpose()?,
        })
    }

    /// Lists a protein if another row has its residues. Otherwise it must become rows of a shard.
    ///
    /// A sequence of a known dataset is never the representative of another record: each of its records is known.
    pub(crate) fn take(&mut self, protein: &Protein<'_>) -> Result<bool, StoreError> {
        let Some(Identity { whole, embedded }) = protein.identity else {
            return Ok(false);
        };
        let row = |dataset, representative| AliasRow {
            ordinal: protein.ordinal,
            id: protein.id,
            description: protein.description,
            length: protein.length,
            truncated: protein.is_truncated(),
            digest: embedded,
            dataset,
            representative,
        };
        if let Some((known, list)) = &mut self.known
            && let Some((dataset, representative)) = known.find(embedded)
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

    /// Completes the lists.
    pub(crate) fn finish(self, provenance: &Provenance) -> Result<FinishedAliases, StoreError> {
        let finish = |list: AliasesWriter| list.finish(provenance);
        Ok(FinishedAliases {
            aliases: self.own.map(|(_, list)| finish(list)).transpose()?,
            known: self.known.map(|(_, list)| finish(list)).transpose()?,
        })
    }
}
