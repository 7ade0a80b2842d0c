//! `gpu-embed` interrupted, short of memory, and with poisoned models: finished work is kept, and only sequences that cannot be
//! computed are rejected.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use plmkit_contract::ByteDigest;

use crate::common::case::{
    Case, SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGSTOP, SIGTERM, SIGUSR1, in_windows, kill,
    rejects, send,
};
use crate::common::pty::pair;
use crate::common::{all, assert_failed, assert_fails, poisoned_model, run, test_data};
use crate::{assert_has, ends, flip, stderr, validate_shard, wait_until};

const SAVED: &str = " saved by an earlier run)";
/// The header of a rejects list.
const HEADER: &str = "ordinal,id,length,reason,start\n";

/// The records of a case, so often, under other names.
fn copies(case: &Case, count: usize) -> String {
    let some = fs::read_to_string(case.path("in.fasta")).expect("input");
    let copies = (0..count).map(|copy| some.replace('>', &format!(">{copy}-")));
    copies.collect()
}

fn read(case: &Case, name: &str) -> Vec<u8> {
    fs::read(case.path(name)).expect(name)
}

fn read_text(case: &Case, name: &str) -> String {
    fs::read_to_string(case.path(name)).expect(name)
}

/// No output and no checkpoints of it.
fn assert_nothing_of(case: &Case, out: &str) {
    let names = all(case.folder.path());
    assert!(!names.iter().any(|name| name.contains(out)), "{names:?}");
}

#[test]
fn a_run_that_is_killed_again_and_again_resumes() {
    let case = Case::of(12);
    let expected = case.undisturbed();
    for _ in 0..3 {
        case.interrupt("e.parquet", SIGKILL);
        assert!(!case.path("e.parquet").exists());
    }
    let saved = case.parts("e.parquet").len();
    assert!(saved >= 9, "{saved}");
    let events = case.path("shards/events.jsonl");
    let said = run(case.embed("e.parquet").arg("--events").arg(&events));
    assert_has(&said, SAVED);
    assert_has(
        &fs::read_to_string(events).expect("events"),
        "\"batches_saved\":",
    );
    case.assert_complete("e.parquet", &expected);
    // Temporary files beside a complete output are removed.
    for name in [".e.parquet.plmkit-tmp", ".e.rejects.csv.plmkit-tmp"] {
        fs::write(case.path(name), "half").expect("write");
    }
    assert_has(&run(&mut case.embed("e.parquet")), "already complete");
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn a_second_try_in_another_folder_resumes_from_the_checkpoints() {
    let case = Case::new();
    let expected = case.undisturbed();
    let saved = case.path("shards/saved/here");
    let embed = |folder: &str| {
        let folder = format!("shards/{folder}");
        fs::create_dir_all(case.path(&folder)).expect("folder");
        let mut embed = case.embed(&format!("{folder}/e.parquet"));
        embed.arg("--checkpoint-dir").arg(&saved);
        embed
    };
    let mut first = embed("first").stderr(Stdio::null()).spawn().expect("spawn");
    let parts = saved.join(".e.parquet.plmkit-run");
    let count = || fs::read_dir(&parts).map_or(0, Iterator::count);
    wait_until(&mut first, || count() >= 5);
    send(&first, SIGSTOP);
    assert_fails(embed("second"), 75, "another");
    kill(&mut first);
    assert!(!case.path("shards/first/e.parquet").exists());
    let what = "an unfinished run of which";
    assert_fails(embed("other").args(["--pool", "max"]), 73, what);
    assert_has(&run(&mut embed("second")), SAVED);
    assert!(read(&case, "shards/second/e.parquet") == expected);
    assert!(!parts.exists());

    let mut nowhere = case.embed("e.parquet");
    let what = "gpu-embed: /proc: cannot create";
    assert_fails(nowhere.args(["--checkpoint-dir", "/proc"]), 73, what);
}

#[test]
fn a_signal_saves_finished_work_and_leaves_no_temporary_files() {
    for signals in [&[SIGTERM, SIGINT, SIGUSR1][..], &[SIGHUP, SIGQUIT]] {
        let case = Case::of(12);
        let expected = case.undisturbed();
        for &signal in signals {
            let said = case.interrupt("e.parquet", signal);
            assert_has(&said, "run the same command to resume");
            let parts = case.parts("e.parquet");
            let folder = parts[0].parent().expect("folder");
            assert_eq!(all(folder).len(), parts.len(), "parts and nothing else");
            assert_nothing_of(&case, "plmkit-tmp");
        }
        run(&mut case.embed("e.parquet"));
        case.assert_complete("e.parquet", &expected);
    }
}

/// The shell and the kernel both send SIGHUP when a terminal closes: the second one must not end the run at once.
#[test]
fn a_closing_terminal_costs_no_work() {
    let case = Case::new();
    let proteins = fs::read_to_string(test_data("proteins.fasta")).expect("test data");
    fs::write(case.path("in.fasta"), proteins).expect("write");
    case.pack(&copies(&case, 40));
    let expected = case.undisturbed();
    let events = case.path("shards/events.jsonl");
    let (controller, device) = pair(24, 80);
    let end = || device.try_clone().expect("terminal");
    let embed = case.embed_saving("e.parquet", "1h");
    let mut child = Command::new("setsid");
    child.args(["--ctty", "--wait"]).arg(embed.get_program());
    child.args(embed.get_args()).arg("--events").arg(&events);
    let child = child.stdin(end()).stdout(end()).stderr(end());
    let mut child = child.spawn().expect("spawn");
    wait_until(&mut child, || {
        fs::read_to_string(&events).is_ok_and(|events| events.lines().count() >= 5)
    });
    send(&child, SIGHUP);
    drop(controller);
    assert_eq!(child.wait().expect("wait").signal(), Some(SIGHUP));
    assert_has(&run(&mut case.embed("e.parquet")), SAVED);
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn a_run_goes_on_under_nohup() {
    let case = Case::new();
    let expected = case.undisturbed();
    let embed = case.embed("e.parquet");
    let mut nohup = Command::new("nohup");
    // Without `env`, which would reset the signal.
    nohup.args(embed.get_args().skip(1));
    let nohup = nohup.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = nohup.spawn().expect("spawn");
    wait_until(&mut child, || !case.parts("e.parquet").is_empty());
    send(&child, SIGHUP);
    assert!(child.wait().expect("wait").success());
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn damaged_parts_and_those_of_other_kernels_are_computed_again() {
    let case = Case::new();
    let expected = case.undisturbed();
    case.interrupt("e.parquet", SIGKILL);
    let parts = case.parts("e.parquet");
    flip(&parts[0], 0.3);
    let cut = fs::metadata(&parts[1]).expect("metadata").len() - 40;
    let file = fs::OpenOptions::new().write(true).open(&parts[1]);
    file.expect("open").set_len(cut).expect("cut");
    // The results of other batches under the name of these.
    fs::copy(&parts[1], parts[2].with_file_name("part-00000001.parquet")).expect("copy");
    let said = run(&mut case.embed("e.parquet"));
    assert!(said.matches("computed again").count() >= 2, "{said}");
    case.assert_complete("e.parquet", &expected);
    // Parts of other kernels may differ in the last bit.
    fs::remove_file(case.path("e.parquet")).expect("remove");
    kill(&mut case.underway_with("e.parquet", &["--kernels", "portable"]));
    let said = run(&mut case.embed("e.parquet"));
    assert_has(&said, "computed by the kernels");
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn checkpoints_that_cannot_be_read_now_are_kept() {
    // As on a network file system whose server is away.
    const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

int open64(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int mode = va_arg(more, int);
    va_end(more);
    if (strstr(path, "/part-") != NULL) {
        errno = EIO;
        return -1;
    }
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    return real(path, flags, mode);
}
"#;
    let case = Case::new();
    let expected = case.undisturbed();
    case.interrupt("e.parquet", SIGKILL);
    let parts = case.parts("e.parquet");
    let [source, library] = ["shards/away.c", "shards/away.so"].map(|name| case.path(name));
    fs::write(&source, SOURCE).expect("write");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library);
    run(compiler.arg(source));
    let mut embed = case.embed("e.parquet");
    let output = embed.env("LD_PRELOAD", library).output().expect("run");
    assert_eq!(output.status.code(), Some(74));
    assert_has(&stderr(&output), "input/output error");
    assert_eq!(case.parts("e.parquet"), parts);
    assert_has(&run(&mut case.embed("e.parquet")), SAVED);
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn parts_of_other_work_are_refused_unless_forced() {
    let case = Case::new();
    let fasta = fs::read_to_string(case.path("in.fasta")).expect("input");
    run(&mut case.embed("complete.parquet"));
    case.interrupt("e.parquet", SIGKILL);
    let max = ["--pool", "max"];
    let what = "an unfinished run of which columns was";
    assert_fails(case.embed("e.parquet").args(max), 73, what);
    // The same rows in other batches.
    case.pack_with(&fasta, &[], 300);
    let what = "an unfinished run of which the batches are packed otherwise";
    assert_fails(case.embed("e.parquet"), 73, what);
    let what = "holds other work (the batches are packed otherwise)";
    assert_fails(case.embed("complete.parquet"), 73, what);
    assert!(case.parts("e.parquet").len() >= 3, "nothing is removed");
    run(case.embed("e.parquet").args(max).arg("--force"));
    assert!(case.parts("e.parquet").is_empty());
}

#[test]
fn an_interrupted_replacement_survives_a_rerun_of_the_old_work() {
    let case = Case::new();
    let expected = case.undisturbed();
    fs::copy(case.path("undisturbed.parquet"), case.path("e.parquet")).expect("copy");
    let other = ["--force", "--pool", "max"];
    kill(&mut case.underway_with("e.parquet", &other));
    let parts = case.parts("e.parquet");
    let said = run(&mut case.embed("e.parquet"));
    assert_has(&said, "already complete");
    assert_has(&said, "kept: checkpoint of another run (columns was");
    assert_eq!(case.parts("e.parquet"), parts);
    assert!(read(&case, "e.parquet") == expected);
    assert_has(&run(case.embed("e.parquet").args(other)), SAVED);
    assert!(case.parts("e.parquet").is_empty());
}

#[test]
fn finished_work_is_saved_if_the_output_cannot_be_published() {
    let case = Case::new();
    let expected = case.undisturbed();
    // The whole run is one block, which is saved at the end.
    let mut embed = case.embed_saving("e.parquet", "60m");
    let mut child = embed.stderr(Stdio::null()).spawn().expect("spawn");
    wait_until(&mut child, || case.path(".e.parquet.plmkit-tmp").exists());
    sleep(Duration::from_millis(20));
    fs::write(case.path("e.parquet"), "in the way").expect("write");
    assert_eq!(child.wait().expect("wait").code(), Some(73));
    assert_eq!(case.parts("e.parquet").len(), 2, "the block and its record");
    fs::remove_file(case.path("e.parquet")).expect("remove");
    assert_has(&run(&mut case.embed("e.parquet")), ", 0 tokens in");
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn sequences_that_did_not_fit_in_memory_are_tried_again() {
    let case = Case::new();
    // Enough for an interruption of a run in which most sequences fail at once.
    case.pack(&copies(&case, 10));
    let expected = case.undisturbed();
    kill(&mut case.underway_with("e.parquet", &["--inject", "out-of-memory-above=90"]));
    assert_has(&run(&mut case.embed("e.parquet")), "memory ran out");
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn names_that_are_long_or_not_utf8_work() {
    let case = Case::new();
    let long = format!("{}.parquet", "x".repeat(235));
    let names = [long.as_bytes(), b"a\xfe.parquet", b"a\xff.parquet"];
    let spawn = |name: &[u8]| {
        let embed = case.embed("replaced");
        let mut command = Command::new(embed.get_program());
        let out = case.path("replaced");
        command.args(embed.get_args().map(|arg| {
            if arg == out.as_os_str() {
                case.folder.path().join(OsStr::from_bytes(name)).into()
            } else {
                arg.to_owned()
            }
        }));
        command.spawn().expect("spawn")
    };
    let children: Vec<Child> = names.iter().map(|name| spawn(name)).collect();
    for mut child in children {
        assert!(child.wait().expect("wait").success());
    }
}

#[test]
fn batches_that_change_during_a_run_are_detected_before_publication() {
    let case = Case::new();
    // The change is far behind the batches that were read by then.
    case.pack(&copies(&case, 8));
    let batches = case.path("b.arrow");
    let whole = fs::read(&batches).expect("batches");
    // In place, like an editor or a second copy of a command.
    let change = |bytes: &[u8]| {
        let file = fs::OpenOptions::new().write(true).open(&batches);
        let mut file = file.expect("batches");
        file.write_all(bytes).expect("write");
        file.set_len(bytes.len() as u64).expect("length");
    };
    let mut flipped = whole.clone();
    flipped[whole.len() * 4 / 5] ^= 1;
    let cut = &whole[..whole.len() / 2];
    for (name, changed) in [("flipped", &flipped[..]), ("cut", cut)] {
        let child = case.underway(name);
        send(&child, SIGSTOP);
        change(changed);
        send(&child, SIGCONT);
        let ended = child.wait_with_output().expect("wait");
        assert_eq!(ended.status.code(), Some(65), "{ended:?}");
        let said = stderr(&ended);
        assert_has(
            said.lines().last().unwrap_or_default(),
            "b.arrow: damaged: bytes ",
        );
        assert!(!case.path(name).exists());
        change(&whole);
    }
    let expected = case.undisturbed();
    run(&mut case.embed("cut"));
    assert!(read(&case, "cut") == expected);
}

#[test]
fn one_run_at_a_time_writes_an_output_and_another_can_wait() {
    let case = Case::new();
    let expected = case.undisturbed();
    let mut first = case.underway("e.parquet");
    // The first run must not end before it is killed.
    send(&first, SIGSTOP);
    let busy = "e.parquet: another process is writing it";
    let asked = Instant::now();
    assert_fails(case.embed("e.parquet"), 75, busy);
    assert!(asked.elapsed() < Duration::from_secs(10));

    let waiting = |stderr| {
        let mut command = case.embed("e.parquet");
        let command = command.arg("--wait-for-lock").stderr(stderr);
        command.spawn().expect("spawn")
    };
    let mut stopped = waiting(Stdio::piped());
    let mut line = String::new();
    let stderr = stopped.stderr.take().expect("piped");
    BufReader::new(stderr).read_line(&mut line).expect("a line");
    assert!(
        line.ends_with(&format!("{busy}; waiting for it to end\n")),
        "{line}"
    );
    send(&stopped, SIGTERM);
    assert_eq!(stopped.wait().expect("wait").signal(), Some(SIGTERM));

    let mut second = waiting(Stdio::null());
    sleep(Duration::from_millis(300));
    assert!(second.try_wait().expect("wait").is_none());
    kill(&mut first);
    assert!(second.wait().expect("wait").success());
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn a_batch_that_does_not_fit_is_split_and_gives_the_same_output() {
    let case = Case::new();
    let expected = case.undisturbed();
    let events = case.path("shards/events.jsonl");
    let mut embed = case.embed("e.parquet");
    embed.args(["--inject", "out-of-memory-above=120", "--events"]);
    run(embed.arg(&events));
    case.assert_complete("e.parquet", &expected);
    let events = fs::read_to_string(events).expect("events");
    assert_has(&events, "\"oom_splits\":1");
    // None was rejected, by any count.
    let counts = ["\"rejected\":", "\"rejected\":0"].map(|part| events.matches(part).count());
    assert_eq!(counts[0], counts[1], "{events}");
}

/// A run of `validate-embeddings` with the lists of rejects, if they are to be `listed`.
fn validate(case: &Case, listed: bool) -> Command {
    let shard = case.path("shards/shard-00000.parquet");
    let mut validate = validate_shard(&case.path("e.parquet"), &shard);
    if listed {
        let lists = [case.path("shards/rejects.csv"), case.path("e.rejects.csv")];
        validate.arg("--rejects").args(lists);
    }
    validate
}

#[test]
fn a_sequence_without_finite_vectors_is_rejected_alone() {
    let mut case = Case::new();
    case.pack(">a\nMKVL\n>b\nMKOL\n>c\nGGG\n>d\nOO\n>e\nWWW\n");
    case.model = poisoned_model(case.folder.path(), "poisoned");
    for again in [false, true] {
        let said = ends(&mut case.embed("e.parquet"), 1);
        assert_has(&said, "2 sequences could not be embedded");
        assert_eq!(said.contains("already complete"), again);
        let expected = [1, 3].map(|ordinal| (ordinal, "not_finite".to_owned()));
        assert_eq!(rejects(&case.path("e.rejects.csv")), expected);
    }
    ends(&mut validate(&case, false), 1);
    let said = run(&mut validate(&case, true));
    assert_has(&said, "validate-embeddings: pass: 3 rows; ");
}

#[test]
fn a_window_without_finite_vectors_is_rejected_alone_if_windows_are_separate() {
    let mut case = Case::new();
    // Windows from 0, 80 and 160. The first and the last have pyrrolysine.
    let sequence = "MKVLAGTWYQ".repeat(20);
    let sequence = format!("MO{}OM", &sequence[2..198]);
    let options = ["--long-policy", "window", "--overlap", "20"];
    case.pack_with(&format!(">a\nMKVL\n>b\n{sequence}\n"), &options, 256);
    case.model = poisoned_model(case.folder.path(), "poisoned");
    ends(case.embed("e.parquet").args(["--windows", "separate"]), 1);
    let listed = read_text(&case, "e.rejects.csv");
    let lines = "1,b,200,not_finite,0\n1,b,200,not_finite,160\n";
    assert_eq!(listed, format!("{HEADER}{lines}"));

    let ends_with_list = |rejects: &str, code: i32| {
        fs::write(case.path("e.rejects.csv"), rejects).expect("write");
        let mut validate = validate(&case, true);
        validate
            .arg("--manifest")
            .arg(case.path("shards/manifest.json"));
        ends(validate.arg("--quiet"), code)
    };
    ends_with_list(&listed, 0);
    let (first, _last) = listed.trim_end().rsplit_once('\n').expect("lines");
    let said = ends_with_list(&format!("{first}\n"), 1);
    let origin = "e.rejects.csv: not the list of any of the embeddings, or altered";
    assert_has(&said, "coverage: 1 row missing");
    assert_has(&said, origin);
    // A line about no expected row does not belong to the embeddings, either.
    let said = ends_with_list(&format!("{listed}7,z,200,not_finite,0\n"), 1);
    assert_has(&said, origin);
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn rejected_sequences_survive_an_interruption() {
    let case = Case::new();
    let inject = ["--inject", "not-finite=7,not-finite=290"];
    ends(case.embed("undisturbed.parquet").args(inject), 1);
    let expected = read(&case, "undisturbed.parquet");
    let listed = rejects(&case.path("undisturbed.rejects.csv"));
    let not_finite = [7, 290].map(|ordinal| (ordinal, "not_finite".to_owned()));
    assert_eq!(listed, not_finite);

    let mut embed = case.embed("e.parquet");
    let mut child = embed
        .args(inject)
        .stderr(Stdio::null())
        .spawn()
        .expect("spawn");
    wait_until(&mut child, || case.parts("e.parquet").len() >= 5);
    kill(&mut child);
    ends(case.embed("e.parquet").args(inject), 1);
    assert!(read(&case, "e.parquet") == expected);
    assert_eq!(rejects(&case.path("e.rejects.csv")), listed);
}

#[test]
fn stitched_proteins_and_a_rejected_one_survive_interruptions() {
    let mut case = in_windows();
    case.model = poisoned_model(case.folder.path(), "poisoned");
    ends(&mut case.embed("undisturbed.parquet"), 1);
    let expected = read(&case, "undisturbed.parquet");
    let listed = read_text(&case, "undisturbed.rejects.csv");
    assert_eq!(listed, format!("{HEADER}101,poisoned,1500,not_finite,0\n"));
    for signal in [SIGKILL, SIGTERM, SIGKILL] {
        case.interrupt("e.parquet", signal);
        assert!(!case.path("e.parquet").exists());
    }
    for again in [false, true] {
        let said = ends(&mut case.embed("e.parquet"), 1);
        assert_has(&said, "1 sequence could not be embedded");
        assert_eq!(said.contains("already complete"), again);
        assert_eq!(said.contains(SAVED), !again);
    }
    assert!(read(&case, "e.parquet") == expected);
    assert_eq!(read_text(&case, "e.rejects.csv"), listed);
    run(&mut validate(&case, true));
}

#[test]
fn a_run_folder_that_is_removed_during_the_run_is_named() {
    let case = Case::new();
    let mut child = case.underway("e.parquet");
    let folder = case.path(".e.parquet.plmkit-run");
    // The run may write a file in between.
    while folder.exists() {
        let _ = fs::remove_dir_all(&folder);
    }
    let mut said = String::new();
    let stderr = child.stderr.as_mut().expect("piped");
    stderr.read_to_string(&mut said).expect("UTF-8");
    assert_eq!(child.wait().expect("wait").code(), Some(74), "{said}");
    let what =
        ".e.parquet.plmkit-run: cannot write: the folder was removed while the run was at work\n";
    assert!(said.ends_with(what), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn other_files_are_left_alone() {
    let case = Case::new();
    let saved = case.path(".e.parquet.plmkit-run");
    fs::create_dir(case.path("precious")).expect("folder");
    fs::write(case.path("precious/thesis.txt"), "years").expect("write");
    symlink("precious", &saved).expect("link");
    let what = ".e.parquet.plmkit-run: cannot create";
    assert_fails(case.embed("e.parquet"), 73, what);
    assert!(case.path("precious/thesis.txt").exists());
    fs::remove_file(&saved).expect("remove");

    // Foreign files in the folder of a run stay and are named.
    fs::create_dir(&saved).expect("folder");
    fs::write(saved.join("notes.txt"), "precious").expect("write");
    for _ in 0..2 {
        let said = run(&mut case.embed("e.parquet"));
        let line = ".e.parquet.plmkit-run: kept: 'notes.txt' in it is not of this run\n";
        assert_has(&said, "warning: ");
        assert_has(&said, line);
        assert_eq!(all(&saved), ["notes.txt"]);
    }

    fs::write(case.path("f.rejects.csv"), "precious").expect("write");
    let what = "f.rejects.csv: not a rejects file";
    assert_fails(case.embed("f.parquet"), 65, what);
    assert_eq!(read_text(&case, "f.rejects.csv"), "precious");

    symlink(".g.parquet.plmkit-tmp", case.path("link.csv")).expect("link");
    for (list, code, what) in [
        ("shards/rejects.csv", 73, "rejects.csv"),
        ("shards", 73, "shards"),
        ("/dev/null", 73, "null"),
        (
            "nowhere/rejects.csv",
            73,
            "nowhere/rejects.csv: cannot create",
        ),
        ("link.csv", 2, "--rejects "),
    ] {
        let mut embed = case.embed("g.parquet");
        assert_fails(embed.arg("--rejects").arg(case.path(list)), code, what);
    }
    let shards = read_text(&case, "shards/rejects.csv");
    assert_eq!(shards, "ordinal,id,length,reason\n");
    assert_nothing_of(&case, "plmkit-tmp");
    assert_nothing_of(&case, "g.parquet");
}

#[test]
fn a_folder_in_the_place_of_a_checkpoint_is_named_and_can_be_removed() {
    let case = Case::new();
    let saved = case.path(".e.parquet.plmkit-run");
    for name in [
        "lock",
        "part-blocks.parquet",
        "part-blocks.footer",
        "part-00000003.parquet",
        "rejects",
        "crashes",
        ".part-00000000.parquet.plmkit-tmp",
    ] {
        fs::create_dir_all(saved.join(name)).expect("folder");
        let what = format!(
            ".e.parquet.plmkit-run/{name}: cannot create: expected a file of a run, found something else; remove it"
        );
        assert_fails(case.embed("e.parquet"), 73, &what);
        fs::remove_dir(saved.join(name)).expect("remove");
    }
    let expected = case.undisturbed();
    run(&mut case.embed("e.parquet"));
    case.assert_complete("e.parquet", &expected);
}

/// Leaves the folder of a run that was killed when these lists were published, or were about to be.
fn note_lists(case: &Case, lists: &[&[u8]]) {
    let digests = lists
        .iter()
        .map(|list| ByteDigest::compute(list).to_string());
    let digests: Vec<String> = digests.collect();
    let folder = case.path(".e.parquet.plmkit-run");
    fs::create_dir_all(&folder).expect("folder");
    fs::write(folder.join("rejects"), digests.join("\n")).expect("write");
}

#[test]
fn a_rejects_list_belongs_to_one_output() {
    let case = Case::new();
    let embed = |out: &str, ordinal: &str| {
        let mut embed = case.embed(out);
        embed.args(["--inject", &format!("not-finite={ordinal}")]);
        embed.arg("--rejects").arg(case.path("rejects.csv"));
        embed
    };
    ends(&mut embed("e.parquet", "7"), 1);
    let list = read(&case, "rejects.csv");
    let what =
        "rejects.csv: exists and holds other work (a list of rejects that is not of this run)";
    assert_fails(embed("f.parquet", "8"), 73, what);
    assert!(read(&case, "rejects.csv") == list);

    // A run was killed between its list and its output.
    let expected = read(&case, "e.parquet");
    fs::remove_file(case.path("e.parquet")).expect("remove");
    note_lists(&case, &[&list]);
    ends(&mut embed("e.parquet", "7"), 1);
    assert!(read(&case, "rejects.csv") == list);
    assert!(read(&case, "e.parquet") == expected);
    assert!(!case.path(".e.parquet.plmkit-run").exists());
}

#[test]
fn a_run_recognises_each_list_that_it_began_to_publish() {
    let case = Case::new();
    let embed = || {
        let mut embed = case.embed("e.parquet");
        embed.args(["--inject", "not-finite=7"]);
        embed
    };
    let list = format!("{HEADER}3,x,9,not_finite,0\n");
    fs::write(case.path("e.rejects.csv"), &list).expect("write");
    assert_fails(embed(), 73, "e.rejects.csv: exists and holds other work");
    // Two runs were killed before they published an output, the second one before it published its list.
    note_lists(&case, &[list.as_bytes(), b"another"]);
    ends(&mut embed(), 1);
    assert_eq!(rejects(&case.path("e.rejects.csv")).len(), 1);

    let altered = "ordinal,id,length,reason\n";
    fs::write(case.path("e.rejects.csv"), altered).expect("write");
    assert_fails(embed(), 65, "e.rejects.csv: not the list of what ");
    fs::remove_file(case.path("e.rejects.csv")).expect("remove");
    let output = embed().output().expect("run");
    assert_failed(&output, 65, "e.rejects.csv: missing: the list of");
}

#[test]
fn an_empty_list_has_no_file() {
    let case = Case::new();
    let list = case.path("r.csv");
    for _ in 0..2 {
        run(case.embed("e.parquet").arg("--rejects").arg(&list));
        assert!(!list.exists());
    }
    for invented in [&format!("{HEADER}3,x,9,not_finite,0\n"), "garbage\n"] {
        fs::write(case.path("e.rejects.csv"), invented).expect("write");
        assert_fails(case.embed("e.parquet"), 65, "e.rejects.csv: not ");
        run(case.embed("e.parquet").arg("--force"));
        assert!(!case.path("e.rejects.csv").exists());
        run(&mut case.embed("e.parquet"));
    }
    // An older version wrote the header alone.
    fs::write(case.path("e.rejects.csv"), HEADER).expect("write");
    run(&mut case.embed("e.parquet"));
}

#[test]
fn a_list_of_a_killed_run_goes_if_the_next_run_rejects_nothing() {
    let case = Case::new();
    let expected = case.undisturbed();
    let list = format!("{HEADER}3,x,9,out_of_memory,0\n");
    fs::write(case.path("e.rejects.csv"), &list).expect("write");
    assert_fails(case.embed("e.parquet"), 73, "e.rejects.csv: exists");
    note_lists(&case, &[list.as_bytes()]);
    run(&mut case.embed("e.parquet"));
    assert!(!case.path("e.rejects.csv").exists());
    case.assert_complete("e.parquet", &expected);
}
