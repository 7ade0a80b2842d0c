//! `record` around a command, which must not notice it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::case::{Case, assert_contains, kill, text, wait_until, wait_within};
use crate::common::{assert_failed, first_process, program, visible};
use crate::terminal::{pair, spawn};

const SOON: Duration = Duration::from_secs(5);

#[test]
fn the_exit_code_or_the_signal_is_that_of_the_command() {
    let codes = ["true", "false", "exit 7", "exit 143", "exit 255"].map(str::to_owned);
    let codes = codes
        .into_iter()
        .zip([0, 1, 7, 143, 255].map(|code| (Some(code), None)));
    let signals = ["TERM", "INT", "HUP", "KILL", "SEGV", "USR1"];
    let signals = signals.map(|name| format!("kill -{name} $$"));
    let signals = signals
        .into_iter()
        .zip([15, 2, 1, 9, 11, 10].map(|signal| (None, Some(signal))));
    for (script, expected) in codes.chain(signals) {
        let case = Case::with_gpus();
        let status = case.wrap(&script).status().unwrap();
        assert_eq!((status.code(), status.signal()), expected, "{script}");
        assert!(!case.rows("gpu.csv").is_empty());
    }
}

#[test]
fn standard_streams_are_those_of_the_command() {
    let case = Case::new();
    let mut command = case.wrap("cat; echo said >&2");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"given").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "given");
    assert!(text(&output.stderr).lines().any(|line| line == "said"));
}

/// Starts a command and waits until its traps are set.
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
        let case = Case::with_gpus();
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
fn a_command_may_survive_a_signal() {
    let case = Case::new();
    let (mut child, mut stdout) = start(&case, "trap 'echo checkpoint' USR1; trap 'exit 3' TERM");
    kill("USR1", child.id());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "checkpoint\n");
    kill("TERM", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

/// The terminal sends Ctrl-C to the command as well. Many programs stop their cleanup on a second one.
#[test]
fn ctrl_c_on_a_terminal_reaches_the_command_once() {
    let case = Case::new();
    // A wait takes each signal at once. With a handler, two pending signals would be one.
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
    let record = format!("{program} record --out gpu.csv -- python3 command.py");
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &record, "/dev/null"]);
    terminal.current_dir(case.path(""));
    terminal.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut terminal = terminal.spawn().unwrap();
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
fn an_ignored_signal_stays_ignored_by_both() {
    let case = Case::new();
    let record = "trap '' HUP; exec \"$0\" record --out gpu.csv -- sh -c \"$1\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", record, program("monitor-log")]);
    shell.arg("kill -HUP $PPID; kill -HUP $$; sleep 0.1; echo alive");
    let output = shell.current_dir(case.path("")).output().unwrap();
    assert_eq!(text(&output.stdout), "alive\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_command_that_cannot_start_has_the_exit_code_of_shells_and_leaves_nothing() {
    let case = Case::new();
    case.write("data.txt", "no program");
    for (command, code, reason) in [
        ("no-such-command", 127, "no such file or directory"),
        ("./data.txt", 126, "permission denied"),
    ] {
        let output = case.run(&format!("record --out gpu.csv -- {command} --flag"));
        let message = format!("monitor-log: cannot run '{command}': {reason}");
        assert_failed(&output, code, &message);
    }
    assert_eq!(visible(&case.path("")), ["data.txt", "driver"]);
}

#[test]
fn a_full_disk_is_warned_of_once_and_does_not_end_the_command() {
    let case = Case::with_gpus();
    let mut command = case.command("record --out /dev/full --interval 10ms -- sh -c");
    let output = command
        .arg("sleep 0.2; echo done; exit 7")
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "done\n");
    assert_eq!(output.status.code(), Some(7));
    let stderr = text(&output.stderr);
    let warning = "no space left on device; going on without a record";
    assert_eq!(stderr.matches(warning).count(), 1, "{stderr}");
}

#[test]
fn a_log_that_cannot_be_opened_is_an_error_before_the_command_starts() {
    let case = Case::new();
    case.write("proteins.fasta", ">P1\nMKV\n");
    for (out, message) in [
        (
            "no/such.csv",
            "no/such.csv: cannot create: no such file or directory",
        ),
        (
            "proteins.fasta",
            "proteins.fasta: cannot create: exists and is not a GPU sample log",
        ),
    ] {
        let output = case.run(&format!("record --out {out} -- touch ran"));
        assert_failed(&output, 73, message);
    }
    assert!(!case.path("ran").exists());
    assert_eq!(case.read("proteins.fasta"), ">P1\nMKV\n");
}

#[test]
fn the_command_goes_on_when_the_recorder_is_killed() {
    let case = Case::new();
    let script = "echo started > state; sleep 0.3; echo finished > state";
    let mut child = case.wrap(script).spawn().unwrap();
    let state = || fs::read_to_string(case.path("state")).unwrap_or_default();
    wait_until(|| state() == "started\n");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until(|| state() == "finished\n");
}

/// The kernel tells only the leader of the session, which is not the command.
#[test]
fn a_command_is_told_that_its_terminal_hangs_up() {
    let case = Case::new();
    let script = "trap 'echo told > hangup; exit 5' HUP; echo > ready; for i in $(seq 500); do sleep 0.02; done";
    let (controller, device) = pair(24, 80);
    let mut child = spawn(&case, &case.wrap(script), &device);
    wait_until(|| case.path("ready").exists());
    drop(controller);
    let status = wait_within(&mut child, SOON).expect("it ends");
    assert_eq!(status.code(), Some(5));
    assert_eq!(case.read("hangup"), "told\n");
}

#[test]
fn as_the_first_process_of_a_container_it_ends_with_a_code() {
    if first_process().is_none() {
        return;
    }
    let case = Case::with_gpus();
    let in_namespace = |program: &Command| {
        let mut command = first_process().expect("as before");
        command.arg(program.get_program()).args(program.get_args());
        command.current_dir(case.path(""));
        command
    };
    let record = "record --out gpu.csv --interval 20ms --nvml driver/libnvidia-ml.so.1";
    let mut child = in_namespace(&case.command(record)).spawn().unwrap();
    let log = || fs::read_to_string(case.path("gpu.csv")).unwrap_or_default();
    wait_until(|| log().lines().count() > 2);
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let first = fs::read_to_string(children).unwrap();
    kill("TERM", first.trim().parse().unwrap());
    let terminated = wait_within(&mut child, SOON).expect("it ends");
    let crashed = in_namespace(&case.wrap("kill -SEGV $$")).status().unwrap();
    for (status, code) in [(terminated, 143), (crashed, 139)] {
        assert_eq!((status.code(), status.signal()), (Some(code), None));
    }
}
