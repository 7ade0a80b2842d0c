//! Computes a sample of the rows again, on the CPU in f32, by a model of its own: weights that are damaged in memory must not judge
//! themselves.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::env;
use std::fmt::Display;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plmkit_check::{
    AliasLists, Amount, Candidate, Chosen, EmbeddedFile, LEAST, Recomputed, choose, shares,
};
use plmkit_cli::{Exit, Fault, Stop};
use plmkit_contract::{
    AMINO_ACIDS, Column, KNOWN, Kind, Layers, Manifest, Outputs, Pooling, Provenance, RowKey,
    SCORES, SOURCE, SPECIAL_TOKENS, Scores, ShardRow, ShardSummary, StoreDtype, WINDOWS, path_text,
};
use plmkit_engine::{Engine, Injection, Job, RunConfig, RunProgress, Windows};
use plmkit_esm2::{ComputeOptions, Device, Dtype};
use plmkit_hub::{Settings, model_name, resolve};
use plmkit_store::{
    EmbeddingsReader, RecordListWriter, Shard, ShardReader, StoreError, read_shard,
};
use strum::VariantArray;
use tempfile::TempDir;
use tracing::dispatcher::{self, get_default};
use tracing::subscriber::{NoSubscriber, with_default};

use crate::gpu_embed::threads as available;
use crate::pack_batches::pack_shard;

use super::args::{Args, Sampling};
use super::progress::{Progress, Report};
use super::rows::each_row;

/// The model of a spot check. One sample after the other may use it.
pub type SpotModel = Option<(RunConfig, Engine)>;

/// A sample of the rows of some shards.
#[derive(Debug)]
pub(crate) struct Sample<'a> {
    shards: &'a [PathBuf],
    aliases: &'a AliasLists,
    /// The most rows and tokens of each shard that are in it.
    shares: Vec<Amount>,
    seed: u64,
    /// Whether the windows of a protein are one row.
    stitched: bool,
    /// What a sample of these shards is made by, of which one may be without rows. Rows that were computed again have it as their
    /// source, and no others.
    made_by: Provenance,
}

impl<'a> Sample<'a> {
    /// Of these shards, which are some or all of those of a manifest; without one, they are all that there are.
    pub(crate) fn new(
        sampling: Sampling,
        shards: &'a [PathBuf],
        manifest: Option<&Manifest>,
        aliases: &'a AliasLists,
        stitched: bool,
    ) -> Result<Self, Fault> {
        let mut made_by = None;
        let mut own = Vec::new();
        for path in shards {
            let mut opened = ShardReader::open(path)?;
            made_by.get_or_insert_with(|| opened.provenance().clone());
            let (mut size, mut last) = (Amount::default(), None);
            if manifest.is_none() {
                opened.lengths(|row| {
                    let before = last.replace(row.ordinal);
                    size.rows += u64::from(!stitched || before != last);
                    size.tokens += u64::from(row.residues + SPECIAL_TOKENS);
                })?;
            }
            own.push((opened.digest().to_string(), size));
        }
        let mut made_by = made_by.unwrap_or_else(|| Provenance::new("fasta-shard", Vec::new()));
        // The sample is of another type, and has other columns, than the known datasets.
        made_by.options.remove(KNOWN);
        // In an order that is not that of the files.
        let all: BTreeMap<_, _> = manifest.map_or_else(|| own.iter().cloned().collect(), sizes);
        let rows = all.values().map(|shard| shard.rows).sum();
        let proteins = manifest.filter(|_| stitched);
        let proteins = proteins.map_or(rows, |manifest| manifest.accepted);
        let all = shares(sampling.sample, proteins, &all);
        // A shard that is not listed fails elsewhere.
        let own = own.iter();
        let own = own.map(|(digest, _)| all.get(digest).copied().unwrap_or_default());
        Ok(Self {
            shards,
            aliases,
            shares: own.collect(),
            seed: sampling.seed,
            stitched,
            made_by: made_by.with("sample", "computed again"),
        })
    }

    /// The source of rows that were computed again from these shards.
    pub(crate) fn source(&self) -> String {
        self.made_by.source()
    }

    /// The rows of the shard at a position: ordinal and start, the latter 0 where windows are stitched.
    pub(crate) fn chosen(&self, position: usize, shard: &Shard) -> Chosen {
        let mut candidates: Vec<Candidate> = Vec::new();
        for row in shard.rows().iter() {
            let key = key_of(&row, self.stitched);
            let residues = row.sequence.len() as u32;
            let tokens = u64::from(residues + SPECIAL_TOKENS);
            if let Some(last) = candidates.last_mut().filter(|last| last.key == key) {
                last.tokens += tokens;
                continue;
            }
            candidates.push(Candidate {
                key,
                tokens,
                truncated: row.key.truncated,
                windowed: residues < row.key.length && !row.key.truncated,
                aliased: self.aliases.has(row.key.ordinal),
            });
        }
        choose(&candidates, self.shares[position], self.seed)
    }

    /// Computes the sample of these embeddings, which are at these paths, again: with files in `folder`, of which the last is returned,
    /// too.
    pub(crate) fn recompute(
        &self,
        model: &Path,
        threads: Option<NonZero<usize>>,
        (files, paths): (&[EmbeddedFile], &[PathBuf]),
        (folder, spot): (&TempDir, &mut SpotModel),
        (progress, stop): (Report<'_>, &Stop),
    ) -> Result<(Recomputed, PathBuf), Fault> {
        let [shard, batches, positions, out] = [
            "shard.parquet",
            "batches.arrow",
            "positions.csv",
            "embeddings.parquet",
        ]
        .map(|name| folder.path().join(name));
        let chosen = self.write_sample(&shard)?;
        pack_shard(&shard, &batches, BATCH_TOKENS, false, true, stop)?;
        let first = files.first().map(|file| &file.provenance);
        let option = |name| first.and_then(|first| first.text_option(name));
        let scores = named::<Scores>(option(SCORES));
        let is_masked = scores == Some(Scores::Masked);
        if is_masked {
            let text = positions_again(files, paths, &chosen)?;
            fs::write(&positions, text)
                .map_err(|error| cannot(&format!("write positions: {error}")))?;
        }
        let located = resolve(model, &Settings::from_env(), None, stop)?;
        let config = RunConfig {
            model_name: model_name(&located),
            model: located,
            compute: ComputeOptions {
                device: Device::Cpu,
                dtype: Some(Dtype::F32),
                ..ComputeOptions::default()
            },
            outputs: outputs(files, scores),
            scores_positions: is_masked.then_some(positions),
            windows: named(option(WINDOWS)).unwrap_or(Windows::Stitch),
            store_dtype: StoreDtype::F32,
            checkpoint_interval: Duration::MAX,
            threads: threads.unwrap_or_else(|| available(None)),
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
        let again = read(std::slice::from_ref(&out), &self.source())?;
        Ok((again, out))
    }

    /// Writes the chosen rows of all shards as one shard. Returns their keys.
    fn write_sample(&self, path: &Path) -> Result<HashSet<(u64, u32)>, Fault> {
        let mut writer = RecordListWriter::create(path, Kind::Shard)?;
        let mut all = HashSet::new();
        for (position, source) in self.shards.iter().enumerate() {
            if self.shares[position].rows == 0 {
                continue;
            }
            let shard = read_shard(source)?;
            let chosen = self.chosen(position, &shard).0;
            for row in shard.rows().iter() {
                if chosen.contains(&key_of(&row, self.stitched)) {
                    writer.push(&ShardRow {
                        description: None,
                        ..row
                    })?;
                }
            }
            all.extend(chosen);
        }
        writer.finish(&self.made_by)?.1.finish()?;
        Ok(all)
    }
}

/// The rows and tokens of the shards of a manifest, by digest.
fn sizes(manifest: &Manifest) -> BTreeMap<String, Amount> {
    let size = |shard: &ShardSummary| {
        let (rows, tokens) = (shard.rows, shard.tokens);
        (shard.digest.clone(), Amount { rows, tokens })
    };
    manifest.shards.iter().map(size).collect()
}

/// About how many tokens the spot check of a sample with this manifest computes.
pub fn spot_check_tokens(args: &Args, manifest: &Manifest) -> u64 {
    if args.model.is_none() {
        return 0;
    }
    let all = sizes(manifest);
    let shares = shares(args.sampling.sample, manifest.accepted, &all);
    let tokens = all.values().zip(shares.values()).map(|(shard, share)| {
        let cost = |rows: u64| (rows * shard.tokens).div_ceil(shard.rows.max(1));
        share.tokens.max(cost(LEAST)).min(cost(share.rows))
    });
    tokens.sum()
}

/// The key of the embedding that a row of a shard becomes, or a part of.
fn key_of(row: &ShardRow, stitched: bool) -> (u64, u32) {
    (row.key.ordinal, if stitched { 0 } else { row.key.start })
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
    let mut table = csv::Writer::from_writer(Vec::new());
    let written = lines.iter().try_for_each(|line| table.write_record(line));
    written.map_err(|error| Fault::new(Exit::Internal, error.to_string()))?;
    let table = table.into_inner();
    table.map_err(|error| Fault::new(Exit::Internal, error.to_string()))
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
        let broken = |what: &str| Fault::new(Exit::Data, format!("{}: {what}", path_text(path)));
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
