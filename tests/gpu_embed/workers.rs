//! Worker processes, as `--device all` starts them: they give the output of one process, whatever happens to them.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::case::{self, Case, SIGKILL, SIGTERM, in_windows, rejects};
use crate::common::{self, all, assert_fails, run};
use crate::{assert_has, ends, stderr, validate, validate_shard, wait_until};

/// Enough batches for a run that can be disturbed.
fn longer() -> Case {
    let case = Case::new();
    let some = fs::read_to_string(case.path("in.fasta")).expect("input");
    let many = (0..20).map(|copy| some.replace('>', &format!(">{copy}-")));
    case.pack(&many.collect::<String>());
    case
}

/// The child processes of a running process.
fn children(of: &Child) -> Vec<u32> {
    let path = format!("/proc/{0}/task/{0}/children", of.id());
    let listed = fs::read_to_string(path).unwrap_or_default();
    let numbers = listed.split_whitespace().map(str::parse);
    numbers.map(|number| number.expect("a number")).collect()
}

/// Waits until a run has this many workers.
fn workers(run: &Child, count: usize) -> Vec<u32> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let found = children(run);
        if found.len() >= count {
            return found;
        }
        assert!(Instant::now() < deadline, "{found:?}");
        sleep(Duration::from_millis(1));
    }
}

fn is_alive(process: u32) -> bool {
    // A process that nobody waits for is gone, too.
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(") ")
        .next()
        .is_some_and(|rest| !rest.starts_with('Z') && !rest.is_empty())
}

fn assert_gone(processes: &[u32]) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while processes.iter().any(|&process| is_alive(process)) {
        assert!(Instant::now() < deadline, "workers outlive their run");
        sleep(Duration::from_millis(5));
    }
}

fn signal(process: u32, signal: &str) {
    let process = process.to_string();
    let status = Command::new("kill").args([signal, &process]).status();
    assert!(status.expect("kill").success());
}

fn kill(process: u32) {
    signal(process, "-KILL");
}

/// Standard error of a run that must succeed.
fn succeeds(mut child: Child) -> String {
    let mut said = String::new();
    let stderr = child.stderr.as_mut().expect("piped");
    stderr.read_to_string(&mut said).expect("UTF-8");
    assert!(child.wait().expect("wait").success(), "{said}");
    said
}

#[test]
fn any_number_of_workers_gives_the_bytes_of_one_process() {
    let case = Case::new();
    let everything =
        "--pool mean,max,std,bos --layers 0,2,4 --residues --contacts --logits --store-dtype f16";
    for options in [
        "",
        everything,
        "--dtype int8",
        "--inject not-finite=7,not-finite=8",
    ] {
        let options: Vec<&str> = options.split_whitespace().collect();
        let outputs = [None, Some("1"), Some("4")].map(|count| {
            let name = format!("{}.parquet", count.unwrap_or("none"));
            let mut embed = case.embed(&name);
            embed.args(&options).arg("--force");
            embed.args(count.iter().flat_map(|count| ["--workers", count]));
            let output = embed.output().expect("run");
            let rejects = fs::read(case.path(&name).with_extension("rejects.csv")).ok();
            let bytes = fs::read(case.path(&name));
            let bytes = bytes.unwrap_or_else(|_| panic!("{}", stderr(&output)));
            (output.status.code(), bytes, rejects)
        });
        assert!(outputs[0] == outputs[1], "{options:?}");
        assert!(outputs[0] == outputs[2], "{options:?}");
    }
}

#[test]
fn proteins_in_windows_of_several_batches_stay_together() {
    let case = in_windows();
    let expected = case.undisturbed();
    run(case.embed("e.parquet").args(["--workers", "3"]));
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn events_say_which_worker_computed_what() {
    let case = Case::new();
    let events = case.path("shards/events.jsonl");
    let mut embed = case.embed("e.parquet");
    embed.args(["--workers", "2", "--inject", "out-of-memory-above=120"]);
    run(embed.arg("--events").arg(&events));
    let text = fs::read_to_string(events).expect("events");
    let events = text.lines();
    let events = events.map(|line| serde_json::from_str(line).expect("JSON"));
    let events: Vec<Value> = events.collect();
    assert_eq!(events[0]["workers"], 2);
    let batches = events.iter().filter(|event| event["type"] == "batch");
    let (mut order, mut splits, mut tokens) = (Vec::new(), 0, 0);
    for batch in batches {
        let worker = batch["worker"].as_u64();
        let ms = batch["compute_ms"].as_f64();
        assert!(
            worker < Some(2) && worker.is_some() && ms > Some(0.0),
            "{batch}"
        );
        order.push(batch["batch"].as_u64().expect("a position"));
        splits += batch["oom_splits"].as_u64().expect("a count");
        tokens += batch["tokens"].as_u64().expect("a count");
    }
    assert!(order.is_sorted() && order[0] == 0, "{order:?}");
    assert_eq!(events[0]["batches_total"], order.len());
    assert_eq!(events[0]["tokens_total"], tokens);
    assert!(splits > 0);
}

#[test]
fn a_worker_that_is_killed_is_replaced_and_nothing_is_lost() {
    let case = Case::new();
    let expected = case.undisturbed();
    let child = case.underway_with("e.parquet", &["--workers", "4"]);
    workers(&child, 4).into_iter().take(2).for_each(kill);
    let said = succeeds(child);
    assert_has(&said, "is lost: killed by signal 9");
    assert_has(&said, "another takes its place");
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn no_worker_outlives_a_killed_run_and_the_next_run_resumes() {
    // It is interrupted four times.
    let case = Case::of(12);
    let expected = case.undisturbed();
    for signal in [SIGKILL, SIGTERM, SIGKILL] {
        let mut child = case.underway_with("e.parquet", &["--workers", "4"]);
        let workers = workers(&child, 4);
        common::case::send(&child, signal);
        child.wait().expect("wait");
        assert_gone(&workers);
        assert!(!case.path("e.parquet").exists());
    }
    let said = run(case.embed("e.parquet").args(["--workers", "2"]));
    assert_has(&said, " saved by an earlier run)");
    case.assert_complete("e.parquet", &expected);
    // One process resumes what workers saved.
    fs::remove_file(case.path("e.parquet")).expect("remove");
    case::kill(&mut case.underway_with("e.parquet", &["--workers", "2"]));
    let said = run(&mut case.embed("e.parquet"));
    assert_has(&said, " saved by an earlier run)");
    case.assert_complete("e.parquet", &expected);
}

/// The ordinals in the batch of a sequence.
fn batch_of(batches: &Path, ordinal: u64) -> Vec<u64> {
    let file = plmkit_store::BatchesFile::open(batches, &plmkit_contract::Stop::default());
    let file = file.expect("batches");
    let batches = (0..file.len()).map(|batch| file.batch(batch).expect("batch"));
    let mut ordinals = batches.map(|batch| batch.ordinals().to_vec());
    let found = ordinals.find(|ordinals| ordinals.contains(&ordinal));
    found.expect("in a batch")
}

#[test]
fn a_batch_that_crashes_every_worker_is_given_up_and_no_other() {
    let case = Case::new();
    let expected = case.undisturbed();
    for (inject, end) in [
        ("abort=42", "is lost: killed by signal 6"),
        ("panic=42", "is lost: it ended with exit code 70"),
    ] {
        let mut embed = case.embed("e.parquet");
        embed.args(["--workers", "4", "--force", "--inject", inject]);
        let said = ends(&mut embed, 1);
        assert_eq!(said.matches(end).count(), 2, "{said}");
        assert_has(
            &said,
            "skipped after crashing 2 workers; its sequences are listed as rejected",
        );
        let lost = batch_of(&case.path("b.arrow"), 42);
        let expected_list = lost.iter().map(|&row| (row, "worker_lost".to_owned()));
        let expected_list: Vec<_> = expected_list.collect();
        assert_eq!(rejects(&case.path("e.rejects.csv")), expected_list);
        let output = case.path("e.parquet");
        let mut validate_list = validate_shard(&output, &case.path("shards/shard-00000.parquet"));
        validate_list
            .arg("--rejects")
            .arg(case.path("e.rejects.csv"));
        assert_has(&run(&mut validate_list), "validate-embeddings: pass: ");
        let mut compare = validate(&output);
        compare
            .arg("--reference")
            .arg(case.path("undisturbed.parquet"));
        let said = stderr(&compare.output().expect("run"));
        let others = format!(
            "fail: reference ({} rows of the reference not found)",
            lost.len()
        );
        assert_has(&said, &others);
        run(case.embed("e.parquet").args(["--workers", "4", "--force"]));
        assert!(fs::read(output).expect("output") == expected);
    }
}

#[test]
fn a_batch_that_was_given_up_is_tried_again_by_the_next_run() {
    let case = Case::new();
    let expected = case.undisturbed();
    let mut embed = case.embed("e.parquet");
    embed.args(["--workers", "1", "--inject", "abort=42"]);
    let mut child = embed.stderr(Stdio::piped()).spawn().expect("spawn");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    assert!(lines.any(|line| line.expect("UTF-8").contains("skipped after")));
    let is_lost = |part: &Path| {
        let bytes = fs::read(part).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains("worker_lost")
    };
    wait_until(&mut child, || {
        case.parts("e.parquet").iter().any(|part| is_lost(part))
    });
    case::kill(&mut child);
    let said = run(case.embed("e.parquet").args(["--workers", "1"]));
    assert_has(&said, "workers were lost; it is computed again");
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn a_run_fails_if_every_batch_crashes_its_worker() {
    let case = Case::new();
    let few = Case::new();
    few.pack(">a\nMKVL\n");
    let what = "skipped, and none computed meanwhile";
    for (case, how, code) in [
        (&case, "abort", 75),
        (&case, "panic", 70),
        (&few, "abort", 75),
        (&few, "panic", 70),
    ] {
        let all_of_them = (0..303).map(|ordinal| format!("{how}={ordinal}"));
        let mut embed = case.embed("e.parquet");
        embed.args(["--workers", "2", "--inject"]);
        embed.arg(all_of_them.collect::<Vec<_>>().join(","));
        assert_has(&ends(&mut embed, code), what);
        assert!(!case.path("e.parquet").exists());
    }
    let expected = case.undisturbed();
    run(&mut case.embed("e.parquet"));
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn killing_all_workers_at_once_costs_time_and_nothing_else() {
    let case = longer();
    let expected = case.undisturbed();
    let child = case.underway_with("e.parquet", &["--workers", "13"]);
    workers(&child, 13).into_iter().for_each(kill);
    succeeds(child);
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn a_run_goes_on_without_a_worker_that_cannot_be_replaced() {
    let mut case = longer();
    let expected = case.undisturbed();
    let (model, away) = (case.path("model-tiny"), case.path("shards/away"));
    fs::create_dir(&model).expect("folder");
    for name in ["config.json", "model.safetensors"] {
        fs::copy(case.model.join(name), model.join(name)).expect("copy");
    }
    case.model = model;
    let events = case.path("shards/events.jsonl");
    let path = events.to_str().expect("UTF-8");
    let mut child = case.underway_with("e.parquet", &["--workers", "2", "--events", path]);
    let both = workers(&child, 2);
    // After its first batch, a worker does not need the files of the model any more.
    wait_until(&mut child, || {
        let text = fs::read_to_string(&events).unwrap_or_default();
        ["\"worker\":0,", "\"worker\":1,"].map(|worker| text.contains(worker)) == [true, true]
    });
    // The run must last until the other one is given up.
    signal(both[0], "-STOP");
    fs::rename(&case.model, away).expect("rename");
    kill(both[1]);
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let missed = lines.any(|line| {
        let line = line.expect("UTF-8");
        line.contains("the run goes on without it")
    });
    signal(both[0], "-CONT");
    assert!(missed);
    lines.for_each(drop);
    assert!(child.wait().expect("wait").success());
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn an_error_is_reported_once_as_by_one_process() {
    let mut case = Case::new();
    case.model = case.path("nowhere");
    let alone = case.embed("e.parquet").output().expect("run");
    let mut embed = case.embed("e.parquet");
    let output = embed.args(["--workers", "3"]).output().expect("run");
    assert_eq!(output.status.code(), alone.status.code());
    assert_eq!(output.stderr, alone.stderr);
    case.model = common::test_data("model-tiny");
    let options = ["--workers", "3", "--layers", "9"];
    assert_fails(
        case.embed("e.parquet").args(options),
        2,
        "layer 9 does not exist",
    );
    let names = all(case.folder.path());
    assert!(
        !names.iter().any(|name| name.contains("e.parquet")),
        "{names:?}"
    );

    let alone = "the connection between a run and its worker broke";
    assert_fails(case.embed("e.parquet").arg("--worker"), 75, alone);
}
