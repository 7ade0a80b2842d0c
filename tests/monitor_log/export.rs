//! `export`: over HTTP and as a file.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::case::{Case, assert_contains, fixture, kill, text};
use crate::common::assert_failed;

/// An exporter on a free port.
struct Exporter {
    child: Child,
    address: String,
}

impl Exporter {
    fn start(case: &Case, args: &str) -> Self {
        let mut child = case
            .command(&format!(
                "export --listen 127.0.0.1:0 --interval 50ms{args}"
            ))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines
            .map_while(Result::ok)
            .find_map(|line| {
                let (_, address) = line.split_once("serving http://")?;
                Some(address.strip_suffix("/metrics")?.to_owned())
            })
            .expect("an address");
        Self { child, address }
    }

    /// The head and the body of an answer.
    fn ask(&self, method: &str, path: &str, headers: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    fn metrics(&self) -> String {
        self.ask("GET", "/metrics", "").1
    }

    /// Waits until the metrics have `line`.
    fn wait_for(&self, line: &str) {
        let start = Instant::now();
        loop {
            let metrics = self.metrics();
            if metrics.lines().any(|found| found == line) {
                return;
            }
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "expected {line} in\n{metrics}"
            );
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn gpus_are_told_by_uuid_and_index_and_what_is_not_known_is_left_out() {
    let case = Case::with_gpus();
    let metrics = Exporter::start(&case, "").metrics();
    for line in [
        "plmkit_gpu_info{uuid=\"GPU-0\",index=\"0\",name=\"Fake, 0\"} 1",
        "plmkit_gpu_utilization_ratio{uuid=\"GPU-0\",index=\"0\"} 0.97",
        "plmkit_gpu_memory_size_bytes{uuid=\"GPU-0\",index=\"0\"} 85899345920",
        "plmkit_gpu_power_watts{uuid=\"GPU-0\",index=\"0\"} 250.5",
        "plmkit_gpu_sm_clock_hertz{uuid=\"GPU-0\",index=\"0\"} 1980000000",
        "plmkit_gpu_throttled{uuid=\"GPU-0\",index=\"0\"} 1",
        "plmkit_gpu_throttle_reason{uuid=\"GPU-0\",index=\"0\",reason=\"hw_slowdown\"} 1",
        "plmkit_gpu_throttled{uuid=\"GPU-1\",index=\"1\"} 0",
        "# TYPE plmkit_gpu_info gauge",
        "plmkit_exporter_driver_up 1",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "expected {line} in\n{metrics}"
        );
    }
    let unknown = "plmkit_gpu_utilization_ratio{uuid=\"GPU-1\"";
    assert!(!metrics.contains(unknown), "{metrics}");
    assert!(!metrics.contains("NaN"), "{metrics}");
}

#[test]
fn a_run_is_followed_while_it_works() {
    let case = Case::new();
    let log = std::fs::read_to_string(fixture("events.jsonl")).unwrap();
    let lines: Vec<&str> = log.split_inclusive('\n').collect();
    let exporter = Exporter::start(&case, " --keep 24h --events .");
    let now = |line: &str| {
        let now = plmkit_logs::Timestamp::now().to_string();
        // The type comes first, as the writer writes it: that is how a log is known.
        line.replace("2026-01-31T12:00:00.000Z", &now)
            .replace("2026-01-31T12:00:03.000Z", &now)
    };
    case.write("events.jsonl", &(now(lines[0]) + &now(lines[1])));
    exporter.wait_for("plmkit_run_tokens_total{run=\"a\"} 1000");
    exporter.wait_for("plmkit_run_tokens_expected{run=\"a\"} 2890");
    exporter.wait_for("plmkit_run_state{run=\"a\",state=\"running\"} 1");
    let all: String = lines[..7].iter().map(|line| now(line)).collect();
    case.write("events.jsonl", &all);
    exporter.wait_for("plmkit_run_tokens_total{run=\"a\"} 2890");
    exporter.wait_for("plmkit_run_state{run=\"a\",state=\"done\"} 1");
    exporter.wait_for("plmkit_run_oom_splits_total{run=\"a\"} 1");
    exporter.wait_for(
        "plmkit_run_info{run=\"a\",tool=\"gpu-embed\",version=\"0.1.0\",device=\"cuda:0\",dtype=\"f16\",model_digest=\"00ff\"} 1",
    );
    case.write("late.jsonl", "{\"type\":\"run\",\"run\":\"late\"}\n");
    exporter.wait_for("plmkit_run_state{run=\"late\",state=\"running\"} 1");
}

#[test]
fn a_run_that_is_long_over_is_left_out() {
    let case = Case::new();
    let log = std::fs::read_to_string(fixture("events.jsonl")).unwrap();
    // The second run does not say when it was: for it the time of the file stands.
    let first_run = log.split_inclusive('\n').take(7).collect::<String>();
    case.write("old.jsonl", &first_run);
    let exporter = Exporter::start(&case, " --keep 1h --events old.jsonl");
    let metrics = exporter.metrics();
    assert!(!metrics.contains("plmkit_run"), "{metrics}");
    assert_contains(&metrics, "plmkit_host_memory_size_bytes ");
}

#[test]
fn metrics_have_the_media_type_of_their_form() {
    let case = Case::new();
    let exporter = Exporter::start(&case, "");
    for accept in ["", "Accept: application/openmetrics-text;version=1.0.0\r\n"] {
        let (head, body) = exporter.ask("GET", "/metrics?x=y", accept);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let kind = "Content-Type: text/plain; version=0.0.4; charset=utf-8";
        assert_contains(&head, kind);
        assert!(body.starts_with("# HELP plmkit_exporter_info "), "{body}");
    }
}

#[test]
fn other_paths_and_methods_are_refused() {
    let case = Case::new();
    let exporter = Exporter::start(&case, "");
    let head = |method, path| exporter.ask(method, path, "").0;
    assert!(
        exporter
            .ask("GET", "/", "")
            .1
            .contains("<a href=\"/metrics\">")
    );
    assert!(head("GET", "/other").starts_with("HTTP/1.1 404 "));
    // As a proxy is asked.
    for target in ["http://x:1/metrics", "http://x/metrics?a=b", "http://x"] {
        assert!(head("GET", target).starts_with("HTTP/1.1 200 "), "{target}");
    }
    assert!(head("GET", "http://metrics").starts_with("HTTP/1.1 200 "));
    assert!(head("GET", "http://x/other").starts_with("HTTP/1.1 404 "));
    assert!(head("GET", "/metrics/").starts_with("HTTP/1.1 404 "));
    for method in ["POST", "DELETE"] {
        let head = head(method, "/metrics");
        assert!(
            head.starts_with("HTTP/1.1 405 ") && head.contains("Allow: GET, HEAD"),
            "{head}"
        );
    }
    let (head, body) = exporter.ask("HEAD", "/metrics", "");
    assert!(
        head.starts_with("HTTP/1.1 200 ") && body.is_empty(),
        "{head}"
    );
}

#[test]
fn a_client_that_says_nothing_does_not_keep_others_waiting() {
    let case = Case::new();
    let exporter = Exporter::start(&case, "");
    let _silent: Vec<TcpStream> = (0..20)
        .map(|_| TcpStream::connect(&exporter.address).unwrap())
        .collect();
    let metrics = exporter.metrics();
    assert!(metrics.contains("plmkit_exporter_info"));
    assert_contains(&metrics, "\nplmkit_exporter_driver_up 0\n");
    let mut nonsense = TcpStream::connect(&exporter.address).unwrap();
    nonsense
        .write_all(b"\x16\x03\x01 not HTTP\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    nonsense.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[test]
fn a_port_in_use_is_one_line() {
    let case = Case::new();
    let exporter = Exporter::start(&case, "");
    let output = case.run(&format!("--quiet export --listen {}", exporter.address));
    assert_failed(&output, 73, "cannot listen: ");
    let named = case.run("export --listen localhost:9401");
    let said = text(&named.stderr);
    assert_eq!(named.status.code(), Some(2));
    assert_contains(
        &said,
        "expected an address in numbers and a port: 127.0.0.1:9401",
    );
}

#[test]
fn it_serves_until_a_signal_and_dies_of_it() {
    for (name, number) in [("TERM", 15), ("INT", 2)] {
        let case = Case::new();
        let mut exporter = Exporter::start(&case, "");
        kill(name, exporter.child.id());
        assert_eq!(exporter.child.wait().unwrap().signal(), Some(number));
    }
}

#[test]
fn a_file_is_written_once_and_stays() {
    let case = Case::with_gpus();
    let output = case.run("--quiet export --textfile gpu.prom --once");
    assert!(output.status.success() && output.stdout.is_empty());
    let file = case.read("gpu.prom");
    assert_contains(
        &file,
        "plmkit_gpu_temperature_celsius{uuid=\"GPU-0\",index=\"0\"} 61\n",
    );
    assert!(file.ends_with('\n'));
}

#[test]
fn a_file_is_replaced_again_and_again_and_goes_with_the_exporter() {
    let case = Case::new();
    let mut child = case
        .command("--quiet export --textfile node.prom --interval 20ms")
        .spawn()
        .unwrap();
    let sampled = || {
        let file = std::fs::read_to_string(case.path("node.prom")).ok()?;
        let line = file
            .lines()
            .find(|line| line.starts_with("plmkit_exporter_last_sample"))?;
        Some(line.to_owned())
    };
    let start = Instant::now();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.extend(sampled().filter(|line| !seen.contains(line)));
        assert!(start.elapsed() < Duration::from_secs(20), "{seen:?}");
        sleep(Duration::from_millis(5));
    }
    kill("TERM", child.id());
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    assert_eq!(crate::common::all(&case.path("")), ["driver"]);
}

#[test]
fn a_file_that_the_collector_would_not_take_or_that_cannot_be_is_refused() {
    let case = Case::new();
    let refused = |args: &str, code, what| {
        assert_failed(
            &case.run(&format!("--quiet export --once {args}")),
            code,
            what,
        );
    };
    refused(
        "--textfile gpu.txt",
        2,
        "expected a name that ends in .prom",
    );
    refused("--textfile nowhere/gpu.prom", 73, "nowhere/gpu.prom");
    refused(
        "--textfile a.prom --events a.prom",
        2,
        "--textfile and --events are the same file",
    );
    let both = case.run("export --textfile a.prom --listen 127.0.0.1:0");
    assert_eq!(both.status.code(), Some(2), "{}", text(&both.stderr));
}
