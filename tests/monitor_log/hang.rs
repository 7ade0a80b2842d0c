//! A driver or a log that hangs: nobody waits for it.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::OFlags;

use crate::case::{Case, assert_contains, kill, wait_until, wait_within};

/// Two seconds of patience, and a machine that is busy.
const SOON: Duration = Duration::from_secs(8);

/// `monitor-log ARGS` with a driver that hangs while there is a file `hang`.
fn start(case: &Case, args: &str) -> Child {
    case.command(args)
        .env("FAKE_NVML_HANG", case.path("hang"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn said(child: &mut Child) -> String {
    std::io::read_to_string(child.stderr.take().unwrap()).unwrap()
}

#[test]
fn a_command_ends_as_it_ends_when_the_driver_hangs() {
    let case = Case::with_gpus();
    case.write("hang", "");
    for out in ["gpu.csv", "gpu.parquet"] {
        let mut child = start(&case, &format!("record --out {out} -- sh -c exit\t7"));
        let status = wait_within(&mut child, SOON).expect("it ends");
        assert_eq!(status.code(), Some(7));
        let said = said(&mut child);
        assert_eq!(
            said.matches("the driver does not answer").count(),
            1,
            "{said}"
        );
    }
    assert!(!case.path("gpu.parquet").exists() && case.path("gpu.parquet.csv").exists());
}

#[test]
fn a_signal_ends_a_recording_and_an_exporter_when_the_driver_hangs() {
    let case = Case::with_gpus();
    for args in [
        "record --out gpu.csv --interval 20ms",
        "export --textfile gpu.prom --interval 20ms",
        "export --listen 127.0.0.1:0 --interval 20ms",
    ] {
        let mut child = start(&case, args);
        // Long enough that the driver was asked before it hangs.
        std::thread::sleep(Duration::from_millis(600));
        case.write("hang", "");
        std::thread::sleep(Duration::from_millis(200));
        kill("TERM", child.id());
        let status = wait_within(&mut child, SOON);
        assert_eq!(
            status.and_then(|status| status.signal()),
            Some(15),
            "{args}"
        );
        let said = said(&mut child);
        assert_contains(&said, "the driver does not answer");
        std::fs::remove_file(case.path("hang")).unwrap();
    }
    assert!(
        !case.path("gpu.prom").exists(),
        "it would be scraped for ever"
    );
}

#[test]
fn a_command_ends_as_it_ends_when_its_log_hangs() {
    let case = Case::new();
    assert!(
        Command::new("mkfifo")
            .arg(case.path("gpu.csv"))
            .status()
            .unwrap()
            .success()
    );
    // Held open, full and not read.
    let mut pipe = File::options()
        .read(true)
        .write(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(case.path("gpu.csv"))
        .unwrap();
    while pipe.write(&[b'x'; 4096]).is_ok() {}
    let mut command = case.wrap("exit 7");
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let status = wait_within(&mut child, SOON).expect("it ends");
    assert_eq!(status.code(), Some(7));
    let said = said(&mut child);
    assert_contains(&said, "the log takes no more rows");
}

#[test]
fn one_recording_at_a_time_writes_a_log() {
    let case = Case::new();
    let rows = |case: &Case| {
        std::fs::read_to_string(case.path("gpu.csv")).map_or(0, |log| log.lines().count())
    };
    let mut first = start(&case, "record --out gpu.csv --interval 20ms");
    wait_until(|| rows(&case) > 3);

    let second = case.run("record --out gpu.csv");
    crate::common::assert_failed(&second, 75, "gpu.csv: another process is writing it");

    // A command does not suffer from it: it is recorded once the log is free.
    let script = "echo > began; while [ ! -e stop ]; do sleep 0.02; done; exit 7";
    let mut wrapped = case.wrap(script).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(|| case.path("began").exists());
    kill("TERM", first.id());
    first.wait().unwrap();
    let before = rows(&case);
    wait_until(|| rows(&case) > before + 3);
    case.write("stop", "");
    let status = wait_within(&mut wrapped, SOON).expect("it ends");
    assert_eq!(status.code(), Some(7));
    let said = said(&mut wrapped);
    assert_eq!(
        said.matches("another process is writing it").count(),
        1,
        "{said}"
    );
    // One header, and the second recording begins where the first has ended.
    let samples = case.samples("gpu.csv");
    assert_eq!(case.rows("gpu.csv").len(), samples.len());
    assert!(samples.is_sorted_by_key(|sample| sample.boot_s));
}

#[test]
fn a_command_that_ends_before_the_log_is_free_leaves_it_as_it_is() {
    let case = Case::new();
    let mut first = start(&case, "record --out gpu.parquet --interval 20ms");
    wait_until(|| case.path("gpu.parquet.csv").exists());
    let other = case.run("record --out gpu.parquet -- sh -c exit\t7");
    assert_eq!(other.status.code(), Some(7));
    assert!(
        case.run("record --out gpu.parquet -- no-such-command")
            .status
            .code()
            == Some(127)
    );
    assert!(case.path("gpu.parquet.csv").exists(), "it is another's");
    kill("TERM", first.id());
    first.wait().unwrap();
    assert!(!case.samples("gpu.parquet").is_empty());
}
