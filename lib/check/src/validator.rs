//! All checks of some of the files, fed row by row.

use std::collections::HashSet;

use plmkit_contract::{Reject, RowKey};

use crate::agreement::Pair;
use crate::columns::FileColumn;
use crate::coverage::reject_key;
use crate::pooling::PoolingCheck;
use crate::recomputed::RecomputedFile;
use crate::{
    AliasLists, EmbeddedFile, Expectations, ExpectedRows, Findings, Recomputed, Reference,
    ReferenceError, ShardFile, Tiers,
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
    expected: Option<ExpectedRows>,
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
    pairs: Vec<Pair>,
    recomputed: Option<RecomputedFile<'a>>,
    /// Ordinal, start and id of each row.
    keys: Vec<(u64, u32, Box<str>)>,
}

impl<'a> Validator<'a> {
    /// A validator of embeddings that should hold these rows of some shards, or of nothing but the embeddings themselves.
    pub fn new(criteria: &'a Criteria, mut expected: Option<ExpectedRows>) -> Self {
        let mut findings = Findings::default();
        if let Some(expected) = &mut expected {
            findings.knows_shards = true;
            findings.ordinals.extend(expected.ordinals());
            expected.sort(&mut findings.tallies);
        }
        Self {
            criteria,
            expected,
            findings,
            sample: HashSet::new(),
            file: None,
        }
    }

    /// Takes in a shard.
    pub fn add_shard(&mut self, shard: ShardFile) {
        self.findings.shards.push(shard);
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

    /// Begins an embeddings file. `sample` has the first vectors of each column, from which it is learned where the others are
    /// expected.
    ///
    /// # Errors
    /// If there is a reference and it has none of these columns.
    pub fn begin_file(
        &mut self,
        file: EmbeddedFile,
        sample: &[Vec<&[f32]>],
    ) -> Result<(), ReferenceError> {
        self.end_file();
        let findings = &mut self.findings;
        let pairs = match &self.criteria.reference {
            Some((reference, _)) => findings.agreement.pair(reference, &file.layout.columns)?,
            None => Vec::new(),
        };
        let recomputed = self.criteria.recomputed.as_ref().and_then(|recomputed| {
            let tally = findings.tallies.of("spot-check");
            RecomputedFile::new(&file, recomputed, tally)
        });
        let columns = file.layout.columns.iter().zip(sample);
        let columns = columns.map(|(&column, sample)| FileColumn::new(column, sample, &file));
        self.file = Some(OpenFile {
            columns: columns.collect(),
            pooling: PoolingCheck::new(&file.layout),
            pairs,
            recomputed,
            keys: Vec::new(),
            file,
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
        let tallies = &mut findings.tallies;
        findings.rows += 1;
        findings.truncated += u64::from(row.truncated);
        if let Some(expected) = &mut self.expected {
            expected.compare(row, tallies);
        }
        let place = file.keys.len();
        file.keys.push((row.ordinal, row.start, row.id.into()));
        let mut finite = true;
        for (column, vector) in file.columns.iter_mut().zip(vectors) {
            finite &= column.add(place, row, vector, vectors, tallies);
        }
        if finite {
            file.pooling.add(row, vectors, tallies.of("pooling"));
        }
        if let Some(recomputed) = &mut file.recomputed {
            let tally = tallies.of("spot-check");
            recomputed.add(&self.sample, row, vectors, tally);
        }
        if let Some((reference, _)) = &self.criteria.reference {
            let (agreement, tally) = (&mut findings.agreement, tallies.of("reference"));
            agreement.add(reference, row, &file.pairs, vectors, tally);
        }
    }

    fn end_file(&mut self) {
        let Some(file) = self.file.take() else {
            return;
        };
        let findings = &mut self.findings;
        let key = |place: usize| {
            let (ordinal, start, id) = &file.keys[place];
            (*ordinal, *start, &**id)
        };
        if let Some(recomputed) = file.recomputed {
            let tally = findings.tallies.of("spot-check");
            recomputed.finish(&mut findings.recomputed, tally);
        }
        let pooling = findings.tallies.of("pooling");
        pooling.count("compared", file.pooling.compared);
        for column in file.columns {
            let column = column.finish(&file.file.name, key, &mut findings.tallies);
            findings.add_column(column);
        }
        // The first rows may be rejected, so that the shard says where its part begins.
        let begins = match (&self.expected, findings.shards.len()) {
            (Some(expected), 1) => expected.ordinals().next(),
            (_, 0) => None,
            _ => file.keys.first().map(|key| key.0),
        };
        let embedded = EmbeddedFile {
            begins,
            ..file.file
        };
        findings.embeddings.push(embedded);
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
