//! One pass over the inputs.

use plmkit_contract::{InputSummary, Stop};

use crate::assignment::Assignment;
use crate::config::Config;
use crate::duplicate::Ids;
use crate::encoders::Encoders;
use crate::error::ShardError;
use crate::fasta::{FastaReader, Record};
use crate::folder::{FinishedSet, OutputFolder};
use crate::input::Input;
use crate::prepare::Prepared;
use crate::protein::Protein;
use crate::shard_key::ShardKey;
use crate::tally::Tally;
use plmkit_store::RejectsWriter;

/// Takes records from the inputs to the encoders and counts them.
pub(crate) struct Pass<'a, 'scope> {
    config: &'a Config,
    encoders: Encoders<'scope>,
    rejects: RejectsWriter,
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
            rejects: RejectsWriter::of_records(&folder.rejects())?,
            ids: Ids::new(config.duplicates),
            assignment: Assignment::new(config.target),
            tally: Tally::default(),
            inputs: Vec::new(),
            records: 0,
        })
    }

    /// Reads an input to its end; false where a stop was asked for.
    pub(crate) fn read(&mut self, input: &Input, stop: &Stop) -> Result<bool, ShardError> {
        let mut reader = FastaReader::open(input, self.config.limits, stop)?;
        while let Some(record) = reader.read()? {
            if stop.requested() {
                return Ok(false);
            }
            self.take(input, record)?;
        }
        self.inputs.push(reader.finish()?);
        Ok(!stop.requested())
    }

    fn take(&mut self, input: &Input, mut record: Record) -> Result<(), ShardError> {
        let ordinal = self.records;
        self.records += 1;
        let number = record.number;
        match self.ids.admit(ordinal, &mut record.id) {
            Ok(false) => {}
            Ok(true) => self.tally.suffixed(),
            Err(duplicate) => {
                let (first_input, first_record) = self.place(duplicate.first);
                return Err(ShardError::DuplicateId {
                    input: input.clone(),
                    record: number,
                    id: record.id,
                    first_input,
                    first_record,
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
        let manifest = self
            .tally
            .into_manifest(provenance, self.inputs, &rejects, summaries);
        Ok(FinishedSet {
            shards,
            rejects,
            manifest,
        })
    }
}
