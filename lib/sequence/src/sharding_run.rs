//! One pass over the inputs: records become rows of shards, or lines of lists.

use std::collections::VecDeque;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use plmkit_contract::{
    ALIASES_FILE, KNOWN_FILE, ListedFile, Reason, Reject, Renamed, SPECIAL_TOKENS, SequenceDigest,
    Stop, UnknownResidue,
};
use plmkit_store::{FileSummary, Finished, ListWriter};

use crate::aliases::Aliases;
use crate::assignment::{Assignment, ShardKey};
use crate::chunk::prepare;
use crate::config::ShardConfig;
use crate::duplicate::{Ids, TakenId};
use crate::error::ShardError;
use crate::fasta::FastaReader;
use crate::folder::{FinishedSet, OutputFolder, REJECTS, RENAMED};
use crate::input::Input;
use crate::known::{KnownDatasets, KnownSequences};
use crate::nucleic_acids::NucleicAcidCheck;
use crate::policy::{Outcome, Policy};
use crate::protein::Protein;
use crate::records::Record;
use crate::residue::{InvalidPolicy, ResidueChanges};
use crate::shards::Shards;
use crate::tally::Tally;
use crate::tasks::Tasks;
use crate::translate::{Translated, Translator};

/// The most windows of a protein: its rows are in memory at once.
const MOST_WINDOWS: usize = 1 << 20;

/// Reads records from the inputs, assigns them to shards in order, and counts them. Tasks do the rest.
pub(crate) struct ShardingRun<'a, 'scope> {
    config: &'a ShardConfig,
    policy: Policy,
    tasks: Tasks<'a, 'scope>,
    shards: Shards<'a, 'scope>,
    rejects: ListWriter,
    /// Created with the first renamed record.
    renamed: Option<ListWriter>,
    renamed_path: PathBuf,
    ids: Ids,
    aliases: Aliases,
    assignment: Assignment,
    tally: Tally,
    translator: Option<Arc<Translator>>,
    /// Records read so far. The manifest counts peptides, whose number is the ordinal of the next protein or reject.
    records: u64,
}

impl<'a, 'scope> ShardingRun<'a, 'scope> {
    pub(crate) fn new(
        config: &'a ShardConfig,
        folder: &'a OutputFolder,
        tasks: Tasks<'a, 'scope>,
        known: Option<KnownSequences>,
    ) -> Result<Self, ShardError> {
        let options = &config.options;
        let policy = options.policy;
        let mut shards = Shards::new(folder.path(), policy, tasks, config.row_groups_ahead())?;
        // The requested number of shards is made, even if some stay empty.
        for index in 0..config.open_shards() {
            shards.open(ShardKey { long: false, index })?;
        }
        Ok(Self {
            config,
            policy,
            tasks,
            shards,
            rejects: ListWriter::create_rejects(&folder.rejects())?,
            renamed: None,
            renamed_path: folder.renamed(),
            ids: Ids::new(options.duplicate_ids),
            aliases: Aliases::new(folder.path(), options.dedup, known)?,
            assignment: Assignment::new(options.target),
            tally: Tally::new(options.translation.is_some()),
            translator: config.translator().map(Arc::new),
            records: 0,
        })
    }

    /// Reads the ids of an input, so that no record is renamed to one of them. Returns false after a stop.
    pub(crate) fn announce(&mut self, input: &Input, stop: &Stop) -> Result<bool, ShardError> {
        let mut reader = FastaReader::open(input, self.config.limits(), stop)?;
        loop {
            match reader.read() {
                Ok(Some(records)) if !stop.requested() => {
                    let ids = records.iter().map(|record| record.id);
                    ids.filter(|id| !id.is_empty())
                        .for_each(|id| self.ids.announce(id));
                }
                Ok(_) => return Ok(!stop.requested()),
                Err(error) => return Err(explained(error, reader, stop)),
            }
        }
    }

    /// Reads an input to its end. Returns false after a stop.
    pub(crate) fn read(&mut self, input: &Input, stop: &Stop) -> Result<bool, ShardError> {
        let mut reader = FastaReader::open(input, self.config.limits(), stop)?;
        let first = self.records;
        let mut unread = Ok(());
        match self.add_all(input, &mut reader, &mut unread, stop) {
            Ok(true) => {
                self.tally
                    .manifest
                    .inputs
                    .push(reader.finish(self.records - first)?);
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(error) => Err(match unread {
                // An earlier record than the damaged ones, which may have the same reason.
                Err(damage) if error.is_of_content() && !damage.is_of_content() => damage,
                _ => explained(error, reader, stop),
            }),
        }
    }

    /// Adds all records of an input. `unread` is why the records after those that were read cannot be read. Returns false after a
    /// stop.
    fn add_all(
        &mut self,
        input: &Input,
        reader: &mut FastaReader,
        unread: &mut Result<(), ShardError>,
        stop: &Stop,
    ) -> Result<bool, ShardError> {
        let policy = self.policy;
        let identify = self.config.identifies();
        let first = self.records;
        let translate = self.translator.is_some();
        let mut alphabet = (!self.config.any_alphabet).then(|| NucleicAcidCheck::new(translate));
        let mut ahead = VecDeque::new();
        let mut bytes_ahead = 0;
        let mut ended = false;
        loop {
            let judge = alphabet.as_ref().is_some_and(NucleicAcidCheck::is_open);
            while !ended
                && ahead.len() < self.config.chunks_ahead()
                && bytes_ahead < self.config.bytes_ahead()
            {
                let block = reader.read_block().unwrap_or_else(|error| {
                    *unread = Err(error);
                    None
                });
                let Some(block) = block else {
                    ended = true;
                    break;
                };
                let bytes = block.text.len();
                bytes_ahead += bytes;
                let translator = self.translator.clone();
                let prepare =
                    move || prepare(&policy, translator.as_deref(), block, judge, identify);
                ahead.push_back((bytes, self.tasks.start(prepare)));
            }
            let Some((bytes, chunk)) = ahead.pop_front() else {
                break;
            };
            bytes_ahead -= bytes;
            let chunk = chunk.wait();
            self.ids.prefetch(&chunk.names);
            let parsed = chunk.parsed;
            let mut alphabets = chunk.alphabets.into_iter();
            let mut digests = chunk.digests.into_iter();
            let records = parsed.records.iter().zip(chunk.outcomes).zip(chunk.names);
            for ((record, outcome), name) in records {
                if stop.requested() {
                    return Ok(false);
                }
                if let (Some(check), Some(found)) = (&mut alphabet, alphabets.next())
                    // A character that is invalid may be of the other alphabet, as all others.
                    && (check.add(found) || outcome.is_err() && check.is_unexpected())
                {
                    return Err(check.error(input));
                }
                let number = self.records - first + 1;
                let place = RecordPlace {
                    input,
                    number,
                    id: record.id,
                };
                self.add(place, record, name, outcome, &mut digests, stop)?;
            }
            for (change, count) in [
                ("descriptions_recoded", parsed.descriptions_recoded),
                ("descriptions_cut", parsed.descriptions_cut),
            ] {
                self.tally.count_change(change, count);
            }
            if let Some(error) = parsed.error {
                return Err(error.of(input, self.records - first + 1));
            }
        }
        std::mem::replace(unread, Ok(()))?;
        match alphabet {
            _ if stop.requested() => Ok(false),
            Some(check) if check.is_unexpected() => Err(check.error(input)),
            _ => Ok(true),
        }
    }

    /// Adds a record of this place. `digests` are those of its proteins and of later ones, if they were computed.
    fn add(
        &mut self,
        place: RecordPlace<'_>,
        record: Record<'_>,
        name: u128,
        outcome: Result<Outcome, UnknownResidue>,
        digests: &mut impl Iterator<Item = SequenceDigest>,
        stop: &Stop,
    ) -> Result<(), ShardError> {
        let index = self.records;
        self.records += 1;
        let mut renamed = None;
        if !record.id.is_empty() {
            match self.ids.admit(index, record.id, name) {
                Ok(new) => renamed = new,
                Err(TakenId::ByRecord { first }) => {
                    let (input, number) = self.place(first);
                    return Err(place.invalid(format!(
                        "expected a new id, found that of record {number} of {input}; --duplicate-ids suffix renames, keep allows it"
                    )));
                }
                Err(TakenId::ByRenaming) => {
                    return Err(place.invalid("its id is one that --duplicate-ids suffix gave to an earlier record; expected inputs that can be read twice, so that all ids are known first: give files, not pipes"));
                }
            }
        } else if self.policy.invalid != InvalidPolicy::Reject {
            return Err(place.invalid(
                "expected an id after '>', found none; --invalid reject sets the record aside",
            ));
        }
        let outcome = outcome.map_err(|UnknownResidue { position, found }| {
            let found = found.escape_ascii();
            let expected = if self.translator.is_some() {
                "bases"
            } else {
                "residues"
            };
            place.invalid(format!(
                "expected {expected}, found '{found}' at position {position}; --invalid x replaces such characters, --invalid reject sets the record aside"
            ))
        })?;
        if let Some(new) = &renamed {
            self.tally.count_change("ids_suffixed", 1);
            self.list_renamed(record.id, new)?;
        }
        let record = Record {
            id: renamed.as_deref().unwrap_or(record.id),
            ..record
        };
        match outcome {
            Outcome::Accepted(changes) => self.add_protein(place, record, changes, digests.next()),
            Outcome::Rejected(reason) => self.reject(record, reason),
            Outcome::Translated(found) => self.add_peptides(place, record, &found, digests, stop),
        }
    }

    /// Adds the peptides of a contig, which end after a stop.
    fn add_peptides(
        &mut self,
        place: RecordPlace<'_>,
        contig: Record<'_>,
        translated: &Translated,
        digests: &mut impl Iterator<Item = SequenceDigest>,
        stop: &Stop,
    ) -> Result<(), ShardError> {
        self.tally
            .count_translated(contig.sequence.len(), translated);
        if translated.len() == 0 {
            return self.reject(contig, Reason::NoOrf);
        }
        let mut id = String::new();
        for (frame, sequence) in translated.iter() {
            if stop.requested() {
                break;
            }
            id.clear();
            let _ = write!(id, "{}_{frame}", contig.id);
            let peptide = Record {
                id: &id,
                description: contig.description,
                sequence,
            };
            let digest = digests.next();
            match self.policy.reject(sequence.len()) {
                Some(reason) => self.reject(peptide, reason)?,
                None => self.add_protein(place, peptide, ResidueChanges::default(), digest)?,
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
        place: RecordPlace<'_>,
        record: Record<'_>,
        changes: ResidueChanges,
        digest: Option<SequenceDigest>,
    ) -> Result<(), ShardError> {
        let ordinal = self.next_ordinal();
        let protein = Protein::new(&self.policy, ordinal, record);
        self.tally.count_normalised(changes);
        if let Some(digest) = digest
            && self.aliases.take(protein, digest)?
        {
            return Ok(());
        }
        let length = protein.length;
        let windows = self.policy.windows(length);
        let rows = windows.len();
        if rows > MOST_WINDOWS {
            return Err(place.invalid(format!(
                "{length} residues are {rows} windows: expected at most {MOST_WINDOWS}; a larger --max-residues or a smaller --overlap makes fewer"
            )));
        }
        self.tally.count_accepted(&self.policy, length);
        let tokens = windows.map(|window| u64::from(window.end - window.start + SPECIAL_TOKENS));
        let is_long = self.policy.splits_off(length);
        let (key, full) = self.assignment.assign(is_long, tokens.sum());
        if let Some(full) = full {
            self.shards.close(full)?;
        }
        Ok(self.shards.push(key, protein)?)
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
            none => none.insert(ListWriter::create_renames(&self.renamed_path)?),
        };
        Ok(list.push(&Renamed {
            ordinal,
            id: old.to_owned(),
            new_id: new.to_owned(),
        })?)
    }

    /// Returns the input of a record, and its 1-based number there. Records are counted from 0 over all inputs.
    fn place(&self, mut index: u64) -> (Input, u64) {
        let mut i = 0;
        for input in &self.tally.manifest.inputs {
            if input.records > index {
                break;
            }
            index -= input.records;
            i += 1;
        }
        (self.config.inputs[i].clone(), index + 1)
    }

    pub(crate) fn finish(self, known: Option<&KnownDatasets>) -> Result<FinishedSet, ShardError> {
        if self.records == 0 {
            let names: Vec<String> = self.config.inputs.iter().map(Input::to_string).collect();
            return Err(ShardError::NoRecords(names.join(", ")));
        }
        let digests = self
            .tally
            .manifest
            .inputs
            .iter()
            .map(|input| input.digest.clone());
        let provenance = self.config.provenance(digests.collect(), known);
        let mut files = Vec::new();
        let mut summaries = Vec::new();
        for (summary, shard) in self.shards.finish(&provenance)? {
            files.push((summary.file.clone(), shard.split().1));
            summaries.push(summary);
        }
        let [aliases, list] = self.aliases.finish(&provenance)?;
        let mut manifest = self.tally.finish(provenance, summaries);
        if let Some(renamed) = self.renamed {
            let (digest, list) = renamed.finish()?.split();
            files.push((RENAMED.to_owned(), list));
            manifest.renamed_digest = Some(digest);
        }
        let mut listed = |name: &str, list: Finished<FileSummary>| {
            let (summary, list) = list.split();
            files.push((name.to_owned(), list));
            ListedFile::from_rows(name, summary.digest)
        };
        manifest.aliases = aliases.map(|list| listed(ALIASES_FILE, list));
        let list = list.map(|list| listed(KNOWN_FILE, list));
        manifest.known = known.zip(list).map(|(known, list)| known.summary(list));
        let (digest, rejects) = self.rejects.finish()?.split();
        files.push((REJECTS.to_owned(), rejects));
        manifest.rejects_digest = digest;
        Ok(FinishedSet { files, manifest })
    }
}

/// The place of a record in the inputs, for messages.
#[derive(Clone, Copy)]
struct RecordPlace<'a> {
    input: &'a Input,
    /// Its 1-based number in the input.
    number: u64,
    id: &'a str,
}

impl RecordPlace<'_> {
    fn invalid(&self, problem: impl Into<String>) -> ShardError {
        ShardError::Record {
            input: self.input.clone(),
            record: self.number,
            id: (!self.id.is_empty()).then(|| self.id.to_owned()),
            problem: problem.into(),
        }
    }
}

/// Returns `error`, or damage later in the file that may be the reason for an invalid record.
fn explained(error: ShardError, reader: FastaReader, stop: &Stop) -> ShardError {
    if error.is_of_content() {
        reader.damage(stop).unwrap_or(error)
    } else {
        error
    }
}
