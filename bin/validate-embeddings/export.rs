//! `validate-embeddings export`.

use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::TypedValueParser;
use plmkit_cli::{
    Exit, Fault, NamedPath, ProgressDisplay, ProgressMode, Stop, file, keep_renameable, one_of,
};
use plmkit_contract::{ListedDataset, StoreDtype, path_text, plural};
use plmkit_dataset::{ExportConfig, Format, check_outside, export};

use crate::dataset::Dataset;

/// Write the vectors of all proteins to a file of numpy, HDF5 or anndata, in the order of the input
///
/// Memory does not grow with the number of rows. Files appear when they are complete.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// Folder of a sample's results, its dataset.json, or an embeddings file
    #[arg(value_name = "DATASET", value_parser = file().map(Dataset::new))]
    dataset: Dataset,

    /// Format of the file
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: FileFormat,

    /// File to write; beside a .npy file, .ids.txt has the ids of its rows
    #[arg(long, value_name = "FILE", value_parser = file())]
    out: PathBuf,

    /// Columns to export; by default all with one vector for each protein
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    columns: Vec<String>,

    /// Type of the values; by default that of the dataset
    ///
    /// A value that does not fit into f16 is an error.
    #[arg(long, value_name = "TYPE", value_parser = one_of([StoreDtype::F16, StoreDtype::F32]))]
    dtype: Option<StoreDtype>,

    /// In HDF5, write a dataset for each protein, named by its id; of `residues_<layer>`, a matrix
    ///
    /// The names are held in memory: about 150 bytes for each protein.
    #[arg(long)]
    per_protein: bool,

    /// Overwrite an existing file
    #[arg(long)]
    force: bool,

    /// How progress is shown on standard error
    #[arg(long, value_enum, value_name = "MODE", default_value = "auto")]
    progress: ProgressMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FileFormat {
    /// A matrix of numpy
    Npy,
    /// A matrix for each column, and a dataset `ids`
    Hdf5,
    /// A matrix `X`, and a table `obs` of the proteins, for anndata
    H5ad,
}

impl ExportArgs {
    pub(crate) fn run(self, quiet: bool, stop: &Stop) -> Result<Exit, Fault> {
        let format = match (self.format, self.per_protein) {
            (FileFormat::Hdf5, true) => Format::PerProtein,
            (_, true) => return Err(Fault::usage("--per-protein: expected --format hdf5")),
            (FileFormat::Npy, false) => Format::Npy,
            (FileFormat::Hdf5, false) => Format::Hdf5,
            (FileFormat::H5ad, false) => Format::H5ad,
        };
        keep_renameable(&[("--out", &self.out)])?;
        let opened = self.dataset.open_passed(stop)?;
        let rows = opened.parts.rows();
        let config = ExportConfig {
            format,
            out: self.out,
            columns: self.columns,
            dtype: self.dtype,
            force: self.force,
        };
        let files = config.files();
        let outputs: Vec<NamedPath> = files.iter().map(|file| ("--out", &**file)).collect();
        opened.keep_apart(&[], &outputs)?;
        check_outside(&config.out, self.dataset.folder())?;
        let mut progress = ProgressDisplay::start(self.progress, quiet, "rows", rows);
        let exported = export(&config, &opened.parts, |rows| progress.advance(rows), stop);
        progress.finish();
        exported?;
        let files: Vec<String> = files.iter().map(|file| path_text(file)).collect();
        tracing::info!("{}: {}", files.join(", "), plural(rows, "row"));
        let left_out = opened.listed.as_ref();
        let left_out = left_out.map_or(0, ListedDataset::without_row);
        if left_out > 0 {
            tracing::warn!(
                "{}: {} left out, because other records or datasets have their residues: validate-embeddings combine gives them rows",
                path_text(&config.out),
                plural(left_out, "record"),
            );
        }
        Ok(Exit::Done)
    }
}
