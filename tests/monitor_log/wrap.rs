//! `record` around a command: the command must not notice, and neither must who waits for it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::case::{Case, assert_contains, kill, text, wait_until, wait_within};
use crate::common::{assert_failed, first_process, program, visible};
use crate::terminal::{pair, spawn};

#[test]
fn the_exit_code_is_that_of_the_command() {
    for (script, code) in [
        ("true", 0),
        ("false", 1),
        ("exit 7", 7),
        ("exit 143", 143),
        ("exit 255", 255),
    ] {
        let case = Case::new();
        let status = case.wrap(script).status().unwrap();
        assert_eq!(
            (status.code(), status.signal()),
            (Some(code), None),
            "{script}"
        );
        assert!(!case.rows("gpu.csv").is_empty());
    }
}

#[test]
fn it_dies_of_the_signal_that_the_command_died_of() {
    for (name, number) in [
        ("TERM", 15),
        ("INT", 2),
        ("HUP", 1),
        ("KILL", 9),
        ("SEGV", 11),
        ("USR1", 10),
    ] {
        let case = Case::new();
        let status = case.wrap(&format!("kill -{name} $$")).status().unwrap();
        assert_eq!(status.signal(), Some(number), "{name}");
        assert!(!case.rows("gpu.csv").is_empty());
    }
}

#[test]
fn standard_streams_are_the_commands_own() {
    let case = Case::new();
    let mut command = case.wrap("cat; echo said >&2");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"given").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "given");
    assert!(text(&output.stderr).lines().any(|line| line == "said"));
}

/// Starts a command that prints `ready` once its traps are set, and waits for that.
fn start(case: &Case, traps: &str) -> (Child, BufReader<ChildStdout>) {
    let script = format!("{traps}; echo ready; while :; do sleep 0.02; done");
    let mut child = case.wrap(&script).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, stdout)
}

#[test]
fn signals_are_forwarded_and_the_command_decides_how_it_ends() {
    for name in ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"] {
        let case = Case::new();
        let (mut child, mut stdout) =
            start(&case, &format!("trap 'echo got {name}; exit 9' {name}"));
        kill(name, child.id());
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, format!("got {name}\n"));
        assert_eq!(child.wait().unwrap().code(), Some(9), "{name}");
        assert!(!case.rows("gpu.csv").is_empty());
    }
}

#[test]
fn a_signal_that_the_command_survives_ends_nothing() {
    let case = Case::new();
    let (mut child, mut stdout) = start(&case, "trap 'echo checkpoint' USR1; trap 'exit 3' TERM");
    kill("USR1", child.id());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "checkpoint\n");
    kill("TERM", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

/// The terminal sends Ctrl-C to the command as well; forwarded it would be the second one, on which many
/// programs stop cleaning up.
#[test]
fn ctrl_c_on_a_terminal_reaches_the_command_once() {
    let case = Case::new();
    // No handler but a wait, which takes each signal at once: two that are pending together would be one.
    let script = r#"
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("ready", flush=True)
signal.sigwaitinfo([signal.SIGINT])
again = signal.sigtimedwait([signal.SIGINT], 0.5)
print("interrupts:", 1 if again is None else 2)
"#;
    case.write("command.py", script);
    let program = program("monitor-log");
    let mut terminal = Command::new("script")
        .args([
            "-qec",
            &format!("{program} record --out gpu.csv -- python3 command.py"),
            "/dev/null",
        ])
        .current_dir(case.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = terminal.stdin.take().unwrap();
    let mut stdout = BufReader::new(terminal.stdout.take().unwrap());
    let mut seen = String::new();
    while !seen.contains("ready") {
        assert_ne!(stdout.read_line(&mut seen).unwrap(), 0, "{seen}");
    }
    stdin.write_all(b"\x03").unwrap();
    stdin.flush().unwrap();
    stdout.read_to_string(&mut seen).unwrap();
    assert_contains(&seen, "interrupts: 1");
    terminal.wait().unwrap();
}

#[test]
fn a_signal_that_is_ignored_on_purpose_stays_ignored_for_both() {
    let case = Case::new();
    let program = program("monitor-log");
    let output = Command::new("sh")
        .args([
            "-c",
            "trap '' HUP; exec \"$0\" record --out gpu.csv -- sh -c \"$1\"",
        ])
        .arg(program)
        .arg("kill -HUP $PPID; kill -HUP $$; sleep 0.1; echo alive")
        .current_dir(case.path(""))
        .output()
        .unwrap();
    assert_eq!(
        (text(&output.stdout).as_str(), output.status.code()),
        ("alive\n", Some(0))
    );
}

#[test]
fn a_command_that_cannot_be_started_is_reported_as_shells_do_and_leaves_nothing() {
    let case = Case::new();
    let output = case.run("record --out gpu.csv -- no-such-command --flag");
    assert_failed(
        &output,
        127,
        "monitor-log: cannot run 'no-such-command': no such file or directory",
    );
    case.write("data.txt", "no program");
    let output = case.run("record --out gpu.csv -- ./data.txt");
    assert_failed(
        &output,
        126,
        "monitor-log: cannot run './data.txt': permission denied",
    );
    assert_eq!(visible(&case.path("")), ["data.txt", "driver"]);
}

#[test]
fn a_full_disk_is_warned_of_once_and_does_not_end_the_command() {
    let case = Case::new();
    let output = case
        .command("record --out /dev/full --interval 10ms -- sh -c")
        .arg("sleep 0.2; echo done; exit 7")
        .output()
        .unwrap();
    assert_eq!(
        (text(&output.stdout).as_str(), output.status.code()),
        ("done\n", Some(7))
    );
    let stderr = text(&output.stderr);
    assert_eq!(
        stderr
            .matches("no space left on device; going on without a record")
            .count(),
        1,
        "{stderr}"
    );
}

#[test]
fn a_log_that_cannot_be_opened_is_said_before_the_command_starts() {
    let case = Case::new();
    case.write("proteins.fasta", ">P1\nMKV\n");
    for (out, what) in [
        (
            "no/such/folder.csv",
            "no/such/folder.csv: cannot create: no such file or directory",
        ),
        (
            "proteins.fasta",
            "proteins.fasta: exists and is not a GPU sample log",
        ),
    ] {
        let output = case.run(&format!("record --out {out} -- touch ran"));
        assert_failed(&output, 73, what);
    }
    assert!(!case.path("ran").exists());
    assert_eq!(case.read("proteins.fasta"), ">P1\nMKV\n");
}

#[test]
fn the_command_goes_on_when_the_recorder_is_killed() {
    let case = Case::new();
    let mut child = case
        .wrap("echo started > state; sleep 0.3; echo finished > state")
        .spawn()
        .unwrap();
    wait_until(|| fs::read_to_string(case.path("state")).is_ok_and(|state| state == "started\n"));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until(|| case.read("state") == "finished\n");
}

/// The kernel tells the leader of the session only, and that is not the command.
#[test]
fn a_command_is_told_that_its_terminal_hangs_up() {
    let case = Case::new();
    let script = "trap 'echo told > hangup; exit 5' HUP; echo > ready; for i in $(seq 500); do sleep 0.02; done";
    let (controller, device) = pair(24, 80);
    let mut child = spawn(&case, &case.wrap(script), &device);
    wait_until(|| case.path("ready").exists());
    drop(controller);
    let status = wait_within(&mut child, Duration::from_secs(5));
    assert_eq!(status.and_then(|status| status.code()), Some(5));
    assert_eq!(case.read("hangup"), "told\n");
}

#[test]
fn as_the_first_process_of_a_container_it_ends_with_a_code_and_no_crash() {
    if first_process().is_none() {
        return;
    }
    let in_namespace = |case: &Case, args: &str| {
        let program = case.command(args);
        let mut command = first_process().expect("as before");
        command.arg(program.get_program());
        command.args(program.get_args()).current_dir(case.path(""));
        command
    };
    let case = Case::new();
    let mut child = in_namespace(&case, "record --out gpu.csv --interval 20ms")
        .spawn()
        .unwrap();
    wait_until(|| {
        fs::read_to_string(case.path("gpu.csv")).is_ok_and(|log| log.lines().count() > 2)
    });
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let first: u32 = fs::read_to_string(children)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    kill("TERM", first);
    let status = wait_within(&mut child, Duration::from_secs(5)).unwrap();
    assert_eq!((status.code(), status.signal()), (Some(143), None));
    let wrapped = in_namespace(&case, "record --out gpu.csv -- sh -c")
        .arg("kill -SEGV $$")
        .status()
        .unwrap();
    assert_eq!((wrapped.code(), wrapped.signal()), (Some(139), None));
}
