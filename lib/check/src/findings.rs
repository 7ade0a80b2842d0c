//! What was found in some of the files; the findings in all of them make the verdict.

use std::collections::HashSet;

use plmkit_contract::Column;
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};

use crate::agreement::Agreement;
use crate::check::Tallies;
use crate::columns::ColumnFindings;
use crate::cosines::Cosines;
use crate::files::{EmbeddedFile, ShardFile};
use crate::recomputed::{RecomputedColumn, compare_golden};
use crate::{
    CHECKS, Check, Criteria, Verdict, WholeSet, dimensions, expectations, manifest, ordinals,
    origin,
};

/// What was found in some files, in a size that does not depend on the number of their rows.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Findings {
    pub(crate) rows: u64,
    pub(crate) truncated: u64,
    /// Whether shards say what is expected.
    pub(crate) knows_shards: bool,
    pub(crate) tallies: Tallies,
    /// The records in the shards.
    pub(crate) ordinals: RoaringTreemap,
    pub(crate) shards: Vec<ShardFile>,
    pub(crate) embeddings: Vec<EmbeddedFile>,
    pub(crate) columns: Vec<ColumnFindings>,
    pub(crate) recomputed: Vec<RecomputedColumn>,
    /// Not written: a reference is compared in one run.
    #[serde(skip)]
    pub(crate) agreement: Agreement,
}

impl Findings {
    pub(crate) fn add_column(&mut self, column: ColumnFindings) {
        let mut known = self.columns.iter_mut();
        match known.find(|known| known.column() == column.column()) {
            Some(known) => known.merge(column, self.tallies.of("sequences")),
            None => self.columns.push(column),
        }
    }

    /// Adds what was found in other files, which follow these.
    pub fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.truncated += other.truncated;
        self.knows_shards |= other.knows_shards;
        self.tallies.merge(other.tallies);
        // The windows of a protein are in one shard.
        for ordinal in &self.ordinals & &other.ordinals {
            let coverage = self.tallies.of("coverage");
            coverage.add("doubled_in_shards", ordinal, "in the shards more than once");
        }
        self.ordinals |= other.ordinals;
        self.shards.extend(other.shards);
        self.embeddings.extend(other.embeddings);
        for column in other.columns {
            self.add_column(column);
        }
        for column in other.recomputed {
            column.add_to(&mut self.recomputed);
        }
        self.agreement.merge(other.agreement);
    }

    /// Whether shards say which rows are expected.
    pub fn knows_shards(&self) -> bool {
        self.knows_shards
    }

    /// The embeddings files.
    pub fn embeddings(&self) -> &[EmbeddedFile] {
        &self.embeddings
    }

    /// The shards.
    pub fn shards(&self) -> &[ShardFile] {
        &self.shards
    }

    /// Puts the files of one run in the order given.
    pub fn sort(&mut self) {
        self.shards.sort_by_key(|file| file.position);
        self.embeddings.sort_by_key(|file| file.position);
    }

    /// Compares a golden vector of a protein in a column with the same computed again. `file` is where it is from.
    pub fn add_golden(
        &mut self,
        file: &str,
        id: &str,
        column: Column,
        golden: &[f32],
        again: Option<&[f32]>,
    ) {
        let (all, tally) = (&mut self.recomputed, self.tallies.of("spot-check"));
        compare_golden(file, id, column, golden, again, all, tally);
    }

    /// The verdict on all files.
    pub fn verdict(self, criteria: &Criteria, set: &WholeSet) -> Verdict {
        let Criteria { aliases, .. } = criteria;
        let (manifest, rejects) = (set.manifest, &set.rejects);
        let known = manifest.and_then(|manifest| manifest.known.as_ref());
        let records = manifest.map(|manifest| manifest.records);
        let (shards, embeddings) = (&self.shards, &self.embeddings);

        let mut tallies = self.tallies;
        let is_recomputed = tallies.of("spot-check").counted("rows") > 0;
        tallies.merge(aliases.wrong.clone());
        let coverage = tallies.of("coverage");
        if coverage.violations("missing") > 0 {
            origin::list_without_list(embeddings, &rejects.of_rows, coverage);
        }
        let ordinals = tallies.of("ordinals");
        ordinals::check(
            &self.ordinals,
            &rejects.ordinals,
            aliases,
            records,
            ordinals,
        );
        if let Some(manifest) = manifest {
            manifest::check(manifest, shards, rejects, tallies.of("manifest"));
        }
        let origin = tallies.of("origin");
        origin::check(embeddings, shards, &rejects.of_rows, known, origin);
        dimensions::check(embeddings, tallies.of("dimensions"));
        let rejected: u64 = rejects.by_reason.values().sum();
        // Rows that were lost count, too.
        let in_shards = self.ordinals.len().max(self.rows);
        expectations::check(
            &criteria.expectations,
            embeddings,
            self.rows,
            &rejects.by_reason,
            records.unwrap_or(in_shards + rejected),
            manifest.is_some_and(|manifest| manifest.rows == 0),
            tallies.of("expectations"),
        );
        let columns = self.columns.into_iter();
        let norms = columns.map(|column| column.finish(&mut tallies)).collect();
        if let Some((reference, tiers)) = &criteria.reference {
            let ids = rejects.ids.iter().map(|id| reference.key_of(id));
            let ids: HashSet<&str> = ids.collect();
            let is_rejected = |id: &str| ids.contains(reference.key_of(id));
            let tally = tallies.of("reference");
            self.agreement.check(reference, *tiers, is_rejected, tally);
        }
        if let Some(parts) = &set.parts {
            parts.check(embeddings, tallies.of("parts"));
        }

        let not_recomputed = criteria.not_recomputed.unwrap_or("no model was given");
        let not_recomputed = format!("not recomputed: {not_recomputed}");
        let without = |name: &str, count: u64| match name {
            "coverage" | "records" | "ordinals" if !self.knows_shards => {
                Some("no shards were given")
            }
            "ordinals" if !rejects.given => Some("no rejects were given"),
            "manifest" if manifest.is_none() => Some("no manifest was given"),
            "pooling" if count == 0 => Some("no layer has several columns to compare"),
            "contacts" if count == 0 => Some("there are no contacts"),
            "outliers" if count == 0 => Some("no file has 8 vectors to compare with each other"),
            "reference" if criteria.reference.is_none() => Some("no reference was given"),
            "spot-check" if criteria.recomputed.is_none() && !is_recomputed => {
                Some(not_recomputed.as_str())
            }
            "parts" if set.parts.is_none() => Some("no dataset was given"),
            _ => None,
        };
        let checks = CHECKS.iter().map(|definition| {
            let tally = std::mem::take(tallies.of(definition.name));
            let count = definition.counts().map(|name| tally.counted(name)).sum();
            match without(definition.name, count) {
                Some(why) => Check::skipped(definition.name, why),
                None => tally.finish(definition),
            }
        });
        let checks = checks.collect();
        let columns = self.agreement.columns.into_iter();
        Verdict {
            records,
            rows: self.rows,
            truncated: self.truncated,
            aliases: manifest.map(|manifest| manifest.aliases.as_ref().map_or(0, |list| list.rows)),
            known: manifest.map(|_| known.map_or(0, |known| known.list.rows)),
            residues_truncated: manifest
                .and_then(|manifest| manifest.changed.get("residues_truncated").copied()),
            rejected: rejects.by_reason.clone(),
            checks,
            norms,
            spot_check: self
                .recomputed
                .into_iter()
                .map(RecomputedColumn::finish)
                .collect(),
            agreement: columns.map(Cosines::finish).collect(),
            not_compared: self.agreement.not_compared,
        }
    }
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{Provenance, Reason, Reject, RejectsList, RowKey, SequenceDigest};

    use super::*;
    use crate::{CheckOutcome, ExpectedRows, Reference, RejectsLists, Tiers, Validator};

    fn row(ordinal: u64) -> RowKey<'static> {
        RowKey {
            ordinal,
            id: "P",
            start: 0,
            length: 9,
            truncated: false,
            digest: SequenceDigest::new(&ordinal.to_le_bytes()),
            n_windows: 1,
        }
    }

    /// The findings in a file with one row.
    fn file(
        criteria: &Criteria,
        shards: Option<ExpectedRows>,
        columns: &[&str],
        ordinal: u64,
        vectors: &[&[f32]],
    ) -> Findings {
        let mut validator = Validator::new(criteria, shards);
        let made = Provenance::new("gpu-embed", Vec::new()).with_rejects("the list".to_owned());
        let mut file = EmbeddedFile::of("a", made, columns);
        file.layout.dim = vectors[0].len();
        let sample: Vec<Vec<&[f32]>> = vectors.iter().map(|&vector| vec![vector]).collect();
        let begun = validator.begin_file(file, &sample);
        begun.expect("a column of the reference");
        validator.add_row(&row(ordinal), vectors);
        validator.finish()
    }

    #[test]
    fn what_was_not_given_is_skipped_and_does_not_fail() {
        let criteria = Criteria::default();
        let findings = file(&criteria, None, &["mean_6"], 0, &[&[1.0]]);
        let verdict = findings.verdict(&criteria, &WholeSet::default());
        assert!(verdict.passed());
        let names = |outcome| {
            let checks = verdict.checks.iter();
            let checks = checks.filter(|check| check.outcome == outcome);
            checks.map(|check| check.name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            names(CheckOutcome::Pass),
            "origin dimensions expectations finite norms sequences constant"
        );
        assert_eq!(
            names(CheckOutcome::Skipped),
            "coverage records ordinals manifest pooling contacts outliers reference spot-check parts"
        );
    }

    #[test]
    fn columns_are_followed_by_name_from_file_to_file() {
        let mut reference = Reference::new(["max_6".to_owned()]);
        let vector = [1.0, 0.0];
        reference.push("P", 0, [&vector[..]]).expect("two values");
        reference.sort().expect("one row");
        let criteria = Criteria {
            reference: Some((reference, Tiers::strict(0.999))),
            ..Criteria::default()
        };
        let (along, across): (&[f32], &[f32]) = (&[3.0, 0.0], &[0.0, 0.0]);
        let mut findings = file(&criteria, None, &["mean_6", "max_6"], 0, &[across, along]);
        findings.merge(file(
            &criteria,
            None,
            &["max_6", "mean_6"],
            1,
            &[along, across],
        ));
        let verdict = findings.verdict(&criteria, &WholeSet::default());
        let failed: Vec<&str> = verdict.failed().map(|check| check.name).collect();
        assert_eq!(failed, ["dimensions", "norms"]);
        let [mean, max] = &verdict.norms[..] else {
            panic!("two columns");
        };
        assert_eq!((mean.zero, max.min, max.max), (2, Some(3.0), Some(3.0)));
        assert_eq!(verdict.agreement.len(), 1);
        assert_eq!(verdict.agreement[0].compared, 2);
    }

    /// Records 1 and 2 are in the shards, and 1 is embedded.
    fn passes(rejects: &[(u64, Reason)]) -> bool {
        let mut criteria = Criteria {
            expectations: "max-rejected=100%".parse().expect("a share"),
            ..Criteria::default()
        };
        let mut lists = RejectsLists::default();
        for of_rows in [false, true] {
            let lines = rejects.iter().map(|&(ordinal, reason)| Reject {
                ordinal,
                id: "P".to_owned(),
                length: 9,
                reason,
                start: of_rows.then_some(0),
            });
            let of_kind = |line: &Reject| of_rows == Reason::EMBEDDING.contains(&line.reason);
            let list = RejectsList {
                lines: lines.filter(of_kind).collect(),
                of_rows,
                digest: "the list".to_owned(),
            };
            lists.add("rejects.csv", &list);
            if of_rows {
                criteria.add_not_embedded(&list.lines);
            }
        }
        let mut shards = ExpectedRows::default();
        shards.push(&row(1));
        shards.push(&row(2));
        let findings = file(&criteria, Some(shards), &["mean_6"], 1, &[&[1.0]]);
        let set = WholeSet {
            rejects: lists,
            ..WholeSet::default()
        };
        findings.verdict(&criteria, &set).passed()
    }

    #[test]
    fn rejects_fill_the_gaps_of_shards_and_of_embeddings() {
        let (empty, not_finite) = (Reason::Empty, Reason::NotFinite);
        assert!(passes(&[(0, empty), (2, not_finite)]));
        assert!(!passes(&[(0, empty)]), "2 is missing");
        assert!(!passes(&[(2, not_finite)]), "0 is nowhere");
        assert!(!passes(&[(0, empty), (2, empty)]), "2 is in a shard");
        assert!(
            !passes(&[(0, not_finite), (2, not_finite)]),
            "0 is in no shard"
        );
    }

    #[test]
    fn a_record_in_the_shards_of_two_groups_is_doubled() {
        let criteria = Criteria::default();
        let group = || {
            let mut shards = ExpectedRows::default();
            shards.push(&row(1));
            file(&criteria, Some(shards), &["mean_6"], 1, &[&[1.0]])
        };
        let mut findings = group();
        findings.merge(group());
        let verdict = findings.verdict(&criteria, &WholeSet::default());
        let coverage = &verdict.checks[0];
        assert_eq!(coverage.counts["doubled_in_shards"], 1);
    }
}
