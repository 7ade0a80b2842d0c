//! The counts of a manifest.

use std::collections::BTreeMap;

use plmkit_contract::{
    CONTRACT_VERSION, InputSummary, LengthBin, LengthSummary, Manifest, Provenance, Reason,
    ShardSummary, TranslationSummary, length_bin_edges,
};

use crate::policy::Policy;
use crate::residue::ResidueChanges;
use crate::translate::Translated;

/// The kinds of change that a manifest counts.
const CHANGES: [&str; 10] = [
    "residues_uppercased",
    "residues_replaced_by_x",
    "terminal_stops_removed",
    "descriptions_recoded",
    "descriptions_cut",
    "ids_suffixed",
    "proteins_truncated",
    "residues_truncated",
    "proteins_in_windows",
    "proteins_split_off",
];

/// Counts of the records so far.
#[derive(Debug)]
pub(crate) struct Tally {
    accepted: u64,
    rejected: BTreeMap<Reason, u64>,
    /// `None` without a translation.
    translation: Option<TranslationSummary>,
    lengths: Lengths,
    changed: BTreeMap<String, u64>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            accepted: 0,
            rejected: Reason::SHARDING.map(|reason| (reason, 0)).into(),
            translation: None,
            lengths: Lengths::default(),
            changed: CHANGES.map(|change| (change.to_owned(), 0)).into(),
        }
    }
}

impl Tally {
    /// Starts with no records, which may be those of a translation.
    pub(crate) fn new(translated: bool) -> Self {
        Self {
            translation: translated.then(TranslationSummary::default),
            ..Self::default()
        }
    }

    /// Adds `count` to one of [`CHANGES`].
    pub(crate) fn count_change(&mut self, change: &str, count: u64) {
        if count > 0
            && let Some(total) = self.changed.get_mut(change)
        {
            *total += count;
        }
    }

    pub(crate) fn count_translated(&mut self, bases: usize, translated: &Translated) {
        let total = self.translation.get_or_insert_default();
        total.bases += bases as u64;
        total.bases_replaced_by_n += translated.replaced;
        total.peptides += translated.len() as u64;
        total.peptides_too_short += translated.short;
    }

    pub(crate) fn count_rejected(&mut self, reason: Reason) {
        *self.rejected.entry(reason).or_default() += 1;
    }

    /// Counts what normalising changed.
    pub(crate) fn count_normalised(&mut self, changes: ResidueChanges) {
        self.count_change("residues_uppercased", changes.uppercased);
        self.count_change("residues_replaced_by_x", changes.replaced);
        self.count_change("terminal_stops_removed", changes.stops_removed);
    }

    /// Counts a protein of a shard, of `length` residues.
    pub(crate) fn count_accepted(&mut self, policy: &Policy, length: u32) {
        self.accepted += 1;
        self.lengths.add(u64::from(length));
        let lost = u64::from(length - policy.embedded(length));
        let changes = [
            ("proteins_truncated", u64::from(lost > 0)),
            ("residues_truncated", lost),
            (
                "proteins_in_windows",
                u64::from(policy.windows(length).len() > 1),
            ),
            ("proteins_split_off", u64::from(policy.splits_off(length))),
        ];
        for (change, count) in changes {
            self.count_change(change, count);
        }
    }

    /// Makes the manifest of inputs that gave so many `records`.
    pub(crate) fn into_manifest(
        self,
        provenance: Provenance,
        records: u64,
        inputs: Vec<InputSummary>,
        rejects_digest: String,
        shards: Vec<ShardSummary>,
    ) -> Manifest {
        let total = |of: fn(&ShardSummary) -> u64| shards.iter().map(of).sum();
        Manifest {
            contract: CONTRACT_VERSION.to_owned(),
            tool: provenance.tool,
            version: provenance.version,
            options: provenance.options,
            records,
            translation: self.translation.map(|translation| TranslationSummary {
                contigs: inputs.iter().map(|input| input.records).sum(),
                ..translation
            }),
            inputs,
            accepted: self.accepted,
            rejected: self.rejected,
            rejects_digest,
            renamed_digest: None,
            aliases: None,
            known: None,
            rows: total(|shard| shard.rows),
            residues: total(|shard| shard.residues),
            tokens: total(|shard| shard.tokens),
            changed: self.changed,
            lengths: self.lengths.summary(),
            shards,
        }
    }
}

/// The distribution of protein lengths, in residues.
#[derive(Clone, Debug)]
struct Lengths {
    bins: Vec<LengthBin>,
    min: u64,
    max: u64,
    sum: u64,
    count: u64,
}

impl Default for Lengths {
    fn default() -> Self {
        Self {
            bins: length_bin_edges()
                .map(|from| LengthBin { from, count: 0 })
                .collect(),
            min: u64::MAX,
            max: 0,
            sum: 0,
            count: 0,
        }
    }
}

impl Lengths {
    fn add(&mut self, length: u64) {
        // The first bin starts at 0, so every length has a bin.
        let bin = self.bins.partition_point(|bin| bin.from <= length) - 1;
        self.bins[bin].count += 1;
        self.min = self.min.min(length);
        self.max = self.max.max(length);
        self.sum += length;
        self.count += 1;
    }

    fn summary(self) -> LengthSummary {
        let any = self.count > 0;
        LengthSummary {
            min: any.then_some(self.min),
            max: any.then_some(self.max),
            mean: any.then(|| self.sum as f64 / self.count as f64),
            histogram: self.bins,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_fall_into_the_bin_that_starts_at_or_below_them() {
        let mut lengths = Lengths::default();
        for length in [1, 49, 50, 1999, 2000, 10_000_000] {
            lengths.add(length);
        }
        let summary = lengths.summary();
        assert_eq!((summary.min, summary.max), (Some(1), Some(10_000_000)));
        assert_eq!(summary.mean, Some(10_004_099.0 / 6.0));
        let filled: Vec<(u64, u64)> = summary
            .histogram
            .iter()
            .filter(|bin| bin.count > 0)
            .map(|bin| (bin.from, bin.count))
            .collect();
        assert_eq!(
            filled,
            [(0, 2), (50, 1), (1000, 1), (2000, 1), (128_000, 1)]
        );
    }

    #[test]
    fn nothing_has_no_mean() {
        let summary = Lengths::default().summary();
        assert_eq!((summary.min, summary.max, summary.mean), (None, None, None));
    }
}
