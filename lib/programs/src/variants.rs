//! Tables of variants: `plmkit variants` and `query-embeddings variants` read and write them.

use std::path::{Path, PathBuf};

use plmkit_cli::{Exit, Fault, NamedPath, Stop, file, print};
use plmkit_dataset::{Sites, Table, Unscored, check_outside};
use plmkit_kit::{Quoted, path_text, plural};
use plmkit_sequence::Source;
use plmkit_store::{AtomicFile, Replaceable, StoreError, read_input};

/// A table, and where it is.
pub type Read<'a> = (&'a Path, &'a Table);
/// The score of each line of a table, or why it has none.
pub type Scores = Vec<Result<f64, Unscored>>;

/// What a table may replace: text. Whether it has the same columns, [`TableArgs::output`] tells.
pub const EARLIER: Replaceable<'static> = Replaceable::Lines(None, |_, _| true);

/// How a table of variants is read and written.
#[derive(Debug, clap::Args)]
pub struct TableArgs {
    /// Column of the variants [default: the first of `mutant`, `variant`, `mutation`, `hgvs_p`, `hgvsp`, `hgvs_pro`, `hgvsp_short`]
    #[arg(long, value_name = "NAME")]
    column: Option<String>,

    /// Column of the proteins' ids; '' if all lines are of the only protein [default: the first of `protein_id`, `protein`, `seq_id`, `uniprot_id`, `id`, `target`]
    #[arg(long, value_name = "NAME")]
    id_column: Option<String>,

    /// Refuse a table with a wrong line, instead of giving the line a reason: one that cannot be read, of an unknown protein, or
    /// with a residue or a position that the protein does not have
    #[arg(long)]
    strict: bool,

    /// Table to write, CSV or TSV by its extension [default: standard output, in the format of the input]
    #[arg(long, value_name = "FILE", value_parser = file())]
    out: Option<PathBuf>,

    /// Overwrite an existing table
    #[arg(long)]
    force: bool,
}

impl TableArgs {
    /// Reads a table, which may be compressed, of an `only` protein or with a column of ids.
    pub fn read(&self, path: &Path, only: Option<&str>, stop: &Stop) -> Result<Table, Fault> {
        let mut text = Vec::new();
        Source::open(path, stop)?.fill(&mut text, usize::MAX)?;
        let columns = [&self.column, &self.id_column].map(Option::as_deref);
        let table = Table::read(&text, columns, only);
        Ok(table.map_err(|what| StoreError::malformed(path, what))?)
    }

    /// The file to write, if there is one.
    pub fn outputs(&self) -> Vec<NamedPath<'_>> {
        self.out.iter().map(|path| ("--out", &**path)).collect()
    }

    /// Begins the file.
    ///
    /// # Errors
    /// Its name ends with the format of another table, or it exists, and is no such table with scores or not to be overwritten.
    pub fn output(&self, table: &Table) -> Result<Option<AtomicFile>, Fault> {
        let Some(path) = self.out.as_deref() else {
            return Ok(None);
        };
        let extension = path.extension();
        if extension.is_some_and(|name| name != "csv" && name != "tsv") {
            let what = "expected a name that ends with .csv or .tsv";
            return Err(Fault::usage(format!("--out {}: {what}", path_text(path))));
        }
        check_outside(path, "".as_ref())?;
        if path.metadata().is_ok_and(|found| found.len() > 0)
            && !table.has_written(&read_input(path)?)
        {
            let what = "exists, and is not this table with scores, which nothing replaces";
            let what = format!("--out {}: {what}", path_text(path));
            return Err(Fault::new(Exit::CannotCreate, what));
        }
        if path.exists() && !self.force {
            let path = path.to_owned();
            return Err(StoreError::Written { path }.into());
        }
        Ok(Some(AtomicFile::create(path)?))
    }

    /// The score of each line, or the reason why it has none. The first wrong line may be an error.
    pub fn scores(&self, (path, table): Read<'_>, sites: &Sites) -> Result<Scores, Fault> {
        let lines = table.lines.iter().map(|(line, variant, _)| {
            let variant = variant.as_ref().map_err(Unscored::clone);
            let score = variant.and_then(|variant| sites.score(&line.id, variant));
            match score {
                Err(Unscored::Wrong(what)) if self.strict => Err(line.error(path, what).into()),
                score => Ok(score),
            }
        });
        lines.collect()
    }

    /// Writes the table with its scores, CSV or TSV by the name of the file. Tells how many there are, and the first wrong line. Returns
    /// how the program ends that would end so.
    pub fn write(
        &self,
        out: Option<AtomicFile>,
        (path, table): Read<'_>,
        sites: &Sites,
        exit: Exit,
    ) -> Result<Exit, Fault> {
        let scores = self.scores((path, table), sites)?;
        let name = self.out.as_ref().and_then(|path| path.extension());
        let mut names = ["csv", "tsv"].iter();
        let place = names.position(|own| name == Some(own.as_ref()));
        let text = table.with(&scores, place.map(|place| b",\t"[place]));
        match out {
            Some(mut file) => file.append(&text).and_then(|()| file.finish())?,
            None => _ = print(text)?,
        }
        let (shown, lines) = (path_text(path), plural(scores.len() as u64, "line"));
        let with = scores.iter().flatten().count();
        tracing::info!("{shown}: {lines}, {with} with a score");
        if let Some((count, first)) = &table.others {
            let count = plural(*count, "line");
            tracing::warn!(
                "{shown}: {count} with another id before the variant, such as {}: scored on the protein of the line",
                Quoted(first)
            );
        }
        let lines = table.lines.iter().zip(&scores);
        let mut wrong = lines.filter_map(|((line, ..), score)| match score {
            Err(Unscored::Wrong(what)) => Some(line.error(path, what)),
            _ => None,
        });
        let Some(first) = wrong.next() else {
            return Ok(exit);
        };
        let (first, count) = (first.to_string(), 1 + wrong.count());
        let ids = table
            .ids
            .as_ref()
            .filter(|_| first.contains("': no protein '"));
        let ids = ids.map(|name| {
            format!(
                "; ids are of column {}: --id-column names another, or '' none",
                Quoted(name)
            )
        });
        let ids = ids.unwrap_or_default();
        tracing::warn!("{first}; the first of {count} that are wrong{ids}");
        Ok(Exit::Negative)
    }
}
