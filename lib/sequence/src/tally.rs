//! What a manifest counts.

use std::collections::BTreeMap;

use plmkit_contract::{
    CONTRACT_VERSION, InputSummary, Manifest, Provenance, Reason, Reject, ShardSummary,
};

use plmkit_store::FinishedList;

use crate::lengths::Lengths;
use crate::protein::Protein;

/// Counts over the records so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    accepted: u64,
    rejected: BTreeMap<Reason, u64>,
    lengths: Lengths,
    uppercased: u64,
    replaced: u64,
    stops_removed: u64,
    recoded: u64,
    suffixed: u64,
    truncated: u64,
    residues_lost: u64,
    windowed: u64,
    split_off: u64,
}

impl Tally {
    /// A record whose id got a suffix.
    pub(crate) fn suffixed(&mut self) {
        self.suffixed += 1;
    }

    /// A record whose description was not UTF-8.
    pub(crate) fn recoded(&mut self) {
        self.recoded += 1;
    }

    pub(crate) fn reject(&mut self, reject: &Reject) {
        *self.rejected.entry(reject.reason).or_default() += 1;
    }

    pub(crate) fn accept(&mut self, protein: &Protein) {
        self.accepted += 1;
        self.lengths.add(u64::from(protein.length));
        self.uppercased += protein.changes.uppercased;
        self.replaced += protein.changes.replaced;
        self.stops_removed += protein.changes.stops_removed;
        self.truncated += u64::from(protein.is_truncated());
        self.residues_lost += u64::from(protein.length) - protein.residues.len() as u64;
        self.windowed += u64::from(protein.windows().len() > 1);
        self.split_off += u64::from(protein.split_off);
    }

    pub(crate) fn into_manifest(
        self,
        provenance: Provenance,
        inputs: Vec<InputSummary>,
        rejects: &FinishedList,
        shards: Vec<ShardSummary>,
    ) -> Manifest {
        let changed = [
            ("residues_uppercased", self.uppercased),
            ("residues_replaced_by_x", self.replaced),
            ("terminal_stops_removed", self.stops_removed),
            ("descriptions_recoded", self.recoded),
            ("ids_suffixed", self.suffixed),
            ("proteins_truncated", self.truncated),
            ("residues_truncated", self.residues_lost),
            ("proteins_in_windows", self.windowed),
            ("proteins_split_off", self.split_off),
        ];
        let total = |of: fn(&ShardSummary) -> u64| shards.iter().map(of).sum();
        Manifest {
            contract: CONTRACT_VERSION.to_owned(),
            tool: provenance.tool,
            version: provenance.version,
            options: provenance.options,
            records: inputs.iter().map(|input| input.records).sum(),
            inputs,
            accepted: self.accepted,
            rejected: Reason::SHARDING
                .into_iter()
                .map(|reason| {
                    (
                        reason,
                        self.rejected.get(&reason).copied().unwrap_or_default(),
                    )
                })
                .collect(),
            rejects_digest: rejects.digest().to_owned(),
            renamed_digest: None,
            rows: total(|shard| shard.rows),
            residues: total(|shard| shard.residues),
            tokens: total(|shard| shard.tokens),
            changed: changed.map(|(what, count)| (what.to_owned(), count)).into(),
            lengths: self.lengths.summary(),
            shards,
        }
    }
}
