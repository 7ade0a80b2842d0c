//! How close one column is to a reference.

use plmkit_contract::{Column, RowKey};
use serde::Serialize;

use crate::vector::cosine;
use crate::violation::{LISTED, Violations};

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
    /// The largest difference of two corresponding values: cosines do not see a wrong scale.
    pub max_abs_difference: Option<f32>,
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

/// The cosines of one column, as they come in.
#[derive(Debug)]
pub(crate) struct Cosines {
    name: Column,
    values: Vec<f64>,
    undefined: u64,
    max_abs_difference: f32,
    worst: Vec<Compared>,
}

impl Cosines {
    pub(crate) fn new(name: Column) -> Self {
        Self {
            name,
            values: Vec::new(),
            undefined: 0,
            max_abs_difference: 0.0,
            worst: Vec::new(),
        }
    }

    pub(crate) fn name(&self) -> Column {
        self.name
    }

    pub(crate) fn min(&self) -> Option<f64> {
        self.values.iter().copied().reduce(f64::min)
    }

    /// Adds the cosine of two vectors of the same length.
    pub(crate) fn add(&mut self, row: &RowKey, found: &[f32], expected: &[f32]) {
        let cosine = cosine(found, expected);
        match cosine {
            Some(cosine) => self.values.push(cosine),
            None => self.undefined += 1,
        }
        let differences = found.iter().zip(expected).map(|(x, y)| (x - y).abs());
        self.max_abs_difference = differences.fold(self.max_abs_difference, f32::max);

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
        self.max_abs_difference = self.max_abs_difference.max(other.max_abs_difference);
        for compared in other.worst {
            self.worst.insert(self.place(compared.cosine), compared);
        }
        self.worst.truncate(LISTED);
    }

    /// Counts the vectors below the floor and without a cosine, and lists the worst of them.
    pub(crate) fn list_violations(
        &self,
        floor: f64,
        below: &mut Violations,
        undefined: &mut Violations,
    ) {
        let all_below = self.values.iter().filter(|&&cosine| cosine < floor).count() as u64;
        let (below_before, undefined_before) = (below.count, undefined.count);
        for compared in &self.worst {
            let (name, id) = (self.name, Some(compared.id.as_str()));
            let (ordinal, start) = (Some(compared.ordinal), Some(compared.start));
            match compared.cosine {
                None => undefined.add(ordinal, start, id, format_args!("{name}: no cosine")),
                Some(cosine) if cosine < floor => {
                    let problem = format_args!("{name}: cosine {cosine:.7}");
                    below.add(ordinal, start, id, problem);
                }
                Some(_) => {}
            }
        }
        below.count = below_before + all_below;
        undefined.count = undefined_before + self.undefined;
    }

    /// The distribution of the cosines.
    pub(crate) fn finish(mut self) -> ColumnAgreement {
        self.values.sort_unstable_by(f64::total_cmp);
        let count = self.values.len();
        let quantile = |share: f64| {
            let rank = (share * count as f64).ceil() as usize;
            self.values.get(rank.max(1) - 1).copied()
        };
        ColumnAgreement {
            column: self.name.to_string(),
            compared: count as u64,
            min: quantile(0.0),
            q01: quantile(0.01),
            q05: quantile(0.05),
            median: quantile(0.5),
            mean: (count > 0).then(|| self.values.iter().sum::<f64>() / count as f64),
            max_abs_difference: (count > 0).then_some(self.max_abs_difference),
            worst: self.worst,
        }
    }
}
