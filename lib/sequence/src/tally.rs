//! What a manifest counts.

use std::collections::BTreeMap;

use plmkit_contract::{
    CONTRACT_VERSION, InputSummary, Manifest, Provenance, Reason, Reject, ShardSummary,
};
use plmkit_store::FinishedList;

use crate::lengths::Lengths;
use crate::protein::Protein;

/// How often something was changed, by what; every kind is in the manifest.
const CHANGES: [&str; 9] = [
    "residues_uppercased",
    "residues_replaced_by_x",
    "terminal_stops_removed",
    "descriptions_recoded",
    "ids_suffixed",
    "proteins_truncated",
    "residues_truncated",
    "proteins_in_windows",
    "proteins_split_off",
];

/// Counts over the records so far.
#[derive(Debug)]
pub(crate) struct Tally {
    accepted: u64,
    rejected: BTreeMap<Reason, u64>,
    lengths: Lengths,
    changed: BTreeMap<String, u64>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            accepted: 0,
            rejected: Reason::SHARDING.map(|reason| (reason, 0)).into(),
            lengths: Lengths::default(),
            changed: CHANGES.map(|change| (change.to_owned(), 0)).into(),
        }
    }
}

impl Tally {
    /// Counts `count` more of one of [`CHANGES`].
    fn count_change(&mut self, change: &str, count: u64) {
        if count > 0
            && let Some(total) = self.changed.get_mut(change)
        {
            *total += count;
        }
    }

    /// Counts a record whose id got a suffix.
    pub(crate) fn count_suffixed(&mut self) {
        self.count_change("ids_suffixed", 1);
    }

    /// Counts a record whose description was not UTF-8.
    pub(crate) fn count_recoded(&mut self) {
        self.count_change("descriptions_recoded", 1);
    }

    pub(crate) fn count_rejected(&mut self, reject: &Reject) {
        *self.rejected.entry(reject.reason).or_default() += 1;
    }

    pub(crate) fn count_accepted(&mut self, protein: &Protein) {
        self.accepted += 1;
        self.lengths.add(u64::from(protein.length));
        let lost = u64::from(protein.length) - protein.residues.len() as u64;
        let changes = [
            ("residues_uppercased", protein.changes.uppercased),
            ("residues_replaced_by_x", protein.changes.replaced),
            ("terminal_stops_removed", protein.changes.stops_removed),
            ("proteins_truncated", u64::from(lost > 0)),
            ("residues_truncated", lost),
            (
                "proteins_in_windows",
                u64::from(protein.windows().len() > 1),
            ),
            ("proteins_split_off", u64::from(protein.split_off)),
        ];
        for (change, count) in changes {
            self.count_change(change, count);
        }
    }

    pub(crate) fn into_manifest(
        self,
        provenance: Provenance,
        inputs: Vec<InputSummary>,
        rejects: &FinishedList,
        shards: Vec<ShardSummary>,
    ) -> Manifest {
        let total = |of: fn(&ShardSummary) -> u64| shards.iter().map(of).sum();
        Manifest {
            contract: CONTRACT_VERSION.to_owned(),
            tool: provenance.tool,
            version: provenance.version,
            options: provenance.options,
            records: inputs.iter().map(|input| input.records).sum(),
            inputs,
            accepted: self.accepted,
            rejected: self.rejected,
            rejects_digest: rejects.digest().to_owned(),
            renamed_digest: None,
            rows: total(|shard| shard.rows),
            residues: total(|shard| shard.residues),
            tokens: total(|shard| shard.tokens),
            changed: self.changed,
            lengths: self.lengths.summary(),
            shards,
        }
    }
}
