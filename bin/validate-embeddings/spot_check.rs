//! Computes a sample of the rows again, with `gpu-embed` on the CPU in f32, and compares the vectors.

use std::collections::{HashMap, HashSet};
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use plmkit_check::SpotCheck;
use plmkit_cli::{Exit, Fault};
use plmkit_contract::{
    Column, EmbeddingLayout, KeyColumns, Pooling, Provenance, RowDigest, RowKey, SequenceDigest,
    ShardRow, WINDOWS, path_text,
};
use plmkit_store::{EmbeddingsReader, Shard, ShardWriter};

use crate::args::Args;
use crate::file::vectors;
use crate::golden::{Golden, GoldenProtein};

/// Which rows are computed again.
#[derive(Clone, Debug)]
pub(crate) struct Sampling {
    seed: u64,
    /// Rows of each embeddings file, by its position.
    quotas: Vec<usize>,
}

/// A row of an embeddings file that is computed again.
pub(crate) struct SpotRow {
    ordinal: u64,
    start: u32,
    id: String,
    /// The vectors in the file, in the order of its columns.
    vectors: Vec<Vec<f32>>,
}

/// The sampled rows of an embeddings file.
pub(crate) struct SpotFile {
    pub(crate) position: usize,
    pub(crate) name: String,
    pub(crate) provenance: Provenance,
    pub(crate) layout: EmbeddingLayout,
    pub(crate) rows: Vec<SpotRow>,
}

/// A row of a shard, of which an embedding was sampled.
struct SourceRow {
    ordinal: u64,
    id: String,
    start: u32,
    length: u32,
    truncated: bool,
    digest: SequenceDigest,
    sequence: String,
}

/// What is computed again of some shards.
#[derive(Default)]
pub(crate) struct SpotSample {
    /// Ordinal and start of each sampled row of the embeddings.
    chosen: HashSet<(u64, u32)>,
    sources: Vec<SourceRow>,
    made_by: Option<Provenance>,
    pub(crate) files: Vec<SpotFile>,
}

/// A number that depends on others in no simple way: splitmix64.
fn scramble(seed: u64, number: u64) -> u64 {
    let mut z = (seed ^ number.rotate_left(32)).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Sampling {
    /// A sample of so many rows: the same number of each file, as far as `rows` has so many; where files are more, one of some files.
    pub(crate) fn new(sample: usize, seed: u64, rows: &[u64]) -> Self {
        // The share that small files leave is for larger ones. Where not every file has a row, the size does not matter.
        let most = if rows.len() > sample { 1 } else { u64::MAX };
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|&file| (rows[file].min(most), scramble(seed, file as u64)));
        let mut quotas = vec![0; rows.len()];
        let mut left = sample;
        for (place, &file) in order.iter().enumerate() {
            let share = left / (rows.len() - place);
            quotas[file] = share.min(usize::try_from(rows[file]).unwrap_or(share));
            left -= quotas[file];
        }
        Self { seed, quotas }
    }
}

impl SpotSample {
    /// Chooses rows of `shards` for the embeddings files at `positions`: one of each of as many classes of length.
    pub(crate) fn choose(
        sampling: &Sampling,
        shards: &[(Shard, RowDigest)],
        positions: impl Iterator<Item = usize>,
        stitched: bool,
    ) -> Self {
        let quota: usize = positions.map(|position| sampling.quotas[position]).sum();
        let mut rows: Vec<(u32, u64, u32)> = Vec::new(); // length, ordinal, start
        for (shard, _) in shards {
            for row in shard.rows().iter() {
                let start = if stitched { 0 } else { row.key.start };
                let length = if stitched {
                    row.key.length
                } else {
                    row.sequence.len() as u32
                };
                rows.push((length, row.key.ordinal, start));
            }
        }
        rows.sort_unstable();
        rows.dedup();
        let classes = quota.min(rows.len());
        let chosen: HashSet<(u64, u32)> = (0..classes)
            .map(|class| {
                let [begin, end] = [class, class + 1].map(|class| class * rows.len() / classes);
                let (_, first, _) = rows[begin];
                let random = scramble(sampling.seed, first + 1) % (end - begin) as u64;
                let (_, ordinal, start) = rows[begin + random as usize];
                (ordinal, start)
            })
            .collect();
        let mut sample = Self {
            chosen,
            ..Self::default()
        };
        for (shard, _) in shards {
            sample.made_by = Some(shard.provenance.clone());
            for row in shard.rows().iter() {
                let key = row.key;
                let of = (key.ordinal, if stitched { 0 } else { key.start });
                if sample.chosen.contains(&of) {
                    sample.sources.push(SourceRow {
                        ordinal: key.ordinal,
                        id: key.id.to_owned(),
                        start: key.start,
                        length: key.length,
                        truncated: key.truncated,
                        digest: key.digest,
                        sequence: row.sequence.to_owned(),
                    });
                }
            }
        }
        sample
    }

    /// Begins an embeddings file.
    pub(crate) fn begin_file(&mut self, position: usize, name: String, reader: &EmbeddingsReader) {
        self.files.push(SpotFile {
            position,
            name,
            provenance: reader.provenance().clone(),
            layout: reader.layout().clone(),
            rows: Vec::new(),
        });
    }

    /// Keeps the vectors of a row of the file, if it was chosen.
    pub(crate) fn add(&mut self, row: &RowKey, vectors: &[&[f32]]) {
        if self.chosen.contains(&row.sort_key())
            && let Some(file) = self.files.last_mut()
        {
            file.rows.push(SpotRow {
                ordinal: row.ordinal,
                start: row.start,
                id: row.id.to_owned(),
                vectors: vectors.iter().map(|vector| vector.to_vec()).collect(),
            });
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.sources.extend(other.sources);
        self.files.extend(other.files);
        self.made_by = self.made_by.take().or(other.made_by);
    }

    /// Computes the rows again with the model of `args`, and the proteins of `golden`, and compares them.
    pub(crate) fn compare(
        mut self,
        args: &Args,
        model: &Path,
        golden: &Golden,
    ) -> Result<SpotCheck, Fault> {
        let mut spot = SpotCheck::default();
        self.files.sort_by_key(|file| file.position);
        let Some(layout) = self.files.first().map(|file| file.layout.clone()) else {
            return Ok(spot);
        };
        if self.sources.is_empty() {
            return Ok(spot);
        }
        let mut layout = layout;
        layout.columns.extend(&golden.columns);
        let last = self.sources.iter().map(|row| row.ordinal).max();
        let golden_ordinals = last.map_or(0, |last| last + 1)..;
        let known = golden_ordinals.clone().zip(&golden.proteins);
        self.sources
            .extend(known.map(|(ordinal, protein)| SourceRow::new(ordinal, protein)));
        let folder = tempfile::tempdir().map_err(|error| {
            let what = format!("cannot make a folder for the spot check: {error}");
            Fault::new(Exit::CannotCreate, what)
        })?;
        let computed = self.compute(args, model, &layout, folder.path())?;
        let mut reader = EmbeddingsReader::open(&computed)?;
        let digest = reader
            .provenance()
            .text_option("model")
            .unwrap_or_default()
            .to_owned();
        let mut again: HashMap<(u64, u32), Vec<Vec<f32>>> = HashMap::new();
        let layout = reader.layout().clone();
        while let Some(batch) = reader.next_batch()? {
            let columns = vectors(&batch, &layout);
            for (place, row) in KeyColumns::new(&batch).rows().enumerate() {
                let vectors = columns.iter().map(|column| column.row(place).to_vec());
                again.insert(row.sort_key(), vectors.collect());
            }
        }
        for file in &self.files {
            spot.begin_file(&file.name, &file.provenance);
            let found = file.provenance.text_option("model").unwrap_or("unknown");
            if found != digest {
                spot.add_other_model(&file.name, &digest, found);
                continue;
            }
            for row in &file.rows {
                let key = row.key();
                let Some(vectors) = again.get(&key.sort_key()) else {
                    spot.add_not_computed(&key);
                    continue;
                };
                for (column, found) in file.layout.columns.iter().zip(&row.vectors) {
                    let place = layout.columns.iter().position(|other| other == column);
                    if let Some(place) = place {
                        spot.add(&key, &column.to_string(), found, &vectors[place]);
                    }
                }
            }
        }
        if let Some(path) = &args.golden {
            spot.begin_golden(&path_text(path));
            for (ordinal, protein) in golden_ordinals.zip(&golden.proteins) {
                let Some(vectors) = again.get(&(ordinal, 0)) else {
                    spot.add_not_computed(&SourceRow::new(ordinal, protein).key());
                    continue;
                };
                for (column, vector) in golden.columns.iter().zip(&protein.vectors) {
                    let place = layout.columns.iter().position(|other| other == column);
                    if let Some(place) = place {
                        let column = column.to_string();
                        spot.add_golden(&protein.id, &column, vector, &vectors[place]);
                    }
                }
            }
        }
        Ok(spot)
    }

    /// Writes a shard of the rows, packs it and embeds it. Returns the embeddings.
    fn compute(
        &mut self,
        args: &Args,
        model: &Path,
        layout: &EmbeddingLayout,
        folder: &Path,
    ) -> Result<PathBuf, Fault> {
        let [shard, batches, embeddings] =
            ["shard.parquet", "batches.arrow", "embeddings.parquet"].map(|name| folder.join(name));
        self.sources.sort_by_key(|row| (row.ordinal, row.start));
        let mut writer = ShardWriter::create(&shard, 1 << 24)?;
        for row in &self.sources {
            let row = ShardRow {
                key: row.key(),
                description: None,
                sequence: &row.sequence,
            };
            writer.push(&row)?;
        }
        let made_by = self.made_by.clone();
        let made_by = made_by.unwrap_or_else(|| Provenance::new("fasta-shard", Vec::new()));
        writer.finish(&made_by)?.publish()?;
        run(
            "pack-batches",
            &[shard.into(), "--out".into(), batches.clone().into()],
        )?;
        let mut options: Vec<OsString> =
            vec![batches.into(), "--out".into(), embeddings.clone().into()];
        options.extend(["--model".into(), model.into()]);
        options.extend(
            ["--device", "cpu", "--dtype", "f32", "--progress", "none"].map(OsString::from),
        );
        options.extend(columns_options(layout).into_iter().map(OsString::from));
        let windows = self
            .files
            .iter()
            .find_map(|file| file.provenance.text_option(WINDOWS));
        if let Some(windows) = windows {
            options.extend(["--windows", windows].map(OsString::from));
        }
        if let Some(threads) = args.threads {
            options.extend(["--threads".into(), threads.to_string().into()]);
        }
        run("gpu-embed", &options)?;
        Ok(embeddings)
    }
}

impl SourceRow {
    /// A known protein as a record after all others.
    fn new(ordinal: u64, protein: &GoldenProtein) -> Self {
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

impl SpotRow {
    fn key(&self) -> RowKey<'_> {
        RowKey {
            ordinal: self.ordinal,
            id: &self.id,
            start: self.start,
            length: 0,
            truncated: false,
            digest: SequenceDigest::default(),
            n_windows: 1,
        }
    }
}

/// The options of gpu-embed that ask for at least these columns.
fn columns_options(layout: &EmbeddingLayout) -> Vec<String> {
    let mut pools: Vec<String> = Vec::new();
    let mut layers: Vec<String> = Vec::new();
    let mut flags: Vec<String> = Vec::new();
    let add = |list: &mut Vec<String>, value: String| {
        if !list.contains(&value) {
            list.push(value);
        }
    };
    for column in &layout.columns {
        if let Some(layer) = column.layer() {
            add(&mut layers, layer.to_string());
        }
        match column {
            Column::Pooled(vector) => add(&mut pools, vector.pool.to_string()),
            Column::Residues(_) => add(&mut flags, "--residues".to_owned()),
            Column::Logits => add(&mut flags, "--logits".to_owned()),
            Column::Contacts => add(&mut flags, "--contacts".to_owned()),
        }
    }
    if pools.is_empty() {
        pools.push(Pooling::Mean.to_string());
    }
    let mut options = vec!["--pool".to_owned(), pools.join(",")];
    if !layers.is_empty() {
        options.extend(["--layers".to_owned(), layers.join(",")]);
    }
    options.extend(flags);
    options
}

/// Runs a program of plmkit: the one beside this program, or the one of the search path.
fn run(program: &str, options: &[OsString]) -> Result<(), Fault> {
    let beside = env::current_exe()
        .ok()
        .and_then(|path| Some(path.parent()?.join(program)));
    let path = beside
        .filter(|path| path.exists())
        .unwrap_or_else(|| program.into());
    let failed = |exit, what: &str| Fault::new(exit, format!("spot check: {program}: {what}"));
    let output = Command::new(&path)
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| {
            failed(
                Exit::Unavailable,
                &format!(
                    "cannot start {}: {error}; expected it beside validate-embeddings or in PATH",
                    path_text(&path)
                ),
            )
        })?;
    let code = output.status.code();
    let known = Exit::TABLE.iter().map(|(exit, _)| *exit);
    let exit = known
        .into_iter()
        .find(|&exit| code == Some(i32::from(exit as u8)));
    if matches!(exit, Some(Exit::Done | Exit::Negative)) {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().unwrap_or("it said nothing");
    let last = last.strip_prefix(&format!("{program}: ")).unwrap_or(last);
    Err(failed(exit.unwrap_or(Exit::Unavailable), last))
}
