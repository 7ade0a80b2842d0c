//! How verdicts are judged, and where they go.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use clap::ValueEnum;
use plmkit_check::{Expectations, MapSample};
use plmkit_cli::{Exit, Fault, NamedPath, file};
use plmkit_contract::path_text;
use plmkit_store::{write_json, write_report};

use crate::classes::Classes;
use crate::html::html;
use crate::mqc::table;
use crate::report::VerdictReport;

/// The first bytes of Parquet and Arrow files.
const DATA: [&[u8]; 2] = [b"PAR1", b"ARROW1"];

/// What the user expects, and what does not matter.
#[derive(Debug, clap::Args)]
pub(crate) struct Judging {
    /// What every file must be: model=NAME or 8 digits of its digest, dtype=, columns=A+B, max-rejected=1%
    ///
    /// Entries are separated by commas; of two for one thing the last holds. Without max-rejected any share of the records may
    /// be rejected, but not all of them: an empty set passes only with max-rejected=100%.
    #[arg(long, value_name = "NAME=VALUE,…", help_heading = "Expectations")]
    pub(crate) expect: Vec<Expectations>,

    /// Switch off a check of values
    #[arg(
        long,
        value_name = "CHECK",
        value_delimiter = ',',
        help_heading = "Expectations"
    )]
    pub(crate) skip: Vec<Optional>,
}

/// A check of values that has false alarms where data are unusual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Optional {
    /// Whether the columns of a row fit together
    Pooling,
    /// Whether equal sequences have equal vectors, and others have not
    Sequences,
    /// Whether a dimension never changes
    Constant,
    /// Whether a vector is unlike others of its length
    Outliers,
    /// Whether a file is unlike the other files
    Centres,
}

/// Where a verdict goes.
#[derive(Debug, clap::Args)]
pub(crate) struct Outputs {
    /// Write the verdict as JSON; - is standard output
    #[arg(long, value_name = "FILE.json", help_heading = "Output")]
    pub(crate) report: Option<PathBuf>,

    /// Write the verdict as a page: one HTML file that opens without a network; - is standard output
    ///
    /// What was checked and what was not, lengths, norms, a map of a sample of the vectors, the rows and files that are
    /// most unlike the others.
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    pub(crate) html: Option<PathBuf>,

    /// Colour the map of the page by a table with a header: a column id, and one of classes; tabs in .tsv
    #[arg(
        long,
        value_name = "FILE.csv",
        requires = "html",
        help_heading = "Output"
    )]
    #[arg(value_parser = file())]
    pub(crate) colour_by: Option<PathBuf>,

    #[arg(long, value_name = "FILE_mqc.json", help_heading = "Output")]
    #[arg(help = "Write the verdict as a MultiQC table; the file's name gives the sample's name")]
    pub(crate) mqc: Option<PathBuf>,

    /// Write what was found, for a verdict on all files of a set by validate-embeddings merge
    ///
    /// Then these files are a part of the set. Checks that only the whole set can pass are skipped: ordinals, manifest,
    /// expectations.
    #[arg(long, value_name = "FILE", help_heading = "Output", value_parser = file())]
    pub(crate) findings: Option<PathBuf>,
}

impl Judging {
    /// All expectations; of two for one thing the last.
    pub(crate) fn expectations(&self) -> Expectations {
        let all = self.expect.iter().cloned();
        all.fold(Expectations::default(), Expectations::and)
    }
}

impl Outputs {
    /// The files, with their options.
    pub(crate) fn named(&self) -> Vec<NamedPath<'_>> {
        let outputs = [
            ("--report", &self.report),
            ("--mqc", &self.mqc),
            ("--html", &self.html),
            ("--findings", &self.findings),
        ];
        let outputs = outputs.into_iter();
        outputs
            .filter_map(|(name, path)| Some((name, path.as_deref()?)))
            .collect()
    }

    /// Checks that no output is a data file of another program.
    pub(crate) fn check_replaced(&self) -> Result<(), Fault> {
        for (option, path) in self.named() {
            let mut head = Vec::new();
            let is_file = path.metadata().is_ok_and(|found| found.is_file());
            let opened = is_file.then(|| File::open(path).ok()).flatten();
            let _ = opened.map(|file| file.take(6).read_to_end(&mut head));
            if DATA.iter().any(|magic| head.starts_with(magic)) {
                let what = format!(
                    "{option} {}: exists, and is a data file, not a report",
                    path_text(path)
                );
                return Err(Fault::new(Exit::CannotCreate, what));
            }
        }
        Ok(())
    }

    /// Checks that a part of a set is not judged as a whole: by `--expect` or by these options, if they are given.
    pub(crate) fn check_part(
        &self,
        judging: &Judging,
        options: &[(&str, bool)],
    ) -> Result<(), Fault> {
        let expect = ("--expect", !judging.expect.is_empty());
        let mut given = options.iter().chain([&expect]).filter(|(_, given)| *given);
        match (&self.findings, given.next()) {
            (Some(_), Some((option, _))) => Err(Fault::usage(format!(
                "--findings is for a part of a set, {option} for all of it: validate-embeddings merge judges all parts"
            ))),
            _ => Ok(()),
        }
    }

    /// Writes the verdict, and a sample of the vectors.
    pub(crate) fn write(&self, report: &VerdictReport, map: &MapSample) -> Result<(), Fault> {
        if let Some(path) = &self.report {
            write_json(path, report)?;
        }
        if let Some(path) = &self.mqc {
            write_json(path, &table(path, report))?;
        }
        if let Some(path) = &self.html {
            let classes = self.colour_by.as_deref().map_or_else(
                || Ok(Classes::of_lengths()),
                |table| Classes::read(table, map),
            )?;
            write_report(path, &html(report, map, &classes))?;
        }
        Ok(())
    }
}
