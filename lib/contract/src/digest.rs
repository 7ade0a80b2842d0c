//! Digests of rows, sequences and inputs.
//!
//! Two hashes do two jobs. BLAKE3, cut to 128 bits, *identifies* a sequence, an input or a model; chance collisions
//! do not occur at any scale. XXH3-128 *detects accidents*; it runs at memory speed over every value of every file.
//!
//! # The row digest
//!
//! The hash of a row is XXH3-128 (seed 0) over its columns in schema order. A value is hashed as its length in bytes
//! (u64, little-endian), then its bytes. Numbers are little-endian, a bool is one byte (0 or 1), a list is the bytes of
//! its items. A null is the length `u64::MAX` without bytes. The digest of a set of rows is the sum of the row hashes
//! modulo 2^128, with the number of rows. It depends neither on the order of the rows nor on their batches.

use std::fmt;
use std::iter::Sum;
use std::str::FromStr;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_schema::DataType;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3Default;

const _: () = assert!(
    cfg!(target_endian = "little"),
    "row digests hash value buffers in memory order, which must be little-endian"
);

/// The length that marks a null.
const NULL: u64 = u64::MAX;
/// The bytes of a value that is hashed without a copy.
const SMALL: usize = 1 << 10;

/// The order-independent digest of a set of rows: the sum of their XXH3-128 hashes, and their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowDigest {
    sum: u128,
    rows: u64,
}

impl RowDigest {
    /// Adds every row of `batch`. The error names a column without a digest, because no plmkit file may hold its type or its values.
    pub fn update(&mut self, batch: &RecordBatch) -> Result<(), String> {
        let schema = batch.schema();
        let columns: Vec<Column> = batch
            .columns()
            .iter()
            .zip(schema.fields())
            .map(|(array, field)| Column::new(field.name(), array))
            .collect::<Result<_, _>>()?;
        let (mut hasher, mut small) = (Xxh3Default::new(), Vec::new());
        for row in 0..batch.num_rows() {
            hasher.reset();
            for column in &columns {
                column.hash(row, &mut hasher, &mut small);
            }
            hasher.update(&small);
            small.clear();
            self.sum = self.sum.wrapping_add(hasher.digest128());
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// The number of rows.
    pub fn rows(self) -> u64 {
        self.rows
    }
}

/// The digest of the union of several sets of rows.
impl Sum for RowDigest {
    fn sum<I: Iterator<Item = Self>>(digests: I) -> Self {
        digests.fold(Self::default(), |all, other| Self {
            sum: all.sum.wrapping_add(other.sum),
            rows: all.rows.saturating_add(other.rows),
        })
    }
}

/// `xxh3-128-sum:<32 hexadecimal digits>:<rows>`.
impl fmt::Display for RowDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{:032x}:{}", self.sum, self.rows)
    }
}

const PREFIX: &str = "xxh3-128-sum:";

impl FromStr for RowDigest {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (sum, rows) = text
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once(':'))
            .ok_or(())?;
        if sum.len() != 32 {
            return Err(());
        }
        Ok(Self {
            sum: u128::from_str_radix(sum, 16).map_err(|_| ())?,
            rows: rows.parse().map_err(|_| ())?,
        })
    }
}

/// One column of a batch: its bytes, and where each row lies in them.
struct Column {
    bytes: Buffer,
    /// Bytes of a row, or of an item of a list.
    width: usize,
    /// The offsets of each row's items; `None` if each row is one value.
    offsets: Option<OffsetBuffer<i32>>,
    nulls: Option<NullBuffer>,
}

impl Column {
    fn new(name: &str, array: &ArrayRef) -> Result<Self, String> {
        let (bytes, width, offsets) = match array.data_type() {
            DataType::Boolean => {
                let bits = array.as_boolean().values().iter();
                (bits.map(u8::from).collect(), 1, None)
            }
            DataType::Utf8 => {
                let strings = array.as_string::<i32>();
                let offsets = strings.offsets().clone();
                (strings.values().clone(), 1, Some(offsets))
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let (bytes, width) = fixed_width_bytes(name, list.values())?;
                (bytes, width, Some(list.offsets().clone()))
            }
            _ => {
                let (bytes, width) = fixed_width_bytes(name, array)?;
                (bytes, width, None)
            }
        };
        Ok(Self {
            bytes,
            width,
            offsets,
            nulls: array.nulls().cloned(),
        })
    }

    /// Hashes a value. Those that are `small` are collected first: the hasher has overhead for each piece.
    fn hash(&self, row: usize, hasher: &mut Xxh3Default, small: &mut Vec<u8>) {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return small.extend_from_slice(&NULL.to_le_bytes());
        }
        let [start, end] = [row, row + 1].map(|row| match &self.offsets {
            Some(offsets) => offsets[row] as usize * self.width,
            None => row * self.width,
        });
        small.extend_from_slice(&((end - start) as u64).to_le_bytes());
        if end - start < SMALL {
            return small.extend_from_slice(&self.bytes[start..end]);
        }
        hasher.update(small);
        small.clear();
        hasher.update(&self.bytes[start..end]);
    }
}

/// Returns the bytes of a column of fixed-width values, and the bytes of one value.
fn fixed_width_bytes(name: &str, array: &ArrayRef) -> Result<(Buffer, usize), String> {
    match array.data_type() {
        DataType::FixedSizeList(_, count) => {
            let values = array.as_fixed_size_list().values();
            if values.null_count() > 0 {
                return Err(format!("column '{name}' has a null inside a list"));
            }
            let (bytes, width) = fixed_width_bytes(name, values)?;
            Ok((bytes, width * *count as usize))
        }
        DataType::Int8
        | DataType::UInt8
        | DataType::UInt32
        | DataType::Int64
        | DataType::Float16
        | DataType::Float32
        | DataType::Float64 => {
            let data = array.to_data();
            let width = array.data_type().primitive_width().unwrap_or_default();
            Ok((data.buffers()[0].slice(data.offset() * width), width))
        }
        other => Err(format!(
            "column '{name}' has type {other}, which no plmkit file holds"
        )),
    }
}

/// The identity of a sequence: BLAKE3 of its embedded residues, cut to 128 bits. Files hold it as 32 hexadecimal digits:
/// text survives conversion to any table format.
///
/// ```
/// use plmkit_contract::SequenceDigest;
/// let digest = SequenceDigest::new(b"MKV");
/// assert_eq!(digest.to_string(), blake3::hash(b"MKV").to_hex()[..32]);
/// assert_eq!(digest.to_string().parse(), Ok(digest));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SequenceDigest(u128);

impl SequenceDigest {
    /// Computes the digest of `residues`.
    pub fn new(residues: &[u8]) -> Self {
        Self::from_hash(blake3::hash(residues))
    }

    pub(crate) fn from_hash(hash: blake3::Hash) -> Self {
        Self(short(hash))
    }

    /// Returns its hexadecimal digits.
    pub(crate) fn digits(self) -> [u8; 32] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let bytes = self.0.to_be_bytes();
        std::array::from_fn(|i| DIGITS[usize::from(bytes[i / 2] >> (4 - 4 * (i % 2)) & 15)])
    }

    /// The whole digest, as a number.
    pub fn value(self) -> u128 {
        self.0
    }

    /// The first half of the digest, as a hash for tables in memory.
    pub fn hash(self) -> u64 {
        (self.0 >> 64) as u64
    }
}

impl fmt::Display for SequenceDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for SequenceDigest {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        // "+0" and "0A" parse as numbers but are never written.
        let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(is_digit) {
            return Err(());
        }
        // Two u64 parse faster than one u128, and every row of a shard has a digest.
        let (high, low) = text.split_at(16);
        let half = |text| u64::from_str_radix(text, 16).map_err(|_| ());
        Ok(Self(u128::from(half(high)?) << 64 | u128::from(half(low)?)))
    }
}

/// Formats the identity of an input or a model, as provenance has it: `blake3-128:<32 hexadecimal digits>`.
pub fn content_digest(hash: blake3::Hash) -> String {
    format!("blake3-128:{:032x}", short(hash))
}

/// The first 128 bits of a hash.
fn short(hash: blake3::Hash) -> u128 {
    let (first, _) = hash.as_bytes().split_first_chunk().expect("32 bytes");
    u128::from_be_bytes(*first)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{BooleanArray, FixedSizeListArray, Int64Array, ListArray, StringArray};
    use arrow_buffer::OffsetBuffer;
    use arrow_schema::{Field, Schema};
    use proptest::prelude::*;

    use super::*;

    type Row = (i64, Option<String>, bool, Vec<u8>, [f32; 2]);

    fn batch(rows: &[Row]) -> RecordBatch {
        let tokens = ListArray::new(
            Arc::new(Field::new_list_field(DataType::UInt8, false)),
            OffsetBuffer::from_lengths(rows.iter().map(|row| row.3.len())),
            Arc::new(arrow_array::UInt8Array::from_iter_values(
                rows.iter().flat_map(|row| row.3.clone()),
            )),
            None,
        );
        let vectors = FixedSizeListArray::new(
            Arc::new(Field::new_list_field(DataType::Float32, false)),
            2,
            Arc::new(arrow_array::Float32Array::from_iter_values(
                rows.iter().flat_map(|row| row.4),
            )),
            None,
        );
        RecordBatch::try_from_iter_with_nullable([
            (
                "n",
                Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0))) as ArrayRef,
                false,
            ),
            (
                "s",
                Arc::new(rows.iter().map(|r| r.1.clone()).collect::<StringArray>()),
                true,
            ),
            (
                "b",
                Arc::new(rows.iter().map(|r| Some(r.2)).collect::<BooleanArray>()),
                false,
            ),
            ("t", Arc::new(tokens), false),
            ("v", Arc::new(vectors), false),
        ])
        .expect("columns of one length")
    }

    fn digest(batches: &[RecordBatch]) -> RowDigest {
        let mut digest = RowDigest::default();
        for batch in batches {
            digest.update(batch).expect("known types");
        }
        digest
    }

    #[test]
    fn definition() {
        let batch = batch(&[(7, None, true, vec![0, 5], [1.0, -0.5])]);
        let mut bytes = Vec::new();
        bytes.extend(8u64.to_le_bytes());
        bytes.extend(7u64.to_le_bytes());
        bytes.extend(u64::MAX.to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
        bytes.push(1);
        bytes.extend(2u64.to_le_bytes());
        bytes.extend([0, 5]);
        bytes.extend(8u64.to_le_bytes());
        bytes.extend(1f32.to_le_bytes());
        bytes.extend((-0.5f32).to_le_bytes());
        let expected = xxhash_rust::xxh3::xxh3_128(&bytes);
        assert_eq!(
            digest(&[batch]).to_string(),
            format!("xxh3-128-sum:{expected:032x}:1")
        );
    }

    #[test]
    fn a_column_of_unknown_type_is_an_error() {
        let schema = Arc::new(Schema::new(vec![Field::new("d", DataType::Date32, false)]));
        let error = RowDigest::default()
            .update(&RecordBatch::new_empty(schema))
            .expect_err("no such column in the contract");
        assert!(error.contains("'d'"), "{error}");
    }

    fn row() -> impl Strategy<Value = Row> {
        (
            any::<i64>(),
            any::<Option<String>>(),
            any::<bool>(),
            proptest::collection::vec(any::<u8>(), 0..9),
            any::<[f32; 2]>(),
        )
    }

    proptest! {
        #[test]
        fn order_and_cuts_do_not_matter(
            mut rows in proptest::collection::vec(row(), 0..12),
            cut in 0usize..12,
            turn in 0usize..12,
        ) {
            let whole = digest(&[batch(&rows)]);
            let cut = cut.min(rows.len());
            let all = batch(&rows);
            prop_assert_eq!(whole, digest(&[all.slice(0, cut), all.slice(cut, rows.len() - cut)]));
            if !rows.is_empty() {
                let turn = turn % rows.len();
                rows.rotate_left(turn);
            }
            prop_assert_eq!(whole, digest(&[batch(&rows)]));
            prop_assert_eq!(whole, whole.to_string().parse().unwrap());
            let (first, rest) = rows.split_at(cut);
            prop_assert_eq!(whole, [first, rest].map(|rows| digest(&[batch(rows)])).into_iter().sum());
        }

        #[test]
        fn every_changed_bit_shows(rows in proptest::collection::vec(row(), 1..6), at: prop::sample::Index, bit in 0u32..32) {
            let mut changed = rows.clone();
            let row = at.index(rows.len());
            changed[row].4[1] = f32::from_bits(changed[row].4[1].to_bits() ^ (1 << bit));
            prop_assert_ne!(digest(&[batch(&rows)]), digest(&[batch(&changed)]));
        }

        #[test]
        fn moving_a_byte_between_neighbours_shows(left in "[a-z]{1,4}", right in proptest::collection::vec(any::<u8>(), 1..4)) {
            let before = batch(&[(1, Some(left.clone()), true, right.clone(), [0.0; 2])]);
            let mut longer = left.into_bytes();
            longer.push(b'a');
            let after = batch(&[(1, Some(String::from_utf8(longer).unwrap()), true, right, [0.0; 2])]);
            prop_assert_ne!(digest(&[before]), digest(&[after]));
        }
    }
}
