//! All checks of some of the files, fed row by row.

use std::collections::HashSet;

use plmkit_contract::{Column, EmbeddingLayout, Pooling, Provenance, Reject, RowDigest, RowKey};

use crate::agreement::Pair;
use crate::columns::FileColumn;
use crate::coverage::{Coverage, reject_key};
use crate::files::{EmbeddedFile, ShardFile};
use crate::look::of_both_moments;
use crate::pooling::PoolingPlan;
use crate::recomputed::SpotPlan;
use crate::tolerance::Tolerance;
use crate::{
    AliasLists, Expectations, ExpectedRows, Findings, Recomputed, Reference, ReferenceError, Tiers,
};

/// What embeddings are compared with, whatever file they are in.
#[derive(Debug, Default)]
pub struct Criteria {
    /// What the user expects of every file.
    pub expectations: Expectations,
    /// Vectors to compare with, and how near embeddings must be to them.
    pub reference: Option<(Reference, Tiers)>,
    /// The rows of all shards that could not be embedded, sorted by ordinal and start.
    pub(crate) not_embedded: Vec<Reject>,
    /// Records that are in no shard, because another row holds their vectors.
    pub aliases: AliasLists,
    /// A sample of the rows, computed again.
    pub recomputed: Option<Recomputed>,
    /// Why there is none, if not for want of a model.
    pub not_recomputed: Option<&'static str>,
}

impl Criteria {
    /// Lets these rows, which could not be embedded, be missing.
    pub fn add_not_embedded(&mut self, rows: &[Reject]) {
        self.not_embedded.extend_from_slice(rows);
        self.not_embedded.sort_by_key(reject_key);
    }
}

/// Checks some embeddings files as their rows stream by. See the [crate documentation](crate) for an example.
///
/// Validators of other files may run at the same time; their [`Findings`] are put together in the order of the files.
#[derive(Debug)]
pub struct Validator<'a> {
    criteria: &'a Criteria,
    coverage: Option<Coverage>,
    findings: Findings,
    /// Rows that should have been computed again: ordinal and start.
    sample: HashSet<(u64, u32)>,
    file: Option<OpenFile>,
}

/// The file that is being read.
#[derive(Debug)]
struct OpenFile {
    name: String,
    columns: Vec<FileColumn>,
    /// For each column of deviations the place of the means of its layer, if they are there.
    means: Vec<Option<usize>>,
    pooling: PoolingPlan,
    pairs: Vec<Pair>,
    spot: Option<SpotPlan>,
    /// Ordinal, start and id of each row.
    keys: Vec<(u64, u32, Box<str>)>,
}

impl<'a> Validator<'a> {
    /// A validator of embeddings that should hold the rows of some `shards`, or of nothing but the embeddings themselves.
    pub fn new(criteria: &'a Criteria, shards: Option<ExpectedRows>) -> Self {
        let mut findings = Findings::default();
        if let Some(shards) = &shards {
            findings.ordinals.extend(shards.ordinals());
        }
        Self {
            criteria,
            coverage: shards.map(Coverage::new),
            findings,
            sample: HashSet::new(),
            file: None,
        }
    }

    /// Takes in a shard: where it comes from, the digest of its rows, and that of the batches that it becomes.
    pub fn add_shard(
        &mut self,
        name: &str,
        provenance: &Provenance,
        rows: RowDigest,
        batches: RowDigest,
    ) {
        self.findings.shards.push(ShardFile {
            name: name.to_owned(),
            provenance: provenance.clone(),
            rows,
            batches,
        });
    }

    /// Sees a protein of a shard, all its windows as one row. Its aliases must have the same residues.
    pub fn add_protein(&mut self, protein: &RowKey) {
        let lists = &self.criteria.aliases;
        self.findings.aliases.add(lists, protein);
    }

    /// Says which rows, by ordinal and start, should have been computed again.
    pub fn set_sample(&mut self, sample: HashSet<(u64, u32)>) {
        self.sample = sample;
    }

    /// Begins an embeddings file with these columns. `sample` has the first vectors of each column, from which it is learned where
    /// the others are expected.
    ///
    /// # Errors
    /// If there is a reference and it has none of these columns.
    pub fn begin_file(
        &mut self,
        name: &str,
        provenance: &Provenance,
        layout: &EmbeddingLayout,
        sample: &[Vec<&[f32]>],
    ) -> Result<(), ReferenceError> {
        self.end_file();
        let findings = &mut self.findings;
        findings.embeddings.push(EmbeddedFile {
            name: name.to_owned(),
            provenance: provenance.clone(),
            layout: layout.clone(),
        });
        let reference = self.criteria.reference.as_ref();
        let pairs = reference
            .map(|(reference, _)| findings.agreement.pair(reference, &layout.columns))
            .transpose()?;
        let columns = layout.columns.iter().zip(sample);
        let computed = provenance.text_option("dtype").unwrap_or("f32");
        let tolerance = Tolerance::of(provenance);
        let model = provenance.text_option("model").unwrap_or("unknown");
        let spot = self.criteria.recomputed.as_ref().and_then(|recomputed| {
            SpotPlan::new(
                name,
                model,
                layout,
                tolerance,
                recomputed,
                &mut findings.spot,
            )
        });
        self.file = Some(OpenFile {
            name: name.to_owned(),
            columns: columns
                .map(|(&column, sample)| {
                    FileColumn::new(column, sample, layout, computed, tolerance)
                })
                .collect(),
            means: layout
                .columns
                .iter()
                .map(|&column| mean_of(column, layout))
                .collect(),
            pooling: PoolingPlan::new(layout),
            pairs: pairs.unwrap_or_default(),
            spot,
            keys: Vec::new(),
        });
        Ok(())
    }

    /// Sees one row of the file, with one vector for each of its columns.
    ///
    /// # Panics
    /// If no file was begun.
    pub fn add_row(&mut self, row: &RowKey, vectors: &[&[f32]]) {
        let file = self.file.as_mut().expect("a file was begun");
        let findings = &mut self.findings;
        findings.rows += 1;
        findings.truncated += u64::from(row.truncated);
        if let Some(coverage) = &mut self.coverage {
            coverage.add(row);
        }
        let place = file.keys.len();
        file.keys.push((row.ordinal, row.start, row.id.into()));
        let mut finite = true;
        let columns = file.columns.iter_mut().zip(&file.means).zip(vectors);
        for ((column, mean), vector) in columns {
            let size = mean.map(|mean| of_both_moments(vectors[mean], vector));
            finite &= column.add(place, row, vector, size, &mut findings.vectors);
            if column.is_contacts() {
                findings.contacts.add(row, vector);
            }
        }
        if finite {
            findings.pooling.add(&file.pooling, row, vectors);
        }
        if let (Some(recomputed), Some(plan)) = (&self.criteria.recomputed, &mut file.spot) {
            findings
                .spot
                .add(plan, recomputed, &self.sample, row, vectors);
        }
        if let Some((reference, _)) = &self.criteria.reference {
            findings.agreement.add(reference, row, &file.pairs, vectors);
        }
    }

    fn end_file(&mut self) {
        if let Some(file) = self.file.take() {
            let findings = &mut self.findings;
            let key = |place: usize| {
                let (ordinal, start, id) = &file.keys[place];
                (*ordinal, *start, &**id)
            };
            if let Some(plan) = file.spot {
                findings.spot.finish_file(plan);
            }
            for column in file.columns {
                let column = column.finish(&file.name, key, &mut findings.vectors);
                findings.add_column(column);
            }
        }
    }

    /// What was found in all the files.
    pub fn finish(mut self) -> Findings {
        self.end_file();
        let not_embedded = &self.criteria.not_embedded;
        let coverage = self.coverage.map(|coverage| coverage.finish(not_embedded));
        self.findings.coverage = coverage;
        self.findings
    }
}

/// The place of the means of the layer that a column has the deviations of.
fn mean_of(column: Column, layout: &EmbeddingLayout) -> Option<usize> {
    let is =
        |column: Column, wanted| matches!(column, Column::Pooled { pool, .. } if pool == wanted);
    let mut columns = layout.columns.iter();
    let mean = |other: &Column| is(*other, Pooling::Mean) && other.layer() == column.layer();
    columns.position(mean).filter(|_| is(column, Pooling::Std))
}
