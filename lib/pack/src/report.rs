//! Reports how full the batches of a packing are.

use serde::Serialize;

use crate::PaddedCost;

/// The use of batches by a packing.
///
/// The utilization of a batch is its tokens divided by the capacity. An oversized batch, one sequence above the capacity, has a
/// utilization of 1.
///
/// Every packing has a batch that only more sequences could fill. This tail batch is the one with the fewest tokens that is not
/// oversized, the last among equals. It counts in `utilization`, but not in the average, the minimum and the numbers of batches
/// below a threshold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PackingReport {
    /// The capacity of a batch, in tokens.
    pub max_batch_tokens: u32,
    /// Number of batches, the tail batch and oversized ones included.
    pub batches: u64,
    /// Number of sequences.
    pub sequences: u64,
    /// Number of tokens, `<cls>` and `<eos>` of each sequence included.
    pub tokens: u64,
    /// Number of sequences longer than the capacity, each in a batch of its own.
    pub oversized_batches: u64,
    /// All tokens, divided by the capacity of all batches. An oversized batch has its own tokens as capacity. `None` without
    /// batches.
    pub utilization: Option<f64>,
    /// Mean utilization of the batches without the tail. `None` if there are no others.
    pub average_utilization: Option<f64>,
    /// Smallest utilization of the batches without the tail. `None` if there are no others.
    pub min_utilization: Option<f64>,
    /// Number of batches without the tail with a utilization below 0.85.
    pub batches_below_85_percent: u64,
    /// Number of batches without the tail with a utilization below 0.80.
    pub batches_below_80_percent: u64,
    /// The tail batch. `None` if all batches are oversized.
    pub tail: Option<Tail>,
    /// The cost of padded batches with the sequences in input order.
    pub padded_in_input_order: PaddedCost,
    /// The cost of padded batches with the sequences sorted by length.
    pub padded_sorted_by_length: PaddedCost,
}

/// The batch that only more sequences could fill.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tail {
    /// Its 0-based position among the batches.
    pub batch: u64,
    /// Its number of sequences.
    pub sequences: u64,
    /// Its number of tokens.
    pub tokens: u64,
    /// Its tokens divided by the capacity.
    pub utilization: f64,
}

impl PackingReport {
    /// Reports on `batches`, which were [packed](crate::pack) from `lengths` (in tokens) with this `capacity`.
    pub fn new(batches: &[Vec<u32>], lengths: &[u32], capacity: u32) -> Self {
        let tokens_of = |batch: &Vec<u32>| {
            let lengths = batch.iter().map(|&index| lengths[index as usize]);
            lengths.map(u64::from).sum::<u64>()
        };
        let filled: Vec<u64> = batches.iter().map(tokens_of).collect();
        let room = |tokens: u64| tokens.max(capacity.into());
        let is_oversized = |tokens: &u64| *tokens > u64::from(capacity);
        let tail = filled.iter().enumerate().rev();
        let tail = tail.filter(|(_, tokens)| !is_oversized(tokens));
        let tail = tail.min_by_key(|(_, tokens)| **tokens);
        let tail = tail.map(|(batch, &tokens)| Tail {
            batch: batch as u64,
            sequences: batches[batch].len() as u64,
            tokens,
            utilization: ratio(tokens, room(tokens)),
        });
        let body = (0_u64..).zip(&filled);
        let body = body.filter(|(batch, _)| tail.as_ref().is_none_or(|tail| tail.batch != *batch));
        let body = body.map(|(_, &tokens)| ratio(tokens, room(tokens)));
        let body: Vec<f64> = body.collect();
        let below = |limit| {
            body.iter()
                .filter(|&&utilization| utilization < limit)
                .count() as u64
        };
        let tokens = filled.iter().sum();
        let all_room = filled.iter().map(|&tokens| room(tokens)).sum();
        let mut shortest_first = lengths.to_vec();
        shortest_first.sort_unstable();
        Self {
            max_batch_tokens: capacity,
            batches: filled.len() as u64,
            sequences: lengths.len() as u64,
            tokens,
            oversized_batches: filled.iter().filter(|tokens| is_oversized(tokens)).count() as u64,
            utilization: (!filled.is_empty()).then(|| ratio(tokens, all_room)),
            average_utilization: (!body.is_empty())
                .then(|| body.iter().sum::<f64>() / body.len() as f64),
            min_utilization: body.iter().copied().reduce(f64::min),
            batches_below_85_percent: below(0.85),
            batches_below_80_percent: below(0.80),
            tail,
            padded_in_input_order: PaddedCost::new(lengths, capacity),
            padded_sorted_by_length: PaddedCost::new(&shortest_first, capacity),
        }
    }
}

/// Returns `tokens / room`; a batch without room is full.
fn ratio(tokens: u64, room: u64) -> f64 {
    if room == 0 {
        1.0
    } else {
        tokens as f64 / room as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pack;

    fn report(lengths: &[u32], capacity: u32) -> PackingReport {
        let keys: Vec<usize> = (0..lengths.len()).collect();
        grouped(lengths, &keys, capacity)
    }

    fn grouped<K: PartialEq>(lengths: &[u32], keys: &[K], capacity: u32) -> PackingReport {
        PackingReport::new(&pack(lengths, keys, capacity), lengths, capacity)
    }

    #[test]
    #[allow(clippy::float_cmp)]
    fn leaves_the_tail_out_of_average_minimum_and_thresholds() {
        // Packs: [250], [96], [84], [79], [60]; the last is the tail.
        let report = report(&[60, 79, 84, 96, 250], 100);
        assert_eq!(
            (report.batches, report.sequences, report.tokens),
            (5, 5, 569)
        );
        assert_eq!(report.oversized_batches, 1);
        assert_eq!(report.utilization, Some(569.0 / 650.0));
        assert_eq!(
            report.average_utilization,
            Some((1.0 + 0.96 + 0.84 + 0.79) / 4.0)
        );
        assert_eq!(report.min_utilization, Some(0.79));
        assert_eq!(report.batches_below_85_percent, 2);
        assert_eq!(report.batches_below_80_percent, 1);
        let tail = Tail {
            batch: 4,
            sequences: 1,
            tokens: 60,
            utilization: 0.6,
        };
        assert_eq!(report.tail, Some(tail));
    }

    #[test]
    fn takes_the_last_of_equally_empty_batches_for_the_tail() {
        let report = report(&[60, 60, 60], 100);
        assert_eq!(report.tail.map(|tail| tail.batch), Some(2));
        assert_eq!(report.batches_below_80_percent, 2);
    }

    #[test]
    fn one_batch_is_its_own_tail() {
        let report = report(&[30, 20], 100);
        assert_eq!(
            (report.average_utilization, report.min_utilization),
            (None, None)
        );
        assert_eq!(report.utilization, Some(0.5));
        assert_eq!(report.tail.map(|tail| tail.sequences), Some(2));
    }

    #[test]
    fn an_oversized_batch_is_full_and_never_the_tail() {
        let report = report(&[300, 200], 100);
        assert_eq!(
            (report.utilization, report.min_utilization),
            (Some(1.0), Some(1.0))
        );
        assert_eq!((report.oversized_batches, report.tail), (2, None));
    }

    #[test]
    fn a_group_beyond_the_capacity_is_no_oversized_batch() {
        // Packs: [60], [60, 30], [90]; the first has the fewest tokens.
        let report = grouped(&[90, 60, 60, 30], b"abbb", 100);
        assert_eq!((report.batches, report.oversized_batches), (3, 0));
        assert_eq!(report.utilization, Some(0.8));
        assert_eq!(report.tail.map(|tail| tail.batch), Some(0));
        assert_eq!(report.min_utilization, Some(0.9));
    }

    proptest! {
        #[test]
        fn no_utilization_is_above_one_and_padding_never_wins(
            lengths in prop::collection::vec(2_u32..500, 1..300),
            capacity in 1_u32..600,
        ) {
            let report = report(&lengths, capacity);
            let fractions = [
                report.utilization,
                report.average_utilization,
                report.min_utilization,
                report.tail.as_ref().map(|tail| tail.utilization),
            ];
            for fraction in fractions.into_iter().flatten() {
                prop_assert!(fraction > 0.0 && fraction <= 1.0);
            }
            for padded in [&report.padded_in_input_order, &report.padded_sorted_by_length] {
                prop_assert!(padded.tokens >= report.tokens);
            }
        }
    }
}
