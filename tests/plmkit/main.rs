//! The whole job: the same files as by hand, all errors before the start, and resuming.
mod children;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod ends;
mod existing;
mod options;
mod page;
mod refusals;
mod search;
mod variants;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use plmkit_store::{EmbeddingsReader, EmbeddingsWriter};
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use serde_json::Value;

use common::{Tree, assert_failed, bin, command, run, test_data, tree};

/// What must not depend on when and how often a run was interrupted.
fn data(folder: &Path) -> Tree {
    let mut found = tree(folder);
    let is_data = |path: &Path| {
        let is_in = |name: &str| path.iter().any(|part| part == name);
        is_in("shards") || is_in("embeddings") || path.ends_with("dataset.json")
    };
    found.retain(|path, _| is_data(path));
    found
}

fn plmkit(folder: &Path, arguments: &str) -> Command {
    with_model(folder, &test_data("model-tiny"), arguments)
}

fn with_model(folder: &Path, model: &Path, arguments: &str) -> Command {
    let mut command = command(folder, &format!("plmkit {arguments} --device cpu"));
    command.arg("--model").arg(model);
    command
}

/// Copies a model of the test data into a new folder.
fn copy_model(model: &str, to: &Path) {
    fs::create_dir(to).expect("folder");
    for name in ["config.json", "model.safetensors"] {
        fs::copy(test_data(model).join(name), to.join(name)).expect("copy");
    }
}

/// Copies embeddings that then say they are of another type, as those of a GPU.
fn copy_as_f16(from: &Path, to: &Path) {
    let mut reader = EmbeddingsReader::open(from).expect("open");
    let (layout, made_by) = (reader.layout().clone(), reader.provenance().clone());
    let mut writer = EmbeddingsWriter::create(to, &layout).expect("create");
    while let Some(rows) = reader.next_batch().expect("read") {
        writer.write(&rows).expect("write");
    }
    let made_by = made_by.with("dtype", "f16");
    writer.finish(&made_by).expect("finish");
}

fn proteins(folder: &Path, name: &str, records: usize) {
    let text = fs::read_to_string(test_data("proteins.fasta")).expect("read");
    let records: String = text
        .split_inclusive("\n>")
        .take(records)
        .collect::<String>();
    fs::write(folder.join(name), records.trim_end_matches('>')).expect("write");
}

#[test]
fn two_samples_have_the_files_of_the_programs_by_hand() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "yeast.fasta", 20);
    proteins(folder, "soil 1.faa", 9);
    let mut two = plmkit(folder, "--out results yeast.fasta");
    let said = run(two.arg("soil 1.faa").args(["--pool", "mean,max"]));
    let totals = "plmkit: 2 samples: 29 rows, 0 rejected, 3 truncated, in results";
    let last: Vec<&str> = said.lines().rev().take(4).collect();
    let table =
        r#"plmkit.read("results") in Python, or FROM 'results/*/embeddings/*.parquet' in DuckDB"#;
    assert_eq!(
        last,
        [
            &*format!("plmkit: table: {table}"),
            "plmkit: page: results/index.html",
            "plmkit: verdict: 2 of 2 samples passed",
            totals
        ]
    );

    let options = "--out yeast/shards --sample yeast --max-shard-tokens 500000+25000 yeast.fasta";
    run(&mut command(folder, &format!("fasta-shard {options}")));
    let shard = "yeast/shards/shard-00000.parquet";
    run(&mut command(
        folder,
        &format!("pack-batches {shard} --out yeast.arrow"),
    ));
    fs::create_dir(folder.join("yeast/embeddings")).expect("folder");
    let out = "--out yeast/embeddings/shard-00000.parquet --rejects yeast.csv";
    let mut embed = command(
        folder,
        &format!("gpu-embed yeast.arrow {out} --device cpu --pool mean,max"),
    );
    run(embed.arg("--model").arg(test_data("model-tiny")));
    let mut validate = command(folder, "validate-embeddings --dataset yeast");
    run(validate.arg("--model").arg(test_data("model-tiny")));
    assert!(data(&folder.join("results/yeast")) == data(&folder.join("yeast")));

    let summary = fs::read_to_string(folder.join("results/summary.tsv")).expect("summary");
    let cells: Vec<Vec<&str>> = summary
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    assert_eq!(cells[1][..6], ["yeast", "20", "20", "0", "0", "0"]);
    assert_eq!(cells[2][..6], ["soil_1", "9", "9", "0", "0", "0"]);
}

#[test]
fn all_errors_are_told_at_once_and_a_refused_run_changes_nothing() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 5);
    run(&mut plmkit(folder, "a.fasta --out results"));
    let before = tree(folder);
    for (arguments, code, errors) in [
        (
            "a.fasta --out results --pool max",
            73,
            vec![
                "results: has embeddings of other settings (columns was [\"mean_4\"] and is now [\"max_4\"])",
            ],
        ),
        (
            "a.fasta --out results --max-shard-tokens 5",
            73,
            vec![
                "results/a/shards/manifest.json: exists and holds other work (max_shard_tokens was \"500000+25000\" and is now 5)",
            ],
        ),
        (
            "a.fasta --out results --layers 9 --known nowhere",
            66,
            vec![
                "nowhere/dataset.json: cannot open",
                "layer 9 does not exist; expected 0 to 4",
                "2 errors, see above; nothing was changed",
            ],
        ),
        (
            "a.fasta b.fasta --out results --reference=none",
            66,
            vec![
                "b.fasta: cannot open: no such file or directory",
                "none: cannot open: no such file or directory",
                "--reference: expected one sample: those of several would have one file",
                "3 errors, see above; nothing was changed",
            ],
        ),
        (
            "a.fasta --out results --events=e",
            2,
            vec!["unexpected argument '--events' found"],
        ),
        (
            "a.fasta b.fasta --out results --dtype f64",
            2,
            vec!["invalid value 'f64' for '--dtype <TYPE>'"],
        ),
    ] {
        let output = plmkit(folder, arguments)
            .output()
            .expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert_eq!(said.lines().count(), errors.len(), "{said}");
        for (line, error) in said.lines().zip(errors) {
            assert!(line.starts_with(&format!("plmkit: {error}")), "{line}");
        }
        assert!(tree(folder) == before, "{arguments}");
    }
}

#[test]
fn embeddings_are_replaced_for_all_samples_or_not_at_all() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 5);
    run(&mut plmkit(folder, "a.fasta --out results"));
    let kept = fs::read(folder.join("results/a/embeddings/shard-00000.parquet")).expect("read");
    let wrong = plmkit(folder, "a.fasta --out results --layers 77 --force").output();
    assert_eq!(wrong.expect("the program starts").status.code(), Some(2));
    let still = fs::read(folder.join("results/a/embeddings/shard-00000.parquet")).expect("read");
    assert!(
        kept == still,
        "embeddings go only when others take their place"
    );
    let force = run(&mut plmkit(
        folder,
        "a.fasta --out results --pool max --force",
    ));
    assert!(force.contains("5 rows of max_4 (64)"), "{force}");

    proteins(folder, "other.fasta", 3);
    run(&mut plmkit(folder, "other.fasta --out results --pool max"));
    let before = tree(folder);
    let fewer = plmkit(folder, "a.fasta --out results --pool mean --force").output();
    let fewer = fewer.expect("the program starts");
    let said = String::from_utf8_lossy(&fewer.stderr);
    assert_eq!(fewer.status.code(), Some(73), "{said}");
    assert!(
        said.trim_end().ends_with("or another folder: other"),
        "{said}"
    );
    assert!(tree(folder) == before);
}

#[test]
fn a_run_that_is_killed_anywhere_resumes_to_the_same_bytes() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 40);
    proteins(folder, "b.fasta", 30);
    let options = "a.fasta b.fasta --max-shard-tokens 4000 --threads 1";
    run(&mut plmkit(folder, &format!("{options} --out whole")));
    let resumed = format!("{options} --out resumed");
    for delay in [20, 60, 120, 200, 350, 600] {
        let mut child = plmkit(folder, &resumed)
            .process_group(0)
            .spawn()
            .expect("the program starts");
        thread::sleep(Duration::from_millis(delay));
        let group = Pid::from_raw(child.id().cast_signed()).expect("a process");
        // It may have ended.
        let _ = kill_process_group(group, Signal::KILL);
        child.wait().expect("wait");
        // The programs that it ran hold their locks until they are gone.
        let gone = Instant::now() + Duration::from_secs(10);
        while test_kill_process_group(group).is_ok() && Instant::now() < gone {
            thread::sleep(Duration::from_millis(5));
        }
    }
    run(&mut plmkit(folder, &resumed));
    assert!(data(&folder.join("whole")) == data(&folder.join("resumed")));
    assert!(!folder.join("resumed/a/batches").exists());
}

#[test]
fn a_stopped_run_saves_its_work() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    let text = fs::read_to_string(test_data("proteins.fasta")).expect("read");
    fs::write(folder.join("a.fasta"), text.repeat(60)).expect("write");
    let options = "a.fasta --out results --threads 1 --duplicate-ids=suffix";
    let options = format!("{options} --max-batch-tokens=1500");
    let mut child = plmkit(folder, &options)
        .spawn()
        .expect("the program starts");
    let events = folder.join("results/a/logs/shard-00000.events.jsonl");
    let has_begun = || fs::metadata(&events).is_ok_and(|found| found.len() > 10_000);
    while child.try_wait().expect("a child").is_none() && !has_begun() {
        thread::sleep(Duration::from_millis(5));
    }
    let id = Pid::from_raw(child.id().cast_signed()).expect("a process");
    kill_process(id, Signal::TERM).expect("the program runs");
    child.wait().expect("wait");
    let events = fs::read_to_string(events).expect("events");
    assert!(events.contains("\"type\":\"done\""), "{events}");
    let saved = folder.join("results/a/embeddings/.shard-00000.parquet.plmkit-run");
    let mut saved = fs::read_dir(saved).expect("saved work").flatten();
    assert!(saved.any(|file| file.file_name() != *"lock"));
    // What is saved belongs to its batches; others are made only by force.
    let options = options.replace("=1500", "=900");
    let kept = "a: shard-00000 keeps its batches of 1500 tokens, of which some are saved; expected 900 with --force";
    let before = data(&folder.join("results"));
    let said = run(&mut plmkit(folder, &options));
    assert!(said.contains(kept), "{said}");
    assert!(data(&folder.join("results")) != before);
}

#[test]
fn the_stages_give_what_one_run_gives() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 40);
    fs::write(folder.join("bad.fasta"), ">x\nACD\n>x\nACD\n").expect("write");
    let options = "a.fasta bad.fasta --max-shard-tokens 4000 --quiet";
    let whole = plmkit(folder, &format!("{options} --out whole")).output();
    assert_eq!(whole.expect("the program starts").status.code(), Some(65));
    let options = format!("{options} --out staged --stage");
    let stage = |stage: &str| {
        let output = plmkit(folder, &format!("{options} {stage}")).output();
        let output = output.expect("the program starts");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        (output.status.code(), text)
    };
    let (code, count) = stage("prepare");
    assert_eq!(code, Some(65), "a sample cannot be cut");
    assert!(
        count
            .trim_end()
            .parse::<usize>()
            .is_ok_and(|count| count > 2),
        "{count}"
    );
    let early = plmkit(folder, "a.fasta --out none --stage embed --task 1/2").output();
    assert_eq!(early.expect("the program starts").status.code(), Some(66));
    for task in ["1/2", "2/2"] {
        assert_eq!(stage(&format!("embed --task {task}")).0, Some(0));
    }
    // As of a task that was killed when it had embedded a shard.
    let batches = folder.join("staged/a/batches/shard-00000.arrow");
    fs::write(&batches, "").expect("write");
    assert_eq!(stage("embed --task 1/2").0, Some(0));
    assert!(!batches.exists());
    assert_eq!(stage("finish").0, Some(1), "a sample has no verdict");
    assert!(data(&folder.join("whole/a")) == data(&folder.join("staged/a")));
    let summary = |of: &str| fs::read_to_string(folder.join(of).join("summary.tsv"));
    assert_eq!(
        summary("whole").expect("read"),
        summary("staged").expect("read")
    );
}

#[test]
fn of_tasks_that_start_together_one_measures_the_batches() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 40);
    let stage = |stage: &str| {
        let line = format!("a.fasta --max-shard-tokens 4000 --out results --stage {stage}");
        let mut command = plmkit(folder, &line);
        command
            .args(["--inject=out-of-memory-above=9000"])
            .stderr(Stdio::piped());
        command.spawn().expect("the program starts")
    };
    let code = stage("prepare").wait().expect("wait").code();
    assert_eq!(code, Some(0));
    let tasks = ["1/3", "2/3", "3/3"].map(|task| stage(&format!("embed --task {task}")));
    let outputs = tasks.map(|task| task.wait_with_output().expect("wait"));
    let said = outputs.each_ref().map(|output| {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        said
    });
    let measured = said
        .iter()
        .filter(|said| said.contains(" tokens fit at once"));
    assert_eq!(measured.count(), 3, "{said:?}");
    let tried = said.iter().filter(|said| said.contains("1024 tokens fit"));
    assert_eq!(tried.count(), 1, "{said:?}");
}

#[test]
fn relatives_of_esm_2_go_the_same_way() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 12);
    for (model, of_same_weights) in [
        (
            "model-tiny-esmc",
            &[("_heads\": 3", "_heads\": 2"), ("_dim\": 8", "_dim\": 12")][..],
        ),
        (
            "model-tiny-1v",
            &[("_dropout\": true", "_dropout\": false")],
        ),
    ] {
        let changed = folder.join(model);
        copy_model(model, &changed);
        let out = format!("a.fasta --out {model}-results --logits --spot-check=12");
        run(&mut with_model(folder, &changed, &out));
        let sample = folder.join(format!("{model}-results/a"));
        let read = |path: &Path| -> Value {
            serde_json::from_slice(&fs::read(path).expect("read")).expect("JSON")
        };
        let dataset = read(&sample.join("dataset.json"));
        assert_eq!(dataset["outcome"], "pass");
        let compared = dataset["spot_check"].as_array().expect("columns");
        let columns: Vec<_> = compared.iter().map(|column| &column["column"]).collect();
        assert_eq!(columns, ["mean_2", "logits"]);
        assert!(compared.iter().all(|column| column["vectors"] == 12));

        let mut config = fs::read_to_string(changed.join("config.json")).expect("read");
        for (from, to) in of_same_weights {
            assert!(config.contains(from), "{config}");
            config = config.replace(from, to);
        }
        fs::write(changed.join("config.json"), config).expect("write");
        let refused = with_model(folder, &changed, &out).output().expect("run");
        assert_eq!(refused.status.code(), Some(73), "{refused:?}");
        run(&mut with_model(
            folder,
            &changed,
            "a.fasta --out changed --force",
        ));
        let other = read(&folder.join("changed/a/dataset.json"));
        assert_eq!(other["outcome"], "pass");
        assert_ne!(other["model_digest"], dataset["model_digest"]);
    }
    let esmc = with_model(
        folder,
        &test_data("model-tiny-esmc"),
        "a.fasta --out none --contacts",
    );
    common::assert_fails(esmc, 65, "has no contact head");
    assert!(!folder.join("none").exists());
}

#[test]
fn positions_to_mask_are_of_any_shard() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    fs::write(folder.join("a.fasta"), ">A\nMKVLAMKVLA\n>B\nACDEFGHIKL\n").expect("write");
    let embed = |positions: &str| {
        fs::write(folder.join("positions.csv"), positions).expect("write");
        let options = "--out results a.fasta --max-shard-tokens 12";
        let mut plmkit = plmkit(folder, options);
        plmkit.args(["--scores=masked", "--scores-positions=positions.csv"]);
        plmkit
    };
    let no_table = "positions.csv: line 1: expected the columns id,position";
    common::assert_fails(embed("B 3\n").arg("--quiet"), 65, no_table);
    assert!(!folder.join("results").exists());
    let unknown = "id,position\nB,3\nC,1\nA,2\n";
    let what = "positions.csv: line 3 'C' '1': expected an id of the shards, found none such";
    common::assert_fails(embed(unknown).arg("--quiet"), 65, what);
    let said = run(&mut embed("id,position\nB,3\nA,2\n"));
    assert!(said.contains("a: shard-00001, 2 of 2 shards"), "{said}");
    assert!(said.contains("2 rows, 0 rejected"), "{said}");
}

/// On a CPU, all is done by one process.
#[test]
fn the_program_needs_no_other() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    let lonely = folder.join("plmkit");
    // By another process: a program that is started by another test meanwhile would keep a copy of ours open for writing, and what
    // is open for writing does not run.
    let mut copy = Command::new("cp");
    run(copy.arg(bin("plmkit").get_program()).arg(&lonely));
    let mut command = Command::new(lonely);
    command.args(["a.fasta", "--out", "results", "--device", "cpu", "--model"]);
    command.arg(test_data("model-tiny"));
    let said = run(command.env("PATH", "").current_dir(folder));
    assert!(said.contains("1 sample: 3 rows"), "{said}");
}

#[test]
fn a_run_that_is_refused_for_a_sample_leaves_all_as_it_was() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 5);
    proteins(folder, "b.fasta", 3);
    run(&mut plmkit(folder, "a.fasta b.fasta --out results"));
    let (before, made) = (tree(&folder.join("results")), data(&folder.join("results")));
    for records in [6, 0] {
        match records {
            0 => fs::write(folder.join("a.fasta"), ">x\nM-K\n").expect("write"),
            _ => proteins(folder, "a.fasta", records),
        }
        let other = plmkit(folder, "a.fasta b.fasta --out results").output();
        let other = other.expect("the program starts");
        let said = String::from_utf8_lossy(&other.stderr);
        assert_eq!(other.status.code(), Some(73), "{said}");
        assert!(said.contains("the input is not the same"), "{said}");
        assert!(tree(&folder.join("results")) == before);
    }
    // A file of the shards that is lost is made again, but not of another input.
    proteins(folder, "a.fasta", 6);
    fs::remove_file(folder.join("results/a/shards/rejects.csv")).expect("remove");
    let lost = tree(&folder.join("results"));
    let other = plmkit(folder, "a.fasta b.fasta --out results").output();
    assert_eq!(other.expect("the program starts").status.code(), Some(73));
    assert!(tree(&folder.join("results")) == lost);
    proteins(folder, "a.fasta", 5);
    run(&mut plmkit(folder, "a.fasta b.fasta --out results"));
    assert!(data(&folder.join("results")) == made);
}

#[test]
fn a_finished_sample_is_judged_again_only_if_something_changed() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 5);
    let line = "a.fasta --out results --residues";
    run(&mut plmkit(folder, line));
    let results = folder.join("results");
    let files = || -> BTreeMap<PathBuf, SystemTime> {
        let paths = tree(&results).into_keys();
        let times = paths.map(|path| {
            let found = results.join(&path).metadata().expect("metadata");
            (path, found.modified().expect("time"))
        });
        times.filter(|(path, _)| path.starts_with("a")).collect()
    };
    let before = files();
    let is_cut = |said: &str| said.contains("every shard verified");
    for more in ["", " --stage finish"] {
        let said = run(&mut plmkit(folder, &format!("{line}{more}")));
        assert!(
            !is_cut(&said) && said.contains("plmkit: verdict: pass; "),
            "{said}"
        );
        assert!(files() == before, "{more}");
    }
    assert!(is_cut(&run(&mut plmkit(
        folder,
        &format!("{line} --verify")
    ))));
    let other = format!("{line} --max-rejected=1%");
    assert!(is_cut(&run(&mut plmkit(folder, &other))));
    run(&mut plmkit(folder, line));
    fs::remove_file(results.join("index.html")).expect("remove");
    run(&mut plmkit(folder, line));
    assert!(results.join("index.html").is_file());
    // The same size, and a time of change that was put back.
    let path = results.join("a/embeddings/shard-00000.parquet");
    let time = path.metadata().expect("metadata").modified().expect("time");
    let mut bytes = fs::read(&path).expect("read");
    bytes[1000] ^= 1;
    fs::write(&path, bytes).expect("write");
    let file = fs::File::options().append(true).open(&path).expect("open");
    file.set_modified(time).expect("time");
    let output = plmkit(folder, line).output().expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(65), "{said}");
    let end = "plmkit: verdict: not validated\nplmkit: page: results/index.html\n";
    assert!(said.ends_with(end), "{said}");
}

#[test]
fn a_run_with_force_that_cannot_read_its_input_leaves_all_as_it_was() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    run(&mut plmkit(folder, "a.fasta --out results"));
    let before = tree(&folder.join("results"));
    fs::write(folder.join("a.fasta"), ">x\nMK1\n").expect("write");
    let output = plmkit(folder, "a.fasta --out results --force").output();
    assert_eq!(output.expect("run").status.code(), Some(65));
    assert!(tree(&folder.join("results")) == before);
}

#[test]
fn a_second_run_in_the_folder_ends_at_once() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 100);
    let many = fs::read_to_string(folder.join("a.fasta"))
        .expect("read")
        .repeat(20);
    fs::write(folder.join("a.fasta"), many).expect("write");
    let line = "a.fasta --out results --duplicate-ids=suffix";
    let mut first = plmkit(folder, line).spawn().expect("the program starts");
    while !folder.join("results/a/shards/manifest.json").exists() {
        thread::sleep(Duration::from_millis(5));
    }
    for options in ["", " --pool max"] {
        let second = plmkit(folder, &format!("{line}{options}")).output();
        let second = second.expect("the program starts");
        assert_failed(
            &second,
            75,
            "plmkit: results: another process is writing it",
        );
    }
    assert!(first.wait().expect("the program ran").success());
    run(&mut plmkit(folder, line));
}
