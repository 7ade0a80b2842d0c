//! All checks of some of the files, fed row by row.

use plmkit_contract::{EmbeddingLayout, Provenance, Reject, RowDigest, RowKey};

use crate::agreement::Pair;
use crate::columns::FileColumn;
use crate::coverage::{Coverage, reject_key};
use crate::files::{EmbeddedFile, ShardFile};
use crate::pooling::PoolingPlan;
use crate::{
    AliasLists, Composition, Expectations, ExpectedRows, Findings, Reference, ReferenceError, Tiers,
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
    /// Whether to keep a sample of the vectors for pictures.
    pub keep_map: bool,
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
    composition: Option<Composition>,
    file: Option<OpenFile>,
}

/// The file that is being read.
#[derive(Debug)]
struct OpenFile {
    name: String,
    columns: Vec<FileColumn>,
    pooling: PoolingPlan,
    pairs: Vec<Pair>,
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
            composition: None,
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

    /// Says of which residues the sequences of all the files are.
    pub fn set_composition(&mut self, composition: Composition) {
        self.composition = Some(composition);
    }

    /// Begins an embeddings file with these columns. `sample` has the first vectors of each column: up to
    /// [`PILOT_ROWS`](crate::PILOT_ROWS).
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
        self.file = Some(OpenFile {
            name: name.to_owned(),
            columns: columns
                .map(|(&column, sample)| {
                    FileColumn::new(column, sample, layout.dim, layout.dtype, computed)
                })
                .collect(),
            pooling: PoolingPlan::new(layout),
            pairs: pairs.unwrap_or_default(),
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
        let mut finite = true;
        for (column, vector) in file.columns.iter_mut().zip(vectors) {
            let norm = column.add(row, vector, &mut findings.vectors);
            finite &= norm.is_some();
            if let Some(norm) = norm.filter(|_| self.criteria.keep_map && column.is_scattered()) {
                findings.map.add(row, column.column(), vector, norm);
            }
        }
        if finite {
            findings.pooling.add(&file.pooling, row, vectors);
        }
        if let Some((reference, _)) = &self.criteria.reference {
            findings.agreement.add(reference, row, &file.pairs, vectors);
        }
    }

    fn end_file(&mut self) {
        if let Some(file) = self.file.take() {
            let findings = &mut self.findings;
            let composition = self.composition.as_ref();
            let composition = composition.map(|composition| composition.centre(&file.name));
            findings.compositions.extend(composition);
            for column in file.columns {
                let column = column.finish(&file.name, &mut findings.vectors);
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
