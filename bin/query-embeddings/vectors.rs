//! The vectors of one column, in formats of other programs.

use plmkit_cli::{Fault, NamedPath, Stop};
use plmkit_contract::{path_text, plural};
use plmkit_dataset::{OpenedDataset, RowFormat, VectorsConfig, ids_beside, write_vectors};

use crate::keep_dataset;

/// Checks that a column is only named where one is written.
pub(crate) fn check_column(format: RowFormat, column: Option<&str>) -> Result<(), Fault> {
    if format == RowFormat::Parquet && column.is_some() {
        return Err(Fault::usage(
            "--column: expected --format npy, tsv or csv with it",
        ));
    }
    Ok(())
}

/// Writes vectors. No output is a file of the dataset or one of `others`.
pub(crate) fn write(
    config: &VectorsConfig<'_>,
    opened: &OpenedDataset,
    others: &[NamedPath],
    advance: impl FnMut(u64),
    stop: &Stop,
) -> Result<(), Fault> {
    let (out, ids) = (config.out, ids_beside(config.out));
    let is_matrix = config.format == RowFormat::Npy;
    let outputs = [("--out", out), ("--out", &*ids)];
    let outputs = &outputs[..if is_matrix { 2 } else { 1 }];
    keep_dataset(opened, others, outputs, false)?;
    // Two matrices would have one file of ids.
    if is_matrix && out.extension().is_none_or(|found| found != "npy") {
        let out = path_text(out);
        let what = format!("--out {out}: expected a name that ends with .npy");
        return Err(Fault::usage(what));
    }
    let written = write_vectors(&opened.parts, config, advance, stop);
    let rows = written.map_err(|error| opened.explain(error, stop))?;
    let outputs: Vec<_> = outputs.iter().map(|(_, path)| path_text(path)).collect();
    tracing::info!("{}: {}", outputs.join(", "), plural(rows, "row"));
    Ok(())
}
