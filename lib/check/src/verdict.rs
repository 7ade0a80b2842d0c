//! The verdict on what validators found.

use std::collections::BTreeMap;

use plmkit_contract::{Column, Reason};
use serde::{Deserialize, Serialize};

use crate::agreement::{self, ColumnAgreement};
use crate::check::{Check, CheckOutcome};
use crate::checks::{CHECKS, coverage};
use crate::criteria::Criteria;
use crate::findings::Findings;
use crate::{manifest, ordinals, origin, rejected};

/// All checks with what they counted, and how near vectors are to others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Records of the input, as the manifest says, or an earlier verdict; null when neither was given.
    pub records: Option<u64>,
    /// Rows of all embeddings files.
    pub rows: u64,
    /// Of these, the ones of proteins of which residues were cut off.
    pub truncated: u64,
    /// Records that are in no shard because an earlier record has their residues, as the manifest says; null when none was given.
    pub aliases: Option<u64>,
    /// Records that are in no shard because a known dataset has their residues, as the manifest says; null when none was given.
    pub known: Option<u64>,
    /// Residues that were cut off, as the manifest says; null when none was given.
    pub residues_truncated: Option<u64>,
    /// Records that are in no shard, and rows that were not embedded, by reason, as lists, the manifest or an earlier verdict say.
    pub rejected: BTreeMap<Reason, u64>,
    /// Proteins with rows by length: the least length of a [bin](crate::length_bin), and how many are in it.
    #[serde(default)]
    pub lengths: BTreeMap<u32, u64>,
    /// The checks, always all of them, in the order of [`CHECKS`](crate::CHECKS).
    pub checks: Vec<Check>,
    /// How near the sampled vectors of each column are to the same computed again; empty where none were.
    pub spot_check: Vec<ColumnAgreement>,
    /// The chance that the spot check has a row of a fault in a tenth of the rows, at least; null where nothing was computed again.
    #[serde(default)]
    pub spot_check_power: Option<f64>,
    /// The agreement of each column with the reference; empty when there is none.
    pub agreement: Vec<ColumnAgreement>,
    /// Columns of the embeddings that were not compared with the reference: those of several vectors a row, and those that it
    /// does not have. Empty when there is none.
    pub not_compared: Vec<Column>,
}

impl Verdict {
    /// Skips the check of this name: what it found does not count.
    pub fn skip(&mut self, name: &str, why: &str) {
        for check in self
            .checks
            .iter_mut()
            .filter(|check| check.definition.name == name)
        {
            *check = Check::skipped(check.definition, why);
        }
    }

    /// Whether no check failed. A skipped check does not fail.
    pub fn passed(&self) -> bool {
        self.of(CheckOutcome::Fail).next().is_none()
    }

    /// The check of this name.
    ///
    /// # Panics
    /// If there is no such check.
    pub fn check(&self, name: &str) -> &Check {
        let mut checks = self.checks.iter();
        let check = checks.find(|check| check.definition.name == name);
        check.expect("a name of CHECKS")
    }

    /// The checks that ended so.
    pub fn of(&self, outcome: CheckOutcome) -> impl Iterator<Item = &Check> {
        let checks = self.checks.iter();
        checks.filter(move |check| check.outcome == outcome)
    }
}

impl Findings {
    /// The verdict on all files.
    pub fn verdict(&self, criteria: &Criteria) -> Verdict {
        let manifest = criteria.manifest.as_ref().map(|(_, manifest)| manifest);
        let known = manifest.and_then(|manifest| manifest.known.as_ref());
        let counted = criteria.counted();
        let records = counted.map(|(records, _)| records);
        let mut rejected = BTreeMap::new();
        for line in criteria.rejects.iter().flat_map(|(_, list)| &list.lines) {
            *rejected.entry(line.reason).or_default() += 1;
        }
        if let Some((_, counted)) = counted.filter(|_| criteria.lists(false).next().is_none()) {
            rejected.extend(counted.iter().filter(|(_, count)| **count > 0));
        }
        let mut tallies = self.tallies.clone();
        tallies.merge(criteria.aliases.wrong.clone());
        if tallies.counted(coverage::missing) > 0 {
            origin::report_missing_rejects_lists(self, criteria, &mut tallies);
        }
        ordinals::check(&self.ordinals, criteria, &mut tallies);
        if let Some(manifest) = manifest {
            manifest::check(manifest, self, criteria, &rejected, &mut tallies);
        }
        origin::check(self, criteria, &mut tallies);
        rejected::check(self, criteria, &rejected, &mut tallies);
        agreement::check(&self.found, criteria, &mut tallies);
        let mut not_compared: Vec<Column> = Vec::new();
        let all = criteria.reference.iter().flat_map(|(reference, _)| {
            let columns = self.embeddings.iter().map(|file| &file.layout.columns);
            let pairs = columns.flat_map(|columns| reference.pair(columns));
            pairs.filter_map(|(column, place)| place.is_none().then_some(column))
        });
        for column in all {
            if !not_compared.contains(&column) {
                not_compared.push(column);
            }
        }
        let not_recomputed = criteria.not_recomputed.unwrap_or("no model was given");
        let not_recomputed = format!("not recomputed: {not_recomputed}");
        let without = |name: &str, is_counted: bool| match name {
            "coverage" | "records" | "ordinals" if !self.knows_shards => {
                Some("no shards were given")
            }
            "ordinals" if criteria.rejects.is_empty() => Some("no rejects were given"),
            "manifest" if manifest.is_none() => Some("no manifest was given"),
            "outliers" if !is_counted => Some("there are no pooled vectors"),
            "pooling" if !is_counted => Some("no layer has several columns to compare"),
            "contacts" if !is_counted => Some("there are no contacts"),
            "reference" if criteria.reference.is_none() => Some("no reference was given"),
            "spot-check" if criteria.recomputed.is_none() => Some(not_recomputed.as_str()),
            _ => None,
        };
        let checks = CHECKS.iter().map(|definition| {
            let mut check = tallies.check(definition);
            if definition.name == "spot-check" && check.outcome == CheckOutcome::Pass {
                check.summary += &self.power.in_words();
            }
            let is_counted = check.counts.values().any(|&count| count > 0);
            match without(definition.name, is_counted) {
                Some(why) => Check::skipped(definition, why),
                None => check,
            }
        });
        Verdict {
            records,
            rows: self.rows,
            truncated: self.truncated,
            aliases: manifest.map(|manifest| manifest.aliases.as_ref().map_or(0, |list| list.rows)),
            known: manifest.map(|_| known.map_or(0, |known| known.list.rows)),
            residues_truncated: manifest
                .and_then(|manifest| manifest.changed.get("residues_truncated").copied()),
            checks: checks.collect(),
            rejected,
            lengths: self.lengths.clone(),
            spot_check: self.recomputed.clone(),
            spot_check_power: criteria.recomputed.as_ref().map(|_| self.power.chance()),
            agreement: self.agreement.clone(),
            not_compared,
        }
    }
}
