//! One pack as a record batch.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Int64Array, ListArray, RecordBatch, StringArray, UInt8Array,
    UInt32Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, SchemaRef};
use plmkit_cli::{Exit, Fault};
use plmkit_contract::{Labels, Quoted, ShardRow};
use plmkit_sequence::tokenize;

/// The record batch of one pack, in which the offsets of `tokens` are `cu_seqlens` and its values the packed
/// token ids. Of the columns of `schema`, the labels may be there or not; `sample` is there if it has one. The message of an error names the record by its ordinal, but not the file.
pub(crate) fn record_batch(
    rows: &[ShardRow],
    sample: Option<&str>,
    schema: &SchemaRef,
) -> Result<RecordBatch, Fault> {
    let mut tokens = Vec::new(); // (total_tokens)
    let mut cu_seqlens = Vec::with_capacity(rows.len() + 1); // (sequences + 1)
    cu_seqlens.push(0);
    for row in rows {
        let failed = |what: String| {
            let id = Quoted(row.id);
            Fault::new(Exit::Data, format!("ordinal {} {id}: {what}", row.ordinal))
        };
        tokenize(row.sequence.as_bytes(), &mut tokens)
            .map_err(|error| failed(error.to_string()))?;
        let end = i32::try_from(tokens.len())
            .map_err(|_| failed(format!("expected at most {} tokens in a batch", i32::MAX)))?;
        cu_seqlens.push(end);
    }
    let list = ListArray::try_new(
        Arc::new(Field::new_list_field(DataType::UInt8, false)),
        OffsetBuffer::new(cu_seqlens.into()),
        Arc::new(UInt8Array::from(tokens)),
        None,
    );
    let built = list.and_then(|tokens| {
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(
                rows.iter().map(|row| row.ordinal.cast_signed()),
            )),
            Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.id))),
            Arc::new(UInt32Array::from_iter_values(
                rows.iter().map(|row| row.start),
            )),
            Arc::new(UInt32Array::from_iter_values(
                rows.iter().map(|row| row.length),
            )),
            Arc::new(BooleanArray::from(
                rows.iter().map(|row| row.truncated).collect::<Vec<_>>(),
            )),
            Arc::new(StringArray::from_iter_values(
                rows.iter().map(|row| row.digest.to_string()),
            )),
        ];
        if let Some(sample) = sample {
            columns.push(Arc::new(StringArray::from(vec![sample; rows.len()])));
        }
        if Labels::of(schema).description {
            let descriptions = rows.iter().map(|row| row.description);
            columns.push(Arc::new(descriptions.collect::<StringArray>()));
        }
        columns.push(Arc::new(tokens));
        RecordBatch::try_new(SchemaRef::clone(schema), columns)
    });
    built.map_err(|error| Fault::new(Exit::Internal, error.to_string()))
}
