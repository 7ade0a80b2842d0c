//! How close one column is to a reference.

use plmkit_contract::{Column, RowKey};
use serde::Serialize;

use crate::check::{LISTED, Tally};
use crate::vector::{cosine, dot, median};

/// The least cosines of the classes in which vectors are counted.
const CLASSES: [f64; 8] = [-1.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999_999];

/// The cosines of one column with the reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ColumnAgreement {
    /// The column's name in the embeddings.
    pub column: String,
    /// Vectors with a cosine.
    pub compared: u64,
    /// The smallest cosine; null, as all that follow, when nothing was compared.
    pub min: Option<f64>,
    /// The cosine that 1 % of the vectors do not exceed (nearest rank, as in the other quantiles).
    pub q01: Option<f64>,
    /// The cosine that 5 % of the vectors do not exceed.
    pub q05: Option<f64>,
    /// The cosine that half of the vectors do not exceed.
    pub median: Option<f64>,
    /// The mean cosine.
    pub mean: Option<f64>,
    /// The median cosine of a vector with that of another protein of the reference: what a cosine of no agreement looks like.
    pub unrelated_median: Option<f64>,
    /// The median norm of the difference beside the norm of the reference's vector; null, as what follows, where the two
    /// are always equal.
    pub relative_median: Option<f64>,
    /// The largest.
    pub relative_max: Option<f64>,
    /// The smallest norm beside that of the reference's vector: cosines do not see a wrong scale.
    pub norm_ratio_min: Option<f64>,
    /// The largest.
    pub norm_ratio_max: Option<f64>,
    /// The largest difference of two corresponding values.
    pub max_abs_difference: Option<f32>,
    /// Classes of cosines: the least cosine of each, and how many vectors have that or more, and less than that of the next.
    pub by_cosine: Vec<(f64, u64)>,
    /// The ten vectors with the smallest cosines, worst first.
    pub worst: Vec<Compared>,
}

/// One vector and its cosine with the reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// Position of the record in the whole input.
    pub ordinal: u64,
    /// Offset of the row's first residue in the protein.
    pub start: u32,
    /// The record's id.
    pub id: String,
    /// The cosine; null where one of the vectors is zero or not finite.
    pub cosine: Option<f64>,
}

/// How near vectors must be to those of a reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tiers {
    /// The least cosine.
    pub strict: f64,
    /// The least cosine of the few that may be below.
    pub lenient: f64,
    /// How many of a column's vectors may be: a share.
    pub lenient_share: f64,
}

impl Tiers {
    /// All vectors must have this cosine.
    pub fn strict(cosine: f64) -> Self {
        Self {
            strict: cosine,
            lenient: cosine,
            lenient_share: 0.0,
        }
    }
}

/// The cosines of one column, as they come in.
#[derive(Debug)]
pub(crate) struct Cosines {
    pub(crate) name: Column,
    values: Vec<f64>,
    undefined: u64,
    unrelated: Vec<f64>,
    relative: Vec<f64>,
    /// The least and the largest.
    norm_ratio: Option<(f64, f64)>,
    max_abs_difference: f32,
    worst: Vec<Compared>,
}

impl Cosines {
    pub(crate) fn new(name: Column) -> Self {
        Self {
            name,
            values: Vec::new(),
            undefined: 0,
            unrelated: Vec::new(),
            relative: Vec::new(),
            norm_ratio: None,
            max_abs_difference: 0.0,
            worst: Vec::new(),
        }
    }

    pub(crate) fn min(&self) -> Option<f64> {
        self.values.iter().copied().reduce(f64::min)
    }

    /// Adds the cosine of two vectors of the same length. `unrelated` is the vector of another protein of the reference.
    pub(crate) fn add(&mut self, row: &RowKey, found: &[f32], expected: &[f32], unrelated: &[f32]) {
        let cosine = cosine(found, expected);
        match cosine {
            Some(cosine) => self.values.push(cosine),
            None => self.undefined += 1,
        }
        if unrelated.len() == found.len() {
            let unrelated = crate::vector::cosine(found, unrelated);
            self.unrelated.extend(unrelated);
        }
        let differences = found.iter().zip(expected).map(|(x, y)| x - y);
        let differences: Vec<f32> = differences.collect();
        let largest = differences.iter().map(|difference| difference.abs());
        self.max_abs_difference = largest.fold(self.max_abs_difference, f32::max);
        let norm = |vector: &[f32]| dot(vector, vector).sqrt();
        let (difference, found, expected) = (norm(&differences), norm(found), norm(expected));
        if difference > 0.0 && expected > 0.0 && difference.is_finite() && expected.is_finite() {
            self.relative.push(difference / expected);
            let ratio = found / expected;
            self.norm_ratio = span(self.norm_ratio, Some((ratio, ratio)));
        }

        let place = self.place(cosine);
        if place < LISTED {
            let compared = Compared {
                ordinal: row.ordinal,
                start: row.start,
                id: row.id.to_owned(),
                cosine,
            };
            self.worst.insert(place, compared);
            self.worst.truncate(LISTED);
        }
    }

    /// Where a vector belongs among the worst. No cosine is worse than any.
    fn place(&self, cosine: Option<f64>) -> usize {
        let rank = |cosine: Option<f64>| cosine.unwrap_or(f64::NEG_INFINITY);
        self.worst
            .partition_point(|other| rank(other.cosine) <= rank(cosine))
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.values.extend(other.values);
        self.undefined += other.undefined;
        self.unrelated.extend(other.unrelated);
        self.relative.extend(other.relative);
        self.norm_ratio = span(self.norm_ratio, other.norm_ratio);
        self.max_abs_difference = self.max_abs_difference.max(other.max_abs_difference);
        for compared in other.worst {
            self.worst.insert(self.place(compared.cosine), compared);
        }
        self.worst.truncate(LISTED);
    }

    /// Counts the vectors below the least cosine and without a cosine, and lists the worst of them. Where a share of the vectors may
    /// be below the least, down to a lenient one, those above this are counted as `lenient` while they are no more.
    pub(crate) fn list_violations(&self, tiers: Tiers, tally: &mut Tally) {
        let below = |floor: f64| self.values.iter().filter(move |&&cosine| cosine < floor);
        let floor = tiers.lenient.min(tiers.strict);
        let lenient = below(tiers.strict).count() - below(floor).count();
        let allowed = lenient as f64 <= tiers.lenient_share * self.values.len() as f64;
        let (floor, lenient) = if allowed {
            (floor, lenient)
        } else {
            (tiers.strict, 0)
        };
        tally.count("lenient", lenient as u64);
        let mut unlisted = [below(floor).count() as u64, self.undefined];
        for compared in &self.worst {
            let place = (compared.ordinal, compared.start, compared.id.as_str());
            let name = self.name;
            match compared.cosine {
                None => {
                    unlisted[1] -= 1;
                    tally.add("undefined", place, format_args!("{name}: no cosine"));
                }
                Some(cosine) if cosine < floor => {
                    unlisted[0] -= 1;
                    let problem = format_args!("{name}: cosine {cosine:.7}");
                    tally.add("below", place, problem);
                }
                Some(_) => {}
            }
        }
        tally.add_unlisted("below", unlisted[0]);
        tally.add_unlisted("undefined", unlisted[1]);
    }

    /// The distribution of the cosines.
    pub(crate) fn finish(mut self) -> ColumnAgreement {
        self.values.sort_unstable_by(f64::total_cmp);
        let count = self.values.len();
        let quantile = |share: f64| {
            let rank = (share * count as f64).ceil() as usize;
            self.values.get(rank.max(1) - 1).copied()
        };
        let below = |limit: f64| self.values.partition_point(|&cosine| cosine < limit);
        let by_cosine = CLASSES.iter().enumerate().map(|(class, &least)| {
            // Rounding may make a cosine less than -1, and more than 1.
            let from = if class == 0 { 0 } else { below(least) };
            let to = CLASSES.get(class + 1).map_or(count, |&next| below(next));
            (least, (to - from) as u64)
        });
        let by_cosine = by_cosine.collect();
        ColumnAgreement {
            column: self.name.to_string(),
            by_cosine,
            compared: count as u64,
            min: quantile(0.0),
            q01: quantile(0.01),
            q05: quantile(0.05),
            median: quantile(0.5),
            mean: (count > 0).then(|| self.values.iter().sum::<f64>() / count as f64),
            unrelated_median: median(&mut self.unrelated),
            relative_median: median(&mut self.relative),
            relative_max: self.relative.iter().copied().reduce(f64::max),
            norm_ratio_min: self.norm_ratio.map(|(least, _)| least),
            norm_ratio_max: self.norm_ratio.map(|(_, most)| most),
            max_abs_difference: (count > 0).then_some(self.max_abs_difference),
            worst: self.worst,
        }
    }
}

/// The least and the largest of two ranges.
fn span(a: Option<(f64, f64)>, b: Option<(f64, f64)>) -> Option<(f64, f64)> {
    let both = a.into_iter().chain(b);
    both.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}
