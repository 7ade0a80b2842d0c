//! The whole chain on real proteins.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::common::{assert_failed, assert_fails, command, model_of, run, test_data};
use arrow_array::Array;
use arrow_array::cast::AsArray;
use plmkit_contract::{DESCRIPTION, SAMPLE, ordinals};
use plmkit_store::{EmbeddingsReader, read_shard};
use serde_json::Value;
use tempfile::TempDir;

/// Creates a folder with the test proteins and the tiny model.
pub(crate) fn inputs() -> TempDir {
    let folder = tempfile::tempdir().expect("temp folder");
    for name in ["proteins.fasta", "model-tiny"] {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink(test_data(name), link).expect("link");
    }
    folder
}

fn run_line(folder: &Path, line: &str) {
    run(&mut command(folder, line));
}

/// Runs the chain from FASTA to validated embeddings in `folder`; returns the manifest.
fn chain(folder: &Path, options: &str) -> Value {
    run_line(
        folder,
        &format!("fasta-shard proteins.fasta --out shards {options}"),
    );
    let manifest = json(&folder.join("shards/manifest.json"));
    let (mut embeddings, mut shards) = (Vec::new(), Vec::new());
    for shard in manifest["shards"].as_array().expect("shards") {
        let file = shard["file"].as_str().expect("file");
        let name = format!("shards/{}", file.trim_end_matches(".parquet"));
        for line in [
            format!("pack-batches {name}.parquet --out {name}.arrow"),
            format!("gpu-embed {name}.arrow --model model-tiny --out {name}.emb.parquet"),
        ] {
            run_line(folder, &line);
        }
        embeddings.push(format!("{name}.emb.parquet"));
        shards.push(format!("{name}.parquet"));
    }
    let lists = "--rejects shards/rejects.csv --manifest shards/manifest.json --max-rejected 10%";
    let [embeddings, shards] = [embeddings, shards].map(|files| files.join(" "));
    let validate = format!("validate-embeddings {embeddings} --shards {shards} {lists}");
    run_line(folder, &format!("{validate} --report report.json"));
    manifest
}

/// Runs `validate-embeddings ARGUMENTS`; expects `code`, and the words in its standard error, which it returns.
fn validates(folder: &Path, arguments: &str, code: i32, words: &[&str]) -> String {
    let mut validate = command(folder, &format!("validate-embeddings {arguments}"));
    let output = validate.output().expect("run");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments}: {stderr}");
    for words in words {
        assert!(stderr.contains(words), "{arguments}: {words}: {stderr}");
    }
    stderr
}

pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).expect("read")).expect("JSON")
}

fn count(manifest: &Value, name: &str) -> u64 {
    manifest[name].as_u64().expect("a count")
}

#[test]
fn long_proteins_under_every_policy() {
    let fasta = fs::read_to_string(test_data("proteins.fasta")).expect("read");
    let records = fasta.matches('>').count() as u64;
    let long: Vec<u64> = fasta
        .split('>')
        .skip(1)
        .map(|record| record.lines().skip(1).map(|line| line.len() as u64).sum())
        .filter(|&length| length > 1022)
        .collect();
    assert!(long.len() > 3, "the test data has long proteins");
    let long_records = long.len() as u64;
    let windows: u64 = long
        .iter()
        .map(|length| (length - 256).div_ceil(1022 - 256))
        .sum();

    for (policy, rows, rejected) in [
        ("truncate", records, 0),
        ("window", records - long_records + windows, 0),
        ("separate", records, 0),
        ("reject", records - long_records, long_records),
    ] {
        let options = format!("--shards 2 --long-policy {policy}");
        let manifest = chain(inputs().path(), &options);
        let too_long = count(&manifest["rejected"], "too_long");
        let counts = ["records", "rows", "accepted"].map(|name| count(&manifest, name));
        assert_eq!(counts, [records, rows, records - rejected], "{policy}");
        assert_eq!(too_long, rejected, "{policy}");
    }
}

#[test]
fn shards_of_a_token_budget() {
    let manifest = chain(inputs().path(), "--max-shard-tokens 9000");
    let shards = manifest["shards"].as_array().expect("shards");
    assert!(shards.len() > 3);
    assert!(shards.iter().all(|shard| count(shard, "tokens") <= 9000));
}

/// A missing shard, or embeddings of other models or options, must not pass.
#[test]
fn lost_shards_and_mixed_origins_are_detected() {
    let folder = inputs();
    chain(folder.path(), "--shards 2");
    let shards = folder.path().join("shards");
    let [first, second] = ["shard-00000", "shard-00001"];
    let both = format!("--shards {first}.parquet {second}.parquet");
    let missing = ["coverage: 48 rows missing; first: ordinal 1 "];
    validates(&shards, &format!("{first}.emb.parquet {both}"), 1, &missing);

    // Vectors of the same shape, computed with other weights.
    let mut weights = fs::read(test_data("model-tiny/model.safetensors")).expect("read");
    let middle = (weights.len() / 2) & !3; // the lowest bits of a value
    weights[middle] ^= 1;
    model_of(&shards, "other", &weights);
    let other = format!("gpu-embed {second}.arrow --model other --out other.emb.parquet");
    run_line(&shards, &other);
    let mixed = format!("{first}.emb.parquet other.emb.parquet --quiet");
    validates(&shards, &mixed, 1, &["origin: ", "expected model "]);

    // Shards of the same proteins, truncated at another length.
    let again = "fasta-shard proteins.fasta --out again --shards 2 --max-residues 900";
    run_line(folder.path(), again);
    let whole = format!("{first}.emb.parquet {second}.emb.parquet --quiet");
    let given = format!("{whole} --shards {first}.parquet ../again/{second}.parquet");
    let other = [
        "expected max_residues 1022 as in ",
        "1 file of batches of other shards",
    ];
    validates(&shards, &given, 1, &other);
    assert_eq!(validates(&shards, &format!("{whole} {both}"), 0, &[]), "");
}

/// Only the manifest shows that the end of the input is missing.
#[test]
fn a_lost_end_is_detected() {
    let folder = inputs();
    let manifest = chain(folder.path(), "--shards 2 --min-residues 60");
    let shards = folder.path().join("shards");
    let kept = count(&manifest, "records") / 2;
    let rejects = fs::read_to_string(shards.join("rejects.csv")).expect("read");
    let early = rejects.lines().filter(|line| {
        let ordinal = line.split(',').next().and_then(|text| text.parse().ok());
        ordinal.is_none_or(|ordinal: u64| ordinal < kept)
    });
    let early = early.collect::<Vec<_>>().join("\n") + "\n";
    assert!(
        early.len() < rejects.len(),
        "records at the end are rejected"
    );
    fs::write(shards.join("early.csv"), early).expect("write");
    let (header, rest) = rejects.split_once('\n').expect("a header line");
    let changed = format!("{header}\n{}", rest.replacen('|', "!", 1));
    assert_ne!(changed, rejects, "an id contains a bar");
    fs::write(shards.join("changed.csv"), changed).expect("write");
    fs::write(shards.join("package.json"), "{\"name\": \"a web app\"}").expect("write");

    let listed = manifest["shards"].as_array().expect("shards");
    let files = listed
        .iter()
        .map(|shard| shard["file"].as_str().expect("file"));
    let files: Vec<&str> = files.collect();
    let validate = |files: &[&str], options: &str, code, words: &[&str]| {
        let shards_given = files.join(" ");
        let embeddings = shards_given.replace(".parquet", ".emb.parquet");
        let arguments = format!("{embeddings} --shards {shards_given} --quiet {options}");
        validates(&shards, &arguments, code, words)
    };
    let all = "--rejects rejects.csv --manifest manifest.json";
    assert_eq!(validate(&files, all, 0, &[]), "");
    let (last, others) = files.split_last().expect("shards");
    let missing = format!("'{last}' of the manifest: not among the shards");
    let without_last = ["validate-embeddings: manifest: ", &missing];
    validate(others, "--manifest manifest.json", 1, &without_last);
    let early = ["records rejected as too_short, found ", "ordinals: "];
    let options = "--rejects early.csv --manifest manifest.json";
    validate(&files, options, 1, &early);
    let changed = "first: changed.csv: not the rejects of the manifest: it has digest ";
    let options = "--rejects changed.csv --manifest manifest.json";
    let stderr = validate(&files, options, 1, &[changed]);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let stderr = validate(&files, "--manifest package.json", 65, &[]);
    let foreign = "validate-embeddings: package.json: not a manifest of fasta-shard\n";
    assert_eq!(stderr, foreign);
}

/// Every kind of file is given instead of every other kind.
#[test]
fn a_file_of_the_wrong_kind_is_named_with_the_program_that_makes_the_right_one() {
    let folder = inputs();
    fs::write(folder.path().join("a.fasta"), ">a\nMKV\n").expect("write");
    let embed = "--model model-tiny --device cpu --progress none --out";
    for line in [
        "fasta-shard a.fasta --shards 1 --out s",
        "pack-batches s/shard-00000.parquet --out b.arrow",
        &format!("gpu-embed b.arrow {embed} e.parquet --events ev.jsonl"),
        "monitor-log record --out gpu.csv -- true",
    ] {
        run_line(folder.path(), line);
    }
    let files = [
        ("a.fasta", "a FASTA file"),
        ("s/shard-00000.parquet", "a shard"),
        ("s/manifest.json", "the manifest of a set of shards"),
        ("s/rejects.csv", "a list of rejects"),
        ("b.arrow", "a batches file"),
        ("e.parquet", "an embeddings file"),
        ("ev.jsonl", "a log of run events"),
        ("gpu.csv", "a log of GPU samples"),
    ];
    let validate = "validate-embeddings e.parquet";
    let shards = format!("{validate} --shards s/shard-00000.parquet");
    let shard = "fasta-shard makes shards from FASTA files";
    let batches = "pack-batches makes batches files from shards";
    let embeddings = "gpu-embed makes embeddings files from batches files";
    let rejects = "fasta-shard and gpu-embed write such lists";
    let manifest = "fasta-shard writes manifest.json";
    let events = "gpu-embed --events writes such a log";
    let samples = "monitor-log record writes such a log";
    let fasta = "not FASTA: expected '>'";
    for (right, line, expected) in [
        ("a.fasta", "fasta-shard FILE --shards 1 --out x", fasta),
        ("s/shard-00000.parquet", "pack-batches FILE --out x", shard),
        ("b.arrow", &format!("gpu-embed FILE {embed} x"), batches),
        ("e.parquet", "validate-embeddings FILE", embeddings),
        (
            "e.parquet",
            &format!("{validate} --reference FILE"),
            embeddings,
        ),
        (
            "s/shard-00000.parquet",
            &format!("{validate} --shards FILE"),
            shard,
        ),
        (
            "s/manifest.json",
            &format!("{shards} --manifest FILE"),
            manifest,
        ),
        (
            "s/rejects.csv",
            &format!("{shards} --rejects FILE"),
            rejects,
        ),
        (
            "ev.jsonl",
            "monitor-log report --events FILE --out x",
            events,
        ),
        ("gpu.csv", "monitor-log report --gpu FILE --out x", samples),
    ] {
        for (file, kind) in files.into_iter().filter(|(file, _)| *file != right) {
            let line = line.replace("FILE", file);
            let output = command(folder.path(), &line).output().expect("run");
            assert_failed(&output, 65, &format!("{file}: "));
            assert_failed(&output, 65, &format!("found {kind}"));
            assert_failed(&output, 65, expected);
            assert!(!folder.path().join("x").exists());
        }
    }
}

/// Creates a dataset in the layout of the workflows.
fn dataset(sample: &str) -> TempDir {
    let folder = inputs();
    // The first record has no description.
    let fasta = fs::read_to_string(test_data("proteins.fasta")).expect("read");
    let (_, rest) = fasta.split_once('\n').expect("a header");
    fs::write(folder.path().join("bare.fasta"), format!(">bare\n{rest}")).expect("write");
    let options = "--max-shard-tokens 20000 --long-policy window";
    let line = format!("fasta-shard bare.fasta --sample {sample} --out shards {options}");
    run_line(folder.path(), &line);
    for part in ["embeddings", "rejects", "batches"] {
        fs::create_dir(folder.path().join(part)).expect("folder");
    }
    for name in ["shard-00000", "shard-00001", "shard-00002"] {
        let outputs = format!("--out embeddings/{name}.parquet --rejects rejects/{name}.csv");
        for line in [
            format!("pack-batches shards/{name}.parquet --description --out batches/{name}.arrow"),
            format!("gpu-embed batches/{name}.arrow --model model-tiny {outputs}"),
        ] {
            run_line(folder.path(), &line);
        }
    }
    folder
}

#[test]
fn a_dataset_lists_its_parts_and_is_checked_by_them_without_its_shards() {
    let folder = dataset("liver");
    let named = folder.path().join("dataset.json");
    let validate = |dataset: &str, code, words: &str| {
        validates(
            folder.path(),
            &format!("--dataset {dataset}"),
            code,
            &[words],
        )
    };
    let rename = |from: &str, to: &str| {
        let [from, to] = [from, to].map(|name| folder.path().join(name));
        fs::rename(from, to).expect("rename");
    };
    validate(".", 0, "");
    let found = json(&named);
    for (entry, expected) in [
        ("outcome", "pass"),
        ("sample", "liver"),
        ("model", "model-tiny"),
        ("manifest", "shards/manifest.json"),
    ] {
        assert_eq!(found[entry], expected, "{entry}");
    }
    let parts = found["embeddings"].as_array().expect("parts");
    assert_eq!(parts[2]["file"], "embeddings/shard-00002.parquet");
    assert_eq!(
        parts.iter().map(|part| count(part, "rows")).sum::<u64>(),
        100
    );
    let column =
        serde_json::json!({"name": "mean_4", "of": "protein", "dimension": 64, "type": "f32"});
    assert_eq!(found["columns"], serde_json::json!([column]));

    // An unreadable part gives no verdict, a missing part a negative one.
    let part = "embeddings/shard-00001.parquet";
    rename(part, "aside");
    fs::write(folder.path().join(part), "no embeddings").expect("write");
    validate(".", 65, "");
    assert_eq!(json(&named), found, "the old verdict is kept");
    fs::remove_file(folder.path().join(part)).expect("remove");
    validate(".", 1, "");
    assert_eq!(json(&named)["outcome"], "fail");
    rename("aside", part);
    validate("dataset.json", 0, "");

    // Without all shards there is no verdict.
    let shard = "shards/shard-00002.parquet";
    rename(shard, "aside");
    validate("dataset.json", 66, &format!("{shard}: no such file"));
    assert_eq!(json(&named), found, "the old verdict is kept");
    rename("aside", shard);

    // Readers of the folder would read the file, or stop at it.
    let stray = folder.path().join("embeddings/notes.txt");
    fs::write(&stray, "").expect("write");
    validate(
        "dataset.json",
        65,
        "embeddings/notes.txt: among the embeddings",
    );
    fs::remove_file(&stray).expect("remove");

    // A failed validation lists no parts to rely on.
    fs::remove_file(&named).expect("remove");
    rename(part, "aside");
    validate("dataset.json", 1, "");
    rename("shards", "cut");
    validate(
        "dataset.json",
        65,
        "expected a dataset whose validation passed",
    );
    rename("cut", "shards");
    rename("aside", part);
    validate("dataset.json", 0, "");

    // Without shards, the list of parts is checked.
    fs::remove_dir_all(folder.path().join("shards")).expect("remove");
    let before = fs::read_to_string(&named).expect("read");
    validate(".", 0, "pass: 100 rows; 7 checks passed");
    rename(part, "aside");
    let missing = format!("{part}: missing, though dataset.json lists it");
    validate(".", 66, &missing);
    assert_eq!(fs::read_to_string(&named).expect("read"), before);
    let edited = before.replace("model-tiny", "another");
    assert_ne!(edited, before);
    fs::write(&named, edited).expect("write");
    validate(".", 65, "dataset.json: damaged or altered");
    fs::remove_file(&named).expect("remove");
    validate(".", 66, "expected a folder shards, or dataset.json");
}

#[test]
fn rows_have_their_sample_and_description() {
    let folder = dataset("liver");
    let shard = read_shard(&folder.path().join("shards/shard-00000.parquet")).expect("shard");
    let mut described = BTreeMap::new();
    for batch in &shard.batches {
        let descriptions = batch["description"].as_string::<i32>().iter();
        let descriptions = descriptions.map(|text| text.map(str::to_owned));
        described.extend(ordinals(batch).iter().copied().zip(descriptions));
    }
    let embedded = folder.path().join("embeddings/shard-00000.parquet");
    let mut embedded = EmbeddingsReader::open(&embedded).expect("embeddings");
    let mut rows = 0;
    while let Some(batch) = embedded.next_batch().expect("rows") {
        let columns = [SAMPLE, DESCRIPTION].map(|name| batch[name].as_string::<i32>());
        for (row, ordinal) in ordinals(&batch).iter().enumerate() {
            assert_eq!(columns[0].value(row), "liver");
            let description = columns[1].is_valid(row).then(|| columns[1].value(row));
            assert_eq!(description, described[ordinal].as_deref());
            assert_eq!(description.is_none(), *ordinal == 0);
            rows += 1;
        }
    }
    assert_eq!(rows, described.len());
}

/// Ordinals count within a set of shards, so files of two sets cannot be compared or joined.
#[test]
fn files_of_two_sets_of_shards_are_not_combined() {
    let [one, other] = [dataset("one"), dataset("other")];
    let embed = |second: &Path| {
        let line = "gpu-embed batches/shard-00000.arrow --model model-tiny --out e.parquet";
        let mut command = command(one.path(), line);
        command.arg(second.join("batches/shard-00001.arrow"));
        command
    };
    let message = "not of the same set of shards as";
    assert_fails(embed(other.path()), 65, message);
    run(&mut embed(one.path()));

    let first = "embeddings/shard-00000.parquet";
    let second = other.path().join("embeddings/shard-00001.parquet");
    let of_other = format!("{first} {}", second.display());
    validates(
        one.path(),
        &of_other,
        1,
        &["expected sample \"one\" as in "],
    );
    let twice = ["shard-00000.parquet: given twice"];
    validates(one.path(), &format!("{first} {first}"), 1, &twice);
}
