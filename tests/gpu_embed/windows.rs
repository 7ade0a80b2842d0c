//! Proteins in windows, from FASTA to validation: `gpu-embed` stitches them, and `validate-embeddings` checks whole proteins.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, RecordBatch};
use plmkit_contract::{KeyColumns, Kind, N_WINDOWS, WINDOWS};
use plmkit_store::{EmbeddingsReader, RecordListWriter, read_shard};

use crate::common::{self, assert_failed, assert_fails, bin, run, test_data};
use crate::{assert_has, ends, stderr, validate_shard};

const MAX: usize = 100;
/// Residues of the proteins of a [`Set`]: one window, two, many, one that is full, and four.
const LENGTHS: [usize; 5] = [50, 150, 1533, 100, 333];

/// Proteins, cut into windows of [`MAX`] residues.
struct Set {
    folder: tempfile::TempDir,
}

impl Set {
    fn new(overlap: usize) -> Self {
        let set = Self {
            folder: tempfile::tempdir().expect("temp folder"),
        };
        let proteins = fs::read_to_string(test_data("proteins.fasta")).expect("test data");
        let lines = proteins.lines().filter(|line| !line.starts_with('>'));
        let mut residues = lines.flat_map(str::chars);
        let records = (0..).zip(LENGTHS).map(|(number, length)| {
            let sequence: String = residues.by_ref().take(length).collect();
            format!(">P{number}\n{sequence}\n")
        });
        fs::write(set.path("in.fasta"), records.collect::<String>()).expect("write");
        set.cut("shards", "window", MAX, overlap);
        set
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn shard(&self, shards: &str) -> PathBuf {
        self.path(shards).join("shard-00000.parquet")
    }

    fn cut(&self, shards: &str, long: &str, max: usize, overlap: usize) {
        let (max, overlap) = (max.to_string(), overlap.to_string());
        let mut options = vec!["--long-policy", long, "--max-residues", &max];
        if long == "window" {
            options.extend(["--overlap", &overlap]);
        }
        common::shard(&self.path("in.fasta"), &self.path(shards), &options);
    }

    fn pack(&self, shards: &str, budget: u32) -> PathBuf {
        let out = self.path(&format!("{shards}-{budget}.arrow"));
        common::pack(&self.shard(shards), &out, budget);
        out
    }

    fn embed(&self, batches: &[PathBuf], out: &str, options: &[&str]) -> Command {
        let batches: Vec<&Path> = batches.iter().map(PathBuf::as_path).collect();
        let mut command = common::embed(&batches, &test_data("model-tiny"), &self.path(out));
        command.args(options);
        command
    }

    /// The rows that `gpu-embed` makes of the windows packed with this budget.
    fn rows(&self, budget: u32, out: &str, options: &[&str]) -> BTreeMap<(u64, u32), Row> {
        run(&mut self.embed(&[self.pack("shards", budget)], out, options));
        read(&self.path(out))
    }

    fn validate(&self, embeddings: &str, shard: &Path, options: &[&Path]) -> Output {
        let mut command = validate_shard(&self.path(embeddings), shard);
        command.args(options).arg("--quiet");
        command.output().expect("run")
    }
}

/// A row of an embeddings file.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    id: String,
    length: u32,
    digest: String,
    n_windows: Option<u32>,
    /// By column.
    values: BTreeMap<String, Vec<f32>>,
}

fn read(path: &Path) -> BTreeMap<(u64, u32), Row> {
    let mut reader = EmbeddingsReader::open(path).expect("open");
    let mut rows = BTreeMap::new();
    while let Some(batch) = reader.next_batch().expect("read") {
        let has_windows = batch.column_by_name(N_WINDOWS).is_some();
        for (row, found) in KeyColumns::new(&batch).rows().enumerate() {
            assert!(!found.truncated);
            let key = found.sort_key();
            let columns = reader.layout().columns.iter().map(ToString::to_string);
            let found = Row {
                id: found.id.to_owned(),
                length: found.length,
                digest: found.digest.to_string(),
                n_windows: has_windows.then_some(found.n_windows),
                values: columns
                    .map(|name| (name.clone(), values(&batch, &name, row)))
                    .collect(),
            };
            assert!(rows.insert(key, found).is_none(), "{key:?} is there twice");
        }
    }
    rows
}

fn values(batch: &RecordBatch, name: &str, row: usize) -> Vec<f32> {
    let column = &batch[name];
    let vectors = match column.as_list_opt::<i32>() {
        Some(list) => list.value(row),
        None => column.as_fixed_size_list().value(row),
    };
    let items = match vectors.as_fixed_size_list_opt() {
        Some(vectors) => ArrayRef::clone(vectors.values()),
        None => vectors,
    };
    items.as_primitive::<Float32Type>().values().to_vec()
}

/// The windows of a protein, in order, from a file with a row for each.
fn windows_of(rows: &BTreeMap<(u64, u32), Row>, ordinal: u64) -> Vec<(usize, &Row)> {
    let own = rows.range((ordinal, 0)..(ordinal + 1, 0));
    own.map(|(&(_, start), row)| (start as usize, row))
        .collect()
}

/// The vectors of all residues of a protein: means over the windows, weighted by the number of residues to the nearer end of the
/// window.
fn blend(windows: &[(usize, &Row)], column: &str, dim: usize) -> Vec<Vec<f64>> {
    let blended = (0..windows[0].1.length as usize).map(|residue| {
        let (mut sums, mut weights) = (vec![0.0; dim], 0.0);
        for (start, window) in windows {
            let values = &window.values[column];
            let end = start + values.len() / dim;
            if (*start..end).contains(&residue) {
                let weight = (residue - start + 1).min(end - residue) as f64;
                let vector = &values[(residue - start) * dim..][..dim];
                weights += weight;
                for (sum, &value) in sums.iter_mut().zip(vector) {
                    *sum += weight * f64::from(value);
                }
            }
        }
        sums.iter().map(|sum| sum / weights).collect()
    });
    blended.collect()
}

fn assert_close(found: &[f32], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (&found, &expected) in found.iter().zip(expected) {
        let difference = (f64::from(found) - expected).abs();
        assert!(
            difference <= 1e-6 * expected.abs().max(1.0),
            "{what}: expected {expected}, found {found}"
        );
    }
}

type Reduce<'a> = &'a dyn Fn(&[f64]) -> f64;

fn channels(vectors: &[Vec<f64>], reduce: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let channel = |channel: usize| -> Vec<f64> {
        let values = vectors.iter().map(|vector| vector[channel]);
        values.collect()
    };
    (0..vectors[0].len())
        .map(|number| reduce(&channel(number)))
        .collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn a_stitched_row_is_the_blend_of_its_windows() {
    const DIM: usize = 64;
    // With 70, most residues are in three or four windows.
    for overlap in [30, 70] {
        let set = Set::new(overlap);
        let all = ["--layers", "2,4", "--residues", "--logits"];
        let separate = [&all[..], &["--windows", "separate", "--pool", "bos"]].concat();
        let separate = set.rows(16384, "separate.parquet", &separate);
        let stitched = [&all[..], &["--pool", "mean,max,std,bos"]].concat();
        let stitched = set.rows(16384, "stitched.parquet", &stitched);
        assert_eq!(stitched.len(), LENGTHS.len());
        for (ordinal, length) in (0..).zip(LENGTHS) {
            let row = &stitched[&(ordinal, 0)];
            let windows = windows_of(&separate, ordinal);
            assert_eq!(row.id, format!("P{ordinal}"));
            assert_eq!(row.length as usize, length);
            assert_eq!(row.n_windows, Some(windows.len() as u32));
            assert_eq!(windows[0].1.n_windows, None);
            let of = |column: &str| &row.values[column];
            let logits = blend(&windows, "logits", 33).concat();
            assert_close(of("logits"), &logits, "logits");
            for layer in [2, 4] {
                let residues = format!("residues_{layer}");
                let blended = blend(&windows, &residues, DIM);
                assert_close(of(&residues), &blended.concat(), &residues);
                let max = |values: &[f64]| values.iter().copied().fold(f64::MIN, f64::max);
                let std = |values: &[f64]| {
                    let mean = mean(values);
                    let squares = values.iter().map(|value| (value - mean).powi(2));
                    (squares.sum::<f64>() / values.len() as f64).sqrt()
                };
                let expected: [(&str, Reduce); 3] = [("mean", &mean), ("max", &max), ("std", &std)];
                for (pool, reduce) in expected {
                    let pool = format!("{pool}_{layer}");
                    assert_close(of(&pool), &channels(&blended, reduce), &pool);
                }
                let bos = format!("bos_{layer}");
                let count = |window: &Row| window.values[&residues].len() / DIM;
                let weighted = windows.iter().map(|(_, window)| {
                    let values = window.values[&bos].iter();
                    let weighted = values.map(|&value| count(window) as f64 * f64::from(value));
                    weighted.collect()
                });
                let weighted: Vec<Vec<f64>> = weighted.collect();
                let residues: usize = windows.iter().map(|(_, window)| count(window)).sum();
                let sum = |values: &[f64]| values.iter().sum::<f64>() / residues as f64;
                assert_close(of(&bos), &channels(&weighted, sum), &bos);
            }
        }
    }
}

#[test]
fn a_stitched_row_is_close_to_that_of_the_full_length() {
    let set = Set::new(30);
    let stitched = set.rows(16384, "stitched.parquet", &[]);
    set.cut("whole", "window", 5000, 30);
    run(&mut set.embed(&[set.pack("whole", 16384)], "whole.parquet", &[]));
    let whole = read(&set.path("whole.parquet"));
    assert!(stitched.keys().eq(whole.keys()));
    for (key, row) in &stitched {
        let whole = &whole[key];
        assert_eq!(whole.n_windows, Some(1));
        assert_eq!((&row.id, row.length), (&whole.id, whole.length));
        assert_eq!(row.digest, whole.digest, "of all residues");
        let (a, b) = (&row.values["mean_4"], &whole.values["mean_4"]);
        if row.n_windows == Some(1) {
            assert_eq!(a, b, "it has no windows");
        }
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            let products = a.iter().zip(b).map(|(&x, &y)| f64::from(x) * f64::from(y));
            products.sum()
        };
        let cosine = dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
        println!(
            "{} residues, {:?} windows: cosine {cosine:.6}",
            row.length, row.n_windows
        );
        assert!(cosine > 0.9, "{cosine}");
    }
}

#[test]
fn batches_do_not_change_what_is_stitched() {
    let set = Set::new(30);
    let options = "--pool mean,max,std,bos --layers 4 --residues --logits";
    let options: Vec<&str> = options.split(' ').collect();
    let expected = set.rows(16384, "16384.parquet", &options);
    // Two windows, two and a half, and less than one in a batch.
    for budget in [204, 256, 40] {
        let found = set.rows(budget, &format!("{budget}.parquet"), &options);
        assert!(found == expected, "{budget}");
    }
    // Batches that are split once, and twice.
    for most in [250, 102] {
        let most = format!("out-of-memory-above={most}");
        let options = [&options[..], &["--inject", &most]].concat();
        let found = set.rows(16384, &format!("{most}.parquet"), &options);
        assert!(found == expected, "{most}");
    }
}

#[test]
fn a_protein_with_a_rejected_window_is_rejected_once() {
    let set = Set::new(30);
    for budget in [16384, 256] {
        // Full windows have 102 tokens. The last windows are shorter and would fit.
        let embeddings = format!("{budget}.parquet");
        let batches = [set.pack("shards", budget)];
        let inject = ["--inject", "out-of-memory-above=101"];
        ends(&mut set.embed(&batches, &embeddings, &inject), 1);
        let rejects = set.path(&format!("{budget}.rejects.csv"));
        assert_eq!(
            fs::read_to_string(&rejects).expect("rejects"),
            "ordinal,id,length,reason,start\n1,P1,150,out_of_memory,0\n2,P2,1533,out_of_memory,0\n\
             3,P3,100,out_of_memory,0\n4,P4,333,out_of_memory,0\n"
        );
        assert_eq!(read(&set.path(&embeddings)).len(), 1);
        let of_shards = set.path("shards/rejects.csv");
        let options = [Path::new("--rejects"), &of_shards, &rejects];
        let output = set.validate(&embeddings, &set.shard("shards"), &options);
        assert_eq!(
            (output.status.code(), stderr(&output).as_str()),
            (Some(0), "")
        );
        let output = set.validate(&embeddings, &set.shard("shards"), &[]);
        let message = "coverage: 4 rows missing, 1 file without list of rejects";
        assert_failed(&output, 1, message);
    }
}

/// Whether to drop the row with this ordinal and start.
type IsDropped = fn(u64, u32) -> bool;

/// A shard like that at `path` without some rows.
fn without(path: &Path, out: &Path, dropped: impl Fn(u64, u32) -> bool) {
    let shard = read_shard(path).expect("a shard");
    let mut writer = RecordListWriter::create(out, Kind::Shard).expect("create");
    for row in shard.rows().iter() {
        if !dropped(row.key.ordinal, row.key.start) {
            writer.push(&row).expect("push");
        }
    }
    let finished = writer.finish(&shard.provenance).expect("finish");
    finished.1.finish().expect("publish");
}

#[test]
fn validation_is_about_whole_proteins() {
    let set = Set::new(30);
    set.rows(256, "e.parquet", &["--layers", "0,4"]);
    let [rejects, manifest] =
        ["rejects.csv", "manifest.json"].map(|name| set.path("shards").join(name));
    let all = [
        "--rejects".as_ref(),
        rejects.as_path(),
        "--manifest".as_ref(),
        &manifest,
    ];
    let output = set.validate("e.parquet", &set.shard("shards"), &all);
    assert_eq!(
        (output.status.code(), stderr(&output).as_str()),
        (Some(0), "")
    );

    // P1 has windows from 0 and 70, P2 from 0, 70, 140, …
    for (name, ordinal, start, n_windows) in [("first", 1, 0, "1"), ("middle", 2, 140, "21")] {
        let shard = set.path(&format!("without-{name}.parquet"));
        without(&set.shard("shards"), &shard, |found, at| {
            (found, at) == (ordinal, start)
        });
        let output = set.validate("e.parquet", &shard, &[]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let records = format!(
            "records: 1 row of other residues, 1 row of another number of windows; first: ordinal {ordinal} 'P{ordinal}'"
        );
        assert_has(&said, &records);
        assert_has(&said, "1 file of batches of other shards");
        let report = set.path("report.json");
        set.validate("e.parquet", &shard, &["--report".as_ref(), &report]);
        let report = fs::read_to_string(report).expect("report");
        let expected = format!("expected to be made from {n_windows} windows, found ");
        assert_has(&report, &expected);
    }

    // A file with a row for each window, alone and together with whole proteins.
    let separate = ["--windows", "separate", "--layers", "0,4"];
    set.rows(256, "separate.parquet", &separate);
    let output = set.validate("separate.parquet", &set.shard("shards"), &all);
    assert_eq!(output.status.code(), Some(0));
    let files = ["e.parquet", "separate.parquet"].map(|name| set.path(name));
    let mut both = bin("validate-embeddings");
    let said = stderr(&both.args(files).arg("--quiet").output().expect("run"));
    assert_has(&said, "expected windows \"stitch\" as in ");
    assert_has(&said, "1 file with other columns than the first");
}

#[test]
fn windows_that_cannot_be_stitched_are_refused() {
    let set = Set::new(30);
    let cases: [(IsDropped, &str); 3] = [
        (
            |ordinal, start| (ordinal, start) == (2, 0),
            "ordinal 2 'P2': expected a window from residue 0, found one from 70",
        ),
        (
            |ordinal, start| (ordinal, start) == (2, 140),
            "ordinal 2 'P2': expected a window from one of the residues 71 to 170, found one from 210",
        ),
        (
            |ordinal, start| ordinal == 4 && start > 200,
            "ordinal 4 'P4': expected windows to residue 333, found them to ",
        ),
    ];
    for (name, (dropped, message)) in ["first", "middle", "last"].into_iter().zip(cases) {
        fs::create_dir(set.path(name)).expect("folder");
        without(&set.shard("shards"), &set.shard(name), dropped);
        let batches = [set.pack(name, 256)];
        let output = set.embed(&batches, "e.parquet", &[]).output();
        let output = output.expect("run");
        assert_failed(&output, 65, message);
        assert_failed(&output, 65, "; pack-batches --force packs them anew");
        let separate = ["--windows", "separate", "--force"];
        run(&mut set.embed(&batches, "e.parquet", &separate));
    }
}

#[test]
fn batches_with_and_without_windows_do_not_mix() {
    let set = Set::new(30);
    set.cut("truncated", "truncate", MAX, 0);
    let (windows, truncated) = (set.pack("shards", 256), set.pack("truncated", 256));
    let expected = "truncated-256.arrow: expected batches of --long-policy window as in ";
    let found = ", found batches of --long-policy window";
    let both = [windows.clone(), truncated.clone()];
    assert_fails(set.embed(&both, "e.parquet", &[]), 65, expected);
    let both = [truncated.clone(), windows];
    assert_fails(set.embed(&both, "e.parquet", &[]), 65, found);

    // Without windows, the option does not matter.
    run(&mut set.embed(std::slice::from_ref(&truncated), "e.parquet", &[]));
    let said = run(&mut set.embed(&[truncated], "e.parquet", &["--windows", "separate"]));
    assert!(said.contains("already complete"), "{said}");
    let reader = EmbeddingsReader::open(&set.path("e.parquet")).expect("open");
    assert!(!reader.provenance().options.contains_key(WINDOWS));
    assert!(!reader.layout().stitched);
}

#[test]
fn the_option_for_windows_is_part_of_the_work_and_decides_on_contacts() {
    let set = Set::new(30);
    set.rows(256, "e.parquet", &[]);
    let batches = [set.pack("shards", 256)];
    let separate = ["--windows", "separate"];
    let what = "windows was \"stitch\" and is now \"separate\"";
    assert_fails(set.embed(&batches, "e.parquet", &separate), 73, what);
    let said = run(&mut set.embed(&batches, "e.parquet", &["--windows", "stitch"]));
    assert_has(&said, "already complete and verified, 5 rows");

    let mut embed = set.embed(&batches, "c.parquet", &[]);
    assert_fails(embed.arg("--contacts"), 2, "--windows separate");
    let mut embed = set.embed(&batches, "c.parquet", &separate);
    run(embed.arg("--contacts"));
}
