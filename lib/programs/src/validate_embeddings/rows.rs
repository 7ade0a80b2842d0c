//! Reads the rows of an embeddings file.

use plmkit_cli::Fault;
use plmkit_contract::{KeyColumns, RowKey};
use plmkit_dataset::Vectors;
use plmkit_store::EmbeddingsReader;

/// Shows all rows of a file that is open, each with a vector for each column. Before each batch of so many rows, `check` may end
/// this.
pub(crate) fn each_row(
    reader: &mut EmbeddingsReader,
    check: impl Fn(u64) -> Result<(), Fault>,
    mut see: impl FnMut(&RowKey, &[&[f32]]),
) -> Result<(), Fault> {
    let names = reader.layout().columns.iter().map(ToString::to_string);
    let names: Vec<String> = names.collect();
    while let Some(batch) = reader.next_batch()? {
        check(batch.num_rows() as u64)?;
        let columns = names.iter().map(|name| Vectors::new(&batch[&**name]));
        let columns: Vec<Vectors> = columns.collect();
        let mut vectors = Vec::new();
        for (place, row) in KeyColumns::new(&batch).rows().enumerate() {
            vectors.clear();
            vectors.extend(columns.iter().map(|column| column.row(place)));
            see(&row, &vectors);
        }
    }
    Ok(())
}
