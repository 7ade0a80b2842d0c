//! All checks of some of the files, fed row by row.

use std::collections::HashSet;

use plmkit_contract::RowKey;

use crate::agreement;
use crate::check::Tallies;
use crate::checks::{origin, pooling, reference, spot_check};
use crate::columns::FileColumn;
use crate::coverage::Coverage;
use crate::criteria::Criteria;
use crate::files::{EmbeddedFile, ShardFile};
use crate::findings::Findings;
use crate::pooling::PoolingCheck;
use crate::sample::Chosen;

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
    order: Order,
    file: Option<OpenFile>,
}

/// The file that is being read.
#[derive(Debug)]
struct OpenFile {
    file: EmbeddedFile,
    columns: Vec<FileColumn>,
    pooling: PoolingCheck,
}

/// The order of the rows of the shard or file that is being read: that of the input.
#[derive(Debug, Default)]
struct Order {
    last: Option<(u64, u32)>,
    /// How often rows may begin anew: those of several batches files follow each other.
    more_runs: usize,
}

impl Order {
    fn check(&mut self, row: &RowKey, tallies: &mut Tallies) {
        let key = row.sort_key();
        let Some((before, _)) = self.last.replace(key).filter(|last| *last >= key) else {
            return;
        };
        if self.more_runs > 0 {
            self.more_runs -= 1;
            return;
        }
        let problem = format_args!("after ordinal {before}: expected the order of the input");
        tallies.add(origin::not_in_order, row, problem);
    }
}

/// The least length in the bin of a length, and that in the next bin. Four bins double the length.
pub fn length_bin(length: u32) -> [u32; 2] {
    let bin = (4.0 * f64::from(length.max(1)).log2() + 1e-9).floor();
    [bin, bin + 1.0].map(|bin| (bin / 4.0).exp2().ceil() as u32)
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
            order: Order::default(),
            file: None,
        }
    }

    /// Takes in a shard.
    pub fn add_shard(&mut self, shard: ShardFile) {
        self.findings.shards.push(shard);
        self.order = Order::default();
    }

    /// Expects a row of a shard, or a protein, where embeddings hold whole ones.
    pub fn expect(&mut self, row: &RowKey) {
        self.order.check(row, &mut self.findings.tallies);
        if let Some(expected) = &mut self.expected {
            self.findings.ordinals.insert(row.ordinal);
            expected.push(row, &mut self.findings.tallies);
        }
    }

    /// Sees a protein of a shard, all its windows as one row. Its aliases must have the same residues.
    pub fn add_protein(&mut self, protein: &RowKey) {
        let aliases = &self.criteria.aliases;
        aliases.compare(protein, &mut self.findings.tallies);
    }

    /// Says which rows of a shard should have been computed again.
    pub fn add_sample(&mut self, (rows, power): Chosen) {
        self.sample.extend(rows);
        self.findings.power.add(&power);
    }

    /// Begins an embeddings file.
    pub fn begin_file(&mut self, file: EmbeddedFile) {
        self.end_file();
        self.order = Order {
            last: None,
            more_runs: file.provenance.inputs.len().saturating_sub(1),
        };
        let columns = file.layout.columns.iter();
        let columns = columns.map(|&column| FileColumn::new(column, &file, self.criteria));
        let mut columns: Vec<FileColumn> = columns.collect();
        if let Some(again) = &self.criteria.recomputed {
            for column in &mut columns {
                column.begin_again(&file, again, &mut self.findings.tallies);
            }
        }
        self.file = Some(OpenFile {
            columns,
            pooling: PoolingCheck::new(&file.layout),
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
        if row.start == 0 {
            *findings
                .lengths
                .entry(length_bin(row.length)[0])
                .or_default() += 1;
        }
        self.order.check(row, tallies);
        if let Some(expected) = &mut self.expected {
            expected.compare(row, tallies);
        }
        let mut finite = true;
        for (column, vector) in file.columns.iter_mut().zip(vectors) {
            finite &= column.add(row, vector, vectors, tallies);
        }
        if finite {
            file.pooling.add(row, vectors, tallies);
        }
        if let Some(again) = &self.criteria.recomputed {
            if let Some(again) = again.rows.get(&row.sort_key()) {
                tallies.count(spot_check::rows, 1);
                for (column, vector) in file.columns.iter_mut().zip(vectors) {
                    column.compare_again(&file.file, row, vector, again, tallies);
                }
            } else if self.sample.contains(&row.sort_key()) {
                let name = &file.file.name;
                let problem = format_args!("{name}: not among the rows that were computed again");
                tallies.add(spot_check::not_computed, row, problem);
            }
        }
        if let Some((known, min_cosine)) = &self.criteria.reference {
            let key = (row.id.to_owned(), row.start);
            let Some(expected) = known.rows.get(&key) else {
                return tallies.count(reference::not_in_reference, 1);
            };
            findings.found.insert(key);
            tallies.count(reference::compared, 1);
            for (column, vector) in file.columns.iter().zip(vectors) {
                if let Some(place) = column.reference {
                    let all = &mut findings.agreement;
                    let (column, expected) = (column.column, &expected[place]);
                    agreement::compare(column, row, vector, expected, *min_cosine, all, tallies);
                }
            }
        }
    }

    fn end_file(&mut self) {
        let Some(file) = self.file.take() else {
            return;
        };
        let findings = &mut self.findings;
        let (tallies, name) = (&mut findings.tallies, &file.file.name);
        tallies.count(pooling::compared, file.pooling.compared);
        for mut column in file.columns {
            column.judge_again(name, &mut findings.recomputed, tallies);
            let of = column.column;
            let sequences = column.finish(name, tallies);
            sequences.add_to(&mut findings.columns, of, tallies);
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
