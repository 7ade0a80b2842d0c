//! What a shard becomes when it is packed.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, ListBuilder, RecordBatch, StringArray, UInt8Builder};
use arrow::datatypes::{DataType, Field};
use plmkit_cli::{Exit, Fault};
use plmkit_contract::{
    DESCRIPTION, KEY_COLUMNS, Labels, Quoted, RowDigest, SAMPLE, batches_schema, ordinals,
    path_text,
};
use plmkit_sequence::tokenize;
use plmkit_store::Table;

/// The row digest of the batches file that pack-batches makes of the shard at `path`, whatever its options but the
/// `labels`: the
/// digest does not depend on how rows are packed.
pub(crate) fn batches_digest(
    path: &Path,
    shard: &Table,
    labels: Labels,
) -> Result<RowDigest, Fault> {
    let mut digest = RowDigest::default();
    let internal = |error: &dyn ToString| Fault::new(Exit::Internal, error.to_string());
    for batch in &shard.batches {
        let tokens = tokens(batch)
            .map_err(|what| Fault::new(Exit::Data, format!("{}: {what}", path_text(path))))?;
        let keys = KEY_COLUMNS.iter().map(|&name| Arc::clone(&batch[name]));
        let mut columns: Vec<ArrayRef> = keys.collect();
        if labels.sample {
            let sample = shard.provenance.text_option(SAMPLE);
            let sample = vec![sample.unwrap_or_default(); batch.num_rows()];
            columns.push(Arc::new(StringArray::from(sample)));
        }
        if labels.description {
            columns.push(Arc::clone(&batch[DESCRIPTION]));
        }
        columns.push(tokens);
        let packed = RecordBatch::try_new(batches_schema(labels), columns);
        let packed = packed.map_err(|error| internal(&error))?;
        digest.update(&packed).map_err(|error| internal(&error))?;
    }
    Ok(digest)
}

/// The column `tokens` of the rows.
fn tokens(batch: &RecordBatch) -> Result<ArrayRef, String> {
    let token = Field::new_list_field(DataType::UInt8, false);
    let mut lists = ListBuilder::new(UInt8Builder::new()).with_field(Arc::new(token));
    let mut tokens = Vec::new();
    for (row, sequence) in batch["sequence"].as_string::<i32>().iter().enumerate() {
        tokens.clear();
        tokenize(sequence.unwrap_or_default().as_bytes(), &mut tokens).map_err(|error| {
            let ordinal = ordinals(batch)[row];
            let id = Quoted(batch["id"].as_string::<i32>().value(row));
            format!("ordinal {ordinal} {id}: {error}")
        })?;
        lists.values().append_slice(&tokens);
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}
