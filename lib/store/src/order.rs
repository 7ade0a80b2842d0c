//! The order of rows.

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::interleave_record_batch;
use arrow::datatypes::{UInt32Type, UInt64Type};
use arrow::error::ArrowError;

/// Rows of a record batch that is put together from others: as many of the longest sequences as the offsets of a column can count.
const ROWS: usize = 100;

/// The rows of a shard by rising ordinal and start, so that the windows of a protein lie beside each other.
///
/// `fasta-shard` writes them like that. The digest of a shard is that of its rows in any order, so another program may have sorted them
/// otherwise.
pub fn in_order(batches: Vec<RecordBatch>) -> Result<Vec<RecordBatch>, ArrowError> {
    let keys = batches.iter().enumerate().flat_map(|(number, batch)| {
        let ordinals = batch["ordinal"].as_primitive::<UInt64Type>().values();
        let starts = batch["start"].as_primitive::<UInt32Type>().values();
        let keys = ordinals.iter().copied().zip(starts.iter().copied());
        keys.enumerate().map(move |(row, key)| (key, (number, row)))
    });
    if keys.clone().is_sorted() {
        return Ok(batches);
    }
    let mut rows: Vec<_> = keys.collect();
    rows.sort_unstable();
    let places: Vec<(usize, usize)> = rows.into_iter().map(|(_, place)| place).collect();
    let all: Vec<&RecordBatch> = batches.iter().collect();
    let sorted = places.chunks(ROWS);
    sorted
        .map(|places| interleave_record_batch(&all, places))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, UInt32Array, UInt64Array};

    use super::*;

    fn batch(keys: &[(u64, u32)]) -> RecordBatch {
        let (ordinals, starts): (Vec<u64>, Vec<u32>) = keys.iter().copied().unzip();
        let columns: [(&str, ArrayRef); 2] = [
            ("ordinal", Arc::new(UInt64Array::from(ordinals))),
            ("start", Arc::new(UInt32Array::from(starts))),
        ];
        RecordBatch::try_from_iter(columns).expect("batch")
    }

    #[test]
    fn rows_are_sorted_across_batches() {
        let sorted = in_order(vec![batch(&[(2, 0), (1, 80)]), batch(&[(1, 0), (0, 0)])]);
        let expected = batch(&[(0, 0), (1, 0), (1, 80), (2, 0)]);
        assert_eq!(sorted.expect("sorted"), [expected]);
        let batches = vec![batch(&[(0, 0), (1, 0)]), batch(&[(1, 80)])];
        assert_eq!(in_order(batches.clone()).expect("sorted"), batches);
    }
}
