//! Writes embeddings files again with other values, for tests/faults: their digests and checksums fit the new values.
//!
//! `reseal FROM.parquet VALUES.f32 TO.parquet …`, three paths for each file. VALUES has all values of all computed columns, one column
//! after the other.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float32Array, ListArray};
use arrow_array::{RecordBatch, make_array};
use arrow_schema::{DataType, SchemaRef};
use arrow_select::concat::concat_batches;
use plmkit_store::{EmbeddingsReader, EmbeddingsWriter};

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<_> = std::env::args_os().skip(1).collect();
    for paths in paths.chunks_exact(3) {
        reseal(paths[0].as_ref(), paths[1].as_ref(), paths[2].as_ref())?;
    }
    Ok(())
}

fn reseal(from: &Path, values: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    let mut reader = EmbeddingsReader::open(from)?;
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        batches.push(batch);
    }
    let rows = concat_batches(reader.schema(), &batches)?;
    let bytes = fs::read(values)?;
    let mut values = bytes
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    let mut columns = rows.columns().to_vec();
    for column in &mut columns[reader.layout().keys()..] {
        *column = replaced(column, &mut values);
    }
    assert!(values.next().is_none(), "more values than the file has");
    let mut writer = EmbeddingsWriter::create(to, reader.layout())?;
    let schema = SchemaRef::clone(writer.schema());
    writer.write(&RecordBatch::try_new(schema, columns)?)?;
    writer.finish(reader.provenance())?;
    Ok(())
}

/// The same lists of the next values.
fn replaced(array: &ArrayRef, values: &mut impl Iterator<Item = f32>) -> ArrayRef {
    match array.data_type() {
        DataType::FixedSizeList(item, width) => {
            let inner = replaced(array.as_fixed_size_list().values(), values);
            Arc::new(FixedSizeListArray::new(item.clone(), *width, inner, None))
        }
        DataType::List(item) => {
            let list = array.as_list::<i32>();
            let inner = replaced(list.values(), values);
            Arc::new(ListArray::new(
                item.clone(),
                list.offsets().clone(),
                inner,
                None,
            ))
        }
        _ => {
            let new: Float32Array = values.take(array.len()).collect::<Vec<_>>().into();
            assert_eq!(new.len(), array.len(), "fewer values than the file has");
            make_array(new.into_data())
        }
    }
}
