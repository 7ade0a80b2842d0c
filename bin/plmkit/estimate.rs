//! What it will cost to embed on GPUs.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::plan::Sample;
use crate::run::Run;
use crate::sample::SampleFolder;

impl Run {
    /// Tells what it will cost to embed on GPUs, if nothing is embedded yet. A run without an estimate goes on.
    pub(crate) fn estimate(&self, samples: &[&Sample]) {
        let options = &self.options.gpu_embed;
        // How many positions are masked is not known here.
        if options.computation()[0] == "cpu" || options.has("--scores-positions") {
            return;
        }
        let is_new = |sample: &&&Sample| {
            let folder = SampleFolder::new(self, sample);
            let manifest = folder.manifest();
            manifest.is_ok_and(|manifest| {
                !manifest
                    .shards
                    .iter()
                    .any(|shard| folder.is_embedded(shard))
            })
        };
        let new: Vec<_> = samples.iter().filter(is_new).collect();
        if new.is_empty() {
            return;
        }
        let model = format!("--model={}", self.model.name);
        let mut arguments = vec!["estimate", &model];
        for (name, value) in options.options() {
            match name {
                "--scores" if value.is_empty() => arguments.push(name),
                "--pool" | "--layers" | "--store-dtype" | "--scores" => {
                    arguments.extend([name, value]);
                }
                "--dtype" if value != "int8" => arguments.extend([name, value]),
                "--residues" | "--logits" | "--contacts" => arguments.push(name),
                _ => {}
            }
        }
        arguments.push("--");
        let shards = new
            .iter()
            .map(|sample| self.args.out.join(&sample.name).join("shards"));
        let shards = shards.map(PathBuf::into_os_string);
        let arguments = arguments.into_iter().map(OsString::from).chain(shards);
        match self.programs.output("monitor-log", arguments) {
            Ok(said) => said.lines().for_each(|line| tracing::info!("{line}")),
            Err(fault) => tracing::warn!("no estimate: {}", fault.message()),
        }
    }
}
