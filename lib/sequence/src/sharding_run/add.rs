//! Adds records to a set: each becomes rows of a shard, or a line of a list.

use std::fmt::Write;

use plmkit_contract::{
    PeptideRow, RENAMED_FILE, Reason, Reject, Renamed, SPECIAL_TOKENS, SequenceDigest,
};
use plmkit_kit::Stop;
use plmkit_store::{ListWriter, StoreError};

use super::ShardingRun;
use crate::chunk::Prepared;
use crate::error::{ShardError, invalid_record, unknown_residue};
use crate::policy::Outcome;
use crate::records::Record;
use crate::residue::{InvalidPolicy, ResidueChanges};
use crate::shard_name::ShardKey;
use crate::translate::Translated;

/// The most windows of a protein: its rows are in memory at once.
const MOST_WINDOWS: usize = 1 << 20;

impl ShardingRun<'_, '_> {
    /// Adds a record.
    pub(super) fn add(
        &mut self,
        record: Record<'_>,
        prepared: Prepared,
        stop: &Stop,
    ) -> Result<(), ShardError> {
        let fingerprint = prepared.fingerprint;
        let invalid = |run: &Self, problem: &str| {
            let id = (!record.id.is_empty()).then_some(record.id);
            run.invalid(invalid_record(id, problem))
        };
        let mut renamed = None;
        if !record.id.is_empty() {
            if self.ids.drops(fingerprint, record.sequence) {
                return self.reject(record, Reason::Duplicate);
            }
            match self.ids.admit(self.records - 1, record.id, fingerprint) {
                Ok(new) => renamed = new,
                Err(Some(first)) => {
                    let (input, number) = self.place(first);
                    return Err(invalid(
                        self,
                        &format!(
                            "expected a new id, found that of record {number} of {input}; --duplicate-ids drop-identical lists it in rejects.csv if its residues are equal, suffix renames it, keep embeds it"
                        ),
                    ));
                }
                Err(None) => {
                    return Err(invalid(
                        self,
                        "its id is one that --duplicate-ids suffix gave to an earlier record; expected inputs that can be read twice, so that all ids are known first: give files, not pipes",
                    ));
                }
            }
        } else if self.policy.invalid != InvalidPolicy::Reject {
            return Err(invalid(
                self,
                "expected an id after '>', found none; --invalid reject sets the record aside",
            ));
        }
        let outcome = prepared.outcome.map_err(|unknown| {
            let id = (!record.id.is_empty()).then_some(record.id);
            self.invalid(unknown_residue(id, &unknown, self.translator.is_some()))
        })?;
        if let Some(new) = &renamed {
            self.tally.count_change("ids_suffixed", 1);
            self.list_renamed(record.id, new)?;
        }
        let record = Record {
            id: renamed.as_deref().unwrap_or(record.id),
            ..record
        };
        let digests = &prepared.digests;
        match outcome {
            Outcome::Accepted(changes) => {
                self.add_protein(record, changes, digests.first().copied())
            }
            Outcome::Rejected(reason) => self.reject(record, reason),
            Outcome::Translated(found) => self.add_peptides(record, &found, digests, stop),
        }
    }

    /// Adds the peptides of a contig.
    fn add_peptides(
        &mut self,
        contig: Record<'_>,
        translated: &Translated,
        digests: &[SequenceDigest],
        stop: &Stop,
    ) -> Result<(), ShardError> {
        self.tally
            .count_translated(contig.sequence.len(), translated);
        if translated.len() == 0 {
            return self.reject(contig, Reason::NoOrf);
        }
        let mut id = String::new();
        for (i, (place_on_contig, sequence)) in translated.iter().enumerate() {
            StoreError::check(stop)?;
            id.clear();
            let _ = write!(id, "{}_{place_on_contig}", contig.id);
            if let Some(list) = &mut self.peptides {
                list.push(&PeptideRow {
                    ordinal: self.tally.manifest.records,
                    contig: contig.id,
                    start: place_on_contig.start,
                    end: place_on_contig.end,
                    frame: place_on_contig.frame,
                })?;
            }
            let peptide = Record {
                id: &id,
                description: contig.description,
                sequence,
            };
            let digest = digests.get(i).copied();
            match self.policy.reject(sequence.len()) {
                Some(reason) => self.reject(peptide, reason)?,
                None => self.add_protein(peptide, ResidueChanges::default(), digest)?,
            }
        }
        Ok(())
    }

    /// Lists a rejected record, whose sequence was normalised.
    fn reject(&mut self, record: Record<'_>, reason: Reason) -> Result<(), ShardError> {
        let reject = Reject {
            ordinal: self.next_ordinal(),
            id: record.id.to_owned(),
            length: record.sequence.len() as u64,
            reason,
            start: None,
        };
        self.tally.count_rejected(reason);
        Ok(self.rejects.push(&reject)?)
    }

    /// Adds a protein, or lists it if another row has its residues.
    fn add_protein(
        &mut self,
        record: Record<'_>,
        changes: ResidueChanges,
        digest: Option<SequenceDigest>,
    ) -> Result<(), ShardError> {
        let ordinal = self.next_ordinal();
        let protein = self.policy.protein(ordinal, record);
        self.tally.count_normalised(changes);
        if let Some(digest) = digest
            && self.aliases.take(&protein, digest)?
        {
            return Ok(());
        }
        let length = protein.key.length;
        let windows = self.policy.windows(length);
        let rows = windows.len();
        if rows > MOST_WINDOWS {
            let problem = format!(
                "{length} residues are {rows} windows: expected at most {MOST_WINDOWS}; a larger --max-residues or a smaller --overlap makes fewer"
            );
            return Err(self.invalid(invalid_record(Some(record.id), problem)));
        }
        self.tally.count_accepted(&self.policy, length);
        let tokens = windows.map(|window| u64::from(window.end - window.start + SPECIAL_TOKENS));
        let long = self.policy.separates(length);
        let (index, full) = self.assigners[usize::from(long)].assign(tokens.sum());
        if let Some(index) = full {
            self.shards.end_row_group(ShardKey { long, index })?;
        }
        Ok(self.shards.push(ShardKey { long, index }, protein)?)
    }

    fn next_ordinal(&mut self) -> u64 {
        let records = &mut self.tally.manifest.records;
        *records += 1;
        *records - 1
    }

    /// Lists a renamed record, by the ordinal that comes next.
    fn list_renamed(&mut self, old: &str, new: &str) -> Result<(), ShardError> {
        let ordinal = self.tally.manifest.records;
        let list = match &mut self.renamed {
            Some(list) => list,
            none => none.insert(ListWriter::create_renames(&self.folder.file(RENAMED_FILE))?),
        };
        Ok(list.push(&Renamed {
            ordinal,
            id: old.to_owned(),
            new_id: new.to_owned(),
        })?)
    }
}
