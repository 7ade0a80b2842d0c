//! What it will cost to embed on GPUs.

use std::path::Path;

use plmkit_contract::path_text;

use crate::plan::Sample;
use crate::run::Run;
use crate::sample::SampleFolder;

impl Run {
    /// Tells what it will cost to embed on GPUs, if nothing is embedded yet. A run without an estimate goes on.
    pub(crate) fn estimate(&self, samples: &[&Sample]) {
        let device = self
            .options
            .gpu_embed
            .values("--device")
            .last()
            .unwrap_or("auto");
        let has_driver = Path::new("/proc/driver/nvidia/version").exists();
        let is_new = |sample: &&&Sample| {
            let folder = SampleFolder::new(self, sample);
            folder.manifest().is_ok_and(|manifest| {
                !manifest
                    .shards
                    .iter()
                    .any(|shard| folder.is_embedded(shard))
            })
        };
        let new: Vec<_> = samples.iter().filter(is_new).collect();
        if new.is_empty() || device == "cpu" || (device == "auto" && !has_driver) {
            return;
        }
        let mut arguments = vec![
            "estimate".to_owned(),
            "--model".to_owned(),
            self.model.name.clone(),
        ];
        for (name, value) in self.options.gpu_embed.options() {
            match name {
                "--pool" | "--layers" | "--store-dtype" => {
                    arguments.extend([name.to_owned(), value.to_owned()]);
                }
                "--dtype" if value != "int8" => {
                    arguments.extend([name.to_owned(), value.to_owned()]);
                }
                "--residues" | "--logits" | "--contacts" => arguments.push(name.to_owned()),
                _ => {}
            }
        }
        arguments.push("--".to_owned());
        let shards = new
            .iter()
            .map(|sample| self.args.out.join(&sample.name).join("shards"));
        arguments.extend(shards.map(|shards| path_text(&shards)));
        match self.programs.output("monitor-log", arguments) {
            Ok(said) => said.lines().for_each(|line| tracing::info!("{line}")),
            Err(fault) => tracing::warn!("no estimate: {}", fault.message()),
        }
    }
}
