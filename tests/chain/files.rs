//! The whole chain on real proteins: every record is accounted for under every policy.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{assert_failed, bin, run, test_data};
use arrow::array::{Array, AsArray};
use plmkit_contract::{DESCRIPTION, SAMPLE, ordinals};
use plmkit_store::{EmbeddingsReader, read_shard};
use serde_json::Value;

/// FASTA to a validated dataset in `folder`; returns the manifest.
fn chain(folder: &Path, options: &[&str]) -> Value {
    let shards = folder.join("shards");
    run(bin("fasta-shard")
        .arg(test_data("proteins.fasta"))
        .arg("--out")
        .arg(&shards)
        .args(options));
    let manifest = json(&shards.join("manifest.json"));
    let mut embedded = Vec::new();
    let mut names: Vec<PathBuf> = Vec::new();
    for shard in manifest["shards"].as_array().expect("shards") {
        let shard = shards.join(shard["file"].as_str().expect("file"));
        let (packed, out) = (
            shard.with_extension("arrow"),
            shard.with_extension("emb.parquet"),
        );
        run(bin("pack-batches").arg(&shard).arg("--out").arg(&packed));
        run(bin("gpu-embed")
            .arg(&packed)
            .arg("--out")
            .arg(&out)
            .arg("--model")
            .arg(test_data("model-tiny")));
        names.push(shard);
        embedded.push(out);
    }
    let report = folder.join("report.json");
    run(bin("validate-embeddings")
        .args(&embedded)
        .arg("--shards")
        .args(&names)
        .arg("--rejects")
        .arg(shards.join("rejects.csv"))
        .arg("--manifest")
        .arg(shards.join("manifest.json"))
        .arg("--report")
        .arg(&report));
    manifest
}

fn json(path: &Path) -> Value {
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
        ("split-off", records, 0),
        ("reject", records - long_records, long_records),
    ] {
        let folder = tempfile::tempdir().expect("temp folder");
        let manifest = chain(folder.path(), &["--shards", "2", "--long-policy", policy]);
        assert_eq!(count(&manifest, "records"), records, "{policy}");
        assert_eq!(count(&manifest, "rows"), rows, "{policy}");
        assert_eq!(
            count(&manifest["rejected"], "too_long"),
            rejected,
            "{policy}"
        );
        assert_eq!(count(&manifest, "accepted"), records - rejected, "{policy}");
    }
}

#[test]
fn shards_of_a_token_budget() {
    let folder = tempfile::tempdir().expect("temp folder");
    let manifest = chain(folder.path(), &["--max-shard-tokens", "9000"]);
    let shards = manifest["shards"].as_array().expect("shards");
    assert!(shards.len() > 3);
    assert!(shards.iter().all(|shard| count(shard, "tokens") <= 9000));
}

/// A dataset with a part missing must not pass.
#[test]
fn a_lost_shard_is_noticed() {
    let folder = tempfile::tempdir().expect("temp folder");
    chain(folder.path(), &["--shards", "2"]);
    let shards = folder.path().join("shards");
    let output = bin("validate-embeddings")
        .arg(shards.join("shard-00000.emb.parquet"))
        .arg("--shards")
        .args([
            shards.join("shard-00000.parquet"),
            shards.join("shard-00001.parquet"),
        ])
        .output()
        .expect("run");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("coverage: 52 rows, 100 expected: 0 rejected, 48 missing"),
        "{stderr}"
    );
}

/// Embeddings of the tail of a dataset by another model, or with other options, must not pass as one with the rest.
#[test]
fn a_mix_of_origins_is_noticed() {
    let folder = tempfile::tempdir().expect("temp folder");
    chain(folder.path(), &["--shards", "2"]);
    let shards = folder.path().join("shards");
    let at = |name: &str| shards.join(name);

    // The same shape of vectors by other weights.
    let model = folder.path().join("model");
    fs::create_dir(&model).expect("folder");
    let tiny = |name: &str| test_data("model-tiny").join(name);
    fs::copy(tiny("config.json"), model.join("config.json")).expect("copy");
    let mut weights = fs::read(tiny("model.safetensors")).expect("read");
    let middle = (weights.len() / 2) & !3; // the lowest bits of some value
    weights[middle] ^= 1;
    fs::write(model.join("model.safetensors"), weights).expect("write");
    run(bin("gpu-embed")
        .arg(at("shard-00001.arrow"))
        .arg("--out")
        .arg(at("other.emb.parquet"))
        .arg("--model")
        .arg(&model));

    let validate = |embeddings: [&str; 2], options: &[&str]| {
        let mut command = bin("validate-embeddings");
        command.args(embeddings.map(at)).current_dir(&shards);
        let output = command.args(options).arg("--quiet").output().expect("run");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), stderr)
    };
    let whole = ["shard-00000.emb.parquet", "shard-00001.emb.parquet"];
    let mixed = ["shard-00000.emb.parquet", "other.emb.parquet"];
    let (code, stderr) = validate(mixed, &[]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("origin: ") && stderr.contains("expected model "),
        "{stderr}"
    );

    // Shards of the same proteins, cut off elsewhere.
    let again = folder.path().join("again");
    run(bin("fasta-shard")
        .arg(test_data("proteins.fasta"))
        .arg("--out")
        .arg(&again)
        .args(["--shards", "2", "--max-residues", "900"]));
    let given = ["shard-00000.parquet", "../again/shard-00001.parquet"];
    let (code, stderr) = validate(whole, &["--shards", given[0], given[1]]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("expected max_residues 1022 as in "),
        "{stderr}"
    );
    assert!(stderr.contains("1 batches of other shards"), "{stderr}");

    let given = ["--shards", "shard-00000.parquet", "shard-00001.parquet"];
    let (code, stderr) = validate(whole, &given);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
}

/// What is lost at the end of the input leaves no trace but in the manifest.
#[test]
fn a_lost_end_is_noticed() {
    let folder = tempfile::tempdir().expect("temp folder");
    let options = ["--shards", "2", "--min-residues", "60"];
    let manifest = chain(folder.path(), &options);
    let shards = folder.path().join("shards");
    let kept = count(&manifest, "records") / 2;
    let rejects = fs::read_to_string(shards.join("rejects.csv")).expect("read");
    let early = rejects.lines().filter(|line| {
        let ordinal = line
            .split(',')
            .next()
            .and_then(|ordinal| ordinal.parse::<u64>().ok());
        ordinal.is_none_or(|ordinal| ordinal < kept)
    });
    let early = early.collect::<Vec<_>>().join("\n") + "\n";
    assert!(early.len() < rejects.len(), "some are rejected at the end");
    fs::write(shards.join("early.csv"), early).expect("write");

    let validate = |names: &[&str], options: &[&str]| {
        let at = |suffix: &'static str| names.iter().map(move |name| format!("{name}.{suffix}"));
        let mut command = bin("validate-embeddings");
        command.current_dir(&shards).args(at("emb.parquet"));
        command.arg("--shards").args(at("parquet")).args(options);
        let output = command.arg("--quiet").output().expect("run");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), stderr)
    };
    let listed = manifest["shards"].as_array().expect("shards");
    let names = listed
        .iter()
        .map(|shard| shard["file"].as_str().expect("file"));
    let names: Vec<&str> = names
        .map(|file| file.trim_end_matches(".parquet"))
        .collect();
    let all = ["--rejects", "rejects.csv", "--manifest", "manifest.json"];
    assert_eq!(validate(&names, &all), (Some(0), String::new()));

    let (code, stderr) = validate(&names[..names.len() - 1], &["--manifest", "manifest.json"]);
    assert_eq!(code, Some(1), "{stderr}");
    let missing = format!(
        "'{}.parquet' of the manifest: not among the shards",
        names[names.len() - 1]
    );
    assert!(
        stderr.starts_with("validate-embeddings: manifest: ") && stderr.contains(&missing),
        "{stderr}"
    );

    let (code, stderr) = validate(
        &names,
        &["--rejects", "early.csv", "--manifest", "manifest.json"],
    );
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("records rejected as too_short, found "),
        "{stderr}"
    );
    assert!(stderr.contains("ordinals: "), "{stderr}");

    let (line, rest) = rejects.split_once('\n').expect("a header line");
    let changed = format!("{line}\n{}", rest.replacen('|', "!", 1));
    assert_ne!(changed, rejects, "an id has a bar");
    fs::write(shards.join("changed.csv"), changed).expect("write");
    let changed = ["--rejects", "changed.csv", "--manifest", "manifest.json"];
    let (code, stderr) = validate(&names, &changed);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("first: changed.csv: not the rejects of the manifest: it has digest "),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");

    fs::write(shards.join("package.json"), "{\"name\": \"a web app\"}").expect("write");
    let (code, stderr) = validate(&names, &["--manifest", "package.json"]);
    assert_eq!(code, Some(65), "{stderr}");
    assert_eq!(
        stderr,
        "validate-embeddings: package.json: not a manifest of fasta-shard\n"
    );
}

/// Each file in the place of every other.
#[test]
fn a_file_of_the_wrong_kind_is_named_with_the_program_that_makes_the_right_one() {
    let folder = tempfile::tempdir().expect("temp folder");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.fasta"), ">a\nMKV\n").expect("write");
    let model = test_data("model-tiny");
    let model = model.to_str().expect("UTF-8");
    let command = |line: &str| {
        let mut words = line.split(' ');
        let mut command = bin(words.next().expect("a program"));
        command.args(words).current_dir(folder.path());
        command
    };
    let embed = format!("--model {model} --device cpu --progress none --out");
    for line in [
        "fasta-shard a.fasta --shards 1 --out s",
        "pack-batches s/shard-00000.parquet --out b.arrow",
        &format!("gpu-embed b.arrow {embed} e.parquet --events ev.jsonl"),
        "monitor-log record --out gpu.csv -- true",
    ] {
        run(&mut command(line));
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
    for (own, line, expected) in [
        (
            "a.fasta",
            "fasta-shard FILE --shards 1 --out x",
            "not FASTA: expected '>'",
        ),
        (
            "s/shard-00000.parquet",
            "pack-batches FILE --out x",
            "fasta-shard makes shards from FASTA files",
        ),
        (
            "b.arrow",
            &format!("gpu-embed FILE {embed} x"),
            "pack-batches makes batches files from shards",
        ),
        (
            "e.parquet",
            "validate-embeddings FILE",
            "gpu-embed makes embeddings files from batches files",
        ),
        (
            "e.parquet",
            &format!("{validate} --reference FILE"),
            "gpu-embed makes embeddings files",
        ),
        (
            "s/shard-00000.parquet",
            &format!("{validate} --shards FILE"),
            "fasta-shard makes shards",
        ),
        (
            "s/manifest.json",
            &format!("{shards} --manifest FILE"),
            "fasta-shard writes manifest.json",
        ),
        (
            "s/rejects.csv",
            &format!("{shards} --rejects FILE"),
            "fasta-shard and gpu-embed write such lists",
        ),
        (
            "ev.jsonl",
            "monitor-log report --events FILE --out x",
            "gpu-embed --events writes such a log",
        ),
        (
            "gpu.csv",
            "monitor-log report --gpu FILE --out x",
            "monitor-log record writes such a log",
        ),
    ] {
        for (file, kind) in files.into_iter().filter(|(file, _)| *file != own) {
            let output = command(&line.replace("FILE", file)).output().expect("run");
            assert_failed(&output, 65, &format!("{file}: "));
            assert_failed(&output, 65, &format!("found {kind}"));
            assert_failed(&output, 65, expected);
            assert!(!path("x").exists());
        }
    }
}

/// FASTA to a dataset as the workflows lay it out, in `folder`.
fn dataset(folder: &Path, sample: &str) {
    // One has no description.
    let fasta = fs::read_to_string(test_data("proteins.fasta")).expect("read");
    let (_, rest) = fasta.split_once('\n').expect("a header");
    fs::write(folder.join("in.fasta"), format!(">bare\n{rest}")).expect("write");
    run(bin("fasta-shard")
        .arg(folder.join("in.fasta"))
        .args(["--max-shard-tokens", "20000", "--long-policy", "window"])
        .args(["--sample", sample, "--out"])
        .arg(folder.join("shards")));
    for part in ["embeddings", "rejects", "batches"] {
        fs::create_dir(folder.join(part)).expect("folder");
    }
    for shard in 0..3 {
        let name = format!("shard-{shard:05}");
        let at = |part: &str, extension| folder.join(part).join(&name).with_extension(extension);
        run(bin("pack-batches")
            .arg(at("shards", "parquet"))
            .arg("--description")
            .arg("--out")
            .arg(at("batches", "arrow")));
        run(bin("gpu-embed")
            .arg(at("batches", "arrow"))
            .arg("--out")
            .arg(at("embeddings", "parquet"))
            .arg("--rejects")
            .arg(at("rejects", "csv"))
            .arg("--model")
            .arg(test_data("model-tiny")));
    }
}

fn validate(dataset: &Path, code: i32) -> String {
    let mut command = bin("validate-embeddings");
    let output = command.arg("--dataset").arg(dataset).output().expect("run");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    stderr
}

#[test]
fn a_dataset_names_its_parts_and_is_known_by_them_without_its_shards() {
    let folder = tempfile::tempdir().expect("temp folder");
    dataset(folder.path(), "liver");
    let named = folder.path().join("dataset.json");
    validate(folder.path(), 0);
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

    // What cannot be read has no verdict, and what is missing a negative one.
    let part = folder.path().join("embeddings/shard-00001.parquet");
    let aside = folder.path().join("aside");
    fs::rename(&part, &aside).expect("rename");
    fs::write(&part, "no embeddings").expect("write");
    validate(folder.path(), 65);
    assert_eq!(json(&named), found, "what was known is not lost");
    fs::remove_file(&part).expect("remove");
    validate(folder.path(), 1);
    assert_eq!(json(&named)["outcome"], "fail");
    fs::rename(&aside, &part).expect("rename");
    validate(&named, 0);

    // Readers of the folder go by name.
    let first = folder.path().join("embeddings/shard-00000.parquet");
    let renamed = folder.path().join("embeddings/z.parquet");
    fs::rename(&first, &renamed).expect("rename");
    assert!(validate(&named, 1).contains("embeddings/z.parquet: begins with ordinal 0"));
    fs::rename(&renamed, &first).expect("rename");
    validate(&named, 0);

    // Without all shards there is no verdict.
    let shard = folder.path().join("shards/shard-00002.parquet");
    fs::rename(&shard, &aside).expect("rename");
    assert!(validate(&named, 66).contains("shards/shard-00002.parquet: no such file"));
    assert_eq!(json(&named), found, "what was known is not lost");
    fs::rename(&aside, &shard).expect("rename");

    // What readers of the folder would take for a part, or stop at.
    let stray = folder.path().join("embeddings/notes.txt");
    fs::write(&stray, "").expect("write");
    assert!(validate(&named, 1).contains("first: embeddings/notes.txt: among the embeddings"));
    fs::remove_file(&stray).expect("remove");

    // A list that lacks a part is no list to go by.
    fs::rename(&part, &aside).expect("rename");
    validate(&named, 1);
    fs::rename(folder.path().join("shards"), folder.path().join("cut")).expect("rename");
    assert!(validate(&named, 1).contains("the validation that listed the parts failed"));
    fs::rename(folder.path().join("cut"), folder.path().join("shards")).expect("rename");
    fs::rename(&aside, &part).expect("rename");
    validate(&named, 0);

    // The parts alone, and what is known of them.
    fs::remove_dir_all(folder.path().join("shards")).expect("remove");
    let before = fs::read(&named).expect("read");
    assert!(validate(folder.path(), 0).contains("parts"));
    fs::rename(&part, &aside).expect("rename");
    let said = validate(folder.path(), 1);
    assert!(
        said.contains("first: embeddings/shard-00001.parquet: a part of the dataset, and missing"),
        "{said}"
    );
    assert_eq!(fs::read(&named).expect("read"), before);
    let edited = String::from_utf8(before)
        .expect("text")
        .replace("model-tiny", "another");
    fs::write(&named, edited).expect("write");
    assert!(validate(folder.path(), 65).contains("dataset.json: damaged or altered"));
    fs::remove_file(&named).expect("remove");
    assert!(validate(folder.path(), 66).contains("expected a folder shards, or dataset.json"));
}

#[test]
fn rows_say_their_sample_and_description() {
    let folder = tempfile::tempdir().expect("temp folder");
    dataset(folder.path(), "liver");
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

/// Ordinals count within a set of shards: those of two are not compared, and files of two are no table.
#[test]
fn batches_and_embeddings_of_two_sets_of_shards_are_not_taken_together() {
    let folder = tempfile::tempdir().expect("temp folder");
    let [one, other] = ["one", "other"].map(|sample| {
        let at = folder.path().join(sample);
        fs::create_dir(&at).expect("folder");
        dataset(&at, sample);
        at
    });
    let embed = |batches: [PathBuf; 2]| {
        let mut command = bin("gpu-embed");
        command
            .args(batches)
            .arg("--model")
            .arg(test_data("model-tiny"));
        command.arg("--out").arg(folder.path().join("e.parquet"));
        command.output().expect("run")
    };
    let first = one.join("batches/shard-00000.arrow");
    let output = embed([first.clone(), other.join("batches/shard-00001.arrow")]);
    assert_failed(&output, 65, "not of the same set of shards as");
    let output = embed([first, one.join("batches/shard-00001.arrow")]);
    assert!(output.status.success());

    let part = |of: &Path, name| of.join("embeddings").join(name);
    let fails = |parts: [PathBuf; 2], what: &str| {
        let output = bin("validate-embeddings")
            .args(parts)
            .output()
            .expect("run");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(what), "{stderr}");
    };
    let first = part(&one, "shard-00000.parquet");
    fails(
        [first.clone(), part(&other, "shard-00001.parquet")],
        "expected sample \"one\" as in ",
    );
    fails([first.clone(), first], "made from the same batches as");
}
