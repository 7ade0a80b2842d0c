//! One pass over the inputs: reads records, and completes the files of a set.

mod add;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use plmkit_contract::{ALIASES_FILE, KNOWN_FILE, Kind, ListedFile, PEPTIDES_FILE, Stop};
use plmkit_store::{FileSummary, Finished, ListWriter, PeptidesWriter};

use self::add::RecordPlace;
use crate::aliases::Aliases;
use crate::assignment::{Assignment, ShardKey};
use crate::chunk::prepare;
use crate::config::ShardConfig;
use crate::duplicate::Ids;
use crate::error::ShardError;
use crate::fasta::FastaReader;
use crate::folder::{FinishedSet, OutputFolder, REJECTS, RENAMED};
use crate::input::Input;
use crate::known::{KnownDatasets, KnownSequences};
use crate::nucleic_acids::NucleicAcidCheck;
use crate::policy::Policy;
use crate::shards::Shards;
use crate::tally::Tally;
use crate::tasks::Tasks;
use crate::translate::Translator;

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
    /// Where peptides lie on contigs, if contigs are translated.
    peptides: Option<PeptidesWriter>,
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
        let peptides = (options.translation)
            .map(|_| PeptidesWriter::create(&folder.file(PEPTIDES_FILE), Kind::Peptides))
            .transpose()?;
        Ok(Self {
            config,
            policy,
            tasks,
            shards,
            rejects: ListWriter::create_rejects(&folder.file(REJECTS))?,
            renamed: None,
            renamed_path: folder.file(RENAMED),
            peptides,
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
            self.ids.prefetch(&chunk.fingerprints);
            let parsed = chunk.parsed;
            let mut alphabets = chunk.alphabets.into_iter();
            let mut digests = chunk.digests.into_iter();
            let records = parsed.records.iter().zip(chunk.outcomes);
            for ((record, outcome), fingerprint) in records.zip(chunk.fingerprints) {
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
                self.add(place, record, fingerprint, outcome, &mut digests, stop)?;
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
        if self.records == 0 && !self.config.allow_empty {
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
        let peptides = self.peptides.map(|list| list.finish(&provenance));
        let peptides = peptides.transpose()?;
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
        manifest.peptides = peptides.map(|list| listed(PEPTIDES_FILE, list));
        manifest.aliases = aliases.map(|list| listed(ALIASES_FILE, list));
        let list = list.map(|list| listed(KNOWN_FILE, list));
        manifest.known = known.zip(list).map(|(known, list)| known.summary(list));
        let (digest, rejects) = self.rejects.finish()?.split();
        files.push((REJECTS.to_owned(), rejects));
        manifest.rejects_digest = digest;
        Ok(FinishedSet { files, manifest })
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
