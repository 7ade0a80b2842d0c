//! Matrices and tables in HDF5: of plain datasets, or as anndata reads them.

use std::collections::BTreeMap;
use std::path::Path;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int64Type, UInt32Type};
use plmkit_contract::StoreDtype;
use plmkit_store::StoreError;

use super::values::Table;
use crate::DatasetError;
use crate::hdf5::{Attribute, Hdf5Writer, Object, Type};

/// A dataset with one item a row.
struct Dataset {
    /// The column of the rows.
    column: String,
    kind: Type,
    /// The values of an item, if it is a vector.
    dim: Option<u64>,
    address: u64,
    /// The rows that were written.
    rows: u64,
}

/// Writes the columns to a file. `force` replaces another.
pub(crate) fn write(
    table: &Table<'_>,
    path: &Path,
    (is_anndata, force): (bool, bool),
    advance: &mut impl FnMut(u64),
) -> Result<(), DatasetError> {
    let mut writer = Hdf5Writer::create(path, force)?;
    let rows = table.parts.rows();
    let schema = table.parts.layout.schema();
    let value = value_type(table.dtype);
    let dim = table.parts.layout.dim as u64;
    let keys = if is_anndata {
        table.parts.layout.keys()
    } else {
        0
    };
    let keys = schema.fields()[..keys]
        .iter()
        .map(|field| (field.name().clone(), key_type(field.data_type())));
    let mut columns: Vec<(String, Type, Option<u64>)> =
        keys.map(|(name, kind)| (name, kind, None)).collect();
    if !is_anndata {
        columns.push(("id".to_owned(), Type::Text, None));
    }
    columns.extend(
        table
            .columns
            .iter()
            .map(|&place| (table.name(place), value, Some(dim))),
    );
    let mut datasets: Vec<Dataset> = Vec::new();
    for (column, kind, dim) in columns {
        let address = writer.reserve(rows * dim.unwrap_or(1) * kind.bytes());
        datasets.push(Dataset {
            column,
            kind,
            dim,
            address,
            rows: 0,
        });
    }
    table.for_each(advance, |batch| {
        for dataset in &mut datasets {
            dataset.add(table, batch, &mut writer)?;
        }
        Ok(())
    })?;
    let mut members = BTreeMap::new();
    for dataset in &datasets {
        let kind = match (is_anndata, dataset.kind) {
            (false, _) => None,
            (true, Type::Text) => Some("string-array"),
            (true, _) => Some("array"),
        };
        let shape: Vec<u64> = [Some(rows), dataset.dim].into_iter().flatten().collect();
        let attributes = encoding(kind);
        let object = writer.dataset(dataset.kind, &shape, dataset.address, &attributes)?;
        members.insert(dataset.column.clone(), object);
    }
    let model = table.parts.provenance();
    let options = serde_json::to_string(&model.options).unwrap_or_default();
    let name = model.model.map(|model| model.name).unwrap_or_default();
    let about = [("plmkit.model", &*name), ("plmkit.options", &*options)];
    let root = if is_anndata {
        let vectors = table.name(table.columns[0]);
        let keys = datasets.iter().map(|dataset| &*dataset.column);
        let keys: Vec<&str> = keys
            .filter(|name| *name != "id" && *name != vectors)
            .collect();
        anndata(&mut writer, members, &vectors, &keys, dim, &about)?
    } else {
        if let Some(ids) = members.remove("id") {
            members.insert("ids".to_owned(), ids);
        }
        writer.group(
            &members,
            &about.map(|(name, text)| (name, Attribute::Text(text))),
        )?
    };
    Ok(writer.finish(root)?)
}

/// Adds the groups that anndata expects. `members` are the columns.
///
/// Source: <https://anndata.readthedocs.io/en/stable/fileformat-prose.html>.
fn anndata(
    writer: &mut Hdf5Writer,
    mut members: BTreeMap<String, Object>,
    vectors: &str,
    keys: &[&str],
    dim: u64,
    about: &[(&str, &str)],
) -> Result<Object, DatasetError> {
    let matrix = members.remove(vectors);
    let obs = frame(writer, &members, "id", keys)?;
    let channels: Vec<String> = (0..dim).map(|channel| channel.to_string()).collect();
    let channels = channels.iter().map(String::as_str);
    let channels = add_texts(writer, channels, &[dim], "string-array")?;
    let var = frame(
        writer,
        &[("channel".to_owned(), channels)].into(),
        "channel",
        &[],
    )?;
    let mut root = BTreeMap::from([("obs".to_owned(), obs), ("var".to_owned(), var)]);
    root.extend(matrix.map(|matrix| ("X".to_owned(), matrix)));
    let mut uns = BTreeMap::new();
    for &(name, text) in about {
        let text = add_texts(writer, [text], &[], "string")?;
        uns.insert(name.to_owned(), text);
    }
    for (name, members) in [
        ("layers", BTreeMap::new()),
        ("obsm", BTreeMap::new()),
        ("obsp", BTreeMap::new()),
        ("uns", uns),
        ("varm", BTreeMap::new()),
        ("varp", BTreeMap::new()),
    ] {
        let group = writer.group(&members, &encoding(Some("dict")))?;
        root.insert(name.to_owned(), group);
    }
    Ok(writer.group(&root, &encoding(Some("anndata")))?)
}

/// Adds a dataset of texts.
fn add_texts<'t>(
    writer: &mut Hdf5Writer,
    texts: impl IntoIterator<Item = &'t str>,
    shape: &[u64],
    kind: &'static str,
) -> Result<Object, StoreError> {
    let references = writer.texts(texts)?;
    let address = writer.reserve(references.len() as u64);
    writer.write(address, &references)?;
    writer.dataset(Type::Text, shape, address, &encoding(Some(kind)))
}

/// Adds a table with an index.
fn frame(
    writer: &mut Hdf5Writer,
    members: &BTreeMap<String, Object>,
    index: &str,
    columns: &[&str],
) -> Result<Object, DatasetError> {
    let mut attributes = encoding(Some("dataframe"));
    attributes.push(("_index", Attribute::Text(index)));
    attributes.push(("column-order", Attribute::Texts(columns)));
    Ok(writer.group(members, &attributes)?)
}

/// The attributes by which anndata knows the kind of an object.
fn encoding(kind: Option<&'static str>) -> Vec<(&'static str, Attribute<'static>)> {
    let Some(kind) = kind else { return Vec::new() };
    let version = if matches!(kind, "anndata" | "dict") {
        "0.1.0"
    } else {
        "0.2.0"
    };
    vec![
        ("encoding-type", Attribute::Text(kind)),
        ("encoding-version", Attribute::Text(version)),
    ]
}

pub(super) fn value_type(dtype: StoreDtype) -> Type {
    match dtype {
        StoreDtype::F32 => Type::F32,
        StoreDtype::F16 => Type::F16,
    }
}

fn key_type(kind: &DataType) -> Type {
    match kind {
        DataType::Int64 => Type::I64,
        DataType::UInt32 => Type::U32,
        DataType::Boolean => Type::Bool,
        _ => Type::Text,
    }
}

impl Dataset {
    fn add(
        &mut self,
        table: &Table<'_>,
        batch: &RecordBatch,
        writer: &mut Hdf5Writer,
    ) -> Result<(), DatasetError> {
        let array = &batch[&*self.column];
        let at = self.address + self.rows * self.dim.unwrap_or(1) * self.kind.bytes();
        self.rows += batch.num_rows() as u64;
        if self.dim.is_some() {
            return Ok(writer.write(at, &table.bytes(batch, array)?)?);
        }
        let bytes = self.key_bytes(array, writer)?;
        Ok(writer.write(at, &bytes)?)
    }

    fn key_bytes(
        &self,
        array: &ArrayRef,
        writer: &mut Hdf5Writer,
    ) -> Result<Vec<u8>, DatasetError> {
        Ok(match self.kind {
            Type::I64 => array.as_primitive::<Int64Type>().values().inner().to_vec(),
            Type::U32 => array.as_primitive::<UInt32Type>().values().inner().to_vec(),
            Type::Bool => array.as_boolean().values().iter().map(u8::from).collect(),
            // A missing description is an empty one: a column of text has no nulls.
            _ => {
                let texts = array.as_string::<i32>();
                writer.texts((0..texts.len()).map(|row| {
                    if texts.is_null(row) {
                        ""
                    } else {
                        texts.value(row)
                    }
                }))?
            }
        })
    }
}
