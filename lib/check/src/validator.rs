//! All checks, fed row by row.

use std::collections::BTreeMap;

use plmkit_contract::{
    EmbeddingLayout, Manifest, Provenance, Reason, Reject, RejectsList, RowDigest, RowKey,
};

use crate::agreement::{Agreement, Pair};
use crate::check::Check;
use crate::coverage::{Coverage, ExpectedRows};
use crate::dimensions::Dimensions;
use crate::origin::Origin;
use crate::reference::Reference;
use crate::values::Values;
use crate::{ReferenceError, Verdict, manifest, ordinals};

/// Checks embeddings as they stream by. See the [crate documentation](crate) for an example.
#[derive(Debug, Default)]
pub struct Validator {
    coverage: Option<Coverage>,
    /// Ordinals of records that are in no shard.
    rejects: Option<Vec<u64>>,
    /// How many these are, by reason.
    rejected: BTreeMap<Reason, u64>,
    /// Rows that could not be embedded.
    not_embedded: Vec<Reject>,
    manifest: Option<Manifest>,
    /// File and row digest of each shard.
    shards: Vec<(String, RowDigest)>,
    /// Name and digest of each file that lists records.
    rejects_files: Vec<(String, String)>,
    origin: Origin,
    dimensions: Dimensions,
    values: Values,
    agreement: Option<Agreement>,
    rows: u64,
    truncated: u64,
    /// The columns of the file that is being read, by their place in `values`.
    places: Vec<usize>,
    pairs: Vec<Pair>,
}

impl Validator {
    /// An validator of nothing but the embeddings themselves.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks coverage of these rows.
    #[must_use]
    pub fn with_shards(mut self, shards: ExpectedRows) -> Self {
        self.coverage = Some(Coverage::new(shards));
        self
    }

    /// Checks that shards and these rejected records share out all records; or lets these rows, which could not be
    /// embedded, be missing, and checks that an embeddings file knows their list. May be called more than once.
    pub fn add_rejects(&mut self, name: &str, list: RejectsList) {
        let ordinals = self.rejects.get_or_insert_default();
        if list.of_rows {
            self.origin.add_rejects(name, list.digest);
            self.not_embedded.extend(list.lines);
            return;
        }
        self.rejects_files.push((name.to_owned(), list.digest));
        for reject in &list.lines {
            ordinals.push(reject.ordinal);
            *self.rejected.entry(reject.reason).or_default() += 1;
        }
    }

    /// Checks that shards and rejects are those of this manifest, and that they account for all its records.
    #[must_use]
    pub fn with_manifest(mut self, manifest: Manifest) -> Self {
        self.manifest = Some(manifest);
        self
    }

    /// Checks that each cosine with the reference is at least `min_cosine`.
    #[must_use]
    pub fn with_reference(mut self, reference: Reference, min_cosine: f64) -> Self {
        self.agreement = Some(Agreement::new(reference, min_cosine));
        self
    }

    /// Takes in a shard: where it comes from, the digest of its rows, and that of the batches that it becomes.
    pub fn add_shard(
        &mut self,
        name: &str,
        provenance: &Provenance,
        rows: RowDigest,
        batches: RowDigest,
    ) {
        self.shards.push((name.to_owned(), rows));
        self.origin.add_shard(name, provenance, batches);
    }

    /// Begins an embeddings file with these columns.
    ///
    /// # Errors
    /// If there is a reference and it has none of these columns.
    pub fn begin_file(
        &mut self,
        name: &str,
        provenance: &Provenance,
        layout: &EmbeddingLayout,
    ) -> Result<(), ReferenceError> {
        self.origin.add_embeddings(name, provenance);
        self.dimensions.add(name, layout);
        self.places = layout
            .columns
            .iter()
            .map(|&column| self.values.column(column))
            .collect();
        if let Some(agreement) = &mut self.agreement {
            self.pairs = agreement.pair(&layout.columns)?;
        }
        Ok(())
    }

    /// Sees one row of the file, with one vector for each of its columns.
    pub fn add_row(&mut self, row: &RowKey, vectors: &[&[f32]]) {
        self.rows += 1;
        self.truncated += u64::from(row.truncated);
        if let Some(coverage) = &mut self.coverage {
            coverage.add(row);
        }
        for (&place, vector) in self.places.iter().zip(vectors) {
            self.values.add(row, place, vector);
        }
        if let Some(agreement) = &mut self.agreement {
            agreement.add(row, &self.pairs, vectors);
        }
    }

    /// The verdict on all rows.
    pub fn finish(self) -> Verdict {
        let manifest = self.manifest.as_ref();
        let residues_truncated =
            manifest.and_then(|manifest| manifest.changed.get("residues_truncated").copied());
        let records_read = manifest.map(|manifest| manifest.records);
        let rejected = self.rejects.is_some().then_some(&self.rejected);
        let manifest = manifest.map_or_else(
            || Check::skipped("manifest", "no manifest was given"),
            |manifest| manifest::check(manifest, &self.shards, rejected, &self.rejects_files),
        );
        let ordinals = match (&self.coverage, self.rejects) {
            (Some(coverage), Some(rejects)) => {
                ordinals::check(coverage.ordinals(), rejects, records_read)
            }
            (None, _) => Check::skipped("ordinals", "no shards were given"),
            (_, None) => Check::skipped("ordinals", "no rejects were given"),
        };
        let skipped =
            ["coverage", "records"].map(|name| Check::skipped(name, "no shards were given"));
        let not_embedded = self.not_embedded;
        let mut all_rejected = self.rejected;
        for reject in &not_embedded {
            *all_rejected.entry(reject.reason).or_default() += 1;
        }
        let coverage = self.coverage.map(|coverage| coverage.finish(not_embedded));
        let [coverage, records] = coverage.unwrap_or(skipped);
        let ([finite, zero], norms) = self.values.finish();
        let (reference, agreement, not_compared) = self.agreement.map_or_else(
            || {
                let skipped = Check::skipped("reference", "no reference was given");
                (skipped, Vec::new(), Vec::new())
            },
            Agreement::finish,
        );
        let (origin, dimensions) = (self.origin.finish(), self.dimensions.finish());
        Verdict {
            records: records_read,
            rows: self.rows,
            truncated: self.truncated,
            residues_truncated,
            rejected: all_rejected,
            checks: vec![
                coverage, records, ordinals, manifest, origin, dimensions, finite, zero, reference,
            ],
            norms,
            agreement,
            not_compared,
        }
    }
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{Column, Labels, Pooling, SequenceDigest, StoreDtype, VectorColumn};

    use super::*;
    use crate::CheckOutcome;

    const MEAN: Column = Column::Pooled(VectorColumn {
        pool: Pooling::Mean,
        layer: 6,
    });
    const MAX: Column = Column::Pooled(VectorColumn {
        pool: Pooling::Max,
        layer: 6,
    });

    fn layout(columns: &[Column], dim: usize) -> EmbeddingLayout {
        EmbeddingLayout {
            columns: columns.to_vec(),
            dim,
            dtype: StoreDtype::F32,
            stitched: false,
            labels: Labels::default(),
        }
    }

    fn made() -> Provenance {
        Provenance::new("gpu-embed", Vec::new())
    }

    fn row(ordinal: u64) -> RowKey<'static> {
        RowKey {
            ordinal,
            id: "P",
            start: 0,
            length: 9,
            truncated: false,
            digest: SequenceDigest::default(),
            n_windows: 1,
        }
    }

    #[test]
    fn what_was_not_given_is_skipped_and_does_not_fail() {
        let mut validator = Validator::new();
        validator
            .begin_file("a", &made(), &layout(&[MEAN], 1))
            .expect("no reference");
        validator.add_row(&row(0), &[&[1.0]]);
        let verdict = validator.finish();
        assert!(verdict.passed());
        let outcomes: Vec<(&str, CheckOutcome)> = verdict
            .checks
            .iter()
            .map(|check| (check.name, check.outcome))
            .collect();
        assert_eq!(
            outcomes,
            [
                ("coverage", CheckOutcome::Skipped),
                ("records", CheckOutcome::Skipped),
                ("ordinals", CheckOutcome::Skipped),
                ("manifest", CheckOutcome::Skipped),
                ("origin", CheckOutcome::Pass),
                ("dimensions", CheckOutcome::Pass),
                ("finite", CheckOutcome::Pass),
                ("norms", CheckOutcome::Pass),
                ("reference", CheckOutcome::Skipped),
            ]
        );
    }

    #[test]
    fn columns_are_followed_by_name_from_file_to_file() {
        let mut reference = Reference::new(["max_6".to_owned()]);
        reference
            .push("P", 0, [&[1.0, 0.0][..]])
            .expect("two values");
        reference.sort().expect("one row");
        let mut validator = Validator::new().with_reference(reference, 0.999);
        let along: &[f32] = &[3.0, 0.0];
        let across: &[f32] = &[0.0, 0.0];
        validator
            .begin_file("a", &made(), &layout(&[MEAN, MAX], 2))
            .expect("max_6");
        validator.add_row(&row(0), &[across, along]);
        validator
            .begin_file("b", &made(), &layout(&[MAX, MEAN], 2))
            .expect("max_6");
        validator.add_row(&row(1), &[along, across]);
        let verdict = validator.finish();
        let failed: Vec<&str> = verdict.failed().map(|check| check.name).collect();
        assert_eq!(failed, ["dimensions", "norms"]);
        assert_eq!(verdict.norms[0].zero, 2);
        assert_eq!(
            (verdict.norms[1].min, verdict.norms[1].max),
            (Some(3.0), Some(3.0))
        );
        assert_eq!(verdict.agreement.len(), 1);
        assert_eq!(verdict.agreement[0].compared, 2);
    }

    /// Records 1 and 2 are in the shards, and 1 is embedded.
    fn passes(rejects: &[(u64, Reason)]) -> bool {
        let mut shards = ExpectedRows::default();
        shards.push(&row(1));
        shards.push(&row(2));
        let mut validator = Validator::new().with_shards(shards);
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
            validator.add_rejects("rejects.csv", list);
        }
        let made = made().with_rejects("the list".to_owned());
        validator
            .begin_file("a", &made, &layout(&[MEAN], 1))
            .expect("no reference");
        validator.add_row(&row(1), &[&[1.0]]);
        validator.finish().passed()
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
}
