//! A run, and what its stages share.

use std::collections::BTreeSet;
use std::path::PathBuf;

use plmkit_cli::{Exit, Fault, Stop};
use plmkit_programs::gpu_embed::{Request, Session};
use plmkit_store::{StoreError, write_json};

use crate::args::Args;
use crate::computer::Computer;
use crate::layout::{BATCH_SIZE_FILE, params_file};
use crate::params::Params;
use crate::programs::Programs;
use crate::samples::Sample;
use crate::versions::write_versions;

/// All that a run is asked for, checked.
pub(crate) struct Run {
    pub(crate) args: Args,
    pub(crate) programs: Programs,
    /// Whether there are embeddings of other settings, to be made again.
    pub(crate) replaces_embeddings: bool,
    /// The parameters, as one text.
    pub(crate) parameters: String,
    /// The samples with a verdict that holds, see [`Judged`](crate::finished::Judged).
    pub(crate) finished: BTreeSet<String>,
    pub(crate) samples: Vec<Sample>,
    /// Why the device is not there, if it is not.
    pub(crate) unavailable: Option<Fault>,
    pub(crate) stop: Stop,
}

impl Run {
    /// Writes how the results are made, before they are.
    pub(crate) fn write_start(&self, session: &Session) -> Result<(), Fault> {
        let args = &self.args;
        let params = Params::new(args, session);
        let path = params_file(&args.out);
        let info = path.parent().unwrap_or(&args.out);
        std::fs::create_dir_all(info).map_err(StoreError::cannot_create(info))?;
        write_json(&path, &params)?;
        session.engine().write_digests();
        write_versions(&args.out, &args.model, &self.stop)
    }

    /// Whether no stop was requested.
    pub(crate) fn check_stop(&self) -> Result<(), Fault> {
        if self.stop.requested() {
            let what = "stopped; run the same command to resume";
            return Err(Fault::new(Exit::Transient, what));
        }
        Ok(())
    }

    /// The file with the measured size of a batch.
    pub(crate) fn batch_size_file(&self) -> PathBuf {
        self.args.out.join(BATCH_SIZE_FILE)
    }

    /// Measures the size of a batch, unless the options say it.
    pub(crate) fn measure_batch_size(&self, computer: &mut Computer<'_>) -> Result<(), Fault> {
        if !self.programs.has_batch_size() {
            let out = self.batch_size_file();
            let request = Request::Probe { out };
            computer.answer(&self.programs.gpu_embed, &request, &self.stop, &mut |_| {})?;
        }
        self.check_stop()
    }
}
