//! Children that compute, as there is one for each GPU.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{run, test_data};
use crate::{data, plmkit, proteins};

/// Proteins in a dozen of shards, and the options to embed them.
fn shards(folder: &Path) -> &'static str {
    let text = fs::read_to_string(test_data("proteins.fasta")).expect("read");
    fs::write(folder.join("a.fasta"), text.repeat(8)).expect("write");
    "a.fasta --threads 1 --max-shard-tokens 30000 --duplicate-ids=suffix"
}

/// The children of a running program.
fn children(parent: &Child) -> Vec<Pid> {
    let id = parent.id();
    let listed = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let mut all: Vec<String> = vec![listed.unwrap_or_default()];
    // Threads start children, too.
    let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter();
    let threads = threads.flatten().flatten();
    all.extend(
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok()),
    );
    let mut all: Vec<Pid> = all
        .iter()
        .flat_map(|listed| listed.split_whitespace())
        .filter_map(|id| Pid::from_raw(id.parse().ok()?))
        .collect();
    all.sort_unstable_by_key(|id| id.as_raw_pid());
    all.dedup();
    all
}

#[test]
fn two_children_give_what_one_process_gives_and_a_killed_one_is_replaced() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    let options = shards(folder);
    run(&mut plmkit(folder, &format!("{options} --out one")));
    let expected = data(&folder.join("one"));
    run(&mut plmkit(
        folder,
        &format!("{options} --out two --children 2"),
    ));
    assert!(data(&folder.join("two")) == expected);

    for (signal, out) in [(Signal::KILL, "killed"), (Signal::TERM, "ended")] {
        let line = format!("{options} --out {out} --children 2");
        let mut program: Command = plmkit(folder, &line);
        let mut program = program.spawn().expect("the program starts");
        let events = folder.join(out).join("a/logs/shard-00002.events.jsonl");
        while !events.exists() && program.try_wait().expect("a child").is_none() {
            sleep(Duration::from_millis(5));
        }
        let running = children(&program);
        assert_eq!(running.len(), 2, "a child for each device");
        kill_process(running[0], signal).expect("it runs");
        assert!(program.wait().expect("wait").success());
        assert!(data(&folder.join(out)) == expected, "{out}");
    }
}

#[test]
fn a_batch_that_crashes_its_child_costs_its_own_sequences_alone() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 40);
    let line = "a.fasta --max-shard-tokens 4000 --children 2 --max-rejected=50%";
    let mut crashing = plmkit(folder, &format!("{line} --out results"));
    let said = run(crashing.arg("--inject=abort=7"));
    assert!(said.contains("another takes its place"), "{said}");
    let rejects = folder.join("results/a/rejects");
    let lists: Vec<_> = fs::read_dir(rejects).expect("lists").flatten().collect();
    assert_eq!(lists.len(), 1, "the shard of record 7");
    let list = fs::read_to_string(lists[0].path()).expect("read");
    assert!(list.lines().any(|line| line.starts_with("7,")), "{list}");
}
