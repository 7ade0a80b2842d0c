//! What was found in some of the files; the findings in all of them make the verdict.

use std::collections::{BTreeMap, HashSet};

use plmkit_contract::{Column, Manifest, Reason, RejectsList};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};

use crate::agreement::Agreement;
use crate::aliases::{AliasFindings, other_work};
use crate::columns::{ColumnFindings, VectorViolations};
use crate::contacts::ContactFindings;
use crate::coverage::CoverageFindings;
use crate::files::{EmbeddedFile, ShardFile};
use crate::pooling::PoolingViolations;
use crate::recomputed::SpotFindings;
use crate::{Check, Criteria, Verdict, dimensions, expectations, manifest, ordinals, origin};

/// What was found in some files, in a size that does not depend on the number of their rows.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Findings {
    pub(crate) rows: u64,
    pub(crate) truncated: u64,
    /// None where no shards say what is expected.
    pub(crate) coverage: Option<CoverageFindings>,
    /// The aliases of the proteins in the shards.
    pub(crate) aliases: AliasFindings,
    /// The records in the shards.
    pub(crate) ordinals: RoaringTreemap,
    pub(crate) shards: Vec<ShardFile>,
    pub(crate) embeddings: Vec<EmbeddedFile>,
    pub(crate) columns: Vec<ColumnFindings>,
    pub(crate) vectors: VectorViolations,
    pub(crate) pooling: PoolingViolations,
    pub(crate) contacts: ContactFindings,
    pub(crate) spot: SpotFindings,
    /// Not written: a reference is compared in one run.
    #[serde(skip)]
    pub(crate) agreement: Agreement,
}

/// The lists of what is not in the embeddings.
#[derive(Debug, Default)]
pub struct RejectsLists {
    /// Whether any list was given.
    given: bool,
    /// Ids of records and rows.
    ids: HashSet<String>,
    /// Ordinals of records that are in no shard.
    ordinals: Vec<u64>,
    /// Rejected records and rows, by reason.
    by_reason: BTreeMap<Reason, u64>,
    /// Name and digest of each list of records, and of each list of rows.
    of_records: Vec<(String, String)>,
    of_rows: Vec<(String, String)>,
}

impl RejectsLists {
    /// Adds a list.
    pub fn add(&mut self, name: &str, list: &RejectsList) {
        self.given = true;
        let file = (name.to_owned(), list.digest.clone());
        for reject in &list.lines {
            *self.by_reason.entry(reject.reason).or_default() += 1;
            self.ids.insert(reject.id.clone());
        }
        if list.of_rows {
            self.of_rows.push(file);
            return;
        }
        self.of_records.push(file);
        let ordinals = list.lines.iter().map(|reject| reject.ordinal);
        self.ordinals.extend(ordinals);
    }
}

impl Findings {
    pub(crate) fn add_column(&mut self, column: ColumnFindings) {
        let known = self
            .columns
            .iter_mut()
            .find(|known| known.column() == column.column());
        match known {
            Some(known) => known.merge(column, &mut self.vectors.sequences),
            None => self.columns.push(column),
        }
    }

    /// Adds what was found in other files, which follow these.
    pub fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.truncated += other.truncated;
        if let Some(coverage) = other.coverage {
            let all = self.coverage.get_or_insert_default();
            all.merge(coverage);
            // The windows of a protein are in one shard.
            for ordinal in &self.ordinals & &other.ordinals {
                all.doubled_in_shards
                    .add_record(ordinal, "in the shards more than once");
            }
        }
        self.ordinals |= other.ordinals;
        self.aliases.merge(other.aliases);
        self.shards.extend(other.shards);
        self.embeddings.extend(other.embeddings);
        self.vectors.merge(other.vectors);
        for column in other.columns {
            self.add_column(column);
        }
        self.pooling.merge(other.pooling);
        self.contacts.merge(other.contacts);
        self.spot.merge(other.spot);
        self.agreement.merge(other.agreement);
    }

    /// Whether shards say which rows are expected.
    pub fn knows_shards(&self) -> bool {
        self.coverage.is_some()
    }

    /// The embeddings files.
    pub fn embeddings(&self) -> &[EmbeddedFile] {
        &self.embeddings
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
        self.spot.add_golden(file, id, column, golden, again);
    }

    /// The verdict on all files.
    pub fn verdict(
        self,
        criteria: &Criteria,
        manifest: Option<&Manifest>,
        rejects: &RejectsLists,
    ) -> Verdict {
        let records = manifest.map(|manifest| manifest.records);
        let listed = rejects.given.then_some(&rejects.by_reason);
        let lists = &criteria.aliases;
        let manifest_check = manifest.map_or_else(
            || Check::skipped("manifest", "no manifest was given"),
            |manifest| manifest::check(manifest, &self.shards, listed, &rejects.of_records, lists),
        );
        let ordinals = match (&self.coverage, rejects.given) {
            (Some(_), true) => ordinals::check(&self.ordinals, &rejects.ordinals, lists, records),
            (None, _) => Check::skipped("ordinals", "no shards were given"),
            (_, false) => Check::skipped("ordinals", "no rejects were given"),
        };
        let rejected: u64 = rejects.by_reason.values().sum();
        // Rows that were lost count, too.
        let in_shards = self.ordinals.len().max(self.rows);
        let all = records.unwrap_or(in_shards + rejected);
        let expected = &criteria.expectations;
        let expectations = expectations::check(
            expected,
            &self.embeddings,
            self.rows,
            &rejects.by_reason,
            all,
            manifest.is_some_and(|manifest| manifest.rows == 0),
        );
        let known = manifest.and_then(|manifest| manifest.known.as_ref());
        let other_work = other_work(&self.embeddings, known);
        let without_list = origin::without_list(&self.embeddings, &rejects.of_rows);
        let [coverage, records_check] = self.coverage.map_or_else(
            || ["coverage", "records"].map(|name| Check::skipped(name, "no shards were given")),
            |coverage| coverage.checks(without_list, self.aliases),
        );
        let [finite, norms, sequences, constant, outliers] = self.vectors.finish(&self.columns);
        let (spot_check, spot_agreement) = if criteria.recomputed.is_some() || self.spot.rows() > 0
        {
            self.spot.finish()
        } else {
            let why = criteria.not_recomputed.unwrap_or("no model was given");
            let why = format!("not recomputed: {why}");
            (Check::skipped("spot-check", &why), Vec::new())
        };
        let (reference, agreement, not_compared) = criteria.reference.as_ref().map_or_else(
            || {
                (
                    Check::skipped("reference", "no reference was given"),
                    Vec::new(),
                    Vec::new(),
                )
            },
            |(reference, tiers)| {
                let ids = rejects.ids.iter().map(|id| reference.key_of(id));
                let ids: HashSet<&str> = ids.collect();
                let is_rejected = |id: &str| ids.contains(reference.key_of(id));
                self.agreement.finish(reference, *tiers, is_rejected)
            },
        );
        Verdict {
            records,
            rows: self.rows,
            truncated: self.truncated,
            aliases: manifest.map(|manifest| manifest.aliases.as_ref().map_or(0, |list| list.rows)),
            known: manifest.map(|_| known.map_or(0, |known| known.list.rows)),
            residues_truncated: manifest
                .and_then(|manifest| manifest.changed.get("residues_truncated").copied()),
            rejected: rejects.by_reason.clone(),
            checks: vec![
                coverage,
                records_check,
                ordinals,
                manifest_check,
                origin::check(&self.embeddings, &self.shards, &rejects.of_rows, other_work),
                dimensions::check(&self.embeddings),
                expectations,
                finite,
                norms,
                self.pooling.finish(),
                self.contacts.finish(),
                sequences,
                constant,
                outliers,
                reference,
                spot_check,
            ],
            norms: self
                .columns
                .into_iter()
                .map(ColumnFindings::norms)
                .collect(),
            spot_check: spot_agreement,
            agreement,
            not_compared,
        }
    }
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{
        Column, EmbeddingLayout, Labels, Provenance, Reject, RowKey, SequenceDigest, StoreDtype,
    };

    use super::*;
    use crate::{CheckOutcome, ExpectedRows, Reference, Tiers, Validator};

    fn layout(columns: &[&str], dim: usize) -> EmbeddingLayout {
        let columns = columns.iter().map(|name| name.parse().expect("a column"));
        EmbeddingLayout {
            columns: columns.collect::<Vec<Column>>(),
            dim,
            dtype: StoreDtype::F32,
            stitched: false,
            labels: Labels::default(),
        }
    }

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
        let layout = layout(columns, vectors[0].len());
        let sample: Vec<Vec<&[f32]>> = vectors.iter().map(|&vector| vec![vector]).collect();
        let begun = validator.begin_file("a", &made, &layout, &sample);
        begun.expect("a column of the reference");
        validator.add_row(&row(ordinal), vectors);
        validator.finish()
    }

    #[test]
    fn what_was_not_given_is_skipped_and_does_not_fail() {
        let criteria = Criteria::default();
        let findings = file(&criteria, None, &["mean_6"], 0, &[&[1.0]]);
        let verdict = findings.verdict(&criteria, None, &RejectsLists::default());
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
            "coverage records ordinals manifest pooling contacts outliers reference spot-check"
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
        let verdict = findings.verdict(&criteria, None, &RejectsLists::default());
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
        findings.verdict(&criteria, None, &lists).passed()
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
        let verdict = findings.verdict(&criteria, None, &RejectsLists::default());
        let coverage = &verdict.checks[0];
        assert_eq!(coverage.counts["doubled_in_shards"], 1);
    }
}
