//! What validators found.

use std::collections::BTreeMap;

use plmkit_contract::{Column, Reason};
use serde::Serialize;

use crate::{Check, CheckOutcome, ColumnAgreement};

/// All checks with what they counted, and how near vectors are to others.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// The checks, always all of them, in the order of [`CHECKS`](crate::CHECKS).
    pub checks: Vec<Check>,
    /// How near the sampled vectors of each column are to the same computed again; empty where none were.
    pub spot_check: Vec<ColumnAgreement>,
    /// The agreement of each column with the reference; empty when there is none.
    pub agreement: Vec<ColumnAgreement>,
    /// Columns of the embeddings that were not compared with the reference: those of several vectors a row, and those that it
    /// does not have. Empty when there is none.
    pub not_compared: Vec<Column>,
}

impl Verdict {
    /// Skips the check of this name: what it found does not count.
    pub fn skip(&mut self, name: &str, why: &str) {
        for check in self.checks.iter_mut().filter(|check| check.name == name) {
            *check = Check::skipped(check.name, why);
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
        let check = checks.find(|check| check.name == name);
        check.expect("a name of CHECKS")
    }

    /// The checks that ended so.
    pub fn of(&self, outcome: CheckOutcome) -> impl Iterator<Item = &Check> {
        let checks = self.checks.iter();
        checks.filter(move |check| check.outcome == outcome)
    }
}
