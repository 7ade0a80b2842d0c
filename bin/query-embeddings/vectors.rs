//! The vectors of one column, in formats of other programs.

use std::path::Path;

use plmkit_cli::{Fault, NamedPath, Stop, keep_data};
use plmkit_contract::{path_text, plural};
use plmkit_dataset::{
    AskedIds, OpenedDataset, VectorFormat, VectorsConfig, ids_beside, write_vectors,
};
use plmkit_store::TableFormat;

use crate::keep_dataset;

/// How rows are written.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::VariantArray, strum::EnumMessage,
)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Format {
    /// All columns of embeddings
    Parquet,
    /// A matrix with the vectors of one column
    Npy,
    /// A table with the key, the labels and a column for each value of the vectors of one column
    Tsv,
    /// The same, separated by commas
    Csv,
}

impl Format {
    /// Returns the format of vectors alone; `None` for all columns.
    pub(crate) fn of_vectors(self) -> Option<VectorFormat> {
        match self {
            Self::Parquet => None,
            Self::Npy => Some(VectorFormat::Npy),
            Self::Tsv => Some(VectorFormat::Text(TableFormat::Tsv)),
            Self::Csv => Some(VectorFormat::Text(TableFormat::Csv)),
        }
    }

    /// Checks that a column is only named where one is written.
    pub(crate) fn check(self, column: Option<&str>) -> Result<(), Fault> {
        if self == Self::Parquet && column.is_some() {
            return Err(Fault::usage(
                "--column: expected --format npy, tsv or csv with it",
            ));
        }
        Ok(())
    }
}

/// The vectors of a column, and where they are written.
pub(crate) struct Vectors<'a> {
    pub(crate) format: VectorFormat,
    pub(crate) column: Option<&'a str>,
    /// The rows that are written, by their ids, and whether some may be missing; all by default.
    pub(crate) ids: Option<(&'a AskedIds, bool)>,
    pub(crate) out: &'a Path,
    pub(crate) force: bool,
}

impl Vectors<'_> {
    /// Writes them. No output is a file of the dataset or one of `others`.
    pub(crate) fn write(
        &self,
        opened: &OpenedDataset,
        others: &[NamedPath],
        advance: impl FnMut(u64),
        stop: &Stop,
    ) -> Result<(), Fault> {
        let (out, ids) = (self.out, ids_beside(self.out));
        let is_matrix = self.format == VectorFormat::Npy;
        let outputs = [("--out", out), ("--out", &*ids)];
        let outputs = if is_matrix {
            &outputs[..]
        } else {
            &outputs[..1]
        };
        keep_dataset(opened, others, outputs)?;
        keep_data(outputs)?;
        // Two matrices would have one file of ids.
        if is_matrix && out.extension().is_none_or(|found| found != "npy") {
            let out = path_text(out);
            let what = format!("--out {out}: expected a name that ends with .npy");
            return Err(Fault::usage(what));
        }
        let config = VectorsConfig {
            format: self.format,
            column: self.column,
            ids: self.ids,
            out,
            force: self.force,
        };
        let written = write_vectors(&opened.parts, &config, advance, stop);
        let rows = written.map_err(|error| opened.explain(error, stop))?;
        let outputs: Vec<_> = outputs.iter().map(|(_, path)| path_text(path)).collect();
        tracing::info!("{}: {}", outputs.join(", "), plural(rows, "row"));
        Ok(())
    }
}
