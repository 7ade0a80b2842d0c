//! Whether contacts are probabilities, and the same for a pair of residues either way round.

use plmkit_contract::RowKey;
use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::violation::Violations;

/// How far the two values of a pair may differ: sums in another order.
const ROUNDING: f32 = 1e-3;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ContactFindings {
    maps: u64,
    not_probabilities: Violations,
    not_symmetric: Violations,
}

impl ContactFindings {
    /// Adds the map of a row: `(L, L)`.
    pub(crate) fn add(&mut self, row: &RowKey, map: &[f32]) {
        self.maps += 1;
        if let Some(value) = map.iter().find(|value| !(0.0..=1.0).contains(*value)) {
            let problem = format_args!("contacts: {value} is no probability");
            self.not_probabilities.add_row(row, problem);
        }
        let residues = map.len().isqrt();
        let pairs = (0..residues).flat_map(|i| (0..i).map(move |j| (i, j)));
        let values = pairs.map(|(i, j)| (i, j, map[i * residues + j], map[j * residues + i]));
        let odd = values
            .into_iter()
            .find(|&(_, _, a, b)| (a - b).is_nan() || (a - b).abs() > ROUNDING);
        if let Some((i, j, a, b)) = odd {
            let problem =
                format_args!("contacts: {a} for residues {i} and {j}, {b} the other way round");
            self.not_symmetric.add_row(row, problem);
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.maps += other.maps;
        self.not_probabilities.merge(other.not_probabilities);
        self.not_symmetric.merge(other.not_symmetric);
    }

    /// The check `contacts`.
    pub(crate) fn finish(self) -> Check {
        if self.maps == 0 {
            return Check::skipped("contacts", "there are no contacts");
        }
        let summary = format!(
            "{} of {} maps with values that are no probabilities, {} not symmetric",
            self.not_probabilities.count, self.maps, self.not_symmetric.count
        );
        let kinds = [
            ("not_probabilities", self.not_probabilities),
            ("not_symmetric", self.not_symmetric),
        ];
        Check::judged("contacts", summary, [("maps", self.maps)], kinds)
    }
}
