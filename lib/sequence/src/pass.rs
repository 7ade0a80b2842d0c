//! One pass over the inputs.

use std::path::PathBuf;

use plmkit_contract::{InputSummary, Renamed, Stop, UnknownResidue};
use plmkit_store::ListWriter;

use crate::assignment::Assignment;
use crate::assignment::ShardKey;
use crate::config::ShardConfig;
use crate::duplicate::{Ids, TakenId};
use crate::encoders::Encoders;
use crate::error::ShardError;
use crate::fasta::{FastaReader, Limits, Record};
use crate::folder::{FinishedSet, OutputFolder};
use crate::input::Input;
use crate::nucleic_acids::NucleicAcidCheck;
use crate::prepare::Prepared;
use crate::residue::InvalidPolicy;
use crate::tally::Tally;

/// Reads records from the inputs, gives them to the encoders, and counts them.
pub(crate) struct Pass<'a, 'scope> {
    config: &'a ShardConfig,
    encoders: Encoders<'scope>,
    rejects: ListWriter,
    /// Created with the first renamed record.
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
        config: &'a ShardConfig,
        folder: &OutputFolder,
        mut encoders: Encoders<'scope>,
    ) -> Result<Self, ShardError> {
        // The requested number of shards is made, even if some stay empty.
        for index in 0..config.open_shards() {
            encoders.open(ShardKey { long: false, index })?;
        }
        Ok(Self {
            config,
            encoders,
            rejects: ListWriter::create_rejects(&folder.rejects())?,
            renamed: None,
            renamed_path: folder.renamed(),
            ids: Ids::new(config.duplicates),
            assignment: Assignment::new(config.target),
            tally: Tally::default(),
            inputs: Vec::new(),
            records: 0,
        })
    }

    /// Reads the ids of an input, so that no record is renamed to one of them. Returns false after a stop.
    pub(crate) fn announce(&mut self, input: &Input, stop: &Stop) -> Result<bool, ShardError> {
        let read = read_all(input, self.config.limits, stop, |record| {
            if !record.id.is_empty() {
                self.ids.announce(&record.id);
            }
            Ok(())
        });
        Ok(read?.is_some())
    }

    /// Reads an input to its end. Returns false after a stop.
    pub(crate) fn read(&mut self, input: &Input, stop: &Stop) -> Result<bool, ShardError> {
        let mut alphabet = NucleicAcidCheck::default();
        let nucleic = || ShardError::NucleicAcids(input.clone());
        let read = read_all(input, self.config.limits, stop, |record| {
            if !self.config.any_alphabet && alphabet.add(&record.sequence) {
                return Err(nucleic());
            }
            self.add(input, record)
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

    fn add(&mut self, input: &Input, mut record: Record) -> Result<(), ShardError> {
        let ordinal = self.records;
        self.records += 1;
        let number = record.number;
        let invalid = |id: &str, problem: String| ShardError::Record {
            input: input.clone(),
            record: number,
            id: (!id.is_empty()).then(|| id.to_owned()),
            problem,
        };
        if !record.id.is_empty() {
            match self.ids.admit(ordinal, &mut record.id) {
                Ok(None) => {}
                Ok(Some(old)) => {
                    self.tally.count_change("ids_suffixed", 1);
                    self.list_renamed(ordinal, old, &record.id)?;
                }
                Err(TakenId::ByRecord { first }) => {
                    let (input, number) = self.place(first);
                    let problem = format!(
                        "expected a new id, found that of record {number} of {input}; --duplicate-ids suffix renames, keep allows it"
                    );
                    return Err(invalid(&record.id, problem));
                }
                Err(TakenId::ByRenaming) => {
                    let problem = "its id is one that --duplicate-ids suffix gave to an earlier record; expected inputs that can be read twice, so that all ids are known first: give files, not pipes";
                    return Err(invalid(&record.id, problem.to_owned()));
                }
            }
        } else if self.config.policy.invalid != InvalidPolicy::Reject {
            let problem =
                "expected an id after '>', found none; --invalid reject sets the record aside";
            return Err(invalid("", problem.to_owned()));
        }
        let recoded = u64::from(record.description_recoded);
        self.tally.count_change("descriptions_recoded", recoded);
        let id = record.id.clone();
        let prepared = self.config.policy.prepare(ordinal, record);
        let prepared = prepared.map_err(|UnknownResidue { position, found }| {
            let found = found.escape_ascii();
            let problem = format!(
                "expected residues, found '{found}' at position {position}; --invalid x replaces such characters, --invalid reject sets the record aside"
            );
            invalid(&id, problem)
        })?;
        match prepared {
            Prepared::Rejected(reject) => {
                self.tally.count_rejected(&reject);
                self.rejects.push(&reject)?;
            }
            Prepared::Accepted(protein) => {
                self.tally.count_accepted(&protein);
                let (key, full) = self.assignment.assign(&protein);
                if let Some(full) = full {
                    self.encoders.close(full)?;
                }
                self.encoders.push(key, protein)?;
            }
        }
        Ok(())
    }

    /// Lists a renamed record.
    fn list_renamed(&mut self, ordinal: u64, old: String, new: &str) -> Result<(), ShardError> {
        let list = match &mut self.renamed {
            Some(list) => list,
            none => none.insert(ListWriter::create_renames(&self.renamed_path)?),
        };
        Ok(list.push(&Renamed {
            ordinal,
            id: old,
            new_id: new.to_owned(),
        })?)
    }

    /// Returns the input of the record `ordinal`, and its 1-based number there.
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
            return Err(ShardError::NoRecords(names.join(", ")));
        }
        let digests = self.inputs.iter().map(|input| input.digest.clone());
        let provenance = self.config.provenance(digests.collect());
        let shards = self.encoders.finish(&provenance)?;
        let summaries = shards.iter().map(|shard| shard.summary.clone()).collect();
        let rejects = self.rejects.finish()?;
        let renamed = self.renamed.map(ListWriter::finish).transpose()?;
        let mut manifest = self
            .tally
            .into_manifest(provenance, self.inputs, &rejects, summaries);
        manifest.renamed_digest = renamed.as_ref().map(|list| list.summary().clone());
        Ok(FinishedSet {
            shards,
            rejects,
            renamed,
            manifest,
        })
    }
}

/// Gives all records of an input to `use_record`. Returns `None` after a stop.
fn read_all(
    input: &Input,
    limits: Limits,
    stop: &Stop,
    mut use_record: impl FnMut(Record) -> Result<(), ShardError>,
) -> Result<Option<InputSummary>, ShardError> {
    let mut reader = FastaReader::open(input, limits, stop)?;
    let mut read = || -> Result<bool, ShardError> {
        while let Some(record) = reader.read()? {
            if stop.requested() {
                return Ok(false);
            }
            use_record(record)?;
        }
        Ok(!stop.requested())
    };
    match read() {
        Ok(true) => Ok(Some(reader.finish()?)),
        Ok(false) => Ok(None),
        // Damage later in the file may explain an invalid record.
        Err(error) if error.is_of_content() => Err(reader.damage(stop).unwrap_or(error)),
        Err(error) => Err(error),
    }
}
