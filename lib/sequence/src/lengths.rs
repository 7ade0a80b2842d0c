//! The lengths of the rows that a set of shards would have.

use plmkit_contract::{SPECIAL_TOKENS, Stop};
use plmkit_store::StoreError;

use crate::assignment::Assigner;
use crate::chunk::prepare;
use crate::config::ShardConfig;
use crate::error::{RecordError, ShardError};
use crate::fasta::FastaReader;
use crate::input::shown;
use crate::nucleic_acids::NucleicAcidCheck;
use crate::policy::Outcome;
use crate::sharding_run::unknown_residue;
use crate::translate::Translator;

/// A row of a shard.
#[derive(Clone, Copy, Debug)]
pub struct RowLength {
    /// The number of the shard; shards of long proteins count on their own.
    pub shard: (bool, usize),
    /// The number of the protein.
    pub ordinal: u64,
    /// Residues of the protein.
    pub length: u32,
    /// Residues of the row.
    pub residues: u32,
}

/// Reads the inputs once, in constant memory, and tells the rows that [`make_shards`](crate::make_shards) would write. Ids are not
/// compared, nor are sequences: equal ones count each, and known ones too. Returns the number of records.
///
/// # Errors
/// An input cannot be read, or has a record that the policy refuses.
pub fn read_lengths(
    config: &ShardConfig,
    stop: &Stop,
    mut add: impl FnMut(RowLength),
) -> Result<u64, ShardError> {
    let (policy, options) = (config.options.policy, &config.options);
    let translator = options.translation;
    let translator = translator.map(|how| Translator::new(how, policy.min_residues));
    let mut assigners = [options.target; 2].map(Assigner::new);
    let (mut ordinal, mut all) = (0, 0);
    for input in &config.inputs {
        let mut reader = FastaReader::open(input, config.limits(), stop)?;
        let mut alphabet =
            (!config.any_alphabet).then(|| NucleicAcidCheck::new(translator.is_some()));
        let mut records = 0;
        while let Some(block) = reader.read_block()? {
            StoreError::check(stop)?;
            let judge = alphabet.as_ref().is_some_and(NucleicAcidCheck::is_open);
            let (parsed, prepared) = prepare(&policy, translator.as_ref(), block, judge, false);
            for (record, prepared) in parsed.records.iter().zip(prepared) {
                records += 1;
                if let Some(check) = &mut alphabet
                    && check.add(prepared.is_nucleic)
                {
                    return Err(check.error(input));
                }
                let invalid = |problem: String| {
                    let error = RecordError::new(Some(record.id), problem);
                    ShardError::Record(shown(input).to_owned(), records, error)
                };
                let lengths = match prepared.outcome {
                    Err(unknown) => {
                        return Err(invalid(unknown_residue(&unknown, translator.is_some())));
                    }
                    Ok(Outcome::Rejected(_)) => continue,
                    Ok(Outcome::Accepted(_)) => vec![record.sequence.len()],
                    Ok(Outcome::Translated(found)) => found
                        .iter()
                        .map(|(_, peptide)| peptide.len())
                        .filter(|&length| policy.reject(length).is_none())
                        .collect(),
                };
                for length in lengths {
                    let length = length as u32;
                    let windows = || {
                        policy
                            .windows(length)
                            .map(|window| window.end - window.start)
                    };
                    let tokens = windows().map(|residues| u64::from(residues + SPECIAL_TOKENS));
                    let long = policy.separates(length);
                    let (index, _) = assigners[usize::from(long)].assign(tokens.sum());
                    windows().for_each(|residues| {
                        add(RowLength {
                            shard: (long, index),
                            ordinal,
                            length,
                            residues,
                        });
                    });
                    ordinal += 1;
                }
            }
            if let Some(error) = parsed.error {
                return Err(ShardError::Record(
                    shown(input).to_owned(),
                    records + 1,
                    error,
                ));
            }
        }
        if let Some(check) = alphabet.filter(NucleicAcidCheck::is_unexpected) {
            return Err(check.error(input));
        }
        all += records;
    }
    Ok(all)
}
