//! Computes a sample of the rows again, with `gpu-embed` on the CPU in f32.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::env;
use std::ffi::OsString;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use plmkit_check::{AliasLists, Candidate, Recomputed, choose, quotas};
use plmkit_cli::{Exit, Fault, PARENT_VARIABLE};
use plmkit_contract::{
    Column, KeyColumns, Manifest, Pooling, Provenance, RowKey, SOURCE, SequenceDigest, ShardRow,
    WINDOWS, path_text,
};
use plmkit_store::{EmbeddingsReader, FileKind, Shard, ShardReader, ShardWriter, read_shard};

use tempfile::TempDir;

use crate::file::vectors;
use crate::golden::{Golden, GoldenProtein};
use crate::groups::EmbeddingsFile;

/// Known proteins are records from here on: after all that an input may have.
pub(crate) const GOLDEN_ORDINALS: u64 = 1 << 48;

/// Which rows are computed again: how many in all, and the seed of their choice.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Sampling {
    /// Rows to compute again in all, at least eight of each shard; 0: none
    #[arg(
        long,
        value_name = "ROWS",
        default_value_t = 200,
        help_heading = "Spot check"
    )]
    pub(crate) sample: u64,

    /// Seed of the choice of rows
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        help_heading = "Spot check"
    )]
    pub(crate) seed: u64,
}

/// A sample of the rows of some shards.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// How many rows of each shard are in it.
    quotas: BTreeMap<PathBuf, u64>,
    seed: u64,
    /// Whether the windows of a protein are one row.
    stitched: bool,
}

impl Sample {
    /// Of these shards, which are some or all of those of a manifest; without one, they are all that there are.
    pub(crate) fn new(
        sampling: Sampling,
        shards: &[PathBuf],
        manifest: Option<&Manifest>,
        stitched: bool,
    ) -> Result<Self, Fault> {
        let rows_of = |path: &PathBuf| {
            let shard = open(path)?;
            let rows = shard.rows();
            let keys: HashSet<_> = rows.iter().map(|row| key_of(&row, stitched)).collect();
            Ok((path_text(path), keys.len() as u64))
        };
        let listed: Vec<(String, u64)> = match manifest {
            Some(Manifest { shards, .. }) => shards
                .iter()
                .map(|shard| (shard.file.clone(), shard.rows))
                .collect(),
            None => shards.iter().map(rows_of).collect::<Result<_, Fault>>()?,
        };
        let rows: Vec<u64> = listed.iter().map(|(_, rows)| *rows).collect();
        let all = quotas(sampling.sample, &rows);
        let names = listed.iter().map(|(name, _)| &**name);
        let by_name: HashMap<&str, u64> = names.zip(all).collect();
        let quota_of = |path: &PathBuf| {
            let name = match manifest {
                Some(_) => path_text(Path::new(path.file_name().unwrap_or_default())),
                None => path_text(path),
            };
            let quota = by_name.get(&*name).copied();
            let quota = quota.ok_or_else(|| {
                let what = format!("{}: expected a shard of the manifest", path_text(path));
                Fault::new(Exit::Data, what)
            });
            Ok((path.clone(), quota?))
        };
        let quotas: Result<_, Fault> = shards.iter().map(quota_of).collect();
        Ok(Self {
            quotas: quotas?,
            seed: sampling.seed,
            stitched,
        })
    }

    /// What a sample of these shards is made by, of which one may be without rows. Rows that were computed again have it as their
    /// source, and no others.
    fn made_by(&self) -> Result<Provenance, Fault> {
        let Some(path) = self.quotas.keys().next() else {
            return Ok(Provenance::new("fasta-shard", Vec::new()));
        };
        let shard = ShardReader::open(path).map_err(|error| error.of_input(FileKind::Shard))?;
        Ok(shard.provenance().clone().with("sample", "computed again"))
    }

    /// The source of rows that were computed again from these shards.
    pub(crate) fn source(&self) -> Result<String, Fault> {
        Ok(self.made_by()?.source())
    }

    /// The rows of the shard in a path: ordinal and start, the latter 0 where windows are stitched.
    pub(crate) fn chosen(
        &self,
        path: &Path,
        shard: &Shard,
        aliases: &AliasLists,
    ) -> HashSet<(u64, u32)> {
        let quota = self.quotas.get(path).copied().unwrap_or(0);
        let mut candidates: Vec<Candidate> = Vec::new();
        for row in shard.rows().iter() {
            let key = key_of(&row, self.stitched);
            if candidates.last().is_some_and(|last| last.key == key) {
                continue;
            }
            let residues = row.sequence.len() as u32;
            candidates.push(Candidate {
                key,
                residues: if self.stitched {
                    row.key.length
                } else {
                    residues
                },
                truncated: row.key.truncated,
                windowed: residues < row.key.length && !row.key.truncated,
                aliased: aliases.has(row.key.ordinal),
            });
        }
        choose(&candidates, quota, self.seed)
    }
}

/// The key of the embedding that a row of a shard becomes, or a part of.
fn key_of(row: &ShardRow, stitched: bool) -> (u64, u32) {
    (row.key.ordinal, if stitched { 0 } else { row.key.start })
}

/// What is computed again, and how.
pub(crate) struct Recompute<'a> {
    model: &'a Path,
    sample: &'a Sample,
    threads: Option<NonZero<usize>>,
    aliases: &'a AliasLists,
    golden: &'a Golden,
    /// The columns of all embeddings.
    columns: Vec<Column>,
    /// How gpu-embed treated windows.
    windows: Option<&'a str>,
}

impl<'a> Recompute<'a> {
    /// Of these embeddings.
    pub(crate) fn new(
        model: &'a Path,
        sample: &'a Sample,
        threads: Option<NonZero<usize>>,
        aliases: &'a AliasLists,
        golden: &'a Golden,
        files: &'a [EmbeddingsFile],
    ) -> Self {
        let columns = files.iter().flat_map(|file| &file.layout.columns);
        let first = files.first().map(|file| &file.provenance);
        Self {
            model,
            sample,
            threads,
            aliases,
            golden,
            columns: columns.chain(&golden.columns).copied().collect(),
            windows: first.and_then(|first| first.text_option(WINDOWS)),
        }
    }

    /// Computes the sample again, in a folder of `TMPDIR`, which goes with the result: the second is the file.
    pub(crate) fn run(&self, source: &str) -> Result<(Again, TempDir, PathBuf), Fault> {
        let failed = |what: String| Fault::new(Exit::CannotCreate, format!("spot check: {what}"));
        let folder = tempfile::tempdir();
        let folder = folder.map_err(|error| failed(format!("cannot make a folder: {error}")))?;
        let of_model = if self.model.is_dir() {
            Some(self.model)
        } else {
            self.model.parent()
        };
        let of_model = of_model.and_then(|of_model| of_model.canonicalize().ok());
        let own = folder.path().canonicalize().unwrap_or_default();
        if self.model.exists() && of_model.is_some_and(|of_model| own.starts_with(of_model)) {
            let what = "TMPDIR: expected a folder that is not that of the model, nor in it";
            return Err(failed(what.to_owned()));
        }
        let [shard, batches, out] = ["shard.parquet", "batches.arrow", "embeddings.parquet"]
            .map(|name| folder.path().join(name));
        self.write_sample(&shard)?;
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let [packed, embedded] = [&batches, &out].map(|path| ["--out".into(), path.into()]);
        run("pack-batches", &[&[shard.into()], &packed[..]].concat())?;
        let mut options = words(&["--device", "cpu", "--dtype", "f32", "--progress", "none"]);
        options.extend([batches.into(), "--model".into(), self.model.into()]);
        options.extend(embedded);
        options.push("--force".into());
        options.extend(self.columns_options().into_iter().map(OsString::from));
        if let Some(windows) = self.windows {
            options.extend(words(&["--windows", windows]));
        }
        if let Some(threads) = self.threads {
            options.extend(words(&["--threads", &threads.to_string()]));
        }
        run("gpu-embed", &options)?;
        let again = read(std::slice::from_ref(&out), source)?;
        Ok((again, folder, out))
    }

    /// Writes the chosen rows of all shards, and known proteins as records after all others, as one shard.
    fn write_sample(&self, path: &Path) -> Result<(), Fault> {
        let mut rows: Vec<SourceRow> = Vec::new();
        for (path, quota) in &self.sample.quotas {
            if *quota == 0 {
                continue;
            }
            let shard = open(path)?;
            let chosen = self.sample.chosen(path, &shard, self.aliases);
            let source = shard.rows();
            let source = source.iter();
            let source = source.filter(|row| chosen.contains(&key_of(row, self.sample.stitched)));
            rows.extend(source.map(|row| SourceRow::of(&row)));
        }
        let known = (GOLDEN_ORDINALS..).zip(&self.golden.proteins);
        rows.extend(known.map(|(ordinal, protein)| SourceRow::known(ordinal, protein)));
        rows.sort_by_key(|row| (row.ordinal, row.start));
        let mut writer = ShardWriter::create(path, 1 << 24)?;
        for row in &rows {
            writer.push(&ShardRow {
                key: row.key(),
                description: None,
                sequence: &row.sequence,
            })?;
        }
        writer.finish(&self.sample.made_by()?)?.publish()?;
        Ok(())
    }

    /// The options of gpu-embed that ask for at least the columns, and for the mean of each layer, which differences are measured by.
    fn columns_options(&self) -> Vec<String> {
        let mut pools = BTreeSet::from([Pooling::Mean.to_string()]);
        let mut options = BTreeSet::new();
        for column in &self.columns {
            match column {
                Column::Pooled { pool, .. } => _ = pools.insert(pool.to_string()),
                Column::Residues(_) => _ = options.insert("--residues"),
                Column::Logits => _ = options.insert("--logits"),
                Column::Contacts => _ = options.insert("--contacts"),
            }
        }
        let layers = self.columns.iter().filter_map(|column| column.layer());
        let layers: BTreeSet<u32> = layers.collect();
        let layers = layers.iter().map(u32::to_string).collect();
        let mut options: Vec<String> = options.into_iter().map(str::to_owned).collect();
        for (name, values) in [
            ("--pool", pools.into_iter().collect()),
            ("--layers", layers),
        ] {
            let values: Vec<String> = values;
            if !values.is_empty() {
                options.extend([name.to_owned(), values.join(",")]);
            }
        }
        options
    }
}

/// A row of a shard that is computed again.
struct SourceRow {
    ordinal: u64,
    id: String,
    start: u32,
    length: u32,
    truncated: bool,
    digest: SequenceDigest,
    sequence: String,
}

impl SourceRow {
    fn of(row: &ShardRow) -> Self {
        let key = row.key;
        Self {
            ordinal: key.ordinal,
            id: key.id.to_owned(),
            start: key.start,
            length: key.length,
            truncated: key.truncated,
            digest: key.digest,
            sequence: row.sequence.to_owned(),
        }
    }

    fn known(ordinal: u64, protein: &GoldenProtein) -> Self {
        Self {
            ordinal,
            id: protein.id.clone(),
            start: 0,
            length: protein.sequence.len() as u32,
            truncated: false,
            digest: SequenceDigest::new(protein.sequence.as_bytes()),
            sequence: protein.sequence.clone(),
        }
    }

    fn key(&self) -> RowKey<'_> {
        RowKey {
            ordinal: self.ordinal,
            id: &self.id,
            start: self.start,
            length: self.length,
            truncated: self.truncated,
            digest: self.digest,
            n_windows: 1,
        }
    }
}

/// Reads a shard.
pub(crate) fn open(path: &Path) -> Result<Shard, Fault> {
    Ok(read_shard(path).map_err(|error| error.of_input(FileKind::Shard))?)
}

/// Rows that were computed again, and what they were computed by.
pub(crate) type Again = (Recomputed, Provenance);

/// Reads rows that were computed again, from this source and of one model. All are held in memory.
pub(crate) fn read(paths: &[PathBuf], source: &str) -> Result<Again, Fault> {
    let mut all: Option<Again> = None;
    for path in paths {
        let opened = EmbeddingsReader::open(path);
        let mut reader = opened.map_err(|error| error.of_input(FileKind::Embeddings))?;
        let layout = reader.layout().clone();
        let broken = |what: &str| Fault::new(Exit::Data, format!("{}: {what}", path_text(path)));
        let made_by = reader.provenance().clone();
        if made_by.text_option(SOURCE) != Some(source) {
            let what = "expected rows that validate-embeddings recompute has made of these shards";
            return Err(broken(what));
        }
        let model = made_by.text_option("model").unwrap_or("unknown").to_owned();
        let (known, made_by) = all.get_or_insert_with(|| {
            (
                Recomputed::new(model.clone(), layout.columns.clone()),
                made_by,
            )
        });
        if known.model() != model
            || known.columns() != layout.columns
            || !same_heads(made_by, reader.provenance())
        {
            let what =
                "expected the model and the columns of the other rows that were computed again";
            return Err(broken(what));
        }
        while let Some(batch) = reader.next_batch()? {
            let columns = vectors(&batch, &layout);
            for (place, row) in KeyColumns::new(&batch).rows().enumerate() {
                let vectors = columns.iter().map(|column| column.row(place).to_vec());
                known.push(row.sort_key(), vectors.collect());
            }
        }
    }
    Ok(all.unwrap_or_else(|| {
        (
            Recomputed::default(),
            Provenance::new("gpu-embed", Vec::new()),
        )
    }))
}

/// Whether both were computed with the same heads, as far as both have them.
pub(crate) fn same_heads(one: &Provenance, other: &Provenance) -> bool {
    ["lm_head", "contact_head"].iter().all(|name| {
        let heads = one.text_option(name).zip(other.text_option(name));
        heads.is_none_or(|(one, other)| one == other)
    })
}

/// Runs a program of plmkit, which lies beside this one, and which ends if this one does.
fn run(program: &str, options: &[OsString]) -> Result<(), Fault> {
    let failed = |exit, what: &str| Fault::new(exit, format!("spot check: {program}: {what}"));
    let own = env::current_exe();
    let own = own.map_err(|error| failed(Exit::Unavailable, &error.to_string()))?;
    let path = own.with_file_name(program);
    let output = Command::new(&path)
        .args(options)
        .env(PARENT_VARIABLE, std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| {
            let path = path_text(&path);
            let what =
                format!("cannot start {path}: {error}; expected it beside validate-embeddings");
            failed(Exit::Unavailable, &what)
        })?;
    let code = output.status.code();
    let exit = code.and_then(|code| Exit::from_code(u8::try_from(code).ok()?));
    if matches!(exit, Some(Exit::Done | Exit::Negative)) {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().unwrap_or("it said nothing");
    let last = last.strip_prefix(&format!("{program}: ")).unwrap_or(last);
    Err(failed(exit.unwrap_or(Exit::Unavailable), last))
}
