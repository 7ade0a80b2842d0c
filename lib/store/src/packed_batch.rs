//! A packed batch of a batches file.

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt32Type};
use arrow_array::{
    Array, BooleanArray, ListArray, PrimitiveArray, RecordBatch, StringArray, UInt64Array,
};
use arrow_select::take::take_record_batch;
use plmkit_contract::{Labels, RowSpan, batches_schema, check_sequences, ordinals};

/// Sequences back to back, without padding.
///
/// Its slices point into the bytes that were read from the file.
#[derive(Clone, Debug)]
pub struct PackedBatch {
    batch: RecordBatch,
}

/// No sequences.
impl Default for PackedBatch {
    fn default() -> Self {
        let batch = RecordBatch::new_empty(batches_schema(Labels::default()));
        Self { batch }
    }
}

impl PackedBatch {
    /// Checks a record batch with the columns of [`batches_schema`](plmkit_contract::batches_schema): no nulls, and complete
    /// [sequences](check_sequences). The error describes what is wrong.
    pub fn new(batch: RecordBatch) -> Result<Self, String> {
        let mut columns = batch.columns().iter().zip(batch.schema_ref().fields());
        let null = columns.find(|(column, field)| column.null_count() > 0 && !field.is_nullable());
        if let Some((_, field)) = null {
            return Err(format!("column '{}' has a null", field.name()));
        }
        let packed = Self { batch };
        if packed.list().values().null_count() > 0 {
            return Err("a token is null".into());
        }
        check_sequences(packed.tokens(), packed.cu_seqlens())?;
        Ok(packed)
    }

    /// Returns a batch of sequence `row` alone.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn alone(&self, row: usize) -> Self {
        let rows = UInt64Array::from_value(row as u64, 1);
        let batch = take_record_batch(&self.batch, &rows).expect("there is such a row");
        Self { batch }
    }

    /// Returns the number of sequences.
    pub fn sequences(&self) -> usize {
        self.batch.num_rows()
    }

    /// Returns the number of residues of sequence `row`.
    pub fn residues(&self, row: usize) -> usize {
        let offsets = self.cu_seqlens();
        (offsets[row + 1] - offsets[row] - 2) as usize
    }

    /// Returns the position of sequence `row` in its protein.
    pub fn span(&self, row: usize) -> RowSpan {
        RowSpan {
            start: self.starts().value(row),
            residues: self.residues(row),
            length: self.lengths().value(row),
            truncated: self.truncated().value(row),
        }
    }

    /// Returns the token ids of sequence `row` without `<cls>` and `<eos>`. Shape: (residues).
    pub fn residue_tokens(&self, row: usize) -> &[u8] {
        let first = self.cu_seqlens()[row] as usize + 1;
        &self.tokens()[first..first + self.residues(row)]
    }

    /// Returns the token ids of all sequences back to back, each `<cls> residues <eos>`. Shape: (`total_tokens`).
    pub fn tokens(&self) -> &[u8] {
        self.list().values().as_primitive::<UInt8Type>().values()
    }

    /// Returns the start of each sequence in [`tokens`](Self::tokens), and the end of the last one. Shape: (sequences + 1).
    pub fn cu_seqlens(&self) -> &[i32] {
        self.list().value_offsets()
    }

    /// Returns the 0-based positions of the records in the whole input. Shape: (sequences), as for all columns.
    pub fn ordinals(&self) -> &[u64] {
        ordinals(&self.batch)
    }

    /// Returns the ids.
    pub fn ids(&self) -> &StringArray {
        self.batch["id"].as_string()
    }

    /// Returns the offsets of the windows in their proteins, in residues.
    pub fn starts(&self) -> &PrimitiveArray<UInt32Type> {
        self.batch["start"].as_primitive()
    }

    /// Returns the lengths of the whole proteins, in residues.
    pub fn lengths(&self) -> &PrimitiveArray<UInt32Type> {
        self.batch["length"].as_primitive()
    }

    /// Returns whether some residues of the protein are in no row.
    pub fn truncated(&self) -> &BooleanArray {
        self.batch["truncated"].as_boolean()
    }

    /// Returns the record batch, with the columns of [`batches_schema`](plmkit_contract::batches_schema).
    pub fn record_batch(&self) -> &RecordBatch {
        &self.batch
    }

    fn list(&self) -> &ListArray {
        self.batch["tokens"].as_list()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, UInt8Array};
    use arrow_buffer::OffsetBuffer;
    use arrow_schema::{DataType, Field};
    use plmkit_contract::{Labels, RowKey, RowsBuilder, SequenceDigest, batches_schema};

    use super::*;

    /// Makes a batch with these offsets into seven tokens.
    fn pack(offsets: &[i32]) -> Result<PackedBatch, String> {
        let mut keys = RowsBuilder::of_keys();
        for ordinal in 1..offsets.len() as u64 {
            keys.push(&RowKey {
                ordinal,
                id: "P",
                start: 0,
                length: 1,
                truncated: false,
                digest: SequenceDigest::default(),
                n_windows: 1,
            });
        }
        let item = Arc::new(Field::new_list_field(DataType::UInt8, false));
        let tokens: ArrayRef = Arc::new(UInt8Array::from(vec![0, 5, 2, 0, 6, 7, 2]));
        let offsets = OffsetBuffer::new(offsets.to_vec().into());
        let mut columns = keys.finish();
        columns.push(Arc::new(ListArray::new(item, offsets, tokens, None)));
        let schema = batches_schema(Labels::default());
        PackedBatch::new(RecordBatch::try_new(schema, columns).expect("columns"))
    }

    #[test]
    fn every_row_is_a_complete_sequence() {
        let whole = pack(&[0, 3, 7]).expect("a pack");
        assert_eq!((whole.residues(0), whole.residues(1)), (1, 2));
        assert_eq!(whole.residue_tokens(0), [5]);
        let second = whole.alone(1);
        assert_eq!(
            (second.tokens(), second.cu_seqlens()),
            (&[0, 6, 7, 2][..], &[0, 4][..])
        );
        assert_eq!(second.ordinals(), [2]);
        let error = |offsets: &[i32]| pack(offsets).expect_err("not a pack");
        for (offsets, expected) in [
            (
                &[0, 5, 7][..],
                "sequence 1 of the batch runs from 5 to 7; expected at least 3 tokens",
            ),
            (
                &[0, 3, 3, 7],
                "sequence 1 of the batch runs from 3 to 3; expected at least 3 tokens",
            ),
            (
                &[0, 3],
                "cu_seqlens runs from 0 to 3; expected 0 to 7, the number of tokens",
            ),
            (
                &[2, 7],
                "cu_seqlens runs from 2 to 7; expected 0 to 7, the number of tokens",
            ),
            (
                &[0, 4, 7],
                "sequence 0 of the batch has token 2 at 2; expected 3 to 30, or 32",
            ),
        ] {
            assert_eq!(error(offsets), expected);
        }
    }
}
