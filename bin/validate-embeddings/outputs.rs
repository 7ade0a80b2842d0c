//! How verdicts are judged, and where they go.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use plmkit_check::{Criteria, Findings, parse_share};
use plmkit_cli::{Exit, Fault, NamedPath, keep_apart, keep_data};
use plmkit_dataset::has_shards;
use plmkit_store::{write_json, write_report};

use crate::dataset::write_verdict;
use crate::html::html;
use crate::log::log_verdict;
use crate::mqc::table;
use crate::report::Report;

/// What the user expects, and what does not matter.
#[derive(Debug, clap::Args)]
pub(crate) struct Judging {
    /// Largest accepted share of rejected records, such as 1% [default: 5%]
    #[arg(long, value_name = "SHARE", help_heading = "Expectations", value_parser = parse_share)]
    pub(crate) max_rejected: Option<f64>,

    /// Accept a set without rows: every record is rejected, or there is none
    #[arg(long, help_heading = "Expectations")]
    pub(crate) allow_empty: bool,

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
}

/// Where a verdict goes.
#[derive(Debug, clap::Args)]
pub(crate) struct Outputs {
    /// Write the verdict as JSON; - is standard output
    #[arg(long, value_name = "FILE.json", help_heading = "Output")]
    pub(crate) report: Option<PathBuf>,

    /// Write the verdict as a page: one HTML file that opens without a network; - is standard output
    ///
    /// What failed, and what to do about it; the spot check, the agreement with a reference, and the origin; what was checked
    /// and what was not.
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    pub(crate) html: Option<PathBuf>,

    #[arg(long, value_name = "FILE_mqc.json", help_heading = "Output")]
    #[arg(help = "Write the verdict as a MultiQC table; the file's name gives the sample's name")]
    pub(crate) mqc: Option<PathBuf>,
}

impl Outputs {
    /// The files, with their options.
    pub(crate) fn named(&self) -> Vec<NamedPath<'_>> {
        let outputs = [
            ("--report", &self.report),
            ("--mqc", &self.mqc),
            ("--html", &self.html),
        ];
        let outputs = outputs.into_iter();
        outputs
            .filter_map(|(name, path)| Some((name, path.as_deref()?)))
            .collect()
    }

    /// Checks that no output is an input, another output or a data file.
    pub(crate) fn keep_apart(&self, inputs: &[NamedPath]) -> Result<(), Fault> {
        let outputs = self.named();
        keep_apart(inputs, &outputs)?;
        keep_data(&outputs, None)
    }

    /// Judges what was found, and writes the verdict: into the dataset, too, if the embeddings are one.
    pub(crate) fn conclude(
        &self,
        findings: &Findings,
        criteria: &Criteria,
        judging: &Judging,
        dataset: Option<&Path>,
    ) -> Result<Exit, Fault> {
        let mut verdict = findings.verdict(criteria);
        let skipped = judging.skip.iter().filter_map(ValueEnum::to_possible_value);
        for check in skipped {
            verdict.skip(check.get_name(), "switched off by --skip");
        }
        let report = &Report::new(findings, criteria, verdict);
        if let Some(path) = &self.report {
            write_json(path, &report.listed)?;
        }
        if let Some(path) = &self.mqc {
            write_json(path, &table(path, report))?;
        }
        if let Some(path) = &self.html {
            write_report(path, &html(report))?;
        }
        // Before the folder is written to: that of an archive may not be writable.
        log_verdict(report);
        // Without shards there is less to say than what it says already.
        if let Some(dataset) = dataset.filter(|dataset| has_shards(dataset)) {
            write_verdict(dataset, &report.listed)?;
        }
        Ok(if report.verdict.passed() {
            Exit::Done
        } else {
            Exit::Negative
        })
    }
}
