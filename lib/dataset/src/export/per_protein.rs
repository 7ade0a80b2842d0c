//! HDF5 with a dataset for each protein.

use std::collections::BTreeMap;
use std::path::Path;

use plmkit_contract::{Column, KeyColumns, Quoted, VOCABULARY};

use super::hdf5_tables::value_type;
use super::values::{Table, items};
use crate::DatasetError;
use crate::hdf5::Hdf5Writer;

/// Writes the vector of each protein, `(dim)`, or its residues, `(length, dim)`, to a dataset named by its id. `force` replaces
/// another file.
pub(crate) fn write(
    table: &Table<'_>,
    path: &Path,
    force: bool,
    advance: &mut impl FnMut(u64),
) -> Result<(), DatasetError> {
    let mut writer = Hdf5Writer::create(path, force)?;
    let kind = value_type(table.dtype);
    let (name, column) = (
        table.name(table.columns[0]),
        table.parts.layout.columns[table.columns[0]],
    );
    let dim = table.parts.layout.dim as u64;
    let mut members = BTreeMap::new();
    table.for_each(advance, |batch| {
        let array = &batch[&*name];
        let bytes = table.bytes(batch, array)?;
        let item = kind.bytes()
            * match column {
                Column::Logits => VOCABULARY as u64,
                Column::Contacts => 1,
                Column::Pooled(_) | Column::Residues(_) => dim,
            };
        for (row, key) in KeyColumns::new(batch).rows().enumerate() {
            let items = items(array, row).unwrap_or(row..row + 1);
            let count = items.len() as u64;
            let shape: &[u64] = match column {
                Column::Pooled(_) => &[dim],
                Column::Residues(_) => &[count, dim],
                Column::Logits => &[count, VOCABULARY as u64],
                Column::Contacts => &[count.isqrt(), count.isqrt()],
            };
            let bytes = &bytes[items.start * item as usize..items.end * item as usize];
            let address = writer.reserve(bytes.len() as u64);
            writer.write(address, bytes)?;
            let dataset = writer.dataset(kind, shape, address, &[])?;
            let problem = if key.id.contains('/') {
                "names of HDF5 have no /: expected ids without it"
            } else if key.id == "." {
                "in HDF5, this is the name of the file's own group: expected another id"
            } else if members.insert(key.id.to_owned(), dataset).is_some() {
                "expected one row for each id, found two"
            } else {
                continue;
            };
            let what = format!("ordinal {} {}: {problem}", key.ordinal, Quoted(key.id));
            return Err(DatasetError::content(&table.parts.parts[0].path, what));
        }
        Ok(())
    })?;
    let root = writer.group(&members, &[])?;
    Ok(writer.finish(root)?)
}
