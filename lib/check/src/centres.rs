//! Whether the vectors of a file lie where those of the other files do.

use std::collections::BTreeSet;

use plmkit_contract::Column;
use serde::Serialize;

use crate::check::Check;
use crate::columns::{Centre, ColumnFindings};
use crate::pilot::median;
use crate::violation::Violations;

/// Vectors that a file needs to be compared.
const MIN_VECTORS: u64 = 50;

/// How far the centre of a file may be from that of the others: the root mean square over dimensions, in standard deviations
/// over proteins. Files of other proteins of the same model stay below 1; see `docs/validate-embeddings.md`.
const MAX_SHIFT: f64 = 2.0;

/// How much more the vectors of a file may scatter than those of the others: the median over dimensions of the ratio of standard
/// deviations. Variants of one protein scatter less.
const MAX_SPREAD_RATIO: f32 = 5.0;

/// How far the composition of the sequences of a file may be from that of the others, in the same measure as vectors, and how much
/// more or less it may scatter, for the file to be judged: files of variants of one protein, and of repeats, are beyond. Files of 50
/// random proteins are within 0.3.
const MAX_COMPOSITION_SHIFT: f64 = 0.5;
const MAX_COMPOSITION_RATIO: f32 = 2.0;

/// Where the vectors of one column of one file lie beside those of the other files.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileCentre {
    /// The file.
    pub file: String,
    /// The column.
    pub column: Column,
    /// Its finite vectors that are not zero.
    pub vectors: u64,
    /// Their median norm, to 1 %.
    pub median_norm: f64,
    /// The distance of their mean from the median of all files, in standard deviations over proteins: the root mean square
    /// over dimensions. Null, as what follows, where fewer than two files have 50 vectors.
    pub shift: Option<f64>,
    /// How much they scatter beside those of the other files: the median ratio of standard deviations.
    pub spread_ratio: Option<f32>,
}

/// The check `centres`, and where each file lies. `compositions` are of the sequences of files, where they are known.
pub(crate) fn check(
    columns: &[ColumnFindings],
    compositions: &[Centre],
) -> (Check, Vec<FileCentre>) {
    let of_other_sequences = of_other_sequences(compositions);
    let mut centres = Vec::new();
    let mut different = Violations::default();
    let mut compared = 0;
    for column in columns {
        let all = &column.centres;
        let dim = all.first().map_or(0, |centre| centre.mean.len());
        // A file of another dimension fails the check `dimensions`.
        let fits = |centre: &&Centre| centre.vectors >= MIN_VECTORS && centre.mean.len() == dim;
        let fit: Vec<&Centre> = all.iter().filter(fits).collect();
        let others = (fit.len() >= 2).then(|| typical(&fit, dim));
        for centre in all {
            let others = others.as_ref().filter(|_| fits(&centre));
            let file = FileCentre {
                file: centre.file.clone(),
                column: column.column(),
                vectors: centre.vectors,
                median_norm: centre.median_norm,
                shift: others.map(|(mean, spread)| shift(centre, mean, spread)),
                spread_ratio: others.map(|(_, spread)| spread_ratio(centre, spread)),
            };
            let is_judged = !of_other_sequences.contains(centre.file.as_str());
            compared += u64::from(others.is_some() && is_judged);
            if let Some(problem) = file.problem().filter(|_| is_judged) {
                different.add_file(problem);
            }
            centres.push(file);
        }
    }
    if compared == 0 {
        let check = Check::skipped(
            "centres",
            "no two files have 50 vectors of like sequences to compare",
        );
        return (check, centres);
    }
    let summary = format!(
        "{} of {compared} columns of files unlike the others",
        different.count
    );
    let kinds = [("different", different)];
    (
        Check::judged("centres", summary, [("compared", compared)], kinds),
        centres,
    )
}

impl FileCentre {
    /// How the file is unlike the others.
    fn problem(&self) -> Option<String> {
        let (file, column) = (&self.file, self.column);
        let (shift, ratio) = (self.shift?, self.spread_ratio?);
        if shift > MAX_SHIFT {
            Some(format!(
                "{file}: {column} is centred {shift:.1} standard deviations from the other files"
            ))
        } else if ratio > MAX_SPREAD_RATIO {
            Some(format!(
                "{file}: {column} scatters {ratio:.3} times as much as in the other files"
            ))
        } else {
            None
        }
    }
}

/// The median over files of the centre and of the spread of each dimension.
fn typical(files: &[&Centre], dim: usize) -> (Vec<f32>, Vec<f32>) {
    let mut values = Vec::with_capacity(files.len());
    let mut over_files = |value: &dyn Fn(&Centre) -> f32| {
        values.clear();
        values.extend(files.iter().map(|file| value(file)));
        median(&mut values)
    };
    (0..dim)
        .map(|d| {
            (
                over_files(&|file| file.mean[d]),
                over_files(&|file| file.spread[d]),
            )
        })
        .unzip()
}

/// The files whose sequences are unlike those of the others: that their vectors are, too, is no fault.
fn of_other_sequences(compositions: &[Centre]) -> BTreeSet<&str> {
    let all: Vec<&Centre> = compositions.iter().collect();
    let dim = all.first().map_or(0, |file| file.mean.len());
    let (mean, spread) = typical(&all, dim);
    let others = all.into_iter().filter(|file| {
        let ratio = spread_ratio(file, &spread);
        let usual = 1.0 / MAX_COMPOSITION_RATIO..=MAX_COMPOSITION_RATIO;
        shift(file, &mean, &spread) > MAX_COMPOSITION_SHIFT || !usual.contains(&ratio)
    });
    others.map(|file| file.file.as_str()).collect()
}

fn shift(file: &Centre, centre: &[f32], spread: &[f32]) -> f64 {
    let least = median(&mut spread.to_vec()) * 0.05;
    let dimensions = file.mean.iter().zip(centre).zip(spread);
    let squares = dimensions.map(|((mean, centre), spread)| {
        let z = f64::from(mean - centre) / f64::from(spread.max(least).max(f32::MIN_POSITIVE));
        z * z
    });
    (squares.sum::<f64>() / centre.len().max(1) as f64).sqrt()
}

fn spread_ratio(file: &Centre, spread: &[f32]) -> f32 {
    let dimensions = file.spread.iter().zip(spread);
    let ratios = dimensions.filter(|&(_, &spread)| spread > 0.0);
    let mut ratios: Vec<f32> = ratios.map(|(found, spread)| found / spread).collect();
    if ratios.is_empty() {
        1.0
    } else {
        median(&mut ratios)
    }
}
