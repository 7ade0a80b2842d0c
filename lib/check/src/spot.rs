//! Whether a sample of the vectors is what a second computation gives.
//!
//! Vectors of ESM-2 share a large centre and a few channels of large values, so that vectors of different proteins have
//! cosines of 0.99. So a difference is measured against the spread over the proteins of the sample, dimension by dimension:
//! vectors of two different proteins differ by about 1.3 of it, whatever the model.

use std::collections::{BTreeMap, BTreeSet};

use plmkit_contract::{Provenance, RowKey, plural};
use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::pilot::median;
use crate::vector::{cosine, dot};
use crate::violation::Violations;

/// Rows that give a spread. With fewer, the typical difference alone decides.
const MIN_ROWS: usize = 8;

/// How much larger or smaller the median difference of a file may be than that of the other files.
const MAX_RATIO: f32 = 10.0;

/// Differences that are no difference: rounding that the two computations share.
const ROUNDING: f32 = 1e-5;

/// How far two computations of a vector may differ.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Tolerance {
    /// In spreads over proteins: the root mean square over dimensions.
    spreads: f64,
    /// The median difference of a value beside the median size of a value. Where proteins hardly differ, spreads are smaller than
    /// rounding.
    typical: f64,
}

/// The tolerance of a file: `docs/validate-embeddings.md` has what was measured.
fn tolerance(provenance: &Provenance) -> Tolerance {
    let (spreads, typical) = match provenance.text_option("dtype") {
        Some("int8") => (0.6, 0.25),
        Some("bf16" | "f16") => (0.3, 0.08),
        _ if provenance.text_option("store_dtype") == Some("f16") => (0.05, 2e-3),
        _ => (1e-3, 1e-4),
    };
    Tolerance { spreads, typical }
}

/// A vector of the sample, and the same computed again.
#[derive(Debug, Serialize, Deserialize)]
struct Compared {
    /// None of a golden vector.
    ordinal: Option<u64>,
    start: Option<u32>,
    id: String,
    found: Vec<f32>,
    expected: Vec<f32>,
}

/// The sampled vectors of one file, by column.
#[derive(Debug, Serialize, Deserialize)]
struct SpotFile {
    name: String,
    /// Whether it has golden vectors, whose type is not that of the embeddings.
    golden: bool,
    tolerance: Tolerance,
    columns: BTreeMap<String, Vec<Compared>>,
}

/// How near the vectors of a file's sample are to the same computed again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpotAgreement {
    /// The file.
    pub file: String,
    /// The column.
    pub column: String,
    /// Vectors that were computed again.
    pub vectors: usize,
    /// The median difference, in standard deviations over proteins; null where fewer than 8 rows were sampled.
    pub median_difference: Option<f64>,
    /// The largest.
    pub max_difference: Option<f64>,
    /// The largest norm of a difference beside that of the vector.
    pub max_relative: f64,
    /// The smallest cosine.
    pub min_cosine: Option<f64>,
}

/// A sample of vectors beside those that a second computation gave.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SpotCheck {
    files: Vec<SpotFile>,
    /// Problems of the sample as a whole.
    other_model: Violations,
    not_computed: Violations,
}

impl SpotCheck {
    /// Begins a file.
    pub fn begin_file(&mut self, name: &str, provenance: &Provenance) {
        self.files.push(SpotFile {
            name: name.to_owned(),
            golden: false,
            tolerance: tolerance(provenance),
            columns: BTreeMap::new(),
        });
    }

    /// Begins a file of golden vectors, which are compared as f32.
    pub fn begin_golden(&mut self, name: &str) {
        self.begin_file(name, &Provenance::new("golden", Vec::new()));
        self.file().golden = true;
    }

    /// Adds a golden vector in a column, and the same computed again.
    ///
    /// # Panics
    /// If no file was begun.
    pub fn add_golden(&mut self, id: &str, column: &str, golden: &[f32], expected: &[f32]) {
        let compared = Compared {
            ordinal: None,
            start: None,
            id: id.to_owned(),
            found: golden.to_vec(),
            expected: expected.to_vec(),
        };
        self.file().add(column, compared);
    }

    fn file(&mut self) -> &mut SpotFile {
        self.files.last_mut().expect("a file was begun")
    }

    /// Adds a row of the file: its vector in a column, and the same computed again.
    ///
    /// # Panics
    /// If no file was begun.
    pub fn add(&mut self, row: &RowKey, column: &str, found: &[f32], expected: &[f32]) {
        let compared = Compared {
            ordinal: Some(row.ordinal),
            start: Some(row.start),
            id: row.id.to_owned(),
            found: found.to_vec(),
            expected: expected.to_vec(),
        };
        self.file().add(column, compared);
    }

    /// Notes that a file was made with another model than the one that computes again.
    pub fn add_other_model(&mut self, file: &str, expected: &str, found: &str) {
        self.other_model.add_file(format_args!(
            "{file}: made with model {found}; --model has {expected}"
        ));
    }

    /// Notes that a row has no vector in the second computation.
    pub fn add_not_computed(&mut self, row: &RowKey) {
        let problem = "in the embeddings, and rejected when it was computed again";
        self.not_computed.add_row(row, problem);
    }

    /// Adds the sample of other files.
    pub fn merge(&mut self, other: Self) {
        self.files.extend(other.files);
        self.other_model.merge(other.other_model);
        self.not_computed.merge(other.not_computed);
    }

    /// The check `spot-check`, and how near each file is.
    pub fn finish(self) -> (Check, Vec<SpotAgreement>) {
        let spreads = self.spreads();
        let mut different = Violations::default();
        let mut other_shape = Violations::default();
        let mut agreements = Vec::new();
        let mut rows = 0;
        for file in &self.files {
            rows += file
                .columns
                .values()
                .map(Vec::len)
                .max()
                .unwrap_or_default();
            for (column, compared) in &file.columns {
                let spread = spreads.get(column.as_str()).and_then(Option::as_ref);
                let mut agreement = SpotAgreement {
                    file: file.name.clone(),
                    column: column.clone(),
                    vectors: compared.len(),
                    median_difference: None,
                    max_difference: None,
                    max_relative: 0.0,
                    min_cosine: None,
                };
                let mut differences = Vec::new();
                for one in compared {
                    let (ordinal, start, id) = (one.ordinal, one.start, Some(one.id.as_str()));
                    if one.found.len() != one.expected.len() {
                        let (found, expected) = (one.found.len(), one.expected.len());
                        let problem = format_args!(
                            "{}: {column}: {found} values; computed again {expected}",
                            file.name
                        );
                        other_shape.add(ordinal, start, id, problem);
                        continue;
                    }
                    let relative = one.relative();
                    agreement.max_relative = agreement.max_relative.max(relative);
                    let cosine = cosine(&one.found, &one.expected);
                    agreement.min_cosine = [agreement.min_cosine, cosine]
                        .into_iter()
                        .flatten()
                        .reduce(f64::min);
                    let in_spreads = spread.map(|spread| one.in_spreads(spread));
                    differences.extend(in_spreads);
                    let typical = one.typical();
                    let Tolerance {
                        spreads: most,
                        typical: most_typical,
                    } = file.tolerance;
                    let exceeds = |value: f64, limit: f64| value.is_nan() || value > limit;
                    let differs = in_spreads.is_none_or(|value| exceeds(value, most));
                    if differs && exceeds(typical, most_typical) {
                        let spreads = in_spreads.map_or_else(String::new, |value| {
                            format!("{value:.2e} standard deviations over proteins and ")
                        });
                        let problem = format_args!(
                            "{}: {column} differs from the same computed again by {spreads}{typical:.2e} of its values: expected at most {most:.0e} and {most_typical:.0e}",
                            file.name
                        );
                        different.add(ordinal, start, id, problem);
                    }
                }
                agreement.max_difference = differences.iter().copied().reduce(f64::max);
                let mut differences: Vec<f32> = differences.iter().map(|&one| one as f32).collect();
                let middle = (!differences.is_empty()).then(|| f64::from(median(&mut differences)));
                agreement.median_difference = middle;
                agreements.push(agreement);
            }
        }
        let golden = self.files.iter().filter(|file| file.golden);
        let golden: BTreeSet<&str> = golden.map(|file| file.name.as_str()).collect();
        let embedded = agreements.iter();
        let odd = odd_files(embedded.filter(|one| !golden.contains(one.file.as_str())));
        let summary = format!(
            "{} of {} computed again: {} vectors differ, {} columns of files are computed otherwise than the rest",
            plural(rows as u64, "row"),
            plural(self.files.len() as u64, "file"),
            different.count,
            odd.count
        );
        let check = Check::judged(
            "spot-check",
            summary,
            [("rows", rows as u64)],
            [
                ("other_model", self.other_model),
                ("different", different),
                ("other_shape", other_shape),
                ("odd_files", odd),
                ("not_computed", self.not_computed),
            ],
        );
        (check, agreements)
    }

    /// The standard deviation over the rows computed again of each dimension, by column; `None` where rows are few or have
    /// values of their own length.
    fn spreads(&self) -> BTreeMap<&str, Option<Vec<f32>>> {
        let mut vectors: BTreeMap<&str, Vec<&[f32]>> = BTreeMap::new();
        for (column, compared) in self.files.iter().flat_map(|file| &file.columns) {
            let all = vectors.entry(column.as_str()).or_default();
            all.extend(compared.iter().map(|one| one.expected.as_slice()));
        }
        let columns = vectors.into_iter();
        columns
            .map(|(column, vectors)| (column, spread(&vectors)))
            .collect()
    }
}

fn spread(vectors: &[&[f32]]) -> Option<Vec<f32>> {
    let dim = vectors.first()?.len();
    if vectors.len() < MIN_ROWS || vectors.iter().any(|vector| vector.len() != dim) {
        return None;
    }
    let count = vectors.len() as f64;
    let deviation = |d: usize| {
        let values = || vectors.iter().map(|vector| f64::from(vector[d]));
        let mean = values().sum::<f64>() / count;
        (values().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt() as f32
    };
    let mut spread: Vec<f32> = (0..dim).map(deviation).collect();
    // A dimension that hardly varies must not decide alone.
    let least = (0.05 * median(&mut spread.clone())).max(f32::MIN_POSITIVE);
    for value in &mut spread {
        *value = value.max(least);
    }
    Some(spread)
}

impl SpotFile {
    fn add(&mut self, column: &str, compared: Compared) {
        let vectors = self.columns.entry(column.to_owned()).or_default();
        vectors.push(compared);
    }
}

impl Compared {
    fn in_spreads(&self, spread: &[f32]) -> f64 {
        let pairs = self.found.iter().zip(&self.expected).zip(spread);
        let squares = pairs.map(|((found, expected), spread)| {
            ((f64::from(*found) - f64::from(*expected)) / f64::from(*spread)).powi(2)
        });
        (squares.sum::<f64>() / spread.len().max(1) as f64).sqrt()
    }

    /// The median difference of a value beside the median size of a value.
    fn typical(&self) -> f64 {
        let pairs = self.found.iter().zip(&self.expected);
        let mut differences: Vec<f32> = pairs.map(|(x, y)| (x - y).abs()).collect();
        let mut sizes: Vec<f32> = self.expected.iter().map(|value| value.abs()).collect();
        let difference = f64::from(median(&mut differences));
        if difference == 0.0 {
            return 0.0;
        }
        difference / f64::from(median(&mut sizes))
    }

    fn relative(&self) -> f64 {
        let pairs = self.found.iter().zip(&self.expected);
        let squares =
            pairs.map(|(&found, &expected)| (f64::from(found) - f64::from(expected)).powi(2));
        let (difference, norm) = (
            squares.sum::<f64>().sqrt(),
            dot(&self.expected, &self.expected).sqrt(),
        );
        if difference == 0.0 {
            0.0
        } else {
            difference / norm
        }
    }
}

/// The files whose median difference is unlike that of the others: computed in another type than these.
fn odd_files<'a>(agreements: impl Iterator<Item = &'a SpotAgreement>) -> Violations {
    let mut odd = Violations::default();
    let mut by_column: BTreeMap<&str, Vec<(&str, f32)>> = BTreeMap::new();
    for file in agreements {
        let files = by_column.entry(&file.column).or_default();
        files.extend(
            file.median_difference
                .map(|own| (file.file.as_str(), own as f32)),
        );
    }
    for (column, files) in by_column {
        for &(file, own) in &files {
            let others = files.iter().filter(|(other, _)| *other != file);
            let mut others: Vec<f32> = others.map(|(_, difference)| *difference).collect();
            if others.len() < 2 {
                continue;
            }
            let typical = median(&mut others);
            let ratio = (own + ROUNDING) / (typical + ROUNDING);
            if !(1.0 / MAX_RATIO..=MAX_RATIO).contains(&ratio) {
                odd.add_file(format_args!(
                    "{file}: {column} differs by {own:.1e} standard deviations from the same computed again, the other files by {typical:.1e}"
                ));
            }
        }
    }
    odd
}

#[cfg(test)]
mod tests {
    use plmkit_contract::SequenceDigest;

    use super::*;
    use crate::CheckOutcome;

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

    /// Files of these types with 20 rows, whose vectors have these errors.
    fn judge(files: &[(&str, f32)]) -> Check {
        let mut spot = SpotCheck::default();
        let mut ordinal = 0;
        for (name, (dtype, error)) in ["a", "b", "c", "d"].iter().zip(files) {
            spot.begin_file(
                name,
                &Provenance::new("gpu-embed", vec![]).with("dtype", dtype),
            );
            for _ in 0..20 {
                ordinal += 1;
                let value = |d: u64| ((ordinal * 7 + d * 13) % 11) as f32 + 1.0;
                let expected: Vec<f32> = (0..16).map(value).collect();
                let sign = |d: usize| if d.is_multiple_of(2) { 1.0 } else { -1.0 };
                let found: Vec<f32> = expected
                    .iter()
                    .enumerate()
                    .map(|(d, x)| x + error * sign(d))
                    .collect();
                spot.add(&row(ordinal), "mean_6", &found, &expected);
            }
        }
        spot.finish().0
    }

    #[test]
    fn an_error_is_judged_by_the_type_and_beside_the_other_files() {
        let all_f32 = [("f32", 0.0), ("f32", 1e-4), ("f32", 0.0)];
        assert_eq!(judge(&all_f32).outcome, CheckOutcome::Pass);
        let check = judge(&[("f32", 0.0), ("f32", 0.05), ("f32", 0.0)]);
        assert_eq!(
            (check.counts["different"], check.counts["odd_files"]),
            (20, 1)
        );
        assert!(
            check.violations[0]
                .problem
                .starts_with("b: mean_6 differs from the same computed again by 1.58e-2")
        );
        let bf16 = [("bf16", 0.05), ("bf16", 0.06), ("bf16", 0.04)];
        assert_eq!(judge(&bf16).outcome, CheckOutcome::Pass);
        let check = judge(&[
            ("bf16", 0.05),
            ("bf16", 0.06),
            ("bf16", 0.05),
            ("bf16", 0.0),
        ]);
        assert_eq!(
            (check.counts["different"], check.counts["odd_files"]),
            (0, 1)
        );
        assert_eq!(judge(&[("bf16", 3.0)]).counts["different"], 20);
        assert_eq!(judge(&[("f32", f32::NAN)]).counts["different"], 20);
    }
}
