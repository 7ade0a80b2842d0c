//! What an earlier run, or somebody else, left in the folder of results.

use std::fs;
use std::path::Path;

use crate::common::{assert_fails, command, run, test_data, tree};
use crate::{copy_model, data, plmkit, proteins, with_model};

#[test]
fn files_of_somebody_else_are_not_replaced() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    for name in [
        "summary.tsv",
        "versions.yml",
        "batch-size.json",
        "pipeline_info/params.json",
        "a/dataset.json",
        "a/batches/reads.arrow",
        "index.html",
        "a/logs/reads.csv",
        "a/embeddings/shard-00000.parquet",
    ] {
        let file = folder.join("results").join(name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("folder");
        fs::write(&file, "{\"reads\": 7}\n").expect("write");
        let before = tree(folder);
        let what = format!(
            "results/{name}: not a file of plmkit, which would replace it: expected another folder"
        );
        assert_fails(plmkit(folder, "a.fasta --out results --quiet"), 73, &what);
        assert!(tree(folder) == before, "{name}");
        fs::remove_file(file).expect("remove");
    }
    // Beside results, too, what is not theirs stays.
    let others = [
        "a/batches/reads.arrow",
        "train/batches/0.arrow",
        "train/embeddings/0.parquet",
    ];
    let others = others.map(|name| folder.join("results").join(name));
    for file in &others[1..] {
        fs::create_dir_all(file.parent().expect("a folder")).expect("folder");
        fs::write(file, "ARROW1").expect("write");
    }
    run(&mut plmkit(folder, "a.fasta --out results"));
    fs::create_dir_all(folder.join("results/a/batches")).expect("folder");
    fs::write(&others[0], "ARROW1").expect("write");
    run(&mut plmkit(folder, "a.fasta --out results"));
    fs::remove_file(folder.join("results/pipeline_info/params.json")).expect("remove");
    run(&mut plmkit(folder, "a.fasta --out results"));
    assert!(others.iter().all(|file| file.exists()));
    let mark = ".0.parquet.unchecked";
    assert!(!others[2].with_file_name(mark).exists());
    let within = plmkit(folder, "a.fasta --out results/a/embeddings --quiet");
    assert_fails(within, 73, "in the folder of a sample, results/a");
}

#[test]
fn embeddings_that_were_to_be_replaced_are_not_taken_for_new_ones() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    run(&mut plmkit(folder, "a.fasta --out results"));
    let stage = |stage: &str| format!("a.fasta --out results --pool std --quiet {stage}");
    run(&mut plmkit(folder, &stage("--stage prepare --force")));
    let before = data(&folder.join("results"));
    for (again, why) in [
        (
            "--stage finish",
            "a: not made with these settings: results/a/embeddings/shard-0",
        ),
        (
            "--layers last",
            "results: has embeddings of other settings (columns was [\"mean_4\"]",
        ),
    ] {
        let output = plmkit(folder, &stage(again)).output();
        let output = output.expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(73), "{said}");
        assert!(said.contains(why), "{said}");
        assert!(data(&folder.join("results")) == before);
    }
    let embed = stage("--stage embed --task 1/1 --force");
    run(&mut plmkit(folder, &embed));
    run(&mut plmkit(folder, &stage("--stage finish")));
    assert!(data(&folder.join("results")) != before);
    run(&mut plmkit(folder, &stage("--layers last")));
    // The folder of batches is gone.
    run(&mut plmkit(folder, &embed));
}

#[test]
fn a_check_prints_the_samples_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    for name in ["a.fasta", "b c.fasta"] {
        proteins(folder, name, 2);
    }
    let table = "fasta,sample\nb c.fasta,x\n./a.fasta,y\na.fasta,x\n";
    fs::write(folder.join("table.csv"), table).expect("write");
    let check = |arguments: &str| plmkit(folder, &format!("--stage check {arguments}"));
    let prints = |arguments: &str, expected: &str| {
        let output = check(arguments).output().expect("the program starts");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        assert!(output.status.success() && output.stderr.is_empty());
    };
    let before = tree(folder);
    prints("a.fasta --out results", "a\ta.fasta\n");
    let rows = "x\tb c.fasta\nx\ta.fasta\ny\t./a.fasta\n";
    prints("table.csv --out results", rows);
    assert_fails(check("none --out results"), 66, "none: cannot open");
    assert!(tree(folder) == before);
    run(&mut plmkit(folder, "a.fasta --out results"));
    let before = tree(folder);
    prints("a.fasta --out results", "a\ta.fasta\n");
    for options in ["--pool max", "--max-shard-tokens 5000"] {
        let other = check(&format!("a.fasta --out results {options}"));
        assert_fails(other, 73, "results");
    }
    assert!(tree(folder) == before);
}

#[test]
fn a_stage_goes_on_with_the_options_of_prepare() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    let line = "a.fasta --out results --quiet --stage";
    for stage in ["embed --task 1/1", "finish"] {
        let unprepared = plmkit(folder, &format!("{line} {stage}"));
        assert_fails(unprepared, 66, "results: no run began here");
        assert!(!folder.join("results").exists());
    }
    for (device, dtype, model, what) in [
        ("cpu", "f16", "model-tiny", "not computed"),
        ("cuda:1", "int8", "model-tiny", "not computed"),
        ("all", "int8", "model-tiny", "not computed"),
        (
            "cuda",
            "fp8",
            "model-tiny-esmc",
            "expected a multiple of 16",
        ),
    ] {
        let line = format!("plmkit {line} prepare --device {device} --dtype {dtype}");
        let mut never = command(folder, &line);
        never.arg("--model").arg(test_data(model));
        assert_fails(never, 2, &format!("--dtype {dtype}: {what}"));
        assert!(!folder.join("results").exists());
    }
    run(&mut plmkit(folder, &format!("{line} prepare")));
    for stage in ["embed --task 1/1", "embed --task 1/1", "finish"] {
        for options in ["--pool max", "--dtype bf16 --force"] {
            let before = tree(folder);
            let other = plmkit(folder, &format!("{line} {stage} {options}"));
            assert_fails(other, 73, "results: was prepared with '--device cpu'");
            assert!(tree(folder) == before, "{stage} {options}");
        }
        run(&mut plmkit(folder, &format!("{line} {stage}")));
    }
    proteins(folder, "b.fasta", 2);
    let other = plmkit(folder, "a.fasta b.fasta --out results --stage finish").output();
    let other = other.expect("the program starts");
    let said = String::from_utf8_lossy(&other.stderr);
    assert_eq!(other.status.code(), Some(1), "{said}");
    assert!(said.contains("b: not cut"), "{said}");
    // An option that may have a value, and has none.
    for stage in ["prepare", "embed --task 1/1"] {
        let line = format!("b.fasta --out scored --scores --stage {stage}");
        run(&mut plmkit(folder, &line));
    }
}

#[test]
fn batches_of_an_interrupted_run_are_kept_if_they_are_whole_and_of_the_same_options() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    let line = "a.fasta --out results --quiet";
    let embeddings = folder.join("results/a/embeddings/shard-00000.parquet");
    let batches = folder.join("results/a/batches/shard-00000.arrow");
    let interrupt = || {
        run(&mut plmkit(folder, line));
        fs::remove_file(&embeddings).expect("embeddings");
        let shard = "results/a/shards/shard-00000.parquet";
        let out = "results/a/batches/shard-00000.arrow";
        fs::create_dir_all(batches.parent().expect("a folder")).expect("folder");
        run(&mut command(
            folder,
            &format!("pack-batches {shard} --out {out}"),
        ));
    };
    interrupt();
    let mut flipped = fs::read(&batches).expect("batches");
    flipped[2] ^= 1;
    for damaged in [&b"damaged"[..], &flipped, &[0; 5000]] {
        fs::write(&batches, damaged).expect("write");
        let refused = plmkit(folder, line).output().expect("the program starts");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(65), "{said}");
        assert!(
            said.contains("a: if a file of it is damaged, --force makes that again"),
            "{said}"
        );
        run(&mut plmkit(folder, &format!("{line} --force")));
        interrupt();
    }
    run(plmkit(folder, line).args(["--description"]));
    let rows = fs::read(&embeddings).expect("embeddings");
    assert!(rows.windows(11).any(|bytes| bytes == b"description"));
}

#[test]
fn samples_that_were_made_in_different_ways_are_told() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    proteins(folder, "b.fasta", 2);
    run(&mut plmkit(folder, "a.fasta --out results"));
    run(&mut plmkit(folder, "b.fasta --out other --pool max"));
    // A combined dataset is no sample.
    let combine = "query-embeddings combine other/b --out results/all";
    run(&mut command(folder, combine));
    run(&mut plmkit(folder, "a.fasta --out results"));
    fs::rename(folder.join("other/b"), folder.join("results/b")).expect("rename");
    for (line, code, expected) in [
        (
            "a.fasta --out results",
            1,
            "b: expected columns [\"mean_4\"], found [\"max_4\"], as in a",
        ),
        (
            "a.fasta b.fasta --out results",
            73,
            "results: has embeddings of other settings (columns was [\"max_4\"] and is now [\"mean_4\"])",
        ),
    ] {
        let mixed = plmkit(folder, line).output().expect("the program starts");
        let said = String::from_utf8_lossy(&mixed.stderr);
        assert_eq!(mixed.status.code(), Some(code), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn the_same_weights_are_known_whatever_their_path_and_age() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    run(&mut plmkit(folder, "a.fasta --out results"));
    let before = data(&folder.join("results"));
    let copy = folder.join("copy");
    copy_model("model-tiny", &copy);
    let defaults = "--pool mean --layers last --dtype auto --prefetch=2";
    for model in [
        &copy,
        Path::new("copy"),
        Path::new("copy/model.safetensors"),
    ] {
        let again = format!("a.fasta --out results {defaults}");
        let said = run(&mut with_model(folder, model, &again));
        assert!(!said.contains("tokens/s"), "{said}");
        assert!(
            data(&folder.join("results")) == before,
            "{}",
            model.display()
        );
    }
    let other = with_model(
        folder,
        &test_data("model-tiny-bin"),
        "a.fasta --out results --quiet",
    );
    assert_fails(
        other,
        73,
        "results: has embeddings of other settings (model was ",
    );
}

#[test]
fn a_damaged_verdict_is_written_again() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    run(&mut plmkit(folder, "a.fasta --out results"));
    let file = folder.join("results/a/dataset.json");
    let whole = fs::read_to_string(&file).expect("read");
    for damaged in ["", &whole[..99], &whole.replace("1022", "1023")] {
        fs::write(&file, damaged).expect("write");
        run(&mut plmkit(folder, "a.fasta --out results"));
        assert_eq!(fs::read_to_string(&file).expect("read"), whole);
    }
    // So is what else a run writes.
    for name in ["summary.tsv", "versions.yml", "pipeline_info/params.json"] {
        let file = folder.join("results").join(name);
        fs::write(&file, "").expect("write");
        run(&mut plmkit(folder, "a.fasta --out results"));
        assert!(!fs::read(&file).expect("read").is_empty(), "{name}");
    }
    fs::write(folder.join("results/batch-size.json"), "").expect("write");
    fs::remove_file(folder.join("results/a/embeddings/shard-00000.parquet")).expect("remove");
    run(&mut plmkit(folder, "a.fasta --out results"));
}

#[test]
fn a_damaged_sample_stops_no_other() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    for name in ["a.fasta", "b.fasta", "c.fasta"] {
        proteins(folder, name, 3);
    }
    let options = "a.fasta b.fasta c.fasta --out results --quiet";
    run(&mut plmkit(folder, options));
    let manifest = folder.join("results/b/shards/manifest.json");
    let text = fs::read_to_string(&manifest).expect("read");
    fs::write(&manifest, text.replacen('3', "4", 1)).expect("write");
    fs::remove_file(folder.join("results/summary.tsv")).expect("remove");
    let finish = plmkit(folder, &format!("{options} --stage finish")).output();
    let finish = finish.expect("the program starts");
    let said = String::from_utf8_lossy(&finish.stderr);
    assert_eq!(finish.status.code(), Some(65), "{said}");
    let summary = fs::read_to_string(folder.join("results/summary.tsv")).expect("summary");
    let verdicts: Vec<_> = summary
        .lines()
        .map(|line| line.split('\t').nth(7))
        .collect();
    assert_eq!(verdicts[1..], ["pass", "not validated", "pass"].map(Some));
}

#[test]
fn allowing_empty_samples_keeps_the_limit_of_rejected_records() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    fs::write(folder.join("a.fasta"), ">1\nMKV\n>2\nMK1\n").expect("write");
    fs::write(folder.join("b.fasta"), ">1\nMK1\n").expect("write");
    let options = "--allow-empty --quiet --invalid=reject";
    run(&mut plmkit(
        folder,
        &format!("b.fasta --out none {options}"),
    ));
    let mut half = plmkit(folder, &format!("a.fasta --out half {options}"));
    let half = half.output().expect("the program starts");
    let said = String::from_utf8_lossy(&half.stderr);
    assert_eq!(half.status.code(), Some(1), "{said}");
    assert!(said.contains("1 of 2 records are rejected"), "{said}");
    let enough = "--max-rejected=50%";
    run(&mut plmkit(
        folder,
        &format!("a.fasta --out enough {options} {enough}"),
    ));
}

#[test]
fn logs_that_are_gone_cost_the_report_alone() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    run(&mut plmkit(folder, "a.fasta --out results"));
    fs::remove_file(folder.join("results/a/logs/shard-00000.samples.csv")).expect("remove");
    let said = run(&mut plmkit(folder, "a.fasta --out results"));
    assert!(said.contains("1 sample: 3 rows"), "{said}");
    let events = folder.join("results/a/logs/shard-00000.events.jsonl");
    fs::write(&events, "no events\n").expect("write");
    let said = run(&mut plmkit(folder, "a.fasta --out results"));
    assert!(said.contains("line 1: not a run event"), "{said}");
    assert!(said.contains("1 sample: 3 rows"), "{said}");
    fs::remove_dir_all(folder.join("results/a/logs")).expect("remove");
    let said = run(&mut plmkit(folder, "a.fasta --out results"));
    assert!(said.contains("no run events"), "{said}");
    assert!(said.contains("1 sample: 3 rows"), "{said}");
    assert!(folder.join("results/index.html").exists());
}

#[test]
fn a_refused_shard_keeps_its_logs() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    run(&mut plmkit(folder, "a.fasta --out results"));
    let events = folder.join("results/a/logs/shard-00000.events.jsonl");
    let before = fs::read(&events).expect("events");
    fs::remove_file(folder.join("results/a/embeddings/shard-00000.parquet")).expect("remove");
    let nowhere = ["--quiet", "--checkpoint-dir=/proc/nowhere"];
    let mut refused = plmkit(folder, "a.fasta --out results");
    let refused = refused.args(nowhere).output().expect("the program starts");
    assert_eq!(refused.status.code(), Some(73));
    assert!(fs::read(&events).expect("events") == before);
}

#[test]
fn what_did_not_fit_into_memory_is_tried_again_by_force() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 20);
    let line = "a.fasta --out results --max-batch-tokens=4096 --max-rejected=90%";
    let squeezed = |most: u32| format!("{line} --inject=out-of-memory-above={most}");
    // Nothing fits: the memory is somebody else's.
    let refused = plmkit(folder, &squeezed(2)).output();
    let refused = refused.expect("the program starts");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(75), "{said}");
    assert!(said.contains("not even a sequence of"), "{said}");
    let embeddings = folder.join("results/a/embeddings/shard-00000.parquet");
    assert!(!embeddings.exists());
    run(&mut plmkit(folder, &squeezed(200)));
    let list = folder.join("results/a/rejects/shard-00000.csv");
    let listed = fs::read_to_string(&list).expect("a list");
    assert!(listed.contains("out_of_memory"), "{listed}");
    run(&mut plmkit(folder, line));
    assert_eq!(fs::read_to_string(&list).expect("a list"), listed);
    run(&mut plmkit(folder, &format!("{line} --force")));
    assert!(!list.exists());
    run(&mut plmkit(folder, &line.replace("results", "whole")));
    assert!(data(&folder.join("results")) == data(&folder.join("whole")));
}

#[test]
fn a_list_of_zeros_is_made_again_by_force_and_none_of_others() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    let line = "a.fasta --out results --inject=not-finite=1 --max-rejected=50%";
    run(&mut plmkit(folder, line));
    let before = data(&folder.join("results"));
    let list = folder.join("results/a/rejects/shard-00000.csv");
    let whole = fs::read(&list).expect("a list");
    fs::write(&list, vec![0; whole.len()]).expect("write");
    run(&mut plmkit(folder, &format!("{line} --force")));
    assert!(data(&folder.join("results")) == before);
    fs::write(&list, "mine\n").expect("write");
    fs::remove_file(folder.join("results/a/embeddings/shard-00000.parquet")).expect("remove");
    for line in [line, &format!("{line} --force")] {
        let refused = plmkit(folder, line).output().expect("the program starts");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(73), "{said}");
        assert!(said.contains("is no list of gpu-embed"), "{said}");
        assert_eq!(fs::read(&list).expect("a list"), b"mine\n");
    }
}

#[test]
fn files_that_are_damaged_beyond_recognition_are_made_again() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    run(&mut plmkit(folder, "a.fasta --out results"));
    let before = data(&folder.join("results"));
    let zeros = |name: &str| {
        let path = folder.join("results/a").join(name);
        let length = path.metadata().expect("a file").len() as usize;
        fs::write(path, vec![0; length]).expect("write");
    };
    for name in [
        "reports/run.json",
        "reports/a_run_mqc.json",
        "../index.html",
    ] {
        zeros(name);
    }
    run(&mut plmkit(folder, "a.fasta --out results"));
    for name in [
        "embeddings/shard-00000.parquet",
        "logs/shard-00000.events.jsonl",
        "logs/shard-00000.samples.csv",
        "shards/shard-00000.parquet",
    ] {
        zeros(name);
    }
    run(&mut plmkit(folder, "a.fasta --out results --force"));
    assert!(data(&folder.join("results")) == before);
}

#[test]
fn damaged_embeddings_are_named_and_replaced_by_force() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 5);
    run(&mut plmkit(folder, "a.fasta --out results"));
    let before = data(&folder.join("results"));
    let path = folder.join("results/a/embeddings/shard-00000.parquet");
    let whole = fs::read(&path).expect("read");
    let mut flipped = whole.clone();
    flipped[100] ^= 1;
    for damaged in [&flipped[..], &whole[..whole.len() / 2], &[]] {
        fs::write(&path, damaged).expect("write");
        let refused = plmkit(folder, "a.fasta --out results --quiet").output();
        assert_eq!(refused.expect("the program starts").status.code(), Some(65));
        run(&mut plmkit(folder, "a.fasta --out results --force"));
        assert!(data(&folder.join("results")) == before);
    }
}

#[test]
fn known_datasets_of_other_work_are_refused_before_the_start() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    let other = test_data("model-tiny-bin");
    run(&mut with_model(folder, &other, "a.fasta --out earlier"));
    let known = "a.fasta --out results --known earlier/a --quiet";
    assert_fails(
        plmkit(folder, known),
        65,
        "earlier/a/dataset.json: --known: expected embeddings of this model",
    );
    assert!(!folder.join("results").exists());
    assert_fails(
        with_model(folder, &other, &format!("{known} --pool max")),
        65,
        "earlier/a/dataset.json: --known: its embeddings were made otherwise: expected columns",
    );
    assert!(!folder.join("results").exists());
    run(&mut with_model(folder, &other, known));
    let contacts = "a.fasta --out results --long-policy window --contacts --quiet --force";
    assert_fails(
        plmkit(folder, contacts),
        2,
        "--contacts: the windows of a protein",
    );
}

#[test]
fn a_collection_grows_with_any_columns_and_type() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "old.fasta", 10);
    proteins(folder, "new.fasta", 20);
    for (number, options) in [
        "--pool max",
        "--pool mean,max,bos",
        "--dtype bf16",
        "--layers 4,2",
    ]
    .into_iter()
    .enumerate()
    {
        let out = |name: &str| format!("{name}.fasta --out {name}-{number} {options}");
        run(&mut plmkit(folder, &out("old")));
        let known = format!("{} --known old-{number}/old", out("new"));
        run(&mut plmkit(folder, &known));
    }
}

/// A run that was killed between the last two steps of a shard.
#[test]
fn what_a_killed_run_left_of_a_complete_shard_goes() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    let saved = "--checkpoint-dir=saved";
    for (options, left) in [
        ("", "results/a/embeddings/.shard-00000.parquet.plmkit-run"),
        (saved, "saved/a/.shard-00000.parquet.plmkit-run"),
    ] {
        let line = format!("a.fasta --out results --quiet {options}");
        let line = line.trim_end();
        run(&mut plmkit(folder, line));
        let before = data(&folder.join("results"));
        let left = folder.join(left);
        fs::create_dir_all(&left).expect("folder");
        fs::write(left.join("lock"), "").expect("write");
        run(&mut plmkit(folder, line));
        assert!(!left.exists(), "{options}");
        assert!(data(&folder.join("results")) == before);
    }
}

/// A device and a type that are not given are those of what is there, as long as nothing is to be added to it.
#[test]
fn embeddings_of_two_types_are_never_mixed() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 20);
    let line = "a.fasta --out results --quiet --max-shard-tokens 4000";
    run(&mut plmkit(folder, &format!("{line} --dtype int8")));
    let before = data(&folder.join("results"));
    run(&mut plmkit(folder, line));
    assert!(data(&folder.join("results")) == before);
    fs::remove_file(folder.join("results/a/embeddings/shard-00001.parquet")).expect("remove");
    let what =
        "shard-00000.parquet: made on cpu in int8, and what is missing would be made on cpu in f32";
    let lost = tree(&folder.join("results"));
    assert_fails(plmkit(folder, line), 73, what);
    assert!(tree(&folder.join("results")) == lost);
    run(&mut plmkit(folder, &format!("{line} --dtype int8")));
    assert!(data(&folder.join("results")) == before);
}

/// A run that replaces embeddings was killed: they are of two types.
#[test]
fn a_folder_of_two_types_is_refused_and_made_again_by_force() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 20);
    let line = "a.fasta --quiet --max-shard-tokens 4000 --out";
    run(&mut plmkit(folder, &format!("{line} results")));
    run(&mut plmkit(folder, &format!("{line} other --dtype int8")));
    let file = "a/embeddings/shard-00001.parquet";
    let [mixed, other] = ["results", "other"].map(|out| folder.join(out).join(file));
    fs::copy(other, mixed).expect("copy");
    let before = tree(&folder.join("results"));
    for dtype in ["", " --dtype f32", " --dtype int8"] {
        let refused = plmkit(folder, &format!("{line} results{dtype}"));
        assert_fails(
            refused,
            73,
            "results: has embeddings of other settings (dtype",
        );
        assert!(tree(&folder.join("results")) == before, "{dtype}");
    }
    run(&mut plmkit(folder, &format!("{line} whole")));
    run(&mut plmkit(folder, &format!("{line} results --force")));
    assert!(data(&folder.join("results")) == data(&folder.join("whole")));
}

#[test]
fn files_of_plmkit_without_a_manifest_are_its_own() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    run(&mut plmkit(folder, "a.fasta --out results --quiet"));
    let before = data(&folder.join("results"));
    for lost in ["pipeline_info/params.json", "a/shards/manifest.json"] {
        fs::remove_file(folder.join("results").join(lost)).expect("remove");
    }
    run(&mut plmkit(folder, "a.fasta --out results --quiet"));
    assert!(data(&folder.join("results")) == before);
}
