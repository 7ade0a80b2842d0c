//! `versions.yml`: the versions of the programs and the revision of the model.

use std::fmt::Write;
use std::path::Path;

use plmkit_cli::Fault;
use plmkit_store::write_report;

use crate::model::Model;
use crate::programs::{PROGRAMS, Programs};

/// The name of the file, in a folder of results.
pub(crate) const VERSIONS_FILE: &str = "versions.yml";

/// The versions of the programs, of which each has been asked.
pub(crate) struct Versions(String);

impl Versions {
    pub(crate) fn ask(programs: &Programs) -> Result<Self, Fault> {
        let mut text = "plmkit:\n".to_owned();
        for program in PROGRAMS {
            let said = programs.output(program, ["--version"])?;
            let version = said.rsplit(' ').next().unwrap_or_default();
            let _ = writeln!(text, "  {program}: {version}");
        }
        Ok(Self(text))
    }

    /// Writes the file. A model that was fetched has a revision only afterwards.
    pub(crate) fn write(
        &self,
        outdir: &Path,
        model: &Model,
        programs: &Programs,
    ) -> Result<(), Fault> {
        let mut text = self.0.clone();
        if let Some(revision) = model.revision(programs.stop()) {
            let _ = writeln!(text, "Model:\n  {}: {revision}", model.name);
        }
        Ok(write_report(&outdir.join(VERSIONS_FILE), &text)?)
    }
}
