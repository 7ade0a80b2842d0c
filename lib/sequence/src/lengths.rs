//! The lengths of the rows that a set of shards would have.

use plmkit_contract::SPECIAL_TOKENS;
use plmkit_kit::Stop;
use plmkit_store::StoreError;

use crate::assignment::Assigner;
use crate::config::ShardConfig;
use crate::error::{ShardError, unknown_residue};
use crate::fasta::FastaReader;
use crate::input::shown;
use crate::nucleic_acids::{NucleicAcidCheck, is_nucleic};
use crate::policy::Outcome;
use crate::translate::Translator;

/// Reads the inputs once, in constant memory, and tells the rows that [`make_shards`](crate::make_shards) would write: the shard (those of
/// long proteins count on their own), the ordinal, and the residues of the protein and of the row. Records are not compared: those with
/// equal ids or sequences count, and known ones too.
///
/// # Errors
/// An input cannot be read, or has a record that the policy refuses.
pub fn read_lengths(
    config: &ShardConfig,
    stop: &Stop,
    mut add: impl FnMut((bool, usize), u64, [u32; 2]),
) -> Result<(), ShardError> {
    let (policy, options) = (config.options.policy, &config.options);
    let translator = (options.translation).map(|how| Translator::new(how, policy.min_residues));
    let (mut assigners, mut ordinal) = ([options.target; 2].map(Assigner::new), 0);
    for input in &config.inputs {
        let (mut reader, mut number) = (FastaReader::open(input, config.limits(), stop)?, 0);
        let mut alphabet =
            (!config.any_alphabet).then(|| NucleicAcidCheck::new(translator.is_some()));
        while let Some(mut records) = reader.read()? {
            StoreError::check(stop)?;
            for i in 0..records.len() {
                number += 1;
                let record = records.get(i);
                let has_id = !record.id.is_empty();
                let judges = alphabet.as_ref().is_some_and(NucleicAcidCheck::is_open);
                let is_nucleic = judges.then(|| is_nucleic(record.sequence)).flatten();
                let sequence = records.sequence_mut(i);
                let (length, outcome) = policy.prepare(translator.as_ref(), has_id, sequence);
                if let Some(check) = &mut alphabet
                    && check.add(is_nucleic, outcome.is_err())
                {
                    return Err(check.error(input));
                }
                let mut lengths = match outcome {
                    Err(unknown) => {
                        let id = Some(records.get(i).id);
                        let error = unknown_residue(id, &unknown, translator.is_some());
                        return Err(ShardError::Record(shown(input).to_owned(), number, error));
                    }
                    Ok(Outcome::Rejected(_)) => Vec::new(),
                    Ok(Outcome::Accepted(_)) => vec![length],
                    Ok(Outcome::Translated(found)) => {
                        found.iter().map(|(_, it)| it.len()).collect()
                    }
                };
                lengths.retain(|length| policy.reject(*length).is_none());
                for length in lengths.into_iter().map(|length| length as u32) {
                    let rows = || policy.windows(length).map(|row| row.end - row.start);
                    let tokens = rows().map(|residues| u64::from(residues + SPECIAL_TOKENS));
                    let long = policy.separates(length);
                    let (index, _) = assigners[usize::from(long)].assign(tokens.sum());
                    rows().for_each(|row| add((long, index), ordinal, [length, row]));
                    ordinal += 1;
                }
            }
        }
        if let Some(check) = alphabet.filter(NucleicAcidCheck::is_unexpected) {
            return Err(check.error(input));
        }
    }
    Ok(())
}
