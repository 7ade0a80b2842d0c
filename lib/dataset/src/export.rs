//! Exports vectors to formats of other tools.

mod hdf5_tables;
mod npy;
mod per_protein;
mod values;

use std::path::PathBuf;

use plmkit_contract::{Column, Stop, StoreDtype};

use crate::{DatasetError, Parts};

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A matrix of numpy, and a text file with the ids of its rows.
    Npy,
    /// HDF5 with a matrix for each column, and a dataset of ids.
    Hdf5,
    /// HDF5 with a dataset for each protein, named by its id.
    PerProtein,
    /// HDF5 as anndata reads it: a matrix `X`, and a table `obs` of the proteins.
    H5ad,
}

/// What to export.
#[derive(Clone, Debug)]
pub struct ExportConfig {
    /// The format.
    pub format: Format,
    /// The file to write.
    pub out: PathBuf,
    /// The columns; none are all pooled ones.
    pub columns: Vec<String>,
    /// The type of values; that of the dataset if `None`.
    pub dtype: Option<StoreDtype>,
    /// Whether to replace a file of other content.
    pub force: bool,
}

impl ExportConfig {
    /// Returns the files that are written.
    pub fn files(&self) -> Vec<PathBuf> {
        match self.format {
            Format::Npy => vec![self.out.clone(), self.out.with_extension("ids.txt")],
            _ => vec![self.out.clone()],
        }
    }
}

/// Exports all rows in the order of the input. `advance` is told the rows as they are written. Returns the files.
///
/// Memory does not grow with the rows, except that of the names of [`Format::PerProtein`].
///
/// # Errors
/// If the columns do not fit the format, or a value does not fit into the type.
pub fn export(
    config: &ExportConfig,
    parts: &Parts,
    mut advance: impl FnMut(u64),
    stop: &Stop,
) -> Result<Vec<PathBuf>, DatasetError> {
    let layout = &parts.layout;
    let is_pooled = |place: &usize| matches!(layout.columns[*place], Column::Pooled(_));
    let asked = parts.places(&config.columns)?;
    let columns: Vec<usize> = match config.format {
        Format::PerProtein => asked,
        _ if config.columns.is_empty() => asked.into_iter().filter(is_pooled).collect(),
        _ => asked,
    };
    let names = columns
        .iter()
        .map(|&place| layout.columns[place].to_string());
    let names = names.collect::<Vec<_>>().join(", ");
    let usage = |what: String| Err(DatasetError::Usage(what));
    if config.format != Format::PerProtein && !columns.iter().all(is_pooled) {
        return usage(format!(
            "--columns {names}: expected columns with one vector for each protein; --per-protein takes others"
        ));
    }
    if columns.is_empty() || (config.format != Format::Hdf5 && columns.len() != 1) {
        return usage(format!(
            "expected one column for this format, found {names}: name it with --columns"
        ));
    }
    let files = config.files();
    let dtype = config.dtype.unwrap_or(layout.dtype);
    let table = values::Table {
        parts,
        columns,
        dtype,
        stop,
    };
    match config.format {
        Format::Npy => npy::write(&table, &files, config.force, &mut advance)?,
        Format::Hdf5 | Format::H5ad => {
            let is_anndata = config.format == Format::H5ad;
            hdf5_tables::write(
                &table,
                &config.out,
                (is_anndata, config.force),
                &mut advance,
            )?;
        }
        Format::PerProtein => per_protein::write(&table, &config.out, config.force, &mut advance)?,
    }
    Ok(files)
}
