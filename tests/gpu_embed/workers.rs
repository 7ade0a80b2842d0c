//! `gpu-embed --workers`: several processes give what one gives, whatever happens to them.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::case::{self, Case, SIGKILL, SIGTERM, in_windows, rejects};
use crate::common::{self, all, assert_fails, bin, run};
use serde_json::Value;

/// A run that lasts long enough for something to happen to it.
fn longer() -> Case {
    let case = Case::new();
    let some = fs::read_to_string(case.path("in.fasta")).expect("input");
    let many = (0..20).map(|copy| some.replace('>', &format!(">{copy}-")));
    case.pack(&many.collect::<String>());
    case
}

/// The processes that a process has started, as long as it lives.
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

fn kill(process: u32) {
    signal(process, "-KILL");
}

fn signal(process: u32, signal: &str) {
    let process = process.to_string();
    let status = Command::new("kill").args([signal, &process]).status();
    assert!(status.expect("kill").success());
}

/// What a run said when it had ended.
fn said(child: &mut Child) -> String {
    let mut said = String::new();
    let stderr = child.stderr.as_mut().expect("piped");
    stderr.read_to_string(&mut said).expect("UTF-8");
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
            let stderr = String::from_utf8_lossy(&output.stderr);
            let bytes = bytes.unwrap_or_else(|_| panic!("{stderr}"));
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
    run(case
        .embed("e.parquet")
        .args([
            "--workers",
            "2",
            "--inject",
            "out-of-memory-above=120",
            "--events",
        ])
        .arg(&events));
    let text = fs::read_to_string(events).expect("events");
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(events[0]["workers"], 2);
    let batches = events.iter().filter(|event| event["type"] == "batch");
    let (mut order, mut splits, mut tokens) = (Vec::new(), 0, 0);
    for batch in batches {
        assert!(
            batch["worker"].as_u64().is_some_and(|worker| worker < 2),
            "{batch}"
        );
        assert!(
            batch["compute_ms"].as_f64().is_some_and(|ms| ms > 0.0),
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
    let mut child = case.underway_with("e.parquet", &["--workers", "4"]);
    for victim in workers(&child, 4).into_iter().take(2) {
        kill(victim);
    }
    let said = said(&mut child);
    assert!(child.wait().expect("wait").success(), "{said}");
    assert!(said.contains("is lost: killed by signal 9"), "{said}");
    assert!(said.contains("another takes its place"), "{said}");
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn no_worker_outlives_a_killed_run_and_the_next_run_goes_on() {
    let case = Case::new();
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
    assert!(said.contains(" saved by an earlier run)"), "{said}");
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn a_run_goes_on_in_one_process_with_what_workers_saved() {
    let case = Case::new();
    let expected = case.undisturbed();
    let mut child = case.underway_with("e.parquet", &["--workers", "2"]);
    case::kill(&mut child);
    let said = run(&mut case.embed("e.parquet"));
    assert!(said.contains(" saved by an earlier run)"), "{said}");
    case.assert_complete("e.parquet", &expected);
}

/// The ordinals of the sequences that are in a batch with another.
fn company(batches: &Path, ordinal: u64) -> Vec<u64> {
    let file = plmkit_store::BatchesFile::open(batches, &plmkit_contract::Stop::default());
    let file = file.expect("batches");
    let batches = (0..file.len()).map(|pack| file.batch(pack).expect("pack"));
    let mut ordinals = batches.map(|pack| pack.ordinals().to_vec());
    let found = ordinals.find(|ordinals| ordinals.contains(&ordinal));
    found.expect("in a batch")
}

#[test]
fn a_pack_that_kills_every_worker_is_given_up_and_no_other() {
    let case = Case::new();
    let expected = case.undisturbed();
    let embed = |options: &[&str]| -> Output {
        let mut embed = case.embed("e.parquet");
        embed.args(["--workers", "4"]).args(options);
        embed.output().expect("run")
    };
    let output = embed(&["--inject", "abort=42"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(
        said.matches("is lost: killed by signal 6").count(),
        3,
        "{said}"
    );
    assert!(
        said.contains("given up, since 3 workers were lost with it"),
        "{said}"
    );
    let lost = company(&case.path("b.arrow"), 42);
    let listed = rejects(&case.path("e.rejects.csv"));
    let expected_list: Vec<_> = lost
        .iter()
        .map(|&row| (row, "worker_lost".to_owned()))
        .collect();
    assert_eq!(listed, expected_list);
    let validate = || {
        let mut validate = bin("validate-embeddings");
        validate.arg(case.path("e.parquet"));
        validate
    };
    let said = run(validate()
        .arg("--shards")
        .arg(case.path("shards/shard-00000.parquet"))
        .arg("--rejects")
        .arg(case.path("e.rejects.csv")));
    assert!(said.contains("coverage"), "{said}");
    let compared = validate()
        .arg("--reference")
        .arg(case.path("undisturbed.parquet"))
        .output()
        .expect("run");
    let said = String::from_utf8_lossy(&compared.stderr);
    let others = format!(
        "smallest cosine 1.0000000: 0 vectors below 0.999, 0 without a cosine, 0 of another dimension, {} of 300",
        lost.len()
    );
    assert!(said.contains(&others), "{said}");

    let output = embed(&["--force"]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(fs::read(case.path("e.parquet")).expect("output") == expected);
}

#[test]
fn a_pack_that_was_given_up_is_tried_again_by_the_next_run() {
    let case = Case::new();
    let expected = case.undisturbed();
    // The batch comes before those that are saved when the run is killed.
    let mut child = case.underway_with("e.parquet", &["--workers", "1", "--inject", "abort=42"]);
    case::kill(&mut child);
    run(case.embed("e.parquet").args(["--workers", "1"]));
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn where_every_pack_kills_its_worker_the_run_fails() {
    let case = Case::new();
    let all_of_them: Vec<String> = (0..303).map(|ordinal| format!("abort={ordinal}")).collect();
    let mut embed = case.embed("e.parquet");
    embed.args(["--workers", "2", "--inject", &all_of_them.join(",")]);
    let output = embed.output().expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(75), "{said}");
    assert!(
        said.contains("batches were given up one after the other, and none was computed"),
        "{said}"
    );
    assert!(!case.path("e.parquet").exists());
    let expected = case.undisturbed();
    run(&mut case.embed("e.parquet"));
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn a_worker_that_panics_ends_and_is_replaced() {
    let case = Case::new();
    let expected = case.undisturbed();
    let mut embed = case.embed("e.parquet");
    embed.args(["--workers", "2", "--inject", "panic=42"]);
    let output = embed.output().expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let lost = said.matches("is lost: it ended with exit code 70").count();
    assert_eq!(lost, 3, "{said}");
    let listed = rejects(&case.path("e.rejects.csv"));
    assert_eq!(listed.len(), company(&case.path("b.arrow"), 42).len());
    run(case.embed("e.parquet").args(["--workers", "2", "--force"]));
    assert!(fs::read(case.path("e.parquet")).expect("output") == expected);
}

#[test]
fn all_workers_killed_at_once_cost_time_and_nothing_else() {
    let case = longer();
    let expected = case.undisturbed();
    let mut child = case.underway_with("e.parquet", &["--workers", "13"]);
    workers(&child, 13).into_iter().for_each(kill);
    let said = said(&mut child);
    assert!(child.wait().expect("wait").success(), "{said}");
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn a_worker_that_cannot_be_replaced_is_missed_and_no_more() {
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
    // Neither needs the model any more once both have computed something.
    let deadline = Instant::now() + Duration::from_secs(30);
    let has_worked = |text: &str, worker| text.contains(&format!("\"worker\":{worker},"));
    loop {
        let text = fs::read_to_string(&events).unwrap_or_default();
        if has_worked(&text, 0) && has_worked(&text, 1) {
            break;
        }
        assert!(Instant::now() < deadline, "one does not work");
        sleep(Duration::from_millis(1));
    }
    // It is to be at work until the other is given up.
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
fn what_is_wrong_is_said_once_as_by_one_process() {
    let mut case = Case::new();
    case.model = case.path("nowhere");
    let alone = case.embed("e.parquet").output().expect("run");
    let output = case
        .embed("e.parquet")
        .args(["--workers", "3"])
        .output()
        .expect("run");
    assert_eq!(output.status.code(), alone.status.code());
    assert_eq!(output.stderr, alone.stderr);
    case.model = common::test_data("model-tiny");
    assert_fails(
        case.embed("e.parquet")
            .args(["--workers", "3", "--layers", "9"]),
        2,
        "layer 9 does not exist",
    );
    let names = all(case.folder.path());
    assert!(
        !names.iter().any(|name| name.contains("e.parquet")),
        "{names:?}"
    );
}

#[test]
fn a_worker_without_a_run_says_so() {
    let case = Case::new();
    assert_fails(
        case.embed("e.parquet").arg("--worker"),
        75,
        "the connection between a run and its worker broke",
    );
}
