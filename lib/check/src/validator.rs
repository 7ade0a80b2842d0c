//! All checks of some of the files, fed row by row.

use std::collections::{BTreeMap, HashSet};

use plmkit_contract::{Column, Manifest, Reason, RecordCounts, Reject, RejectsList, RowKey};

use crate::columns::FileColumn;
use crate::coverage::{Coverage, reject_key};
use crate::pooling::PoolingCheck;
use crate::spot_check::SpotCheck;
use crate::{AliasLists, EmbeddedFile, Findings, Recomputed, Reference, ShardFile};

/// What embeddings are compared with, whatever file they are in.
#[derive(Debug, Default)]
pub struct Criteria {
    /// The largest share of the records that may be rejected; 5 % by default.
    pub max_rejected: Option<f64>,
    /// Whether a set without rows passes.
    pub allow_empty: bool,
    /// The manifest of the shards, with its name.
    pub manifest: Option<(String, Manifest)>,
    /// Without a manifest: the records, and the rejected ones by reason, as an earlier verdict on the same set counted them.
    pub earlier: Option<RecordCounts>,
    /// Vectors to compare with, and the smallest cosine with them that passes.
    pub reference: Option<(Reference, f64)>,
    /// Name and content of each list of rejects.
    pub rejects: Vec<(String, RejectsList)>,
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
    /// The records, and the rejected ones by reason, as the manifest or an earlier verdict counted them.
    pub(crate) fn counted(&self) -> Option<(u64, &BTreeMap<Reason, u64>)> {
        let manifest = self.manifest.as_ref();
        let earlier = self.earlier.as_ref();
        let counted = manifest.map(|(_, manifest)| (manifest.records, &manifest.rejected));
        counted.or(earlier.map(|(records, rejected)| (*records, rejected)))
    }

    /// Adds a list of rejects, which reports call `name`. One that is there already is not added again.
    pub fn add_rejects(&mut self, name: String, list: RejectsList) {
        if self.rejects.iter().any(|(_, known)| *known == list) {
            return;
        }
        if list.of_rows {
            self.not_embedded.extend_from_slice(&list.lines);
            self.not_embedded.sort_by_key(reject_key);
        }
        self.rejects.push((name, list));
    }
}

/// Checks some embeddings files as their rows stream by. See the [crate documentation](crate) for an example.
///
/// Validators of other files may run at the same time; their [`Findings`] are put together in the order of the files.
#[derive(Debug)]
pub struct Validator<'a> {
    criteria: &'a Criteria,
    expected: Option<Coverage>,
    findings: Findings,
    /// Rows that should have been computed again: ordinal and start.
    sample: HashSet<(u64, u32)>,
    file: Option<OpenFile<'a>>,
}

/// The file that is being read.
#[derive(Debug)]
struct OpenFile<'a> {
    file: EmbeddedFile,
    columns: Vec<FileColumn>,
    pooling: PoolingCheck,
    /// The columns with their places in the reference.
    pairs: Vec<(Column, Option<usize>)>,
    recomputed: Option<SpotCheck<'a>>,
}

impl<'a> Validator<'a> {
    /// A validator of embeddings that should hold the [expected](Self::expect) rows, if it `knows_shards`.
    pub fn new(criteria: &'a Criteria, knows_shards: bool) -> Self {
        Self {
            criteria,
            expected: knows_shards.then(Coverage::default),
            findings: Findings {
                knows_shards,
                ..Findings::default()
            },
            sample: HashSet::new(),
            file: None,
        }
    }

    /// Takes in a shard.
    pub fn add_shard(&mut self, shard: ShardFile) {
        self.findings.shards.push(shard);
    }

    /// Expects a row of a shard, or a protein, where embeddings hold whole ones.
    pub fn expect(&mut self, row: &RowKey) {
        if let Some(expected) = &mut self.expected {
            self.findings.ordinals.insert(row.ordinal);
            expected.push(row, &mut self.findings.tallies);
        }
    }

    /// Sees a protein of a shard, all its windows as one row. Its aliases must have the same residues.
    pub fn add_protein(&mut self, protein: &RowKey) {
        let records = self.findings.tallies.of("records");
        self.criteria.aliases.compare(protein, records);
    }

    /// Says which rows, by ordinal and start, should have been computed again.
    pub fn set_sample(&mut self, sample: HashSet<(u64, u32)>) {
        self.sample = sample;
    }

    /// Begins an embeddings file.
    pub fn begin_file(&mut self, file: EmbeddedFile) {
        self.end_file();
        let findings = &mut self.findings;
        let columns = &file.layout.columns;
        let reference = self.criteria.reference.as_ref();
        let pairs = reference.map(|(reference, _)| reference.pair(columns));
        let tally = findings.tallies.of("spot-check");
        let recomputed = self.criteria.recomputed.as_ref();
        let recomputed = recomputed.map(|again| SpotCheck::new(&file, again, tally));
        let columns = columns.iter().map(|&column| FileColumn::new(column, &file));
        self.file = Some(OpenFile {
            columns: columns.collect(),
            pooling: PoolingCheck::new(&file.layout),
            pairs: pairs.unwrap_or_default(),
            recomputed,
            file,
        });
    }

    /// Sees one row of the file, with one vector for each of its columns.
    ///
    /// # Panics
    /// If no file was begun.
    pub fn add_row(&mut self, row: &RowKey, vectors: &[&[f32]]) {
        let file = self.file.as_mut().expect("a file was begun");
        let findings = &mut self.findings;
        let tallies = &mut findings.tallies;
        findings.rows += 1;
        findings.truncated += u64::from(row.truncated);
        if let Some(expected) = &mut self.expected {
            expected.compare(row, tallies);
        }
        let mut finite = true;
        for (column, vector) in file.columns.iter_mut().zip(vectors) {
            finite &= column.add(row, vector, vectors, tallies);
        }
        if finite {
            file.pooling.add(row, vectors, tallies.of("pooling"));
        }
        if let Some(recomputed) = &mut file.recomputed {
            let tally = tallies.of("spot-check");
            recomputed.add(&file.file.name, &self.sample, row, vectors, tally);
        }
        if let Some(reference) = &self.criteria.reference {
            let (agreement, tally) = (&mut findings.agreement, tallies.of("reference"));
            agreement.add(reference, row, &file.pairs, vectors, tally);
        }
    }

    fn end_file(&mut self) {
        let Some(file) = self.file.take() else {
            return;
        };
        let findings = &mut self.findings;
        let (tallies, name) = (&mut findings.tallies, &file.file.name);
        if let Some(recomputed) = file.recomputed {
            recomputed.finish(name, &mut findings.recomputed, tallies.of("spot-check"));
        }
        tallies
            .of("pooling")
            .count("compared", file.pooling.compared);
        for column in file.columns {
            let (all, of) = (&mut findings.columns, column.column);
            let sequences = column.finish(name, tallies);
            sequences.add_to(all, of, tallies.of("sequences"));
        }
        findings.embeddings.push(file.file);
    }

    /// What was found in all the files.
    pub fn finish(mut self) -> Findings {
        self.end_file();
        if let Some(expected) = &self.expected {
            expected.finish(&self.criteria.not_embedded, &mut self.findings.tallies);
        }
        self.findings
    }
}
