//! One pass over the inputs: reads records, and completes the files of a set.

mod add;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use plmkit_contract::{
    ALIASES_FILE, KNOWN_FILE, Kind, ListedFile, Manifest, PEPTIDES_FILE, REJECTS_FILE, RENAMED_FILE,
};
use plmkit_kit::{Stop, path_text};
use plmkit_store::{AtomicFile, ListWriter, RecordListWriter, StoreError, UnfinishedFolder};
use rayon::ScopeFifo;

use crate::aliases::Aliases;
use crate::assignment::Assigner;
use crate::chunk::prepare;
use crate::config::{ShardConfig, ShardTarget};
use crate::duplicate::DuplicateFilter;
use crate::error::ShardError;
use crate::fasta::{BLOCK_BYTES, FastaReader};
use crate::id_table::IdTable;
use crate::input::shown;
use crate::known::KnownDatasets;
use crate::nucleic_acids::NucleicAcidCheck;
use crate::policy::Policy;
use crate::shard_name::ShardKey;
use crate::shards::Shards;
use crate::tally::Tally;
use crate::tasks;
use crate::translate::Translator;

/// Reads records from the inputs, assigns them to shards in order, and counts them. Tasks do the rest.
pub(crate) struct ShardingRun<'a, 'scope> {
    config: &'a ShardConfig,
    folder: &'a UnfinishedFolder,
    policy: Policy,
    tasks: &'a ScopeFifo<'scope>,
    shards: Shards<'a, 'scope>,
    rejects: ListWriter,
    /// Created with the first renamed record.
    renamed: Option<ListWriter>,
    /// Where peptides lie on contigs, if contigs are translated.
    peptides: Option<RecordListWriter>,
    ids: DuplicateFilter,
    aliases: Aliases,
    /// Of usual proteins, and of those that are kept whole above the maximum.
    assigners: [Assigner; 2],
    tally: Tally,
    translator: Option<Arc<Translator>>,
    /// Records read so far. The manifest counts peptides, whose number is the ordinal of the next protein or reject.
    records: u64,
    /// The current input, and the records before it.
    input: &'a Path,
    before: u64,
}

impl<'a, 'scope> ShardingRun<'a, 'scope> {
    pub(crate) fn new(
        config: &'a ShardConfig,
        folder: &'scope UnfinishedFolder,
        tasks: &'a ScopeFifo<'scope>,
        known: Option<Vec<IdTable>>,
    ) -> Result<Self, ShardError> {
        let options = &config.options;
        let policy = options.policy;
        let row_groups_ahead = 2 * config.threads.get();
        let mut shards = Shards::new(folder, policy, tasks, row_groups_ahead)?;
        // The requested number of shards is made, even if some stay empty.
        let count = match options.target {
            ShardTarget::Shards(count) => count.get() as usize,
            ShardTarget::MaxTokens(_) => 1,
        };
        for index in 0..count {
            shards.open(ShardKey { long: false, index })?;
        }
        let peptides = (options.translation)
            .map(|_| RecordListWriter::create(&folder.file(PEPTIDES_FILE), Kind::Peptides))
            .transpose()?;
        Ok(Self {
            config,
            folder,
            policy,
            tasks,
            shards,
            rejects: ListWriter::create_rejects(&folder.file(REJECTS_FILE))?,
            renamed: None,
            peptides,
            ids: DuplicateFilter::new(options.duplicate_ids),
            aliases: Aliases::new(folder.path(), options.dedup, known)?,
            assigners: [options.target; 2].map(Assigner::new),
            tally: Tally::new(options.translation.is_some()),
            translator: options
                .translation
                .map(|translation| Arc::new(Translator::new(translation, policy.min_residues))),
            records: 0,
            input: Path::new(""),
            before: 0,
        })
    }

    /// Reads the ids of an input, so that no record is renamed to one of them.
    pub(crate) fn announce(&mut self, input: &Path, stop: &Stop) -> Result<(), ShardError> {
        let mut reader = FastaReader::open(input, self.config.limits(), stop)?;
        loop {
            StoreError::check(stop)?;
            match reader.read() {
                Ok(Some(records)) => {
                    let ids = records.iter().map(|record| record.id);
                    ids.filter(|id| !id.is_empty())
                        .for_each(|id| self.ids.announce(id));
                }
                Ok(None) => return Ok(()),
                Err(error) => return Err(explained(error, reader)),
            }
        }
    }

    /// Reads an input to its end.
    pub(crate) fn read(&mut self, input: &'a Path, stop: &Stop) -> Result<(), ShardError> {
        let mut reader = FastaReader::open(input, self.config.limits(), stop)?;
        (self.input, self.before) = (input, self.records);
        let mut unread = Ok(());
        if let Err(error) = self.add_all(&mut reader, &mut unread, stop) {
            return Err(match unread {
                // An earlier record than the damaged ones, which may have the same reason.
                Err(damage) if error.is_of_content() && !damage.is_of_content() => damage,
                _ => explained(error, reader),
            });
        }
        let summary = reader.finish(self.records - self.before)?;
        self.tally.manifest.inputs.push(summary);
        Ok(())
    }

    /// Adds all records of an input. `unread` is why the records after those that were read cannot be read.
    fn add_all(
        &mut self,
        reader: &mut FastaReader,
        unread: &mut Result<(), ShardError>,
        stop: &Stop,
    ) -> Result<(), ShardError> {
        let policy = self.policy;
        // Digests of proteins decide what becomes of them.
        let identify = self.config.options.dedup || !self.config.known.is_empty();
        let chunks_ahead = self.config.chunks_ahead();
        let translate = self.translator.is_some();
        let mut alphabet = (!self.config.any_alphabet).then(|| NucleicAcidCheck::new(translate));
        let mut ahead = VecDeque::new();
        let mut bytes_ahead = 0;
        let mut ended = false;
        loop {
            let judge = alphabet.as_ref().is_some_and(NucleicAcidCheck::is_open);
            while !ended
                && ahead.len() < chunks_ahead
                // Long contigs are read one by one.
                && bytes_ahead < BLOCK_BYTES * chunks_ahead
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
                ahead.push_back((bytes, tasks::start(self.tasks, prepare)));
            }
            let Some((bytes, chunk)) = ahead.pop_front() else {
                break;
            };
            bytes_ahead -= bytes;
            let (parsed, prepared) = tasks::wait(chunk);
            let fingerprints = prepared.iter().map(|record| record.fingerprint);
            self.ids.prefetch(fingerprints);
            for (record, prepared) in parsed.records.iter().zip(prepared) {
                StoreError::check(stop)?;
                if let Some(check) = &mut alphabet
                    && check.add(prepared.is_nucleic, prepared.outcome.is_err())
                {
                    return Err(check.error(self.input));
                }
                self.records += 1;
                self.add(record, prepared, stop)?;
            }
            for (change, count) in parsed.changes {
                self.tally.count_change(change, count);
            }
            if let Some(error) = parsed.error {
                self.records += 1;
                return Err(self.invalid(error));
            }
        }
        std::mem::replace(unread, Ok(()))?;
        match alphabet {
            Some(check) if check.is_unexpected() => Err(check.error(self.input)),
            _ => Ok(()),
        }
    }

    /// Makes the error of the current record.
    fn invalid(&self, error: String) -> ShardError {
        let input = shown(self.input).to_owned();
        ShardError::Record(input, self.records - self.before, error)
    }

    /// Returns the input of a record as text, and its 1-based number there. Records are counted from 0 over all inputs.
    fn place(&self, mut index: u64) -> (String, u64) {
        let mut i = 0;
        for input in &self.tally.manifest.inputs {
            if input.records > index {
                break;
            }
            index -= input.records;
            i += 1;
        }
        (path_text(shown(&self.config.inputs[i])), index + 1)
    }

    /// Completes the files, and returns them with their names, and the manifest.
    pub(crate) fn finish(
        self,
        known: Option<&KnownDatasets>,
    ) -> Result<(Vec<(String, AtomicFile)>, Manifest), ShardError> {
        if self.records == 0 && !self.config.allow_empty {
            return Err(ShardError::no_records(&self.config.inputs));
        }
        let inputs = self.tally.manifest.inputs.iter();
        let digests = inputs.map(|input| input.digest.clone());
        let provenance = self.config.provenance(digests.collect(), known);
        let mut files = Vec::new();
        let mut summaries = Vec::new();
        for (summary, file) in self.shards.finish(&provenance)? {
            files.push((summary.file.clone(), file));
            summaries.push(summary);
        }
        let mut lists = self.aliases.finish(&provenance)?;
        if let Some(peptides) = self.peptides {
            let (digest, file) = peptides.finish(&provenance)?;
            lists.push((PEPTIDES_FILE, digest, file));
        }
        let mut manifest = self.tally.finish(provenance, summaries);
        for (name, digest, file) in lists {
            let list = ListedFile::from_rows(name, digest);
            match name {
                ALIASES_FILE => manifest.aliases = Some(list),
                KNOWN_FILE => manifest.known = known.map(|known| known.summary(list)),
                _ => manifest.peptides = Some(list),
            }
            files.push((name.to_owned(), file));
        }
        if let Some(renamed) = self.renamed {
            let (digest, list) = renamed.finish()?;
            files.push((RENAMED_FILE.to_owned(), list));
            manifest.renamed_digest = Some(digest);
        }
        let (digest, rejects) = self.rejects.finish()?;
        files.push((REJECTS_FILE.to_owned(), rejects));
        manifest.rejects_digest = digest;
        Ok((files, manifest))
    }
}

/// Returns `error`, or damage later in the file that may be the reason for an invalid record.
fn explained(error: ShardError, reader: FastaReader) -> ShardError {
    if error.is_of_content() {
        reader.damage().unwrap_or(error)
    } else {
        error
    }
}
