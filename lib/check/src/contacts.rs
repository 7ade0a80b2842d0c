//! Whether contacts are probabilities, and the same for a pair of residues either way round.

use plmkit_contract::RowKey;

use crate::check::Tallies;
use crate::checks::contacts;

/// How far the two values of a pair may differ: sums in another order.
const ROUNDING: f32 = 1e-3;

/// The check `contacts` of the map of a row: `(L, L)`.
pub(crate) fn check(row: &RowKey, map: &[f32], tallies: &mut Tallies) {
    tallies.count(contacts::maps, 1);
    if let Some(value) = map.iter().find(|value| !(0.0..=1.0).contains(*value)) {
        let problem = format_args!("contacts: {value} is no probability");
        tallies.add(contacts::not_probabilities, row, problem);
    }
    let residues = map.len().isqrt();
    let pairs = (0..residues).flat_map(|i| (0..i).map(move |j| (i, j)));
    let mut values = pairs.map(|(i, j)| (i, j, map[i * residues + j], map[j * residues + i]));
    let odd = values.find(|&(_, _, a, b)| (a - b).is_nan() || (a - b).abs() > ROUNDING);
    if let Some((i, j, a, b)) = odd {
        let problem =
            format_args!("contacts: {a} for residues {i} and {j}, {b} the other way round");
        tallies.add(contacts::not_symmetric, row, problem);
    }
}
