//! Computes a sample of the rows again, on the CPU in f32, by a model of its own: weights that are damaged in memory must not judge
//! themselves.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::env;
use std::fmt::Display;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plmkit_check::{EmbeddedFile, Recomputed};
use plmkit_cli::{Exit, Fault, Stop, default_threads};
use plmkit_contract::{
    AMINO_ACIDS, Column, Layers, Outputs, Pooling, Provenance, RowKey, SCORES, SOURCE, Scores,
    StoreDtype, WINDOWS,
};
use plmkit_engine::{Engine, Injection, Job, RunConfig, RunProgress, Windows};
use plmkit_esm2::{ComputeOptions, Device, Dtype};
use plmkit_hub::{Settings, model_name, resolve};
use plmkit_kit::path_text;
use plmkit_store::{EmbeddingsReader, StoreError};
use strum::VariantArray;
use tempfile::TempDir;
use tracing::dispatcher::{self, get_default};
use tracing::subscriber::{NoSubscriber, with_default};

use crate::pack_batches::pack_shard;

use super::progress::{Progress, Report};
use super::rows::each_row;
use super::spot_sample::SpotSample;

/// The model of a spot check. One sample after the other may use it.
pub type SpotModel = Option<(RunConfig, Engine)>;

/// A sample of embeddings that is to be computed again.
pub(crate) struct Recomputation<'a> {
    pub(crate) sample: &'a SpotSample<'a>,
    pub(crate) files: &'a [EmbeddedFile],
    /// Where the files are.
    pub(crate) paths: &'a [PathBuf],
    pub(crate) model: &'a Path,
    pub(crate) threads: Option<NonZero<usize>>,
    /// Where inputs and output of the computation are written.
    pub(crate) folder: &'a Path,
}

impl Recomputation<'_> {
    /// Computes the rows, with the model in `spot` if it is the same. Returns them, and the file in the folder that has them.
    pub(crate) fn run(
        &self,
        spot: &mut SpotModel,
        progress: Report<'_>,
        stop: &Stop,
    ) -> Result<(Recomputed, PathBuf), Fault> {
        let [shard, batches, positions, out] = [
            "shard.parquet",
            "batches.arrow",
            "positions.csv",
            "embeddings.parquet",
        ]
        .map(|name| self.folder.join(name));
        let chosen = self.sample.write(&shard)?;
        pack_shard(&shard, &batches, BATCH_TOKENS, false, true, stop)?;
        let first = self.files.first().map(|file| &file.provenance);
        let option = |name| first.and_then(|first| first.text_option(name));
        let scores = named::<Scores>(option(SCORES));
        let is_masked = scores == Some(Scores::Masked);
        if is_masked {
            let text = positions_again(self.files, self.paths, &chosen)?;
            fs::write(&positions, text)
                .map_err(|error| cannot(&format!("write positions: {error}")))?;
        }
        let located = resolve(self.model, &Settings::from_env(), None, stop)?;
        let config = RunConfig {
            model_name: model_name(&located),
            model: located,
            compute: ComputeOptions {
                device: Device::Cpu,
                dtype: Some(Dtype::F32),
                ..ComputeOptions::default()
            },
            outputs: outputs(self.files, scores),
            scores_positions: is_masked.then_some(positions),
            windows: named(option(WINDOWS)).unwrap_or(Windows::Stitch),
            store_dtype: StoreDtype::F32,
            checkpoint_interval: Duration::MAX,
            threads: self.threads.unwrap_or_else(default_threads),
            prefetch: 1,
            digests: None,
            injection: Injection::default(),
        };
        let job = Job {
            batches: vec![batches],
            out: out.clone(),
            force: true,
            ..Job::default()
        };
        let messages = get_default(Clone::clone);
        let tell = |told| dispatcher::with_default(&messages, || progress(told));
        let mut report = |told| match told {
            RunProgress::Started { tokens, .. } => tell(Progress::SpotCheck { tokens }),
            RunProgress::Advanced { tokens } => tell(Progress::SpotChecked { tokens }),
            RunProgress::Ended => {}
        };
        // Its messages are about files that nobody sees.
        let embedded = with_default(NoSubscriber::new(), || {
            let (_, engine) = match spot.take().filter(|(own, _)| *own == config) {
                Some(same) => spot.insert(same),
                None => spot.insert((config.clone(), Engine::new(config, stop)?)),
            };
            engine.embed(&job, stop, &mut report)
        });
        embedded.map_err(|error| {
            let fault = Fault::from(error);
            // The options are those of the embeddings: a layer that the model lacks is no error of the command line.
            let exit = match fault.exit() {
                Exit::Usage => Exit::Data,
                exit => exit,
            };
            Fault::new(exit, format!("spot check: {}", fault.message()))
        })?;
        StoreError::check(stop)?;
        let again = read(std::slice::from_ref(&out), &self.sample.source())?;
        Ok((again, out))
    }
}

/// Tokens of a batch. Progress is told after each batch; on a CPU, batches of 16,384 save 1 to 2 % of the time.
const BATCH_TOKENS: u32 = 2048;

/// Residues of a row that are masked again, if scores are of masked residues: each needs a pass.
const MASKED_AGAIN: usize = 3;

/// The table of the residues of the chosen rows that are masked again: a few of those with scores.
fn positions_again(
    files: &[EmbeddedFile],
    paths: &[PathBuf],
    chosen: &HashSet<(u64, u32)>,
) -> Result<Vec<u8>, Fault> {
    let mut lines = vec![["id".to_owned(), "position".to_owned()]];
    for (file, path) in files.iter().zip(paths) {
        let mut columns = file.layout.columns.iter();
        let Some(place) = columns.position(|column| *column == Column::LogProbs) else {
            continue;
        };
        let add = |row: &RowKey, vectors: &[&[f32]]| {
            if !chosen.contains(&row.sort_key()) {
                return;
            }
            let residues = vectors[place].chunks_exact(AMINO_ACIDS.len());
            let scored = (row.start + 1..).zip(residues);
            let scored = scored.filter(|(_, own)| !own[0].is_nan());
            let scored: Vec<u32> = scored.map(|(position, _)| position).collect();
            let count = scored.len().min(MASKED_AGAIN);
            lines.extend((0..count).map(|nth| {
                // Others in each protein, from all over it.
                let at = nth * scored.len() / count + row.ordinal as usize;
                [row.id.to_owned(), scored[at % scored.len()].to_string()]
            }));
        };
        each_row(&mut EmbeddingsReader::open(path)?, |_| Ok(()), add)?;
    }
    if lines.len() == 1 {
        // Of no protein, whose ids have no blanks: nothing is masked, and the other columns are computed.
        lines.push(["no id".to_owned(), "1".to_owned()]);
    }
    let mut table = csv::Writer::from_writer(Vec::new());
    let written = lines.iter().try_for_each(|line| table.write_record(line));
    written.map_err(Fault::internal)?;
    table.into_inner().map_err(Fault::internal)
}

/// At least the columns, and the mean of each layer, which differences are measured by.
fn outputs(files: &[EmbeddedFile], scores: Option<Scores>) -> Outputs {
    let columns = || files.iter().flat_map(|file| &file.layout.columns);
    let has = |wanted: fn(&Column) -> bool| columns().any(wanted);
    let is_asked = |pool: &Pooling| {
        let is_own =
            |column: &Column| matches!(column, Column::Pooled { pool: own, .. } if own == pool);
        *pool == Pooling::Mean || columns().any(is_own)
    };
    let layers = columns().filter_map(|column| column.layer());
    let layers: BTreeSet<i64> = layers.map(i64::from).collect();
    Outputs {
        pools: Pooling::VARIANTS.iter().copied().filter(is_asked).collect(),
        layers: if layers.is_empty() {
            Layers::Last
        } else {
            Layers::Listed(layers.into_iter().collect())
        },
        residues: has(|column| matches!(column, Column::Residues(_))),
        logits: has(|column| *column == Column::Logits),
        contacts: has(|column| *column == Column::Contacts),
        scores,
    }
}

/// The variant of this name.
fn named<T: Copy + Display + VariantArray>(name: Option<&str>) -> Option<T> {
    let mut variants = T::VARIANTS.iter().copied();
    variants.find(|variant| Some(&*variant.to_string()) == name)
}

/// Reads rows that were computed again, from this source and of one model, of at least one file. All are held in memory.
pub(crate) fn read(paths: &[PathBuf], source: &str) -> Result<Recomputed, Fault> {
    let mut all: Option<Recomputed> = None;
    for path in paths {
        let mut reader = EmbeddingsReader::open(path)?;
        let broken = |what: &str| Fault::of_path(Exit::Data, path, what);
        let (made_by, columns) = (reader.provenance(), &reader.layout().columns);
        if made_by.text_option(SOURCE) != Some(source) {
            let what = "expected rows that validate-embeddings recompute has made of these shards";
            return Err(broken(what));
        }
        let first = || Recomputed {
            made_by: made_by.clone(),
            columns: columns.clone(),
            rows: HashMap::new(),
        };
        let known = all.get_or_insert_with(first);
        let model = |made_by: &Provenance| made_by.text_option("model").map(str::to_owned);
        if model(&known.made_by) != model(made_by)
            || known.columns != *columns
            || !same_heads(&known.made_by, made_by)
        {
            let what =
                "expected the model and the columns of the other rows that were computed again";
            return Err(broken(what));
        }
        let add = |row: &RowKey, vectors: &[&[f32]]| {
            let vectors = vectors.iter().map(|vector| vector.to_vec());
            known.rows.insert(row.sort_key(), vectors.collect());
        };
        each_row(&mut reader, |_| Ok(()), add)?;
    }
    Ok(all.expect("at least one file"))
}

/// Whether both were computed with the same heads, as far as both have them.
pub(crate) fn same_heads(one: &Provenance, other: &Provenance) -> bool {
    ["lm_head", "contact_head"].iter().all(|name| {
        let heads = one.text_option(name).zip(other.text_option(name));
        heads.is_none_or(|(one, other)| one == other)
    })
}

/// Makes a folder for a second computation, within a folder or in `TMPDIR`.
pub(crate) fn folder(within: Option<&Path>) -> Result<TempDir, Fault> {
    let within = within.map_or_else(env::temp_dir, Path::to_owned);
    tempfile::tempdir_in(&within).map_err(|error| {
        let within = path_text(&within);
        let what = format_args!("spot check: TMPDIR: {within}: cannot create");
        Fault::of_system(Exit::CannotCreate, what, &error)
    })
}

fn cannot(what: &str) -> Fault {
    Fault::new(Exit::CannotCreate, format!("spot check: cannot {what}"))
}
