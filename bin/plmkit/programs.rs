//! The options of each program, from those of the run.

use std::num::NonZero;
use std::path::Path;
use std::time::Duration;

use plmkit_cli::ProgressMode;
use plmkit_esm2::Device;
use plmkit_programs::{fasta_shard, gpu_embed, pack_batches, validate_embeddings};

use crate::args::{Args, Stage};
use crate::layout::digests_file;

/// The command lines of the four programs that have options. The files of a step are named later.
pub(crate) struct Programs {
    pub(crate) fasta_shard: fasta_shard::Args,
    pub(crate) pack_batches: pack_batches::Args,
    pub(crate) gpu_embed: gpu_embed::Args,
    pub(crate) validate_embeddings: validate_embeddings::Args,
}

impl Programs {
    pub(crate) fn new(args: &Args) -> Self {
        let threads = args.gpu_embed.computation.threads.and_then(NonZero::new);
        let common = || args.common.clone();
        let (out, options) = (args.out.clone(), args.fasta_shard.clone());
        let mut fasta_shard = fasta_shard::Args::new(out, options, threads, common());
        fasta_shard.max_shard_tokens = Some(args.max_shard_tokens);
        fasta_shard.allow_empty = args.allow_empty;
        let pack_batches = pack_batches::Args {
            shard: args.out.clone(),
            out: args.out.clone(),
            report: None,
            force: false,
            batch_size: None,
            options: args.pack_batches.clone(),
            common: common(),
        };
        let model = args.model.clone().into();
        let mut gpu_embed = gpu_embed::Args::new(model, args.gpu_embed.clone(), common());
        gpu_embed.download = args.download;
        gpu_embed.digests = Some(digests_file(&args.out));
        let threads = threads.map(NonZero::from);
        let options = args.validate_embeddings.clone();
        let mut validate_embeddings = validate_embeddings::Args::new(options, threads, common());
        validate_embeddings.model = Some(args.model.clone().into());
        validate_embeddings.allow_empty = args.allow_empty;
        Self {
            fasta_shard,
            pack_batches,
            gpu_embed,
            validate_embeddings,
        }
    }

    /// Whether the options say how large a batch is.
    pub(crate) fn has_batch_size(&self) -> bool {
        self.pack_batches.options.max_batch_tokens.is_some()
    }

    /// All that decides a sample and its verdict, of a model with this digest, whatever the paths are called. Defaults written out are
    /// the same, and so is what changes no value.
    pub(crate) fn settings(&self, model: &str) -> String {
        let mut embed = self.gpu_embed.options.options.clone();
        let computation = &mut embed.computation;
        (computation.threads, computation.prefetch) = (None, 0);
        computation.progress = ProgressMode::None;
        (embed.model_name, embed.checkpoint_interval) = (None, Duration::ZERO);
        embed.wait_for_lock = false;
        let (cut, validate) = (&self.fasta_shard, &self.validate_embeddings);
        let shards = (cut.max_shard_tokens, &cut.options.options, cut.allow_empty);
        let description = self.pack_batches.options.description;
        let verdict = (&validate.options.options, validate.allow_empty);
        format!("{:?}", (model, shards, description, embed, verdict))
    }

    /// The kind of device that is asked for, as embeddings name it.
    pub(crate) fn asked_device(&self) -> Option<String> {
        let kind = match self.gpu_embed.options.computation.device {
            Device::Auto => return None,
            Device::Cpu => "cpu",
            _ => "cuda",
        };
        Some(kind.to_owned())
    }

    /// The options for the model of a stage: one that computes nothing may run where the device is not.
    pub(crate) fn model_args(&self, stage: Option<Stage>) -> gpu_embed::Args {
        let mut args = self.gpu_embed.clone();
        let asked = &mut args.options.computation;
        if !matches!(stage, None | Some(Stage::Embed)) {
            (asked.device, asked.dtype) = (Device::Auto, None);
        } else if asked.device == Device::All {
            asked.device = Device::Cuda(0);
        }
        args
    }

    /// The options of fasta-shard for a sample.
    pub(crate) fn shard_args(&self, out: &Path, sample: &str) -> fasta_shard::Args {
        let mut options = self.fasta_shard.clone();
        options.sample = Some(sample.to_owned());
        options.out = out.join(sample).join("shards");
        options
    }
}
