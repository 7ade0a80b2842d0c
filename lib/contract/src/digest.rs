//! Digests: what a file's rows add up to, and what names a sequence or an input.
//!
//! Two hashes, two jobs. BLAKE3 cut to 128 bits *identifies*: a sequence, an input, a model; it must never
//! collide by chance at any scale. XXH3-128, summed, *detects accidents*: it runs at memory speed over every
//! value of every file.
//!
//! # The row digest
//!
//! The hash of a row is XXH3-128 (seed 0) over its columns in schema order; each value is written as its
//! length in bytes (u64, little-endian) and then its bytes. Numbers are little-endian, a bool is one byte
//! (0 or 1), a list is the bytes of its items one after another. A null is the length `u64::MAX` and no bytes.
//! The digest of a set of rows is the sum of the row hashes modulo 2^128, together with the number of rows.
//! It does not depend on the order of rows nor on how they are cut into batches.

use std::fmt;
use std::iter::Sum;
use std::str::FromStr;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Float16Type, Float32Type, Float64Type, Int64Type, UInt8Type, UInt32Type,
};
use xxhash_rust::xxh3::Xxh3Default;

const _: () = assert!(
    cfg!(target_endian = "little"),
    "row digests hash value buffers as they lie in memory, which must be little-endian"
);

/// The length that stands for a null.
const NULL: u64 = u64::MAX;

/// The order-independent digest of a set of rows. Its definition is at the head of this file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowDigest {
    sum: u128,
    rows: u64,
}

/// Why rows have no digest.
#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    /// The contract has no column of this type.
    #[error("column '{column}' has type {found}, which no plmkit file holds")]
    Type {
        /// The column's name.
        column: String,
        /// Its Arrow type.
        found: DataType,
    },
    /// A list has a missing item.
    #[error("column '{column}' has a null inside a list")]
    NullItem {
        /// The column's name.
        column: String,
    },
}

impl RowDigest {
    /// Adds every row of `batch`.
    pub fn update(&mut self, batch: &RecordBatch) -> Result<(), DigestError> {
        let schema = batch.schema();
        let columns: Vec<Column> = batch
            .columns()
            .iter()
            .zip(schema.fields())
            .map(|(array, field)| Column::new(field.name(), array))
            .collect::<Result<_, _>>()?;
        let mut hasher = Xxh3Default::new();
        for row in 0..batch.num_rows() {
            hasher.reset();
            for column in &columns {
                column.hash(row, &mut hasher);
            }
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

/// The digest of several sets of rows together.
impl Sum for RowDigest {
    fn sum<I: Iterator<Item = Self>>(digests: I) -> Self {
        digests.fold(Self::default(), |all, other| Self {
            sum: all.sum.wrapping_add(other.sum),
            rows: all.rows + other.rows,
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

/// One column of a batch, with the bytes of each row at hand.
struct Column<'a> {
    cells: Cells<'a>,
    nulls: Option<&'a NullBuffer>,
}

enum Cells<'a> {
    /// Every row takes `width` bytes.
    Fixed {
        bytes: &'a [u8],
        width: usize,
    },
    /// Row `i` takes the items `offsets[i]..offsets[i + 1]`, of `width` bytes each.
    Varying {
        bytes: &'a [u8],
        offsets: &'a [i32],
        width: usize,
    },
    Bits(&'a arrow::array::BooleanArray),
}

impl<'a> Column<'a> {
    fn new(name: &str, array: &'a ArrayRef) -> Result<Self, DigestError> {
        let cells = match array.data_type() {
            DataType::Boolean => Cells::Bits(array.as_boolean()),
            DataType::Utf8 => {
                let strings = array.as_string::<i32>();
                Cells::Varying {
                    bytes: strings.value_data(),
                    offsets: strings.value_offsets(),
                    width: 1,
                }
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let (bytes, width) = items(name, list.values())?;
                Cells::Varying {
                    bytes,
                    offsets: list.value_offsets(),
                    width,
                }
            }
            _ => {
                let (bytes, width) = items(name, array)?;
                Cells::Fixed { bytes, width }
            }
        };
        Ok(Self {
            cells,
            nulls: array.nulls(),
        })
    }

    fn hash(&self, row: usize, hasher: &mut Xxh3Default) {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            hasher.update(&NULL.to_le_bytes());
            return;
        }
        let one;
        let value: &[u8] = match &self.cells {
            Cells::Fixed { bytes, width } => &bytes[row * width..(row + 1) * width],
            Cells::Varying {
                bytes,
                offsets,
                width,
            } => {
                let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
                &bytes[start * width..end * width]
            }
            Cells::Bits(bits) => {
                one = [u8::from(bits.value(row))];
                &one
            }
        };
        hasher.update(&(value.len() as u64).to_le_bytes());
        hasher.update(value);
    }
}

/// The bytes of a column of fixed-width values, and the width of one value in bytes.
fn items<'a>(name: &str, array: &'a ArrayRef) -> Result<(&'a [u8], usize), DigestError> {
    let cells = match array.data_type() {
        DataType::UInt8 => (
            array
                .as_primitive::<UInt8Type>()
                .values()
                .inner()
                .as_slice(),
            1,
        ),
        DataType::UInt32 => (
            array
                .as_primitive::<UInt32Type>()
                .values()
                .inner()
                .as_slice(),
            4,
        ),
        DataType::Int64 => (
            array
                .as_primitive::<Int64Type>()
                .values()
                .inner()
                .as_slice(),
            8,
        ),
        DataType::Float16 => (
            array
                .as_primitive::<Float16Type>()
                .values()
                .inner()
                .as_slice(),
            2,
        ),
        DataType::Float32 => (
            array
                .as_primitive::<Float32Type>()
                .values()
                .inner()
                .as_slice(),
            4,
        ),
        DataType::Float64 => (
            array
                .as_primitive::<Float64Type>()
                .values()
                .inner()
                .as_slice(),
            8,
        ),
        DataType::FixedSizeList(_, count) => {
            let values = array.as_fixed_size_list().values();
            if values.null_count() > 0 {
                return Err(DigestError::NullItem {
                    column: name.to_owned(),
                });
            }
            let (bytes, width) = items(name, values)?;
            (bytes, width * *count as usize)
        }
        other => {
            return Err(DigestError::Type {
                column: name.to_owned(),
                found: other.clone(),
            });
        }
    };
    Ok(cells)
}

/// The identity of a sequence: BLAKE3 of its residues as embedded, cut to 128 bits. Files hold it as 32 hexadecimal digits,
/// which is text in every format that a table may be turned into.
///
/// ```
/// use plmkit_contract::SequenceDigest;
/// let digest = SequenceDigest::new(b"MKV");
/// assert_eq!(digest.to_string(), blake3::hash(b"MKV").to_hex()[..32]);
/// assert_eq!(digest.to_string().parse(), Ok(digest));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceDigest([u8; 16]);

impl SequenceDigest {
    /// The digest of these residues.
    pub fn new(residues: &[u8]) -> Self {
        Self(short(blake3::hash(residues)))
    }
}

impl fmt::Display for SequenceDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl FromStr for SequenceDigest {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let value = u128::from_str_radix(text, 16).map_err(|_| ())?;
        let digest = Self(value.to_be_bytes());
        // "+0" parses as a number but is nothing that was ever written.
        (digest.to_string() == text).then_some(digest).ok_or(())
    }
}

/// The identity of an input or a model as it is written in provenance: `blake3-128:<32 hexadecimal digits>`.
pub fn content_digest(hash: blake3::Hash) -> String {
    format!("blake3-128:{:032x}", u128::from_be_bytes(short(hash)))
}

fn short(hash: blake3::Hash) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_bytes()[..16]);
    bytes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BooleanArray, FixedSizeListArray, Int64Array, ListArray, StringArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{Field, Schema};
    use proptest::prelude::*;

    use super::*;

    type Row = (i64, Option<String>, bool, Vec<u8>, [f32; 2]);

    fn batch(rows: &[Row]) -> RecordBatch {
        let tokens = ListArray::new(
            Arc::new(Field::new_list_field(DataType::UInt8, false)),
            OffsetBuffer::from_lengths(rows.iter().map(|row| row.3.len())),
            Arc::new(arrow::array::UInt8Array::from_iter_values(
                rows.iter().flat_map(|row| row.3.clone()),
            )),
            None,
        );
        let vectors = FixedSizeListArray::new(
            Arc::new(Field::new_list_field(DataType::Float32, false)),
            2,
            Arc::new(arrow::array::Float32Array::from_iter_values(
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
        assert!(error.to_string().contains("'d'"), "{error}");
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
