//! Proteins in windows, from FASTA to the verdict: `gpu-embed` puts them together, and nobody is misled about it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{self, assert_failed, assert_fails, bin, run, test_data};
use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{Float32Type, UInt32Type};
use plmkit_contract::{N_WINDOWS, WINDOWS, ordinals};
use plmkit_store::{EmbeddingsReader, ShardWriter, read_shard};

const MAX: usize = 100;
/// Residues of the proteins of a [`Set`]: one window, two, many, and just not two.
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
        let mut command = bin("validate-embeddings");
        command
            .arg(self.path(embeddings))
            .arg("--shards")
            .arg(shard)
            .args(options)
            .arg("--quiet");
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
        for row in 0..batch.num_rows() {
            let number = |name: &str| {
                let column = batch.column_by_name(name)?;
                Some(column.as_primitive::<UInt32Type>().value(row))
            };
            let ordinal = ordinals(&batch)[row];
            let key = (ordinal, number("start").expect("start"));
            let columns = reader.layout().columns.iter().map(ToString::to_string);
            let found = Row {
                id: batch["id"].as_string::<i32>().value(row).to_owned(),
                length: number("length").expect("length"),
                digest: batch["sequence_digest"]
                    .as_string::<i32>()
                    .value(row)
                    .to_owned(),
                n_windows: number(N_WINDOWS),
                values: columns
                    .map(|name| (name.clone(), values(&batch, &name, row)))
                    .collect(),
            };
            assert!(!batch["truncated"].as_boolean().value(row));
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

/// The vectors of all residues of a protein: each the mean over the windows, weighted by the number of residues to the
/// nearer end of the window.
fn blend(windows: &[(usize, &Row)], column: &str, dim: usize) -> Vec<Vec<f64>> {
    let length = windows[0].1.length as usize;
    (0..length)
        .map(|residue| {
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
        })
        .collect()
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
    // Of 70 residues: most residues are in three or four windows.
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
            assert_eq!(
                (row.id.as_str(), row.length as usize),
                (format!("P{ordinal}").as_str(), length)
            );
            assert_eq!(row.n_windows, Some(windows.len() as u32));
            assert_eq!(windows[0].1.n_windows, None);
            let of = |column: &str| &row.values[column];
            assert_close(
                of("logits"),
                &blend(&windows, "logits", 33).concat(),
                "logits",
            );
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
                let weighted: Vec<Vec<f64>> = windows
                    .iter()
                    .map(|(_, window)| {
                        let residues = window.values[&residues].len() / DIM;
                        let values = window.values[&bos].iter();
                        values
                            .map(|&value| residues as f64 * f64::from(value))
                            .collect()
                    })
                    .collect();
                let residues: usize = windows
                    .iter()
                    .map(|(_, window)| window.values[&residues].len() / DIM)
                    .sum();
                let sum = |values: &[f64]| values.iter().sum::<f64>() / residues as f64;
                assert_close(of(&bos), &channels(&weighted, sum), &bos);
            }
        }
    }
}

#[test]
fn a_stitched_row_is_like_that_of_full_length() {
    let set = Set::new(30);
    let stitched = set.rows(16384, "stitched.parquet", &[]);
    set.cut("whole", "window", 5000, 30);
    run(&mut set.embed(&[set.pack("whole", 16384)], "whole.parquet", &[]));
    let whole = read(&set.path("whole.parquet"));
    assert_eq!(
        stitched.keys().collect::<Vec<_>>(),
        whole.keys().collect::<Vec<_>>()
    );
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
    let options = [
        "--pool",
        "mean,max,std,bos",
        "--layers",
        "4",
        "--residues",
        "--logits",
    ];
    let expected = set.rows(16384, "16384.parquet", &options);
    // Two windows, two and a half, and less than one in a pack.
    for budget in [204, 256, 40] {
        let found = set.rows(budget, &format!("{budget}.parquet"), &options);
        assert!(found == expected, "{budget}");
    }
    // Windows that were computed in halves, and in halves of these.
    for most in [250, 102] {
        let most = format!("out-of-memory-above={most}");
        let options = [&options[..], &["--inject", &most]].concat();
        let found = set.rows(16384, &format!("{most}.parquet"), &options);
        assert!(found == expected, "{most}");
    }
}

#[test]
fn a_protein_of_which_a_window_cannot_be_embedded_is_rejected_once() {
    let set = Set::new(30);
    for budget in [16384, 256] {
        // Full windows have 102 tokens. The last windows are shorter and would fit.
        let output = set
            .embed(
                &[set.pack("shards", budget)],
                &format!("{budget}.parquet"),
                &["--inject", "out-of-memory-above=101"],
            )
            .output()
            .expect("run");
        assert_eq!(output.status.code(), Some(1));
        let rejects = set.path(&format!("{budget}.rejects.csv"));
        assert_eq!(
            fs::read_to_string(&rejects).expect("rejects"),
            "ordinal,id,length,reason,start\n1,P1,150,out_of_memory,0\n2,P2,1533,out_of_memory,0\n\
             3,P3,100,out_of_memory,0\n4,P4,333,out_of_memory,0\n"
        );
        let embeddings = format!("{budget}.parquet");
        assert_eq!(read(&set.path(&embeddings)).len(), 1);
        let of_shards = set.path("shards/rejects.csv");
        let options = [Path::new("--rejects"), &of_shards, &rejects];
        let output = set.validate(&embeddings, &set.shard("shards"), &options);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.as_ref()), (Some(0), ""));
        let output = set.validate(&embeddings, &set.shard("shards"), &[]);
        let message = "coverage: 1 row, 5 expected: 0 rejected, 4 missing";
        assert_failed(&output, 1, message);
    }
}

/// A shard like that at `path` without some rows.
fn without(path: &Path, out: &Path, dropped: impl Fn(u64, u32) -> bool) {
    let shard = read_shard(path).expect("a shard");
    let mut writer = ShardWriter::create(out, 1 << 20).expect("create");
    for row in shard.rows().iter() {
        if !dropped(row.key.ordinal, row.key.start) {
            writer.push(&row).expect("push");
        }
    }
    let finished = writer.finish(&shard.provenance).expect("finish");
    finished.publish().expect("publish");
}

#[test]
fn the_verdict_is_about_whole_proteins() {
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
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.as_ref()), (Some(0), ""));

    // P1 has windows from 0 and 70, P2 from 0, 70, 140, …
    for (name, ordinal, start, n_windows) in [("first", 1, 0, "1"), ("middle", 2, 140, "21")] {
        let shard = set.path(&format!("without-{name}.parquet"));
        without(&set.shard("shards"), &shard, |found, at| {
            (found, at) == (ordinal, start)
        });
        let output = set.validate("e.parquet", &shard, &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let records = format!(
            "records: 5 rows compared: 0 other ids, 0 other lengths, 0 other truncations, \
             1 other residues, 1 other numbers of windows; first: ordinal {ordinal} 'P{ordinal}'"
        );
        assert!(said.contains(&records), "{said}");
        assert!(said.contains("1 batches of other shards"), "{said}");
        let report = set.path("report.json");
        set.validate("e.parquet", &shard, &["--report".as_ref(), &report]);
        let report = fs::read_to_string(report).expect("report");
        let expected = format!("expected to be made from {n_windows} windows, found ");
        assert!(report.contains(&expected), "{report}");
    }

    // A row for each window, and whole proteins with them.
    set.rows(
        256,
        "separate.parquet",
        &["--windows", "separate", "--layers", "0,4"],
    );
    let output = set.validate("separate.parquet", &set.shard("shards"), &all);
    assert_eq!(output.status.code(), Some(0));
    let separate = set.path("separate.parquet");
    let output = bin("validate-embeddings")
        .args([set.path("e.parquet"), separate])
        .arg("--quiet")
        .output()
        .expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("expected windows \"stitch\" as in ")
            && said.contains("dimensions: 1 of 2 files differ"),
        "{said}"
    );
}

#[test]
fn windows_that_cannot_be_put_together_are_refused() {
    let set = Set::new(30);
    let refused = |name: &str, dropped: &dyn Fn(u64, u32) -> bool, message: &str| {
        fs::create_dir(set.path(name)).expect("folder");
        without(&set.shard("shards"), &set.shard(name), dropped);
        let output = set.embed(&[set.pack(name, 256)], "e.parquet", &[]).output();
        let output = output.expect("run");
        assert_failed(&output, 65, message);
        assert_failed(&output, 65, "; pack-batches --force packs them anew");
        run(&mut set.embed(
            &[set.pack(name, 256)],
            "e.parquet",
            &["--windows", "separate", "--force"],
        ));
    };
    refused(
        "first",
        &|ordinal, start| (ordinal, start) == (2, 0),
        "ordinal 2 'P2': expected a window from residue 0, found one from 70",
    );
    refused(
        "middle",
        &|ordinal, start| (ordinal, start) == (2, 140),
        "ordinal 2 'P2': expected a window from one of the residues 71 to 170, found one from 210",
    );
    refused(
        "last",
        &|ordinal, start| ordinal == 4 && start > 200,
        "ordinal 4 'P4': expected windows to residue 333, found them to ",
    );
}

#[test]
fn batches_with_and_without_windows_are_no_run() {
    let set = Set::new(30);
    set.cut("truncated", "truncate", MAX, 0);
    let (windows, truncated) = (set.pack("shards", 256), set.pack("truncated", 256));
    assert_fails(
        set.embed(&[windows.clone(), truncated.clone()], "e.parquet", &[]),
        65,
        "truncated-256.arrow: expected batches of --long-policy window as in ",
    );
    assert_fails(
        set.embed(&[truncated.clone(), windows], "e.parquet", &[]),
        65,
        ", found batches of --long-policy window",
    );

    // Without windows there is nothing to choose.
    run(&mut set.embed(std::slice::from_ref(&truncated), "e.parquet", &[]));
    let said = run(&mut set.embed(&[truncated], "e.parquet", &["--windows", "separate"]));
    assert!(said.contains("already complete"), "{said}");
    let reader = EmbeddingsReader::open(&set.path("e.parquet")).expect("open");
    assert!(!reader.provenance().options.contains_key(WINDOWS));
    assert!(!reader.layout().stitched);
}

#[test]
fn the_way_is_part_of_the_work() {
    let set = Set::new(30);
    set.rows(256, "e.parquet", &[]);
    let batches = [set.pack("shards", 256)];
    assert_fails(
        set.embed(&batches, "e.parquet", &["--windows", "separate"]),
        73,
        "windows was \"stitch\" and is now \"separate\"",
    );
    let said = run(&mut set.embed(&batches, "e.parquet", &["--windows", "stitch"]));
    assert!(
        said.contains("already complete and verified, 5 rows"),
        "{said}"
    );
}

#[test]
fn contacts_are_of_windows_or_of_proteins_at_full_length() {
    let set = Set::new(30);
    let batches = [set.pack("shards", 256)];
    // Before the model is looked at.
    let mut embed = bin("gpu-embed");
    embed.args(&batches).args(["--contacts", "--device", "cpu"]);
    embed.args(["--model", "nowhere", "--out"]);
    assert_fails(embed.arg(set.path("e.parquet")), 2, "--windows separate");
    run(&mut set.embed(
        &batches,
        "e.parquet",
        &["--contacts", "--windows", "separate"],
    ));
}
