//! One pass over the inputs.

use std::path::PathBuf;

use plmkit_contract::{InputSummary, Renamed, Stop};
use plmkit_store::ListWriter;

use crate::alphabet::AlphabetCheck;
use crate::assignment::Assignment;
use crate::config::Config;
use crate::duplicate::{Ids, TakenId};
use crate::encoders::Encoders;
use crate::error::ShardError;
use crate::fasta::{FastaError, FastaReader, Limits, Record};
use crate::folder::{FinishedSet, OutputFolder};
use crate::input::Input;
use crate::prepare::Prepared;
use crate::protein::Protein;
use crate::residue::InvalidPolicy;
use crate::shard_key::ShardKey;
use crate::tally::Tally;

/// Takes records from the inputs to the encoders and counts them.
pub(crate) struct Pass<'a, 'scope> {
    config: &'a Config,
    encoders: Encoders<'scope>,
    rejects: ListWriter,
    /// Begun with the first record that gets another id.
    renamed: Option<ListWriter>,
    renamed_path: PathBuf,
    ids: Ids,
    assignment: Assignment,
    tally: Tally,
    /// The inputs read so far.
    inputs: Vec<InputSummary>,
    /// Records read so far.
    records: u64,
}

impl<'a, 'scope> Pass<'a, 'scope> {
    pub(crate) fn new(
        config: &'a Config,
        folder: &OutputFolder,
        mut encoders: Encoders<'scope>,
    ) -> Result<Self, ShardError> {
        // Shards that stay empty are made too: so many were asked for, and a set has at least one.
        for index in 0..config.open_shards() {
            encoders.open(ShardKey { long: false, index })?;
        }
        Ok(Self {
            config,
            encoders,
            rejects: ListWriter::of_records(&folder.rejects())?,
            renamed: None,
            renamed_path: folder.renamed(),
            ids: Ids::new(config.duplicates),
            assignment: Assignment::new(config.target),
            tally: Tally::default(),
            inputs: Vec::new(),
            records: 0,
        })
    }

    /// Reads only the ids of an input, so that no record is given one of them; false where a stop was asked for.
    pub(crate) fn announce(&mut self, input: &Input, stop: &Stop) -> Result<bool, ShardError> {
        let read = read_all(input, self.config.limits, stop, |record| {
            if !record.id.is_empty() {
                self.ids.announce(&record.id);
            }
            Ok(())
        });
        Ok(read?.is_some())
    }

    /// Reads an input to its end; false where a stop was asked for.
    pub(crate) fn read(&mut self, input: &Input, stop: &Stop) -> Result<bool, ShardError> {
        let mut alphabet = AlphabetCheck::default();
        let nucleic = || ShardError::NucleicAcids {
            input: input.clone(),
        };
        let read = read_all(input, self.config.limits, stop, |record| {
            if !self.config.any_alphabet && alphabet.add(&record.sequence) {
                return Err(nucleic());
            }
            self.take(input, record)
        });
        let Some(summary) = read? else {
            return Ok(false);
        };
        if alphabet.is_nucleic() {
            return Err(nucleic());
        }
        self.inputs.push(summary);
        Ok(true)
    }

    fn take(&mut self, input: &Input, mut record: Record) -> Result<(), ShardError> {
        let ordinal = self.records;
        self.records += 1;
        let number = record.number;
        let admitted = if record.id.is_empty() {
            if self.config.policy.invalid != InvalidPolicy::Reject {
                return Err(ShardError::NoId {
                    input: input.clone(),
                    record: number,
                });
            }
            Ok(None)
        } else {
            self.ids.admit(ordinal, &mut record.id)
        };
        match admitted {
            Ok(None) => {}
            Ok(Some(old)) => {
                self.tally.suffixed();
                self.renamed(ordinal, old, &record.id)?;
            }
            Err(TakenId::ByRecord { first }) => {
                let (first_input, first_record) = self.place(first);
                return Err(ShardError::DuplicateId {
                    input: input.clone(),
                    record: number,
                    id: record.id,
                    first_input,
                    first_record,
                });
            }
            Err(TakenId::ByRenaming) => {
                return Err(ShardError::GivenId {
                    input: input.clone(),
                    record: number,
                    id: record.id,
                });
            }
        }
        if record.description_recoded {
            self.tally.recoded();
        }
        let id = record.id.clone();
        let prepared = self.config.policy.prepare(ordinal, record);
        let prepared = prepared.map_err(|residue| ShardError::InvalidResidue {
            input: input.clone(),
            record: number,
            id,
            residue,
        })?;
        match prepared {
            Prepared::Rejected(reject) => {
                self.tally.reject(&reject);
                self.rejects.push(&reject)?;
            }
            Prepared::Accepted(protein) => {
                self.tally.accept(&protein);
                self.encode(protein)?;
            }
        }
        Ok(())
    }

    /// Lists a record that has another id than in its input.
    fn renamed(&mut self, ordinal: u64, old: String, new: &str) -> Result<(), ShardError> {
        let list = match &mut self.renamed {
            Some(list) => list,
            none => none.insert(ListWriter::of_renames(&self.renamed_path)?),
        };
        Ok(list.push(&Renamed {
            ordinal,
            id: old,
            new_id: new.to_owned(),
        })?)
    }

    fn encode(&mut self, protein: Protein) -> Result<(), ShardError> {
        let (key, full) = self.assignment.assign(&protein);
        if let Some(full) = full {
            self.encoders.close(full)?;
        }
        self.encoders.push(key, protein)?;
        Ok(())
    }

    /// The input of the record `ordinal`, and its 1-based number there.
    fn place(&self, mut ordinal: u64) -> (Input, u64) {
        let mut i = 0;
        while let Some(input) = self.inputs.get(i).filter(|input| input.records <= ordinal) {
            ordinal -= input.records;
            i += 1;
        }
        (self.config.inputs[i].clone(), ordinal + 1)
    }

    pub(crate) fn finish(self) -> Result<FinishedSet, ShardError> {
        if self.records == 0 {
            let names: Vec<String> = self.config.inputs.iter().map(Input::to_string).collect();
            return Err(ShardError::NoRecords {
                inputs: names.join(", "),
            });
        }
        let digests = self
            .inputs
            .iter()
            .map(|input| input.digest.clone())
            .collect();
        let provenance = self.config.provenance(digests);
        let shards = self.encoders.finish(&provenance)?;
        let summaries = shards.iter().map(|shard| shard.summary.clone()).collect();
        let rejects = self.rejects.finish()?;
        let renamed = self.renamed.map(ListWriter::finish).transpose()?;
        let mut manifest = self
            .tally
            .into_manifest(provenance, self.inputs, &rejects, summaries);
        manifest.renamed_digest = renamed.as_ref().map(|list| list.digest().to_owned());
        Ok(FinishedSet {
            shards,
            rejects,
            renamed,
            manifest,
        })
    }
}

/// Gives all records of an input to `take`; `None` where a stop was asked for.
fn read_all(
    input: &Input,
    limits: Limits,
    stop: &Stop,
    mut take: impl FnMut(Record) -> Result<(), ShardError>,
) -> Result<Option<InputSummary>, ShardError> {
    let mut reader = FastaReader::open(input, limits, stop)?;
    let mut read = || -> Result<bool, ShardError> {
        while let Some(record) = reader.read()? {
            if stop.requested() {
                return Ok(false);
            }
            take(record)?;
        }
        Ok(!stop.requested())
    };
    match read() {
        Ok(true) => Ok(Some(reader.finish()?)),
        Ok(false) => Ok(None),
        // Damage explains what is wrong with the records before it is met.
        Err(error) if error.is_of_content() => Err(reader
            .damage(stop)
            .map_or(error, |damage| FastaError::from(damage).into())),
        Err(error) => Err(error),
    }
}
