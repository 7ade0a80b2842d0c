//! `gpu-embed --scores masked`: each residue is predicted from the others, and a protein is the unit of everything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, RecordBatch};
use plmkit_contract::{AMINO_ACIDS, Column, KeyColumns, MASK, tokenize};
use plmkit_esm2::{ComputeOptions, Device, Dtype, Esm2, Varlen};
use plmkit_kit::Stop;
use serde_json::Value;

use crate::common::case::{Case, SIGKILL, SIGTERM, send};
use crate::common::{self, assert_fails, run, test_data};
use crate::{assert_has, rows, stderr, validate_shard};

const SCORES: usize = AMINO_ACIDS.len();
const MASKED: [&str; 2] = ["--scores", "masked"];
const PROTEINS: [&str; 5] = [
    "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSG",
    "M",
    "MKXUVLA",
    "XBUZO",
    "ACDEFGHIKLMNPQRSTVWYACDEFGHIKLMNPQRSTVWYMKVLA",
];

struct Set {
    folder: tempfile::TempDir,
}

/// Scores of a row: the log-probabilities of each residue, and the likelihood.
type Scored = (Vec<[f32; SCORES]>, Option<f32>);

impl Set {
    fn new(options: &[&str]) -> Self {
        let set = Self {
            folder: tempfile::tempdir().expect("temp folder"),
        };
        let records = PROTEINS.iter().enumerate();
        let records = records.map(|(at, residues)| format!(">P{at}\n{residues}\n"));
        fs::write(set.path("in.fasta"), records.collect::<String>()).expect("write");
        common::shard(&set.path("in.fasta"), &set.path("shards"), options);
        set
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn shard(&self) -> PathBuf {
        self.path("shards/shard-00000.parquet")
    }

    /// A run on batches of this budget.
    fn unmasked(&self, budget: u32, out: &str, options: &[&str]) -> Command {
        let batches = self.path(&format!("{budget}.arrow"));
        common::pack(&self.shard(), &batches, budget);
        let mut embed = common::embed(&[&batches], &test_data("model-tiny"), &self.path(out));
        embed.args(options);
        embed
    }

    fn embed(&self, budget: u32, out: &str, options: &[&str]) -> Command {
        self.unmasked(budget, out, &[&MASKED, options].concat())
    }

    fn rows(&self, budget: u32, out: &str, options: &[&str]) -> Vec<RecordBatch> {
        run(&mut self.embed(budget, out, options));
        rows(&self.path(out))
    }

    fn scores(&self, budget: u32, out: &str, options: &[&str]) -> BTreeMap<(u64, u32), Scored> {
        scores(&self.rows(budget, out, options))
    }

    fn positions(&self, text: &str) -> String {
        let path = self.path("positions");
        fs::write(&path, text).expect("write");
        path.to_str().expect("UTF-8").to_owned()
    }
}

fn scores(batches: &[RecordBatch]) -> BTreeMap<(u64, u32), Scored> {
    let mut scores = BTreeMap::new();
    for batch in batches {
        let likelihoods = batch["log_likelihood"].as_primitive::<Float32Type>();
        for (row, key) in KeyColumns::new(batch).rows().enumerate() {
            let residues = batch["log_probs"].as_list::<i32>().value(row);
            let values = residues.as_fixed_size_list().values();
            let values = values.as_primitive::<Float32Type>().values();
            let likelihood = likelihoods.is_valid(row).then(|| likelihoods.value(row));
            let log_probs = values.as_chunks().0.to_vec();
            scores.insert(key.sort_key(), (log_probs, likelihood));
        }
    }
    scores
}

/// The log-probabilities of each residue, from the logits of a copy of the sequence alone in which it is masked.
fn one_by_one(model: &Esm2, sequence: &str) -> Vec<[f64; SCORES]> {
    let mut tokens = Vec::new();
    tokenize(sequence.as_bytes(), &mut tokens).expect("residues");
    let residues = (0..sequence.len()).map(|residue| {
        let mut copy = tokens.clone();
        copy[residue + 1] = MASK;
        let offsets = [0, (copy.len() as u32).cast_signed()];
        let alone = Varlen::new(&copy, &offsets).expect("a sequence");
        let logits = model.embed(alone, &[Column::Logits], Dtype::F32, &Stop::default());
        let logits = &logits.expect("computed")[0][residue * 33..][..33];
        let of = AMINO_ACIDS.map(|letter| {
            let mut token = Vec::new();
            tokenize(&[letter], &mut token).expect("a residue");
            f64::from(logits[usize::from(token[1])])
        });
        let sum: f64 = of.iter().map(|logit| logit.exp()).sum();
        of.map(|logit| logit - sum.ln())
    });
    residues.collect()
}

fn model() -> Esm2 {
    let options = ComputeOptions {
        device: Device::Cpu,
        ..ComputeOptions::default()
    };
    Esm2::load(&test_data("model-tiny"), options, &Stop::default()).expect("a model")
}

#[test]
fn each_residue_is_predicted_from_the_others_whatever_the_batch() {
    let (set, model) = (Set::new(&[]), model());
    let first = set.rows(200, "first.parquet", &["--logits", "--threads", "1"]);
    for ((ordinal, _), (found, likelihood)) in scores(&first) {
        let sequence = PROTEINS[ordinal as usize];
        let expected = one_by_one(&model, sequence);
        assert_eq!(found.len(), sequence.len());
        let mut own = Vec::new();
        for ((found, expected), letter) in found.iter().zip(&expected).zip(sequence.bytes()) {
            for (found, expected) in found.iter().zip(expected) {
                let distance = (f64::from(*found) - expected).abs();
                assert!(
                    distance < 2e-6 * expected.abs().max(1.0),
                    "{found} {expected}"
                );
            }
            let place = AMINO_ACIDS.iter().position(|&other| other == letter);
            own.extend(place.map(|place| expected[place]));
        }
        let mean = own.iter().sum::<f64>() / own.len() as f64;
        match likelihood {
            None => assert_eq!(sequence, "XBUZO"),
            Some(found) => assert!((f64::from(found) - mean).abs() < 1e-5 * mean.abs()),
        }
    }
    // The other columns are those of the unmasked protein.
    run(&mut set.unmasked(200, "plain.parquet", &["--logits"]));
    let plain = rows(&set.path("plain.parquet"));
    for name in ["mean_4", "logits", "sequence_digest"] {
        assert_eq!(first[0][name].as_ref(), plain[0][name].as_ref(), "{name}");
    }
    for (budget, options) in [
        (5, "--threads 2"),
        (120, "--threads 3"),
        (9000, "--threads 2"),
        (9000, "--inject out-of-memory-above=60"),
    ] {
        let words: Vec<&str> = options.split(' ').chain(["--logits", "--force"]).collect();
        let other = set.rows(budget, "other.parquet", &words);
        assert!(other == first, "{budget} {options}");
    }
    run(validate_shard(&set.path("first.parquet"), &set.shard())
        .arg("--model")
        .arg(test_data("model-tiny")));
}

#[test]
fn only_listed_positions_are_masked() {
    let set = Set::new(&[]);
    let all = set.scores(9000, "all.parquet", &[]);
    let table = set
        .positions("id\tposition\tnote\nP0\t50\tx\nP0\t1\t\nP2\t3\t\nP2\t7\t\nP1\t1\t\nP0\t1\t\n");
    let limited = ["--scores-positions", table.as_str()];
    let masked = BTreeSet::from([(0, 0), (0, 49), (1, 0), (2, 2), (2, 6)]);
    let some = set.scores(9000, "some.parquet", &limited);
    for (&(ordinal, start), (found, likelihood)) in &some {
        let (expected, of_all) = &all[&(ordinal, start)];
        for (residue, (found, expected)) in found.iter().zip(expected).enumerate() {
            if masked.contains(&(ordinal, residue)) {
                let [found, expected] = [found, expected].map(|values| values.map(f32::to_bits));
                assert_eq!(found, expected, "{ordinal} {residue}");
            } else {
                assert!(
                    found.iter().all(|value| value.is_nan()),
                    "{ordinal} {residue}"
                );
            }
        }
        // P1 has one residue; the others have some that are not masked.
        let expected = if ordinal == 1 { *of_all } else { None };
        assert_eq!(*likelihood, expected, "{ordinal}");
    }
    let again = set.scores(60, "again.parquet", &limited);
    assert_eq!(format!("{again:?}"), format!("{some:?}"));
    // Ids of other shards are told once.
    let text = fs::read_to_string(&table).expect("positions") + "P8\t9\t\nP7\t5\t\n";
    set.positions(&text);
    let said = run(&mut set.embed(60, "others.parquet", &limited));
    let what = "line 8 'P8' '9': not in these batches, the first of 2 of 5 ids: expected in those of other shards";
    assert_eq!(said.matches(what).count(), 1, "{said}");
    let others = scores(&rows(&set.path("others.parquet")));
    assert_eq!(format!("{others:?}"), format!("{some:?}"));
    run(validate_shard(&set.path("some.parquet"), &set.shard())
        .arg("--model")
        .arg(test_data("model-tiny")));

    // Another way, and other positions, are other work.
    let mut embed = set.embed(9000, "some.parquet", &[]);
    assert_fails(&mut embed, 73, "scores_positions");
    let table = set.positions("id,position\nP0,50\n");
    let mut embed = set.embed(9000, "some.parquet", &["--scores-positions", &table]);
    assert_fails(&mut embed, 73, "scores_positions");
    let none = set.positions("id,position\n");
    let mut embed = set.embed(9000, "none.parquet", &["--scores-positions", &none]);
    assert_fails(&mut embed, 65, "expected a position, found none");
}

#[test]
fn wrong_positions_are_refused_before_anything_is_written() {
    let set = Set::new(&[]);
    for (text, what) in [
        (
            "id,position\nP0,51\n",
            "line 2 'P0' '51': expected a position from 1 to 50",
        ),
        (
            "id,position\nP0,0\n",
            "line 2 'P0' '0': expected a position, counted from 1",
        ),
        (
            "id,place\nP0,0\n",
            "line 1: expected the columns id,position, found 'id,place'",
        ),
    ] {
        let table = set.positions(text);
        let embed = set.embed(9000, "e.parquet", &["--scores-positions", &table]);
        assert_fails(embed, 65, what);
    }
    let embed = set.embed(9000, "e.parquet", &["--scores-positions", "/none"]);
    assert_fails(embed, 66, "/none");
    let table = set.positions("id,position\nP0,1\n");
    let plain = set.unmasked(
        9000,
        "e.parquet",
        &["--scores", "--scores-positions", &table],
    );
    assert_fails(plain, 2, "expected --scores masked with it");
    let own = set.path("positions");
    let own = own.to_str().expect("UTF-8");
    let embed = set.embed(9000, "positions", &["--scores-positions", own, "--force"]);
    assert_fails(embed, 2, "--scores-positions");
    assert!(common::files_in(set.folder.path(), "e.").is_empty());
    assert!(common::files_in(set.folder.path(), ".e.").is_empty());
}

#[test]
fn windows_are_masked_each_and_blended_as_logits() {
    let set = Set::new(&[
        "--long-policy",
        "window",
        "--max-residues",
        "30",
        "--overlap",
        "10",
    ]);
    let windows = set.scores(60, "separate.parquet", &["--windows", "separate"]);
    let proteins = set.scores(60, "stitch.parquet", &["--threads", "2"]);
    let again = set.scores(9000, "again.parquet", &["--threads", "1"]);
    assert_eq!(again, proteins);
    for (&(ordinal, _), (found, _)) in &proteins {
        let sequence = PROTEINS[ordinal as usize];
        assert_eq!(found.len(), sequence.len());
        let own: Vec<_> = windows.range((ordinal, 0)..=(ordinal, u32::MAX)).collect();
        for (residue, found) in found.iter().enumerate() {
            let holding = own.iter().filter_map(|((_, start), (values, _))| {
                let at = residue.checked_sub(*start as usize)?;
                Some((values.get(at)?, (at + 1).min(values.len() - at) as f64))
            });
            let mut blended = [0.0; SCORES];
            for (values, weight) in holding {
                for (sum, &value) in blended.iter_mut().zip(values) {
                    *sum += weight * f64::from(value);
                }
            }
            // Log-probabilities are logits less a constant, and sum up to one again after the mean.
            let weights: f64 = own
                .iter()
                .filter_map(|((_, start), (values, _))| {
                    let at = residue.checked_sub(*start as usize)?;
                    (at < values.len()).then(|| (at + 1).min(values.len() - at) as f64)
                })
                .sum();
            let means = blended.map(|sum| sum / weights);
            let total = means.iter().map(|mean| mean.exp()).sum::<f64>().ln();
            for (found, mean) in found.iter().zip(means) {
                let expected = mean - total;
                assert!((f64::from(*found) - expected).abs() < 1e-5 * expected.abs().max(1.0));
            }
        }
    }
    let table = set.positions("id,position\nP0,26\n");
    let options = ["--scores-positions", table.as_str()];
    let some = set.scores(60, "some.parquet", &options);
    let bits = |of: &BTreeMap<(u64, u32), Scored>| of[&(0, 0)].0[25].map(f32::to_bits);
    assert_eq!(bits(&some), bits(&proteins));
    let others = some[&(0, 0)].0.iter().filter(|values| values[0].is_nan());
    assert_eq!(others.count(), PROTEINS[0].len() - 1);
    for out in ["separate.parquet", "stitch.parquet", "some.parquet"] {
        run(validate_shard(&set.path(out), &set.shard())
            .arg("--model")
            .arg(test_data("model-tiny")));
    }
}

#[test]
fn events_count_the_tokens_that_were_computed() {
    let set = Set::new(&[]);
    let events = set.path("events.jsonl");
    let mut embed = set.embed(200, "e.parquet", &[]);
    let said = run(embed.arg("--events").arg(&events));
    let lengths = PROTEINS.map(|sequence| sequence.len() as u64);
    let tokens: u64 = lengths
        .iter()
        .map(|length| (length + 1) * (length + 2))
        .sum();
    assert_has(&said, &format!("{tokens} tokens"));
    let text = fs::read_to_string(&events).expect("events");
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(events[0]["tokens_total"], tokens);
    let batches = &events[1..events.len() - 1];
    assert_eq!(batches.len(), PROTEINS.len());
    let sum = |name: &str| {
        batches
            .iter()
            .map(|batch| batch[name].as_u64().expect("a number"))
            .sum::<u64>()
    };
    assert_eq!(sum("tokens"), tokens);
    assert_eq!(
        sum("sequences"),
        lengths.iter().map(|length| length + 1).sum::<u64>()
    );
    let pairs = lengths
        .iter()
        .map(|length| (length + 1) * (length + 2).pow(2));
    assert_eq!(sum("pairs"), pairs.sum::<u64>());

    // The estimate of the same work is the same.
    let line = "monitor-log estimate shards --model facebook/esm2_t6_8M_UR50D --scores masked --report e.json";
    run(&mut common::command(set.folder.path(), line));
    let estimate: Value =
        serde_json::from_slice(&fs::read(set.path("e.json")).expect("report")).expect("JSON");
    for name in ["tokens", "sequences", "pairs"] {
        assert_eq!(estimate[name], sum(name), "{name}");
    }
}

#[test]
fn an_interruption_costs_no_finished_protein() {
    let case = Case::of(1);
    run(case.embed("undisturbed.parquet").args(MASKED));
    let expected = fs::read(case.path("undisturbed.parquet")).expect("output");
    for signal in [SIGKILL, SIGTERM] {
        let before = case.parts("e.parquet").len();
        let mut child = case.underway_with("e.parquet", &MASKED);
        send(&child, signal);
        child.wait().expect("wait");
        assert!(case.parts("e.parquet").len() >= before + 3);
    }
    let mut plain = case.embed("e.parquet");
    assert_fails(plain.arg("--scores"), 73, "scores");
    assert_has(
        &run(case.embed("e.parquet").args(MASKED)),
        "saved by an earlier run",
    );
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn a_protein_that_cannot_be_scored_is_rejected_alone() {
    let set = Set::new(&[]);
    let all = set.scores(9000, "all.parquet", &[]);
    for (options, what) in [
        ("--inject not-finite=0", "not_finite"),
        ("--inject out-of-memory-above=50", "out_of_memory"),
    ] {
        let words: Vec<&str> = options.split(' ').chain(["--force"]).collect();
        let output = set.embed(9000, "e.parquet", &words).output().expect("run");
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let listed = fs::read_to_string(set.path("e.rejects.csv")).expect("list");
        assert_eq!(
            listed.lines().skip(1).collect::<Vec<_>>(),
            [format!("0,P0,50,{what},0")]
        );
        let mut left = all.clone();
        left.remove(&(0, 0));
        assert_eq!(scores(&rows(&set.path("e.parquet"))), left, "{options}");
    }
    let unknown = set.unmasked(9000, "other.parquet", &["--scores", "b.arrow"]);
    assert_fails(unknown, 2, "[possible values: wild-type, masked]");
}
