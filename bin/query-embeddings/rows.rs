//! Rows of a dataset in one file.

use std::path::Path;

use plmkit_cli::{Fault, NamedPath, Stop};
use plmkit_dataset::{Dataset, RowFormat, RowsConfig, ids_beside, write_rows};
use plmkit_kit::{path_text, plural};
use plmkit_store::{FileKind, Replaceable, has_as_many};

use crate::ids::warn_of_several;
use crate::open;

/// Checks that a column is only named where one is written.
pub(crate) fn check_column(format: RowFormat, column: Option<&str>) -> Result<(), Fault> {
    if format == RowFormat::Parquet && column.is_some() {
        return Err(Fault::usage(
            "--column: expected --format npy, tsv or csv with it",
        ));
    }
    Ok(())
}

/// Writes rows of a dataset, which is returned. No output is one of its files or of `others`. `advance` is told the rows as they are
/// written, and the number of all.
pub(crate) fn write(
    config: &RowsConfig<'_>,
    dataset: &Path,
    others: &[NamedPath],
    mut advance: impl FnMut(u64, u64),
    stop: &Stop,
) -> Result<Dataset, Fault> {
    check_column(config.format, config.column)?;
    let (out, ids) = (config.out, ids_beside(config.out));
    let is_matrix = config.format == RowFormat::Npy;
    let outputs = [("--out", out), ("--out", &*ids)];
    let outputs = &outputs[..if is_matrix { 2 } else { 1 }];
    let own = match config.format {
        RowFormat::Parquet => Replaceable::Whole(FileKind::Embeddings),
        RowFormat::Npy => Replaceable::Starts(b"\x93NUMPY"),
        // The last columns are the values of a vector.
        RowFormat::Tsv | RowFormat::Csv => Replaceable::Lines(None, |first, line| {
            let is_own = ["ordinal\tid\tstart\t", "ordinal,id,start,"];
            let is_own = is_own.iter().any(|start| first.starts_with(start));
            is_own
                && first.ends_with(|last: char| last.is_ascii_digit())
                && has_as_many(first, line)
        }),
    };
    // No id has a blank.
    let is_id = |_: &str, line: &str| !line.contains(char::is_whitespace);
    let own = [own, Replaceable::Lines(None, is_id)];
    let opened = open(dataset, others, outputs, &own, stop)?;
    // Two matrices would have one file of ids.
    if is_matrix && out.extension().is_none_or(|found| found != "npy") {
        let out = path_text(out);
        let what = format!("--out {out}: expected a name that ends with .npy");
        return Err(Fault::usage(what));
    }
    let all = opened.rows();
    let ids = config.ids.map(|ids| ids.resolve(&opened, stop));
    let ids = ids.transpose()?;
    let config = &RowsConfig {
        ids: ids.as_ref(),
        ..*config
    };
    let (rows, existing) = write_rows(&opened, config, |rows| advance(rows, all), stop)?;
    ids.iter().for_each(warn_of_several);
    let outputs: Vec<_> = outputs.iter().map(|(_, path)| path_text(path)).collect();
    let (outputs, rows) = (outputs.join(", "), plural(rows, "row"));
    if existing {
        tracing::info!(
            "{outputs}: already complete: the same rows of the same dataset, {rows} verified"
        );
    } else if let Some(ids) = config.ids.filter(|_| config.format == RowFormat::Parquet) {
        let ids = plural(ids.in_order().len() as u64, "id");
        tracing::info!("{outputs}: {rows} of {ids}");
    } else {
        tracing::info!("{outputs}: {rows}");
    }
    Ok(opened)
}
