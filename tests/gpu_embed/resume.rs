//! `gpu-embed` interrupted, short of memory, and poisoned: what is computed once is not lost, and what cannot be
//! computed costs nothing else.

use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::case::{
    Case, SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGSTOP, SIGTERM, SIGUSR1, in_windows, kill,
    rejects, send,
};
use crate::common::pty::pair;
use crate::common::{all, assert_failed, assert_fails, bin, model_of, run, test_data};

#[test]
fn a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been() {
    let case = Case::new();
    let expected = case.undisturbed();
    for _ in 0..3 {
        case.interrupt("e.parquet", SIGKILL);
        assert!(!case.path("e.parquet").exists());
    }
    let saved = case.parts("e.parquet").len();
    assert!(saved >= 9, "{saved}");
    let events = case.path("shards/events.jsonl");
    let said = run(case.embed("e.parquet").arg("--events").arg(&events));
    assert!(said.contains(" saved by an earlier run)"), "{said}");
    let events = fs::read_to_string(events).expect("events");
    assert!(events.contains("\"batches_saved\":"), "{events}");
    case.assert_complete("e.parquet", &expected);
    let said = run(&mut case.embed("e.parquet"));
    assert!(said.contains("already complete"), "{said}");
}

#[test]
fn a_second_try_in_another_folder_goes_on_from_what_the_first_saved() {
    let case = Case::new();
    let expected = case.undisturbed();
    let saved = case.path("shards/saved/here");
    let saved = saved.to_str().expect("UTF-8");
    let folder = |name: &str| {
        let folder = case.path(&format!("shards/{name}"));
        fs::create_dir(&folder).expect("folder");
        format!("shards/{name}/e.parquet")
    };
    let first = folder("first");
    let mut child = case
        .embed(&first)
        .args(["--checkpoint-dir", saved])
        .stderr(Stdio::null())
        .spawn()
        .expect("spawn");
    let deadline = Instant::now() + Duration::from_mins(2);
    let parts = Path::new(saved).join(".e.parquet.plmkit-run");
    let count = || fs::read_dir(&parts).map_or(0, Iterator::count);
    while count() < 5 {
        assert!(Instant::now() < deadline, "the run saves nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
    send(&child, SIGSTOP);
    let second = folder("second");
    assert_fails(
        case.embed(&second).args(["--checkpoint-dir", saved]),
        75,
        "another",
    );
    kill(&mut child);
    assert!(!case.path(&first).exists());

    let other = folder("other");
    assert_fails(
        case.embed(&other)
            .args(["--checkpoint-dir", saved, "--pool", "max"]),
        73,
        "an unfinished run of which",
    );

    let said = run(case.embed(&second).args(["--checkpoint-dir", saved]));
    assert!(said.contains(" saved by an earlier run)"), "{said}");
    assert!(fs::read(case.path(&second)).expect("output") == expected);
    assert!(!parts.exists());
}

#[test]
fn a_signal_saves_what_is_computed_and_leaves_no_half_files() {
    for signals in [&[SIGTERM, SIGINT, SIGUSR1][..], &[SIGHUP, SIGQUIT]] {
        let case = Case::new();
        let expected = case.undisturbed();
        for &signal in signals {
            let said = case.interrupt("e.parquet", signal);
            assert!(
                said.contains("the same command goes on from there"),
                "{said}"
            );
            let parts = case.parts("e.parquet");
            let folder = parts[0].parent().expect("folder");
            assert_eq!(all(folder).len(), parts.len(), "parts and nothing else");
            assert!(
                !all(case.folder.path())
                    .iter()
                    .any(|name| name.contains("plmkit-tmp"))
            );
        }
        run(&mut case.embed("e.parquet"));
        case.assert_complete("e.parquet", &expected);
    }
}

/// The shell and the kernel both tell of a terminal that closes: a second SIGHUP is no wish to end at once.
#[test]
fn a_terminal_that_closes_costs_no_work() {
    let case = Case::new();
    let proteins = fs::read_to_string(test_data("proteins.fasta")).expect("test data");
    let copies = (0..40).map(|copy| proteins.replace('>', &format!(">{copy}-")));
    case.pack(&copies.collect::<String>());
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
    let lines = || {
        fs::read_to_string(&events)
            .unwrap_or_default()
            .lines()
            .count()
    };
    while lines() < 5 {
        assert!(child.try_wait().expect("wait").is_none(), "it ended");
        sleep(Duration::from_millis(1));
    }
    send(&child, SIGHUP);
    drop(controller);
    assert_eq!(child.wait().expect("wait").signal(), Some(SIGHUP));
    let said = run(&mut case.embed("e.parquet"));
    assert!(said.contains(" saved by an earlier run)"), "{said}");
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn under_nohup_a_run_goes_on() {
    let case = Case::new();
    let expected = case.undisturbed();
    let embed = case.embed("e.parquet");
    let mut nohup = Command::new("nohup");
    // Without `env`, which takes the signal back.
    nohup.args(embed.get_args().skip(1));
    let nohup = nohup.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = nohup.spawn().expect("spawn");
    while case.parts("e.parquet").is_empty() {
        assert!(child.try_wait().expect("wait").is_none(), "it ended");
        sleep(Duration::from_millis(1));
    }
    send(&child, SIGHUP);
    assert!(child.wait().expect("wait").success());
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn damaged_parts_are_computed_again() {
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
}

/// Changes one bit at a share of the file's length.
fn flip(path: &Path, share: f64) {
    let mut file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .expect("open");
    let length = file.metadata().expect("metadata").len();
    let place = SeekFrom::Start((length as f64 * share) as u64);
    let mut byte = [0];
    file.seek(place).expect("seek");
    file.read_exact(&mut byte).expect("read");
    file.seek(place).expect("seek");
    file.write_all(&[byte[0] ^ 4]).expect("write");
}

#[test]
fn parts_of_other_work_are_refused_unless_forced() {
    let case = Case::new();
    case.interrupt("e.parquet", SIGKILL);
    assert_fails(
        case.embed("e.parquet").args(["--pool", "max"]),
        73,
        "an unfinished run of which columns was",
    );
    assert!(case.parts("e.parquet").len() >= 3, "nothing is thrown away");
    run(case.embed("e.parquet").args(["--pool", "max", "--force"]));
    assert!(case.parts("e.parquet").is_empty());
}

#[test]
fn other_batches_of_the_same_rows_are_other_work() {
    let case = Case::new();
    let fasta = fs::read_to_string(case.path("in.fasta")).expect("input");
    case.interrupt("e.parquet", SIGKILL);
    run(&mut case.embed("whole.parquet"));
    case.pack_with(&fasta, &[], 300);
    let unfinished = case.embed("e.parquet").output().expect("run");
    assert_failed(
        &unfinished,
        73,
        "an unfinished run of which the batches are packed otherwise",
    );
    assert_fails(
        case.embed("whole.parquet"),
        73,
        "holds other work (the batches are packed otherwise)",
    );
}

#[test]
fn an_interrupted_replacement_survives_a_look_at_what_it_replaces() {
    let case = Case::new();
    let expected = case.undisturbed();
    fs::copy(case.path("undisturbed.parquet"), case.path("e.parquet")).expect("copy");
    let other = ["--force", "--pool", "max"];
    let mut child = case.underway_with("e.parquet", &other);
    kill(&mut child);
    let parts = case.parts("e.parquet");
    let said = run(&mut case.embed("e.parquet"));
    assert!(said.contains("already complete"), "{said}");
    assert!(
        said.contains("left alone: an unfinished run of which columns was"),
        "{said}"
    );
    assert_eq!(case.parts("e.parquet"), parts);
    assert!(fs::read(case.path("e.parquet")).expect("output") == expected);
    let said = run(case.embed("e.parquet").args(other));
    assert!(said.contains(" saved by an earlier run)"), "{said}");
    assert!(case.parts("e.parquet").is_empty());
}

#[test]
fn half_files_beside_a_complete_output_are_removed() {
    let case = Case::new();
    let expected = case.undisturbed();
    run(&mut case.embed("e.parquet"));
    for name in [".e.parquet.plmkit-tmp", ".e.rejects.csv.plmkit-tmp"] {
        fs::write(case.path(name), "half").expect("write");
    }
    let said = run(&mut case.embed("e.parquet"));
    assert!(said.contains("already complete"), "{said}");
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn a_list_that_cannot_be_written_is_noticed_before_anything_is_computed() {
    let case = Case::new();
    let mut embed = case.embed("e.parquet");
    embed.arg("--rejects").arg(case.path("nowhere/rejects.csv"));
    assert_fails(embed, 73, "nowhere/rejects.csv: cannot create");
    let names = all(case.folder.path());
    assert!(
        !names.iter().any(|name| name.contains("e.parquet")),
        "{names:?}"
    );
}

#[test]
fn what_was_computed_is_saved_when_the_output_cannot_be_published() {
    let case = Case::new();
    let expected = case.undisturbed();
    // All of the run is one part, which is not due before the end.
    let mut child = case
        .embed_saving("e.parquet", "60m")
        .stderr(Stdio::null())
        .spawn()
        .expect("spawn");
    let deadline = Instant::now() + Duration::from_mins(2);
    while !case.path(".e.parquet.plmkit-tmp").exists() {
        assert!(Instant::now() < deadline, "nothing is written");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(20));
    fs::write(case.path("e.parquet"), "in the way").expect("write");
    assert_eq!(child.wait().expect("wait").code(), Some(73));
    assert_eq!(case.parts("e.parquet").len(), 1);
    fs::remove_file(case.path("e.parquet")).expect("remove");
    let said = run(&mut case.embed("e.parquet"));
    assert!(said.contains(", 0 tokens in"), "{said}");
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn what_did_not_fit_into_memory_is_tried_again() {
    let case = Case::new();
    // Enough for a run in which most sequences fail at once to be interrupted.
    let some = fs::read_to_string(case.path("in.fasta")).expect("input");
    let many = (0..10).map(|copy| some.replace('>', &format!(">{copy}-")));
    case.pack(&many.collect::<String>());
    let expected = case.undisturbed();
    let mut child = case.underway_with("e.parquet", &["--inject", "out-of-memory-above=90"]);
    kill(&mut child);
    let said = run(&mut case.embed("e.parquet"));
    assert!(said.contains("memory ran out"), "{said}");
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn names_that_are_long_or_no_text_work() {
    use std::os::unix::ffi::OsStrExt;

    let case = Case::new();
    let long = format!("{}.parquet", "x".repeat(235));
    let names = [long.as_bytes(), b"a\xfe.parquet", b"a\xff.parquet"];
    let embed = |name: &[u8]| {
        let out = case.folder.path().join(std::ffi::OsStr::from_bytes(name));
        let embed = case.embed("ignored");
        let args: Vec<_> = embed.get_args().map(std::ffi::OsStr::to_owned).collect();
        let mut command = Command::new(embed.get_program());
        let place = args.iter().position(|arg| arg == "--out").expect("--out") + 1;
        command
            .args(&args[..place])
            .arg(out)
            .args(&args[place + 1..]);
        command.spawn().expect("spawn")
    };
    let mut children: Vec<Child> = names.iter().map(|name| embed(name)).collect();
    for child in &mut children {
        assert!(child.wait().expect("wait").success());
    }
}

#[test]
fn batches_that_change_under_a_run_are_found_before_the_output_has_its_name() {
    let case = Case::new();
    let fasta = fs::read_to_string(case.path("in.fasta")).expect("input");
    // Many: what is changed is far behind what was read by then.
    let fasta = (0..8).map(|copy| fasta.replace('>', &format!(">{copy}-")));
    case.pack(&fasta.collect::<String>());
    let batches = case.path("b.arrow");
    let whole = fs::read(&batches).expect("batches");
    // In place, as an editor or a second copy of a command would.
    let change = |bytes: &[u8]| {
        let file = fs::OpenOptions::new().write(true).open(&batches);
        let mut file = file.expect("batches");
        file.write_all(bytes).expect("write");
        file.set_len(bytes.len() as u64).expect("length");
    };
    let mut flipped = whole.clone();
    flipped[whole.len() * 4 / 5] ^= 1;
    for (name, changed) in [
        ("flipped", &flipped[..]),
        ("cut", &whole[..whole.len() / 2]),
    ] {
        let child = case.underway(name);
        send(&child, SIGSTOP);
        change(changed);
        send(&child, SIGCONT);
        let ended = child.wait_with_output().expect("wait");
        assert_eq!(ended.status.code(), Some(65), "{ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains("b.arrow: damaged: bytes "), "{said}");
        assert!(!case.path(name).exists());
        change(&whole);
    }
    let expected = case.undisturbed();
    run(&mut case.embed("cut"));
    assert!(fs::read(case.path("cut")).expect("output") == expected);
}

#[test]
fn one_run_at_a_time_writes_an_output() {
    let case = Case::new();
    let mut first = case.underway("e.parquet");
    // It is to be at work until it is asked no more.
    send(&first, SIGSTOP);
    let asked = Instant::now();
    assert_fails(
        case.embed("e.parquet"),
        75,
        "e.parquet: another process is writing it",
    );
    assert!(asked.elapsed() < Duration::from_secs(10));
    first.kill().expect("kill");
    first.wait().expect("wait");
    run(&mut case.embed("e.parquet"));
}

#[test]
fn a_run_waits_for_another_where_it_is_told_to() {
    let case = Case::new();
    let expected = case.undisturbed();
    let mut first = case.underway("e.parquet");
    send(&first, SIGSTOP);
    let waiting = |stderr| {
        let mut command = case.embed("e.parquet");
        let command = command.arg("--wait").stderr(stderr);
        command.spawn().expect("spawn")
    };
    let mut stopped = waiting(Stdio::piped());
    let mut line = String::new();
    let stderr = stopped.stderr.take().expect("piped");
    BufReader::new(stderr).read_line(&mut line).expect("a line");
    assert!(
        line.ends_with("e.parquet: another process is writing it; waiting for it to end\n"),
        "{line}"
    );
    send(&stopped, SIGTERM);
    assert_eq!(stopped.wait().expect("wait").signal(), Some(SIGTERM));

    let mut second = waiting(Stdio::null());
    sleep(Duration::from_millis(300));
    assert!(second.try_wait().expect("wait").is_none());
    first.kill().expect("kill");
    first.wait().expect("wait");
    assert!(second.wait().expect("wait").success());
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn a_pack_that_does_not_fit_is_split_and_gives_the_same() {
    let case = Case::new();
    let expected = case.undisturbed();
    let events = case.path("shards/events.jsonl");
    run(case
        .embed("e.parquet")
        .args(["--inject", "out-of-memory-above=120", "--events"])
        .arg(&events));
    case.assert_complete("e.parquet", &expected);
    let events = fs::read_to_string(events).expect("events");
    assert!(events.contains("\"oom_splits\":1"), "{events}");
    assert!(!events.contains("rejected"), "{events}");
}

/// A model for which every protein with pyrrolysine is not a number: the sum of its channels is too large.
fn poisoned_model(folder: &Path) -> PathBuf {
    const PYRROLYSINE: usize = 28;
    const HIDDEN: usize = 64;
    let mut bytes = fs::read(test_data("model-tiny/model.safetensors")).expect("weights");
    let header = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let tensors: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header]).expect("JSON");
    let embedding = &tensors["esm.embeddings.word_embeddings.weight"]["data_offsets"][0];
    let embedding = embedding.as_u64().expect("offset") as usize;
    let row = 8 + header + embedding + PYRROLYSINE * HIDDEN * 4;
    bytes[row..row + HIDDEN * 4].copy_from_slice(&f32::MAX.to_le_bytes().repeat(HIDDEN));
    model_of(folder, "poisoned", &bytes)
}

#[test]
fn a_sequence_without_finite_vectors_costs_no_other_its_own() {
    let case = Case::new();
    case.pack(">a\nMKVL\n>b\nMKOL\n>c\nGGG\n>d\nOO\n>e\nWWW\n");
    let model = poisoned_model(case.folder.path());
    let embed = || {
        let mut command = bin("gpu-embed");
        command.arg(case.path("b.arrow")).arg("--model").arg(&model);
        command.arg("--out").arg(case.path("e.parquet"));
        command.output().expect("run")
    };
    for again in [false, true] {
        let output = embed();
        assert_eq!(output.status.code(), Some(1), "again: {again}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("2 sequences could not be embedded"), "{said}");
        assert_eq!(said.contains("already complete"), again);
        let expected = [(1, "not_finite".to_owned()), (3, "not_finite".to_owned())];
        assert_eq!(rejects(&case.path("e.rejects.csv")), expected);
    }
    let mut validate = bin("validate-embeddings");
    validate
        .arg(case.path("e.parquet"))
        .arg("--shards")
        .arg(case.path("shards/shard-00000.parquet"));
    let output = validate.output().expect("run");
    assert_eq!(output.status.code(), Some(1), "two rows are missing");
    let said = run(validate
        .arg("--rejects")
        .args([case.path("shards/rejects.csv"), case.path("e.rejects.csv")]));
    assert!(
        said.starts_with("validate-embeddings: 3 rows; passed: coverage"),
        "{said}"
    );
}

#[test]
fn a_window_without_finite_vectors_costs_its_protein_no_other() {
    let case = Case::new();
    // Windows from 0, 80 and 160; the pyrrolysines are in the first and in the last.
    let sequence = "MKVLAGTWYQ".repeat(20);
    let sequence = format!("MO{}OM", &sequence[2..198]);
    let options = ["--long-policy", "window", "--overlap", "20"];
    case.pack_with(&format!(">a\nMKVL\n>b\n{sequence}\n"), &options, 256);
    let mut embed = bin("gpu-embed");
    embed.arg(case.path("b.arrow")).arg("--model");
    embed.arg(poisoned_model(case.folder.path()));
    embed.arg("--out").arg(case.path("e.parquet"));
    embed.args(["--windows", "separate"]);
    let output = embed.output().expect("run");
    assert_eq!(output.status.code(), Some(1));
    let listed = fs::read_to_string(case.path("e.rejects.csv")).expect("rejects");
    assert_eq!(
        listed,
        "ordinal,id,length,reason,start\n1,b,200,not_finite,0\n1,b,200,not_finite,160\n"
    );

    let validate = |rejects: &str| {
        fs::write(case.path("e.rejects.csv"), rejects).expect("write");
        let mut validate = bin("validate-embeddings");
        validate
            .arg(case.path("e.parquet"))
            .arg("--shards")
            .arg(case.path("shards/shard-00000.parquet"))
            .arg("--rejects")
            .args([case.path("shards/rejects.csv"), case.path("e.rejects.csv")])
            .arg("--manifest")
            .arg(case.path("shards/manifest.json"))
            .arg("--quiet");
        validate.output().expect("run")
    };
    assert_eq!(validate(&listed).status.code(), Some(0));
    let (first, _last) = listed.trim_end().rsplit_once('\n').expect("lines");
    let output = validate(&format!("{first}\n"));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    let coverage = "coverage: 2 rows, 4 expected: 1 rejected, 1 missing";
    let origin = "e.rejects.csv: not the list of any of the embeddings, or altered";
    assert!(said.contains(coverage) && said.contains(origin), "{said}");
    // What excuses nothing does not belong to the embeddings, either.
    let invented = validate(&format!("{listed}7,z,200,not_finite,0\n"));
    assert_failed(&invented, 1, origin);
}

#[test]
fn what_could_not_be_embedded_survives_an_interruption() {
    let case = Case::new();
    let inject = ["--inject", "not-finite=7,not-finite=290"];
    let output = case.embed("undisturbed.parquet").args(inject).output();
    assert_eq!(output.expect("run").status.code(), Some(1));
    let expected = fs::read(case.path("undisturbed.parquet")).expect("output");
    let listed = rejects(&case.path("undisturbed.rejects.csv"));
    let not_finite = "not_finite".to_owned();
    assert_eq!(listed, [(7, not_finite.clone()), (290, not_finite)]);

    let mut child = case
        .embed("e.parquet")
        .args(inject)
        .stderr(Stdio::null())
        .spawn()
        .expect("spawn");
    while case.parts("e.parquet").len() < 5 {
        assert!(
            child.try_wait().expect("wait").is_none(),
            "it ended too soon"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    kill(&mut child);
    let output = case.embed("e.parquet").args(inject).output().expect("run");
    assert_eq!(output.status.code(), Some(1));
    assert!(fs::read(case.path("e.parquet")).expect("output") == expected);
    assert_eq!(rejects(&case.path("e.rejects.csv")), listed);
}

#[test]
fn proteins_in_windows_of_several_batches_survive_interruptions() {
    let case = in_windows();
    let expected = case.undisturbed();
    for signal in [SIGKILL, SIGTERM, SIGKILL] {
        case.interrupt("e.parquet", signal);
        assert!(!case.path("e.parquet").exists());
    }
    let said = run(&mut case.embed("e.parquet"));
    assert!(said.contains(" saved by an earlier run)"), "{said}");
    case.assert_complete("e.parquet", &expected);
    run(bin("validate-embeddings")
        .arg(case.path("e.parquet"))
        .arg("--shards")
        .arg(case.path("shards/shard-00000.parquet")));
}

#[test]
fn a_protein_lost_for_one_window_is_lost_once_also_after_interruptions() {
    let mut case = in_windows();
    case.model = poisoned_model(case.folder.path());
    let output = case.embed("undisturbed.parquet").output().expect("run");
    assert_eq!(output.status.code(), Some(1));
    let expected = fs::read(case.path("undisturbed.parquet")).expect("output");
    let listed = fs::read_to_string(case.path("undisturbed.rejects.csv")).expect("rejects");
    let header = "ordinal,id,length,reason,start\n";
    assert_eq!(listed, format!("{header}101,poisoned,1500,not_finite,0\n"));
    for _ in 0..3 {
        case.interrupt("e.parquet", SIGKILL);
    }
    for again in [false, true] {
        let output = case.embed("e.parquet").output().expect("run");
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("1 sequence could not be embedded"), "{said}");
        assert_eq!(said.contains("already complete"), again);
    }
    assert!(fs::read(case.path("e.parquet")).expect("output") == expected);
    let found = fs::read_to_string(case.path("e.rejects.csv")).expect("rejects");
    assert_eq!(found, listed);
}

#[test]
fn a_folder_that_is_removed_meanwhile_is_named() {
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
fn a_folder_to_save_in_that_cannot_be_is_named() {
    let case = Case::new();
    let mut command = case.embed("e.parquet");
    assert_fails(
        command.args(["--checkpoint-dir", "/proc"]),
        73,
        "gpu-embed: /proc: cannot create",
    );
}

#[test]
fn files_of_others_are_left_alone() {
    let case = Case::new();
    fs::create_dir(case.path("precious")).expect("folder");
    fs::write(case.path("precious/thesis.txt"), "years").expect("write");
    std::os::unix::fs::symlink("precious", case.path(".e.parquet.plmkit-run")).expect("link");
    assert_fails(
        case.embed("e.parquet"),
        73,
        ".e.parquet.plmkit-run: cannot create",
    );
    assert!(case.path("precious/thesis.txt").exists());

    fs::write(case.path("f.rejects.csv"), "precious").expect("write");
    let output = case.embed("f.parquet").output().expect("run");
    assert_failed(&output, 65, "f.rejects.csv: not a rejects file");
    let kept = fs::read_to_string(case.path("f.rejects.csv")).expect("kept");
    assert_eq!(kept, "precious");

    for of_others in ["shards/rejects.csv", "shards", "/dev/null"] {
        let mut embed = case.embed("g.parquet");
        embed.arg("--rejects").arg(case.path(of_others));
        let name = of_others
            .rsplit_once('/')
            .map_or(of_others, |(_, name)| name);
        assert_fails(embed, 73, name);
    }
    let shards = fs::read_to_string(case.path("shards/rejects.csv")).expect("kept");
    assert_eq!(shards, "ordinal,id,length,reason\n");
    assert_eq!(
        all(&case.path(""))
            .iter()
            .find(|name| name.contains("plmkit-tmp")),
        None
    );
}

#[test]
fn a_folder_where_a_file_of_the_run_belongs_is_named_and_can_be_removed() {
    let case = Case::new();
    let saved = case.path(".e.parquet.plmkit-run");
    for name in [
        "lock",
        "part-blocks.parquet",
        "part-blocks.record",
        "part-00000003.parquet",
        "rejects",
        ".part-00000000.parquet.plmkit-tmp",
    ] {
        fs::create_dir_all(saved.join(name)).expect("folder");
        let output = case.embed("e.parquet").output().expect("run");
        let what = format!(
            ".e.parquet.plmkit-run/{name}: cannot create: expected a file of a run, found something else; remove it"
        );
        assert_failed(&output, 73, &what);
        fs::remove_dir(saved.join(name)).expect("remove");
    }
    let expected = case.undisturbed();
    run(&mut case.embed("e.parquet"));
    case.assert_complete("e.parquet", &expected);
}

#[test]
fn what_is_foreign_in_the_folder_of_a_run_stays_and_is_named() {
    let case = Case::new();
    let saved = case.path(".e.parquet.plmkit-run");
    fs::create_dir(&saved).expect("folder");
    fs::write(saved.join("notes.txt"), "precious").expect("write");
    for _ in 0..2 {
        let said = run(&mut case.embed("e.parquet"));
        let line = ".e.parquet.plmkit-run: left alone: 'notes.txt' in it is not of this run\n";
        assert!(said.contains("warning: ") && said.contains(line), "{said}");
        assert_eq!(all(&saved), ["notes.txt"]);
    }
}

#[test]
fn a_list_of_rejects_belongs_to_one_output() {
    let case = Case::new();
    let embed = |out: &str, ordinal: &str| {
        let mut embed = case.embed(out);
        embed.args(["--inject", &format!("not-finite={ordinal}")]);
        embed.arg("--rejects").arg(case.path("rejects.csv"));
        embed.output().expect("run")
    };
    assert_eq!(embed("e.parquet", "7").status.code(), Some(1));
    let list = fs::read(case.path("rejects.csv")).expect("list");
    let message =
        "rejects.csv: exists and holds other work (a list of rejects that is not of this run)";
    assert_failed(&embed("f.parquet", "8"), 73, message);
    assert!(fs::read(case.path("rejects.csv")).expect("list") == list);

    // A run that was killed after its list had its name and before its output had.
    let expected = fs::read(case.path("e.parquet")).expect("output");
    fs::remove_file(case.path("e.parquet")).expect("remove");
    fs::create_dir(case.path(".e.parquet.plmkit-run")).expect("folder");
    let digest = plmkit_contract::ByteDigest::compute(&list).to_string();
    fs::write(case.path(".e.parquet.plmkit-run/rejects"), digest).expect("write");
    assert_eq!(embed("e.parquet", "7").status.code(), Some(1));
    assert!(fs::read(case.path("rejects.csv")).expect("list") == list);
    assert!(fs::read(case.path("e.parquet")).expect("output") == expected);
    assert!(!case.path(".e.parquet.plmkit-run").exists());
}

#[test]
fn a_list_of_others_does_not_stay_beside_an_output() {
    let case = Case::new();
    run(&mut case.embed("e.parquet"));
    for invented in [
        "ordinal,id,length,reason,start\n3,x,9,not_finite,0\n",
        "garbage\n",
    ] {
        fs::write(case.path("e.rejects.csv"), invented).expect("write");
        assert_fails(case.embed("e.parquet"), 65, "e.rejects.csv: not ");
        run(case.embed("e.parquet").arg("--force"));
        let list = fs::read_to_string(case.path("e.rejects.csv")).expect("list");
        assert_eq!(list, "ordinal,id,length,reason,start\n");
        run(&mut case.embed("e.parquet"));
    }
}

#[test]
fn a_run_knows_each_list_that_it_began_to_publish() {
    let case = Case::new();
    let inject = ["--inject", "not-finite=7"];
    let embed = || case.embed("e.parquet").args(inject).output().expect("run");
    let list = "ordinal,id,length,reason,start\n3,x,9,not_finite,0\n";
    fs::write(case.path("e.rejects.csv"), list).expect("write");
    assert_failed(&embed(), 73, "e.rejects.csv: exists and holds other work");
    // Killed twice before its output had its name, the second time before the second list had.
    let digests = [list, "another"]
        .map(|text| plmkit_contract::ByteDigest::compute(text.as_bytes()).to_string());
    fs::create_dir_all(case.path(".e.parquet.plmkit-run")).expect("folder");
    fs::write(
        case.path(".e.parquet.plmkit-run/rejects"),
        digests.join("\n"),
    )
    .expect("write");
    assert_eq!(embed().status.code(), Some(1));
    assert_eq!(rejects(&case.path("e.rejects.csv")).len(), 1);
}

#[test]
fn a_link_to_something_unfinished_is_no_output() {
    let case = Case::new();
    std::os::unix::fs::symlink(".e.parquet.plmkit-tmp", case.path("link.csv")).expect("link");
    let mut embed = case.embed("e.parquet");
    embed.arg("--rejects").arg(case.path("link.csv"));
    assert_fails(embed, 2, "--rejects ");
}

#[test]
fn an_empty_list_that_is_asked_for_is_always_there() {
    let case = Case::new();
    run(&mut case.embed("e.parquet"));
    assert!(!case.path("e.rejects.csv").exists());
    for _ in 0..2 {
        run(case
            .embed("e.parquet")
            .arg("--rejects")
            .arg(case.path("r.csv")));
        let list = fs::read_to_string(case.path("r.csv")).expect("list");
        assert_eq!(list, "ordinal,id,length,reason,start\n");
    }
}

#[test]
fn a_list_that_is_gone_is_not_vouched_for() {
    let case = Case::new();
    let inject = ["--inject", "not-finite=7"];
    let embed = || case.embed("e.parquet").args(inject).output().expect("run");
    assert_eq!(embed().status.code(), Some(1));
    fs::write(case.path("e.rejects.csv"), "ordinal,id,length,reason\n").expect("write");
    assert_failed(&embed(), 65, "e.rejects.csv: not the list of what ");
    fs::remove_file(case.path("e.rejects.csv")).expect("remove");
    assert_failed(&embed(), 65, "e.rejects.csv: missing: the list of");
}
