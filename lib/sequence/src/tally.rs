//! The counts of a manifest.

use plmkit_contract::{
    CONTRACT_VERSION, LengthBin, LengthSummary, Manifest, Provenance, Reason, ShardSummary,
    TranslationSummary, length_bin_edges,
};

use crate::policy::Policy;
use crate::residue::ResidueChanges;
use crate::translate::Translated;

/// The kinds of change that a manifest counts.
const CHANGES: [&str; 11] = [
    "blanks_dropped",
    "residues_uppercased",
    "residues_replaced_by_x",
    "terminal_stops_removed",
    "descriptions_recoded",
    "descriptions_cut",
    "ids_suffixed",
    "proteins_truncated",
    "residues_truncated",
    "proteins_in_windows",
    "proteins_separate",
];

/// A manifest whose counts grow with the records.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) manifest: Manifest,
    /// Residues of the accepted proteins.
    residues: u64,
}

impl Tally {
    /// Starts with no records, which may be those of a translation.
    pub(crate) fn new(translated: bool) -> Self {
        let bins = length_bin_edges().map(|from| LengthBin { from, count: 0 });
        let manifest = Manifest {
            contract: CONTRACT_VERSION.to_owned(),
            translation: translated.then(TranslationSummary::default),
            rejected: Reason::SHARDING.map(|reason| (reason, 0)).into(),
            changed: CHANGES.map(|change| (change.to_owned(), 0)).into(),
            lengths: LengthSummary {
                histogram: bins.collect(),
                ..LengthSummary::default()
            },
            ..Manifest::default()
        };
        Self {
            manifest,
            residues: 0,
        }
    }

    /// Adds `count` to one of [`CHANGES`].
    pub(crate) fn count_change(&mut self, change: &str, count: u64) {
        if count > 0
            && let Some(total) = self.manifest.changed.get_mut(change)
        {
            *total += count;
        }
    }

    pub(crate) fn count_translated(&mut self, bases: usize, translated: &Translated) {
        let total = self.manifest.translation.get_or_insert_default();
        total.bases += bases as u64;
        total.bases_replaced_by_n += translated.replaced;
        total.peptides += translated.len() as u64;
        total.peptides_too_short += translated.short;
    }

    pub(crate) fn count_rejected(&mut self, reason: Reason) {
        *self.manifest.rejected.entry(reason).or_default() += 1;
    }

    /// Counts what normalising changed.
    pub(crate) fn count_normalised(&mut self, changes: ResidueChanges) {
        self.count_change("residues_uppercased", changes.uppercased);
        self.count_change("residues_replaced_by_x", changes.replaced);
        self.count_change("terminal_stops_removed", changes.stops_removed);
    }

    /// Counts a protein of a shard, of `length` residues.
    pub(crate) fn count_accepted(&mut self, policy: &Policy, length: u32) {
        self.count_length(u64::from(length));
        let lost = u64::from(length - policy.embedded(length));
        let windows = policy.windows(length).len();
        for (change, count) in [
            ("proteins_truncated", u64::from(lost > 0)),
            ("residues_truncated", lost),
            ("proteins_in_windows", u64::from(windows > 1)),
            ("proteins_separate", u64::from(policy.separates(length))),
        ] {
            self.count_change(change, count);
        }
    }

    fn count_length(&mut self, length: u64) {
        self.manifest.accepted += 1;
        self.residues += length;
        let lengths = &mut self.manifest.lengths;
        // The first bin starts at 0, so every length has a bin.
        let bin = lengths.histogram.partition_point(|bin| bin.from <= length) - 1;
        lengths.histogram[bin].count += 1;
        lengths.min = lengths.min.into_iter().chain([length]).min();
        lengths.max = lengths.max.max(Some(length));
        lengths.mean = Some(self.residues as f64 / self.manifest.accepted as f64);
    }

    /// Completes the manifest of a set with these `shards`.
    pub(crate) fn finish(self, provenance: Provenance, shards: Vec<ShardSummary>) -> Manifest {
        let mut manifest = self.manifest;
        manifest.tool = provenance.tool;
        manifest.version = provenance.version;
        manifest.options = provenance.options;
        if let Some(translation) = &mut manifest.translation {
            translation.contigs = manifest.inputs.iter().map(|input| input.records).sum();
        }
        for shard in &shards {
            manifest.rows += shard.rows;
            manifest.residues += shard.residues;
            manifest.tokens += shard.tokens;
        }
        manifest.shards = shards;
        manifest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_fall_into_the_bin_that_starts_at_or_below_them() {
        let mut tally = Tally::new(false);
        for length in [1, 49, 50, 1999, 2000, 10_000_000] {
            tally.count_length(length);
        }
        let summary = tally.manifest.lengths;
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
}
