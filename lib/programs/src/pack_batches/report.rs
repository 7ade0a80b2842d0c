//! The report of `--report`.

use std::collections::BTreeMap;

use plmkit_contract::{CONTRACT_VERSION, Provenance};
use plmkit_kit::plural;
use plmkit_logs::Tier;
use plmkit_logs::thresholds::PACKING_MILD_BELOW;
use plmkit_pack::{PackingReport, PaddedCost};
use serde::Serialize;
use serde_json::Value;

/// The report: the provenance of the batches, then the fields of [`PackingReport`].
#[derive(Serialize)]
pub(crate) struct BatchesReport<'a> {
    /// The file contract's version.
    contract: &'static str,
    /// The program that wrote it.
    tool: &'a str,
    version: &'a str,
    /// The row digest of the shard.
    inputs: &'a [String],
    /// The options that the batches depend on.
    options: &'a BTreeMap<String, Value>,
    #[serde(flatten)]
    packing: &'a PackingReport,
}

impl<'a> BatchesReport<'a> {
    pub(crate) fn new(provenance: &'a Provenance, packing: &'a PackingReport) -> Self {
        Self {
            contract: CONTRACT_VERSION,
            tool: &provenance.tool,
            version: &provenance.version,
            inputs: &provenance.inputs,
            options: &provenance.options,
            packing,
        }
    }
}

/// Formats the report on one line.
pub(crate) fn summary(packing: &PackingReport) -> String {
    let Some(utilization) = packing.utilization else {
        return "0 sequences, 0 batches".to_owned();
    };
    let body = match (packing.average_utilization, packing.min_utilization) {
        (Some(average), Some(min)) => format!(
            " (without the tail: average {}, least {})",
            percent(average),
            percent(min)
        ),
        _ => String::new(),
    };
    let oversized = match packing.oversized_batches {
        0 => String::new(),
        count => format!(", {count} longer than {} tokens", packing.max_batch_tokens),
    };
    let cost = |padded: &PaddedCost| padded.tokens_per_real_token.unwrap_or(1.0);
    format!(
        "{}, {} in {}, {} full{body}{oversized}; padding would compute {:.2} times \
         as many tokens, {:.2} times if sorted by length",
        plural(packing.sequences, "sequence"),
        plural(packing.tokens, "token"),
        plural(packing.batches, "batch"),
        percent(utilization),
        cost(&packing.padded_in_input_order),
        cost(&packing.padded_sorted_by_length)
    )
}

/// What is wrong with the batches without the tail, if anything is, and how bad that is.
pub(crate) fn warning(packing: &PackingReport) -> Option<(Tier, String)> {
    let average = packing.average_utilization?;
    let tier = Some(Tier::of_packing(average)).filter(|tier| *tier > Tier::None)?;
    let text = format!(
        "batches without the tail are {} full, of {} tokens; expected at least {:.0} %: larger batches waste less",
        percent(average),
        packing.max_batch_tokens,
        PACKING_MILD_BELOW * 100.0
    );
    Some((tier, text))
}

/// Formats a share, rounded down: only a full batch is 100 %.
fn percent(share: f64) -> String {
    format!("{:.1} %", (share * 1000.0).floor() / 10.0)
}

#[cfg(test)]
mod tests {
    use plmkit_pack::pack;

    use super::*;

    #[test]
    fn the_summary_has_the_utilization_and_the_cost_of_padding() {
        let lengths = [250, 100, 2, 98, 60];
        let batches = pack(&lengths, &[0, 1, 2, 3, 4], 100);
        let report = PackingReport::new(&batches, &lengths, 100);
        assert_eq!(
            summary(&report),
            "5 sequences, 510 tokens in 4 batches, 92.7 % full (without the tail: average 100.0 %, \
             least 100.0 %), 1 longer than 100 tokens; padding would compute 1.00 times as many tokens, \
             1.00 times if sorted by length"
        );
        assert_eq!(percent(0.999_99), "99.9 %");
        assert_eq!(warning(&report), None);
    }

    #[test]
    fn batches_that_are_not_full_are_warned_of() {
        let warned = |lengths: &[u32]| {
            let keys: Vec<usize> = (0..lengths.len()).collect();
            let batches = pack(lengths, &keys, 100);
            warning(&PackingReport::new(&batches, lengths, 100))
        };
        for (length, tier) in [(60, Tier::Critical), (84, Tier::Mild)] {
            let text = format!(
                "batches without the tail are {length}.0 % full, of 100 tokens; expected at least 85 %: larger batches waste less"
            );
            assert_eq!(warned(&[length; 5]), Some((tier, text)));
        }
        assert_eq!(warned(&[90, 90, 90, 2]), None);
        assert_eq!(warned(&[60]), None);
    }
}
