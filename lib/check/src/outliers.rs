//! Rows whose vectors are unlike those of other proteins of about their length in the same file.
//!
//! The mean over few residues scatters more than the mean over many. So a row is compared with rows of about its length:
//! lengths are binned by factors of the square root of 2.

use std::borrow::Cow;
use std::collections::BTreeMap;

use plmkit_contract::{Column, RowKey};
use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::columns::is_deviation;
use crate::histogram::Histogram;
use crate::violation::{LISTED, Violations};

/// The least robust standard deviation of a logarithm: where nearly all rows are alike, 3 % are no outlier's distance yet.
const LEAST_SPREAD: f64 = 0.03;

/// What is compared, and the smallest and the largest z-score that pass: a vector may be as near to the centre as it likes. Among
/// 20,000 real proteins the largest were 18.7 and 11.5, in the checkpoints that `docs/validate-embeddings.md` lists.
const STATISTICS: [(&str, f64, f64); 2] = [("norm", -30.0, 30.0), ("distance", f64::MIN, 25.0)];

/// The least distance from the centre, in spreads, that is one: where all vectors are nearly the same, the usual distance is rounding.
const MIN_DISTANCE: f64 = 100.0;

/// The least usual distance from the centre, in spreads: that of different proteins is about 1.
const MIN_MEDIAN: f64 = 0.1;

/// Rows that a verdict lists as the farthest from the others.
const EXTREMES: usize = 20;

/// Rows that a comparison needs. Bins of neighbouring lengths are taken together until there are as many.
const MIN_ROWS: u64 = 200;

/// The norms and the distances from the centre of the vectors of one column in one file.
#[derive(Debug, Default)]
pub(crate) struct Outliers {
    by_length: BTreeMap<i32, [Statistic; 2]>,
}

/// One figure of the rows of a length bin.
#[derive(Debug, Default)]
struct Statistic {
    histogram: Histogram,
    lowest: Vec<Row>,
    highest: Vec<Row>,
}

/// A row with one of the smallest or largest figures of its bin.
#[derive(Debug)]
struct Row {
    value: f64,
    ordinal: u64,
    start: u32,
    id: String,
}

/// A vector that is unlike others of its length, how unlike it is, and in what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extreme {
    /// The column.
    pub column: Column,
    /// `norm`, or `distance`: the distance from the centre of the file, in standard deviations.
    pub statistic: Cow<'static, str>,
    /// Position of the record in the whole input.
    pub ordinal: u64,
    /// Offset of the row's first residue in the protein.
    pub start: u32,
    /// The record's id.
    pub id: String,
    /// The figure of this row.
    pub value: f64,
    /// The median over rows of about its length.
    pub median: f64,
    /// How many robust standard deviations lie between the two, of their logarithms.
    pub z: f64,
}

impl Statistic {
    fn add(&mut self, row: &RowKey, value: f64) {
        self.histogram.add(value);
        keep(&mut self.lowest, row, value, |other| other <= value);
        keep(&mut self.highest, row, value, |other| other >= value);
    }
}

/// Keeps the row if fewer than [`LISTED`] others go `before` it.
fn keep(rows: &mut Vec<Row>, row: &RowKey, value: f64, before: impl Fn(f64) -> bool) {
    let place = rows.partition_point(|other| before(other.value));
    if place < LISTED {
        let row = Row {
            value,
            ordinal: row.ordinal,
            start: row.start,
            id: row.id.to_owned(),
        };
        rows.insert(place, row);
        rows.truncate(LISTED);
    }
}

/// The rows of a file, or of several, that were compared with others of their length.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct OutlierFindings {
    pub(crate) compared: u64,
    outliers: Violations,
    /// Vectors that do not point where the others do.
    pub(crate) directions: Violations,
    /// Those farthest from the others, farthest first.
    extremes: Vec<Extreme>,
}

impl OutlierFindings {
    pub(crate) fn merge(&mut self, other: Self) {
        self.compared += other.compared;
        self.outliers.merge(other.outliers);
        self.directions.merge(other.directions);
        self.extremes.extend(other.extremes);
        self.keep_farthest();
    }

    fn keep_farthest(&mut self) {
        self.extremes
            .sort_by(|a, b| b.z.abs().total_cmp(&a.z.abs()));
        self.extremes.truncate(EXTREMES);
    }

    /// The check `outliers`, and the rows that are farthest from the others.
    pub(crate) fn finish(self) -> (Check, Vec<Extreme>) {
        if self.compared == 0 && self.directions.count == 0 {
            let why = "no file has 200 vectors to compare with each other";
            return (Check::skipped("outliers", why), Vec::new());
        }
        let (compared, count) = (self.compared, self.outliers.count + self.directions.count);
        let check = Check::judged(
            "outliers",
            format!("{count} of {compared} vectors unlike others of their length"),
            [("compared", compared)],
            [("outliers", self.outliers), ("directions", self.directions)],
        );
        (check, self.extremes)
    }
}

impl Outliers {
    /// Adds a row with a finite vector.
    pub(crate) fn add(&mut self, row: &RowKey, norm: f64, distance: f64) {
        let residues = row.length.saturating_sub(row.start).max(1);
        let bin = (2.0 * f64::from(residues).log2()).round() as i32;
        let statistics = self.by_length.entry(bin).or_default();
        statistics[0].add(row, norm);
        statistics[1].add(row, distance);
    }

    /// Adds what was found of `column` to `findings`.
    pub(crate) fn finish(self, column: Column, findings: &mut OutlierFindings) {
        let is_deviation = is_deviation(column);
        for (&bin, statistics) in &self.by_length {
            for (which, statistic) in statistics.iter().enumerate() {
                let others = self.others(bin, which);
                let scale = others.and_then(|others| others.scale(LEAST_SPREAD));
                // Where most rows are copies of a few, nothing can be said of the others.
                let Some(scale) = scale.filter(|scale| which == 0 || scale.median() > MIN_MEDIAN)
                else {
                    continue;
                };
                let (name, lowest, highest) = STATISTICS[which];
                // The residues of a repeat hardly deviate from their mean.
                let lowest = if is_deviation { f64::MIN } else { lowest };
                let least = if which == 0 { 0.0 } else { MIN_DISTANCE };
                let before = findings.outliers.count;
                let above = statistic
                    .highest
                    .iter()
                    .map(|row| (row, scale.z(row.value)));
                let below = statistic.lowest.iter().map(|row| (row, scale.z(row.value)));
                let rows = above.filter(|&(_, z)| z >= 0.0);
                for (row, z) in rows.chain(below.filter(|&(_, z)| z < 0.0)) {
                    if z < 0.0 && lowest < f64::MIN / 2.0 {
                        continue;
                    }
                    if z < lowest || z > highest && row.value > least {
                        let (value, median) = (row.value, scale.median());
                        let problem = format_args!(
                            "{column}: {name} {value:.4}, {z:.0} standard deviations from {median:.4}, the median of proteins of about its length"
                        );
                        let (ordinal, start) = (Some(row.ordinal), Some(row.start));
                        findings
                            .outliers
                            .add(ordinal, start, Some(&row.id), problem);
                    }
                    findings.extremes.push(Extreme {
                        column,
                        statistic: name.into(),
                        ordinal: row.ordinal,
                        start: row.start,
                        id: row.id.clone(),
                        value: row.value,
                        median: scale.median(),
                        z,
                    });
                }
                // More may be outliers than were kept.
                let outside = statistic.histogram.outside(scale, lowest, highest, least);
                findings.outliers.count = before + outside;
                findings.compared += if which == 0 {
                    statistic.histogram.total()
                } else {
                    0
                };
            }
        }
        findings.keep_farthest();
    }

    /// The figures of the rows of about the length of a bin, at least [`MIN_ROWS`]; `None` where the file has fewer.
    fn others(&self, bin: i32, which: usize) -> Option<Histogram> {
        const WIDEST: i32 = 64; // all bins
        (0..WIDEST).find_map(|reach| {
            let mut others = Histogram::default();
            for (_, statistics) in self.by_length.range(bin - reach..=bin + reach) {
                others.merge(&statistics[which].histogram);
            }
            (others.total() >= MIN_ROWS).then_some(others)
        })
    }
}
