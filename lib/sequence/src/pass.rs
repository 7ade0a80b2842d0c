//! One pass over the inputs.

use std::collections::VecDeque;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use plmkit_contract::{
    ALIASES_FILE, InputSummary, KNOWN_FILE, ListedFile, Reason, Reject, Renamed, Stop,
    UnknownResidue,
};
use plmkit_store::{FileSummary, Finished, ListWriter};

use crate::aliases::Aliases;
use crate::assignment::Assignment;
use crate::assignment::ShardKey;
use crate::chunk::{ChunkReader, prepare};
use crate::config::ShardConfig;
use crate::duplicate::{Ids, TakenId};
use crate::error::ShardError;
use crate::fasta::FastaReader;
use crate::folder::{FinishedSet, OutputFolder};
use crate::input::Input;
use crate::known::{KnownDatasets, KnownSequences};
use crate::nucleic_acids::NucleicAcidCheck;
use crate::prepare::{Outcome, Prepared};
use crate::records::Record;
use crate::residue::{InvalidPolicy, ResidueChanges};
use crate::shards::Shards;
use crate::tally::Tally;
use crate::tasks::Tasks;
use crate::translate::{Translated, Translator};

/// The most windows of a protein: its rows are in memory at once.
const MOST_WINDOWS: usize = 1 << 20;

/// Reads records from the inputs, assigns them to shards in order, and counts them. Tasks do the rest.
pub(crate) struct Pass<'a, 'scope> {
    config: &'a ShardConfig,
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
    /// The inputs read so far.
    inputs: Vec<InputSummary>,
    /// Records read so far.
    records: u64,
    /// The ordinal of the next protein or reject: the records so far, of which a translated one has one for each peptide.
    ordinal: u64,
}

impl<'a, 'scope> Pass<'a, 'scope> {
    pub(crate) fn new(
        config: &'a ShardConfig,
        folder: &'a OutputFolder,
        tasks: Tasks<'a, 'scope>,
        known: Option<KnownSequences>,
    ) -> Result<Self, ShardError> {
        let mut shards = Shards::new(folder.path(), tasks, config.row_groups_ahead())?;
        // The requested number of shards is made, even if some stay empty.
        for index in 0..config.open_shards() {
            shards.open(ShardKey { long: false, index })?;
        }
        Ok(Self {
            config,
            tasks,
            shards,
            rejects: ListWriter::create_rejects(&folder.rejects())?,
            renamed: None,
            renamed_path: folder.renamed(),
            ids: Ids::new(config.duplicates),
            aliases: Aliases::new(folder, config.dedup, known)?,
            assignment: Assignment::new(config.target),
            tally: Tally::new(config.translation.is_some()),
            translator: config.translator().map(Arc::new),
            inputs: Vec::new(),
            records: 0,
            ordinal: 0,
        })
    }

    /// Reads the ids of an input, so that no record is renamed to one of them. Returns false after a stop.
    pub(crate) fn announce(&mut self, input: &Input, stop: &Stop) -> Result<bool, ShardError> {
        let mut reader = FastaReader::open(input, self.config.limits, stop)?;
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
        let reader = FastaReader::open(input, self.config.limits, stop)?;
        let mut chunks = ChunkReader::new(reader);
        let first = self.records;
        match self.add_all(input, &mut chunks, stop) {
            Ok(true) => {
                let records = self.records - first;
                self.inputs.push(chunks.into_reader().finish(records)?);
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(error) => Err(match chunks.failed() {
                // An earlier record than the damaged ones, which may have the same reason.
                Some(damage) if error.is_of_content() && !damage.is_of_content() => damage,
                _ => explained(error, chunks.into_reader(), stop),
            }),
        }
    }

    /// Adds all records of an input. Returns false after a stop.
    fn add_all(
        &mut self,
        input: &Input,
        chunks: &mut ChunkReader,
        stop: &Stop,
    ) -> Result<bool, ShardError> {
        let policy = self.config.policy;
        let identify = self.config.identifies();
        let first = self.records;
        let translate = self.translator.is_some();
        let mut alphabet = (!self.config.any_alphabet).then(|| NucleicAcidCheck::new(translate));
        let mut ahead = VecDeque::new();
        let mut bytes_ahead = 0;
        loop {
            let judge = alphabet.as_ref().is_some_and(NucleicAcidCheck::is_open);
            while ahead.len() < self.config.chunks_ahead()
                && bytes_ahead < self.config.bytes_ahead()
                && let Some(block) = chunks.read()
            {
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
            let records = chunk.records.iter().zip(&chunk.prepared).zip(&chunk.names);
            let mut alphabets = chunk.alphabets.into_iter();
            for ((record, prepared), name) in records {
                if stop.requested() {
                    return Ok(false);
                }
                if let (Some(check), Some(found)) = (&mut alphabet, alphabets.next())
                    // A character that is invalid may be of the other alphabet, as all others.
                    && (check.add(found) || prepared.is_err() && check.is_unexpected())
                {
                    return Err(check.error(input));
                }
                let number = self.records - first + 1;
                self.add(input, number, record, *name, prepared, stop)?;
            }
            for (change, count) in [
                ("descriptions_recoded", chunk.descriptions_recoded),
                ("descriptions_cut", chunk.descriptions_cut),
            ] {
                self.tally.count_change(change, count);
            }
            if let Some(error) = chunk.error {
                return Err(error.of(input, self.records - first + 1));
            }
        }
        match chunks.failed() {
            Some(error) => Err(error),
            None if stop.requested() => Ok(false),
            None => match alphabet {
                Some(check) if check.is_unexpected() => Err(check.error(input)),
                _ => Ok(true),
            },
        }
    }

    /// Adds a record: the `number`-th of `input`, counted from 1.
    fn add(
        &mut self,
        input: &Input,
        number: u64,
        record: Record<'_>,
        name: u128,
        prepared: &Result<Outcome, UnknownResidue>,
        stop: &Stop,
    ) -> Result<(), ShardError> {
        let index = self.records;
        self.records += 1;
        let invalid = |problem: String| ShardError::Record {
            input: input.clone(),
            record: number,
            id: (!record.id.is_empty()).then(|| record.id.to_owned()),
            problem,
        };
        let mut renamed = None;
        if !record.id.is_empty() {
            match self.ids.admit_name(index, record.id, name) {
                Ok(new) => renamed = new,
                Err(TakenId::ByRecord { first }) => {
                    let (input, number) = self.place(first);
                    return Err(invalid(format!(
                        "expected a new id, found that of record {number} of {input}; --duplicate-ids suffix renames, keep allows it"
                    )));
                }
                Err(TakenId::ByRenaming) => {
                    let problem = "its id is one that --duplicate-ids suffix gave to an earlier record; expected inputs that can be read twice, so that all ids are known first: give files, not pipes";
                    return Err(invalid(problem.to_owned()));
                }
            }
        } else if self.config.policy.invalid != InvalidPolicy::Reject {
            let problem =
                "expected an id after '>', found none; --invalid reject sets the record aside";
            return Err(invalid(problem.to_owned()));
        }
        let prepared = prepared.as_ref().map_err(|UnknownResidue { position, found }| {
            let found = found.escape_ascii();
            let expected = if self.translator.is_some() {
                "bases"
            } else {
                "residues"
            };
            invalid(format!(
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
        match prepared {
            Outcome::Whole(prepared) => self.add_protein(record, prepared, &invalid),
            Outcome::Translated(found) => self.add_peptides(record, found, &invalid, stop),
        }
    }

    /// Adds the peptides of a contig, which end after a stop.
    fn add_peptides(
        &mut self,
        contig: Record<'_>,
        translated: &Translated,
        invalid: &dyn Fn(String) -> ShardError,
        stop: &Stop,
    ) -> Result<(), ShardError> {
        self.tally.count_translated(translated);
        if translated.len() == 0 {
            let (reason, length) = (Reason::NoOrf, translated.bases as u32);
            let rejected = Prepared::Rejected { reason, length };
            return self.add_protein(contig, &rejected, invalid);
        }
        let mut id = String::new();
        for (peptide, (place, sequence)) in translated.iter().enumerate() {
            if stop.requested() {
                break;
            }
            id.clear();
            let _ = write!(id, "{}_{place}", contig.id);
            let record = Record {
                id: &id,
                description: contig.description,
                sequence,
            };
            let length = sequence.len() as u32;
            let mut prepared = self.config.policy.accept(length, ResidueChanges::default());
            if let (Prepared::Accepted(found), Some(&whole)) =
                (&mut prepared, translated.digests.get(peptide))
            {
                *found = found.identified(whole, sequence);
            }
            self.add_protein(record, &prepared, invalid)?;
        }
        Ok(())
    }

    /// Adds a protein, or lists a rejected record.
    fn add_protein(
        &mut self,
        record: Record<'_>,
        prepared: &Prepared,
        invalid: &dyn Fn(String) -> ShardError,
    ) -> Result<(), ShardError> {
        let ordinal = self.ordinal;
        self.ordinal += 1;
        match *prepared {
            Prepared::Rejected { reason, length } => {
                let reject = Reject {
                    ordinal,
                    id: record.id.to_owned(),
                    length: u64::from(length),
                    reason,
                    start: None,
                };
                self.tally.count_rejected(&reject);
                self.rejects.push(&reject)?;
            }
            Prepared::Accepted(ref accepted) => {
                let protein = accepted.protein(ordinal, record);
                self.tally.count_normalised(protein.changes);
                if self.aliases.take(&protein)? {
                    return Ok(());
                }
                let windows = protein.windows().len();
                if windows > MOST_WINDOWS {
                    return Err(invalid(format!(
                        "{} residues are {windows} windows: expected at most {MOST_WINDOWS}; a larger --max-residues or a smaller --overlap makes fewer",
                        protein.length
                    )));
                }
                self.tally.count_accepted(&protein);
                let (key, full) = self.assignment.assign(&protein);
                if let Some(full) = full {
                    self.shards.close(full)?;
                }
                self.shards.push(key, accepted, protein)?;
            }
        }
        Ok(())
    }

    /// Lists a renamed record, by the ordinal that comes next.
    fn list_renamed(&mut self, old: &str, new: &str) -> Result<(), ShardError> {
        let ordinal = self.ordinal;
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
        while let Some(input) = self.inputs.get(i).filter(|input| input.records <= index) {
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
        let digests = self.inputs.iter().map(|input| input.digest.clone());
        let provenance = self.config.provenance(digests.collect(), known);
        let shards = self.shards.finish(&provenance)?;
        let summaries = shards.iter().map(|shard| shard.summary.clone()).collect();
        let rejects = self.rejects.finish()?;
        let lists = self.aliases.finish(&provenance)?;
        let renamed = self.renamed.map(ListWriter::finish).transpose()?;
        let mut manifest =
            self.tally
                .into_manifest(provenance, self.ordinal, self.inputs, &rejects, summaries);
        manifest.renamed_digest = renamed.as_ref().map(|list| list.summary().clone());
        let listed = |file: &str, list: &Finished<FileSummary>| {
            ListedFile::from_rows(file, list.summary().digest)
        };
        let aliases = lists.aliases.as_ref();
        manifest.aliases = aliases.map(|list| listed(ALIASES_FILE, list));
        let list = lists.known.as_ref().map(|list| listed(KNOWN_FILE, list));
        manifest.known = known.zip(list).map(|(known, list)| known.summary(list));
        Ok(FinishedSet {
            shards,
            rejects,
            renamed,
            lists,
            manifest,
        })
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
