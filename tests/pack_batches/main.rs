//! `pack-batches`, the real binary.

#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt32Type};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::FileReader;
use common::{SmallDisk, assert_failed, assert_fails, bin, command, run, test_data, tree, visible};
use plmkit_contract::{
    KeyColumns, Kind, Labels, Provenance, RowKey, SequenceDigest, ShardRow, batches_schema,
    ordinals,
};
use plmkit_kit::Stop;
use plmkit_store::{BatchesFile, RecordListWriter};
use serde_json::Value;

/// ESM-2's vocabulary from token 4 on, as fair-esm lists it.
const RESIDUES: &str = "LAGVSERTIDPKQNFYMHWCXBUZO";

/// Makes sequences of many lengths that contain every residue.
fn sequences(count: usize) -> Vec<String> {
    let length = |place: usize| 1 + (place * 7919) % 601;
    let residues = |place: usize| RESIDUES.chars().cycle().skip(place % 25);
    (0..count)
        .map(|place| residues(place).take(length(place)).collect())
        .collect()
}

fn write_shard(path: &Path, sequences: &[String]) {
    let mut writer = RecordListWriter::create(path, Kind::Shard).expect("create");
    for (ordinal, sequence) in (0..).zip(sequences) {
        let key = RowKey {
            ordinal: 3 * ordinal,
            id: &format!("protein-{ordinal}"),
            start: ordinal as u32 % 2,
            length: sequence.len() as u32 + 5,
            truncated: ordinal % 3 == 0,
            digest: SequenceDigest::new(sequence.as_bytes()),
            n_windows: 1,
        };
        let row = ShardRow {
            key,
            description: None,
            sequence,
        };
        writer.push(&row).expect("push");
    }
    let finished = writer.finish(&Provenance::new("fasta-shard", vec![]));
    finished.expect("finish").1.finish().expect("publish");
}

/// Creates a folder with `shard.parquet` of `count` sequences.
fn shard(count: usize) -> (tempfile::TempDir, PathBuf, Vec<String>) {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("shard.parquet");
    let sequences = sequences(count);
    write_shard(&path, &sequences);
    (folder, path, sequences)
}

fn pack(shard: &Path, out: &Path, max_batch_tokens: u32) -> Command {
    let mut command = bin("pack-batches");
    command.arg(shard).arg("--out").arg(out);
    command.args(["--max-batch-tokens", &max_batch_tokens.to_string()]);
    command
}

/// Packs a shard with a report, and returns the batches and the report.
fn packed(shard: &Path, max_batch_tokens: u32) -> (Vec<RecordBatch>, Value) {
    let [out, report] = ["out.arrow", "report.json"].map(|name| shard.with_file_name(name));
    run(pack(shard, &out, max_batch_tokens)
        .args(["--force", "--report"])
        .arg(&report));
    let report = fs::read(&report).expect("report");
    let report = serde_json::from_slice(&report).expect("JSON");
    (record_batches(&out), report)
}

/// Reads record batches with a general reader of Arrow IPC files.
fn record_batches(path: &Path) -> Vec<RecordBatch> {
    let reader = FileReader::try_new(File::open(path).expect("open"), None).expect("an IPC file");
    assert_eq!(
        reader.schema().fields(),
        batches_schema(Labels::default()).fields()
    );
    reader.map(|batch| batch.expect("a record batch")).collect()
}

fn modified(path: &Path) -> SystemTime {
    let modified = fs::metadata(path).and_then(|found| found.modified());
    modified.expect("a time")
}

#[test]
fn batches_that_are_far_from_full_are_an_error_of_the_log_alone() {
    let folder = tempfile::tempdir().expect("temp folder");
    let shard = folder.path().join("shard.parquet");
    let log = |residues: usize| -> Vec<String> {
        write_shard(&shard, &vec![RESIDUES.repeat(4)[..residues].to_owned(); 5]);
        let mut pack = pack(&shard, &folder.path().join("out.arrow"), 100);
        let said = run(pack.args(["--force", "--log-format", "json"]));
        let lines = said
            .lines()
            .map(|line| -> Value { serde_json::from_str(line).expect("JSON") });
        let told =
            lines.filter(|line| line["message"].as_str().expect("text").contains("expected"));
        told.map(|line| line["level"].as_str().expect("text").to_owned())
            .collect()
    };
    // With <cls> and <eos>, 79, 80, 84 and 85 % of 100 tokens.
    let found = [77, 78, 82, 83].map(log);
    assert_eq!(found, [vec!["error"], vec!["warn"], vec!["warn"], vec![]]);
}

#[test]
fn the_offsets_of_tokens_are_cu_seqlens_and_the_values_are_the_packed_ids() {
    let (folder, shard, sequences) = shard(2500);
    let out = folder.path().join("out.arrow");
    run(&mut pack(&shard, &out, 2048));

    let mut seen = BTreeMap::new();
    for batch in record_batches(&out) {
        let list = batch["tokens"].as_list::<i32>();
        let ids = batch["id"].as_string::<i32>();
        let (mut packed, mut cu_seqlens) = (Vec::new(), vec![0_i32]);
        for row in 0..batch.num_rows() {
            let place = ids.value(row)["protein-".len()..].parse::<usize>();
            let place = place.expect("a number");
            let sequence = &sequences[place];
            packed.push(0); // <cls>
            let token = |residue| 4 + RESIDUES.find(residue).expect("a residue") as u8;
            packed.extend(sequence.chars().map(token));
            packed.push(2); // <eos>
            cu_seqlens.push(i32::try_from(packed.len()).expect("few tokens"));

            let key = KeyColumns::new(&batch).row(row);
            assert_eq!(key.sort_key(), (3 * place as u64, place as u32 % 2));
            let (length, truncated) = (sequence.len() as u32 + 5, place.is_multiple_of(3));
            assert_eq!((key.length, key.truncated), (length, truncated));
            assert_eq!(key.digest, SequenceDigest::new(sequence.as_bytes()));
            *seen.entry(place).or_insert(0) += 1;
        }
        assert!(packed.len() <= 2048);
        // The raw buffers, not slices of larger ones.
        let data = list.to_data();
        assert_eq!(data.offset(), 0);
        assert_eq!(data.buffers()[0].typed_data::<i32>(), cu_seqlens);
        let values = list.values().as_primitive::<UInt8Type>();
        assert_eq!(values.to_data().buffers()[0].as_slice(), packed);
        assert_eq!((list.null_count(), values.null_count()), (0, 0));
    }
    assert_eq!(seen, (0..2500).map(|place| (place, 1)).collect());
}

#[test]
fn a_change_in_place_is_detected_when_a_batch_is_read() {
    let (folder, shard, _) = shard(200);
    let out = folder.path().join("out.arrow");
    run(&mut pack(&shard, &out, 1024));
    let stopped = Stop::default();
    stopped.request();
    let error = BatchesFile::open(&out, &stopped).expect_err("stopped before it is verified");
    assert_eq!(error.to_string(), "stopped");
    let whole = fs::read(&out).expect("read");
    let write = |bytes: &[u8]| {
        let file = File::options().write(true).open(&out).expect("open");
        file.write_all_at(bytes, 0).expect("write");
        file.set_len(bytes.len() as u64).expect("length");
    };
    let changed: Vec<u8> = whole.iter().map(|byte| byte ^ 1).collect();
    for other in [&changed[..], &whole[..whole.len() / 2]] {
        let file = BatchesFile::open(&out, &Stop::default()).expect("open");
        assert!(file.len() > 50, "more than the cache holds");
        let kept = file.batch(0).expect("a batch");
        write(other);
        assert_eq!(kept.cu_seqlens()[0], 0, "a batch in memory stays");
        let error = file.batch(file.len() / 2 + 3).expect_err("changed");
        assert!(error.to_string().contains("damaged: bytes "), "{error}");
        write(&whole);
    }
}

#[test]
fn the_same_shard_gives_the_same_bytes() {
    let (folder, shard, _) = shard(300);
    let packed = |name: &str| {
        let [out, report] = [name, "report.json"].map(|name| folder.path().join(name));
        run(pack(&shard, &out, 4096).arg("--report").arg(&report));
        [out, report].map(|path| fs::read(path).expect("output"))
    };
    assert!(packed("one.arrow") == packed("again.arrow"));
}

#[test]
fn the_longest_come_first_and_a_sequence_above_the_budget_is_alone() {
    let (folder, shard, sequences) = shard(100);
    let [out, report] = ["out.arrow", "report.json"].map(|name| folder.path().join(name));
    let stderr = run(pack(&shard, &out, 500).arg("--report").arg(&report));
    let lengths = sequences.iter().map(|sequence| sequence.len() + 2);
    let oversized = lengths.filter(|&tokens| tokens > 500).count();
    assert!(oversized > 0);
    let message = format!("{oversized} longer than 500 tokens");
    assert!(stderr.contains(&message), "{stderr}");

    let batches = record_batches(&out);
    let tokens: Vec<usize> = batches.iter().map(tokens_of).collect();
    let mut alone = batches[..oversized].iter();
    assert!(alone.all(|batch| batch.num_rows() == 1));
    assert!(tokens[..oversized].is_sorted_by(|a, b| a >= b));
    assert!(tokens[oversized..].iter().all(|&tokens| tokens <= 500));

    let report: Value = serde_json::from_slice(&fs::read(&report).expect("report")).expect("JSON");
    assert_eq!(report["batches"], batches.len());
    assert_eq!(report["oversized_batches"], oversized);
    assert_eq!(report["tokens"], tokens.iter().sum::<usize>());
    let room: usize = tokens.iter().map(|&tokens| tokens.max(500)).sum();
    let utilization = tokens.iter().sum::<usize>() as f64 / room as f64;
    assert!((report["utilization"].as_f64().expect("a number") - utilization).abs() < 1e-12);
    let padding = &report["padded_in_input_order"]["tokens"];
    assert_eq!(*padding, padded(&sequences, 500));
}

fn tokens_of(batch: &RecordBatch) -> usize {
    batch["tokens"].as_list::<i32>().values().len()
}

/// Counts the tokens of padded batches in input order.
fn padded(sequences: &[String], budget: usize) -> usize {
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for tokens in sequences.iter().map(|sequence| sequence.len() + 2) {
        let fits = batches.last().is_some_and(|batch| {
            (batch.len() + 1) * batch.iter().copied().chain([tokens]).max().unwrap_or(0) <= budget
        });
        match batches.last_mut() {
            Some(batch) if fits => batch.push(tokens),
            _ => batches.push(vec![tokens]),
        }
    }
    let padded = |batch: &Vec<usize>| batch.len() * batch.iter().max().unwrap_or(&0);
    batches.iter().map(padded).sum()
}

/// The windows of a protein, each as (batch, row, start, tokens).
type Windows = Vec<(usize, usize, u32, usize)>;

/// Returns the windows of each protein by its ordinal, in file order.
fn windows(batches: &[RecordBatch]) -> BTreeMap<u64, Windows> {
    let mut proteins: BTreeMap<u64, Windows> = BTreeMap::new();
    for (place, batch) in batches.iter().enumerate() {
        let ordinals = ordinals(batch);
        let starts = batch["start"].as_primitive::<UInt32Type>().values();
        let tokens = batch["tokens"].as_list::<i32>().offsets().lengths();
        for (row, tokens) in tokens.enumerate() {
            let window = (place, row, starts[row], tokens);
            proteins.entry(ordinals[row]).or_default().push(window);
        }
    }
    proteins
}

/// Writes a shard of the test proteins in windows of at most `max_residues`.
fn windowed(folder: &Path, max_residues: &str, overlap: &str) -> PathBuf {
    let options = ["--long-policy", "window", "--max-residues", max_residues];
    let options = [&options[..], &["--overlap", overlap]].concat();
    common::shard(
        &test_data("proteins.fasta"),
        &folder.join("shards"),
        &options,
    )
}

#[test]
fn batches_record_whether_their_set_has_windows() {
    let folder = tempfile::tempdir().expect("temp folder");
    let plain = folder.path().join("plain.parquet");
    write_shard(&plain, &sequences(5));
    // No protein of this shard is longer than a window. Another shard of the set may have one.
    let short = windowed(folder.path(), "5000", "20");
    for (shard, expected) in [(&plain, None), (&short, Some(&Value::Bool(true)))] {
        let out = folder.path().join("out.arrow");
        run(pack(shard, &out, 1000).arg("--force"));
        let file = BatchesFile::open(&out, &Stop::default()).expect("open");
        assert_eq!(file.provenance().options.get("windows"), expected);
    }
}

#[test]
fn the_windows_of_a_protein_share_a_batch_or_lie_in_consecutive_ones() {
    let folder = tempfile::tempdir().expect("temp folder");
    let shard = windowed(folder.path(), "100", "20");
    for budget in [60, 250, 1000, 2000] {
        let (batches, report) = packed(&shard, budget);
        let proteins = windows(&batches);
        assert_eq!(proteins.len(), 100);
        let (mut together, mut apart) = (0, 0);
        for windows in proteins.values() {
            let fits = windows.iter().map(|window| window.3).sum::<usize>() <= budget as usize;
            for (index, &(_, _, start, _)) in windows.iter().enumerate() {
                assert_eq!(start, 80 * index as u32, "all windows, in order");
            }
            for pair in windows.windows(2) {
                let [(batch, row, ..), next] = [pair[0], pair[1]];
                if (next.0, next.1) == (batch, row + 1) {
                    together += 1;
                } else {
                    assert!(!fits, "{pair:?} would fit into a batch of {budget}");
                    assert_eq!((next.0, next.1), (batch + 1, 0));
                    apart += 1;
                }
            }
            assert!(fits || windows[0].1 == 0, "{windows:?}");
        }
        // A batch of 60 has no room for two windows, one of 2000 for those of most proteins.
        assert_eq!(together > 0, budget > 60, "{budget}");
        assert!(apart > 0, "{budget}");
        let tokens = batches.iter().map(tokens_of);
        let oversized = tokens.filter(|&tokens| tokens > budget as usize);
        assert_eq!(report["oversized_batches"], oversized.count());
    }
}

#[test]
fn windows_that_stay_together_leave_no_room_unused() {
    let folder = tempfile::tempdir().expect("temp folder");
    let shard = windowed(folder.path(), "1022", "256");
    for budget in [4096, 16384] {
        let (_, report) = packed(&shard, budget);
        let least = report["min_utilization"].as_f64().expect("a number");
        assert!(least > 0.99, "{budget}: {least}");
    }
}

#[test]
fn a_shard_without_rows_gives_a_file_without_batches() {
    let (folder, shard, _) = shard(0);
    let (batches, report) = packed(&shard, 500);
    assert!(batches.is_empty());
    let file = BatchesFile::open(&folder.path().join("out.arrow"), &Stop::default());
    assert!(file.expect("a valid file").is_empty());
    assert_eq!(report["batches"], 0);
    assert_eq!(report["utilization"], Value::Null);
}

#[test]
fn a_complete_output_is_kept_and_other_work_is_not_overwritten() {
    let (folder, shard, mut sequences) = shard(100);
    let out = folder.path().join("out.arrow");
    run(&mut pack(&shard, &out, 1000));
    let (bytes, time) = (fs::read(&out).expect("read"), modified(&out));

    assert!(run(&mut pack(&shard, &out, 1000)).contains("already complete"));
    assert_eq!(modified(&out), time);

    let other = "max_batch_tokens was 1000 and is now 2000";
    assert_fails(pack(&shard, &out, 2000), 73, other);
    sequences.pop();
    write_shard(&shard, &sequences);
    let other = "the input is not the same";
    assert_fails(pack(&shard, &out, 1000), 73, other);
    assert!(fs::read(&out).expect("read") == bytes);

    run(pack(&shard, &out, 1000).arg("--force"));
    let rows: usize = record_batches(&out).iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 99);
    assert_eq!(visible(folder.path()), ["out.arrow", "shard.parquet"]);
}

#[test]
fn a_damaged_output_is_not_complete() {
    let (folder, shard, _) = shard(100);
    let out = folder.path().join("out.arrow");
    run(&mut pack(&shard, &out, 1000));
    let mut bytes = fs::read(&out).expect("read");
    let file = BatchesFile::open(&out, &Stop::default()).expect("open");
    let batch = file.batch(0).expect("a batch");
    let mut windows = bytes.windows(batch.tokens().len());
    let place = windows.position(|window| window == batch.tokens());
    bytes[place.expect("the file has the plain tokens") + 7] ^= 1;
    fs::write(&out, &bytes).expect("write");
    assert_fails(pack(&shard, &out, 1000), 65, "--force replaces it");
}

#[test]
fn a_bad_shard_is_one_line_and_leaves_nothing_behind() {
    let (folder, shard, _) = shard(100);
    let out = folder.path().join("out.arrow");
    let missing = folder.path().join("missing.parquet");
    assert_fails(pack(&missing, &out, 1000), 66, "missing.parquet");

    let whole = fs::read(&shard).expect("read");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 4;
    for bytes in [&damaged[..], &whole[..whole.len() - 9], b">a\nMKV\n"] {
        fs::write(&shard, bytes).expect("write");
        assert_fails(pack(&shard, &out, 1000), 65, "shard.parquet");
    }
    write_shard(&shard, &["MKV".to_owned(), "MK*".to_owned()]);
    let starred = "shard.parquet: ordinal 3 'protein-1': residue 3 has no token";
    assert_fails(pack(&shard, &out, 1000), 65, starred);
    assert_eq!(visible(folder.path()), ["shard.parquet"]);
}

#[test]
fn an_output_that_cannot_be_written_leaves_nothing_behind() {
    let (folder, shard, _) = shard(1000);
    let nowhere = folder.path().join("no-such-folder").join("out.arrow");
    assert_fails(pack(&shard, &nowhere, 1000), 73, "no-such-folder");
    assert_fails(pack(&shard, folder.path(), 1000), 73, "cannot create");
    if let Some(disk) = SmallDisk::mount(64) {
        let out = disk.path().join("out.arrow");
        assert_fails(pack(&shard, &out, 1000), 74, "no space left");
        assert!(common::all(disk.path()).is_empty());
    }
}

#[test]
fn invalid_command_lines() {
    let (folder, _, _) = shard(1);
    let value = "for '--max-batch-tokens <TOKENS>'";
    for (options, message) in [
        (
            "--out shard.parquet",
            "--out and the shard are the same file",
        ),
        (
            "--out out.arrow --report ./out.arrow",
            "--out are the same file",
        ),
        (
            "--out out.arrow --report ./shard.parquet",
            "the shard are the same file",
        ),
        ("--out out.arrow --max-batch-tokens 0", value),
        ("--out out.arrow --max-batch-tokens 2147483648", value),
        ("--out out.arrow --max-batch-tokens many", value),
    ] {
        let line = format!("pack-batches shard.parquet {options}");
        assert_fails(command(folder.path(), &line), 2, message);
    }
    assert_eq!(visible(folder.path()), ["shard.parquet"]);
}

#[test]
fn files_that_a_run_would_replace_or_remove() {
    let (folder, shard, _) = shard(1);
    for copy in [".out.arrow.plmkit-tmp", "other.parquet"] {
        fs::copy(&shard, folder.path().join(copy)).expect("copy");
    }
    let before = tree(folder.path());
    let unfinished =
        "the shard .out.arrow.plmkit-tmp: has the name of an unfinished file, which --out removes";
    let data = "--report other.parquet: exists, and is a shard, which nothing replaces";
    for (line, code, message) in [
        (".out.arrow.plmkit-tmp --out out.arrow", 2, unfinished),
        (
            "shard.parquet --out out.arrow --report other.parquet",
            73,
            data,
        ),
    ] {
        let line = format!("pack-batches {line}");
        assert_fails(command(folder.path(), &line), code, message);
        assert!(tree(folder.path()) == before);
    }
}

/// All readers accept the largest record that `fasta-shard` accepts. One byte more is refused.
#[test]
fn the_largest_header_and_the_largest_sequence_are_accepted() {
    const ID: usize = 1 << 20;
    const DESCRIPTION: usize = 1 << 16;
    const SEQUENCE: usize = 1 << 24;
    let folder = tempfile::tempdir().expect("temp folder");
    let fasta = folder.path().join("in.fasta");
    let shards = |id: &str, description: &str, sequence: &str| {
        let text = format!(">{id}\nMK\n>b {description}\nMKV\n>c\n{sequence}\n");
        fs::write(&fasta, text).expect("write");
        let mut command = bin("fasta-shard");
        command.arg(&fasta).args(["--shards", "1"]);
        command.args(["--max-residues", &SEQUENCE.to_string(), "--out"]);
        command.arg(folder.path().join("shards"));
        command
    };
    // The '>' counts, the line end does not.
    let id = "x".repeat(ID - 1);
    let description = "y".repeat(DESCRIPTION - 1);
    let residues: String = RESIDUES.chars().cycle().take(SEQUENCE).collect();
    let lines = residues.as_bytes().chunks(60).collect::<Vec<_>>();
    let wrapped = String::from_utf8(lines.join(&b'\n')).expect("ASCII");

    let long_id = format!("{id}x");
    let longer = format!("{wrapped}M");
    let header = "the header line is too long";
    for (id, description, sequence, number, message) in [
        (&long_id, &description, "MK", 1, header),
        (&id, &description, &*longer, 3, "the sequence is too long"),
    ] {
        let output = shards(id, description, sequence).output().expect("run");
        assert_failed(&output, 65, message);
        assert_failed(&output, 65, &format!("record {number}"));
        assert!(!folder.path().join("shards").exists());
    }

    run(&mut shards(&id, &description, &wrapped));
    let shard = folder.path().join("shards/shard-00000.parquet");
    let out = folder.path().join("b.arrow");
    run(&mut pack(&shard, &out, 16384));
    let file = BatchesFile::open(&out, &Stop::default()).expect("open");
    let batches = (0..file.len()).map(|index| file.batch(index).expect("a batch"));
    let mut found: Vec<(u64, String, usize)> = batches
        .flat_map(|pack| {
            let row = |row: usize| {
                let cu_seqlens = &pack.cu_seqlens()[row..=row + 1];
                (
                    pack.ordinals()[row],
                    pack.ids().value(row).to_owned(),
                    (cu_seqlens[1] - cu_seqlens[0]) as usize,
                )
            };
            (0..pack.sequences()).map(row).collect::<Vec<_>>()
        })
        .collect();
    found.sort();
    let (b, c) = ("b".to_owned(), "c".to_owned());
    assert!(found == [(0, id, 4), (1, b, 5), (2, c, SEQUENCE + 2)]);
}
