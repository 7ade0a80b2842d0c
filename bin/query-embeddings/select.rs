//! `query-embeddings select`.

use std::io::BufRead;
use std::path::{Path, PathBuf};

use clap::builder::TypedValueParser;
use plmkit_cli::{Exit, Fault, NamedPath, Stop, file, keep_renameable};
use plmkit_contract::{path_text, plural};
use plmkit_dataset::{AskedIds, DatasetFolder, check_outside, select};
use plmkit_sequence::{Input, ShardError, Source};
use plmkit_store::StoreError;

use crate::keep_dataset;

/// Write the rows of some proteins to one embeddings file, in the order of the input
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("asked").required(true).multiple(true).args(["ids", "fasta", "id"])))]
pub(crate) struct SelectArgs {
    /// Folder of a sample's results, its dataset.json, or an embeddings file
    #[arg(value_name = "DATASET", value_parser = file().map(DatasetFolder::new))]
    dataset: DatasetFolder,

    /// File with one id a line, as it stands; may be compressed
    #[arg(long, value_name = "FILE", value_parser = file())]
    ids: Option<PathBuf>,

    /// FASTA file whose ids are taken; may be compressed
    #[arg(long, value_name = "FILE", value_parser = file())]
    fasta: Option<PathBuf>,

    /// An id; may be repeated
    #[arg(long, value_name = "ID")]
    id: Vec<String>,

    /// Embeddings file to write; an existing one of the same rows is verified and kept
    #[arg(long, value_name = "FILE.parquet", value_parser = file())]
    out: PathBuf,

    /// Leave out ids that the dataset does not have, instead of failing
    #[arg(long)]
    allow_missing: bool,

    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
}

impl SelectArgs {
    pub(crate) fn run(self, stop: &Stop) -> Result<Exit, Fault> {
        let outputs: [NamedPath; 1] = [("--out", &self.out)];
        keep_renameable(&outputs)?;
        let mut ids = AskedIds::default();
        self.id.iter().for_each(|id| _ = ids.add(id));
        for (list, is_fasta) in [(&self.ids, false), (&self.fasta, true)] {
            if let Some(path) = list {
                read_ids(path, is_fasta, &mut ids, stop)?;
            }
        }
        let opened = self.dataset.open_passed(stop)?;
        let lists = [("--ids", &self.ids), ("--fasta", &self.fasta)].into_iter();
        let lists = lists.filter_map(|(name, list)| Some((name, list.as_deref()?)));
        keep_dataset(&opened, &lists.collect::<Vec<NamedPath>>(), &outputs)?;
        check_outside(&self.out, self.dataset.path())?;
        let options = (self.allow_missing, self.force);
        let selected = select(&opened.parts, &ids, &self.out, options, stop);
        let selected = selected.map_err(|error| opened.explain(error, stop))?;
        let out = path_text(&self.out);
        let rows = plural(selected.rows, "row");
        if selected.existing {
            tracing::info!(
                "{out}: already complete: the same rows of the same dataset, {rows} verified"
            );
        } else {
            tracing::info!(
                "{out}: {rows} of {}",
                plural(ids.in_order().len() as u64, "id")
            );
        }
        Ok(Exit::Done)
    }
}

/// Adds the ids of a list, or of a FASTA file. A byte-order mark at its beginning is no part of the first.
fn read_ids(path: &Path, is_fasta: bool, ids: &mut AskedIds, stop: &Stop) -> Result<(), Fault> {
    let mut source = Source::open(&Input::File(path.to_owned()), stop)?;
    let bad = |what: String| Fault::new(Exit::Data, format!("{}: {what}", path_text(path)));
    let (mut line, mut number) = (Vec::new(), 0_u64);
    loop {
        line.clear();
        let read = source.read_until(b'\n', &mut line);
        let read = read.map_err(|error| match error.downcast::<ShardError>() {
            Ok(error) => Fault::from(error),
            Err(error) => StoreError::cannot_read(path)(error).into(),
        })?;
        if read == 0 {
            break;
        }
        number += 1;
        let text = match line.strip_prefix("\u{feff}".as_bytes()) {
            Some(text) if number == 1 => text,
            _ => &line,
        };
        let id = match text.trim_ascii() {
            text if !is_fasta => text,
            text => {
                let header = text.strip_prefix(b">").unwrap_or_default();
                let mut words = header.split(u8::is_ascii_whitespace);
                words.next().unwrap_or_default()
            }
        };
        let id = str::from_utf8(id);
        let id = id.map_err(|_| bad(format!("line {number}: expected an id in UTF-8")))?;
        if !id.is_empty() {
            ids.add(id);
        }
    }
    if ids.in_order().is_empty() {
        let expected = if is_fasta {
            "FASTA"
        } else {
            "one id on each line"
        };
        return Err(bad(format!("expected {expected}, found no id")));
    }
    Ok(())
}
