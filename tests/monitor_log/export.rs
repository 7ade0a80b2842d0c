//! `export` over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::case::{Case, assert_contains, events_of_now, kill, wait_for};
use crate::common::assert_failed;

/// An exporter on a free port.
pub(crate) struct Exporter {
    child: Child,
    address: String,
}

impl Exporter {
    fn start(case: &Case, args: &str) -> Self {
        Self::with(case, args, &[])
    }

    /// Starts it with environment variables.
    pub(crate) fn with(case: &Case, args: &str, variables: &[(&str, &str)]) -> Self {
        let args = format!("export --listen 127.0.0.1:0 --interval 50ms{args}");
        let mut command = case.command(&args);
        command.envs(variables.iter().copied());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.map_while(Result::ok).find_map(|line| {
            let (_, address) = line.split_once("serving http://")?;
            Some(address.strip_suffix("/metrics")?.to_owned())
        });
        let address = address.expect("an address");
        Self { child, address }
    }

    /// Sends bytes and returns the head and the body of the answer.
    fn send(&self, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    fn ask(&self, method: &str, path: &str, headers: &str) -> (String, String) {
        self.send(&format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n"
        ))
    }

    pub(crate) fn metrics(&self) -> String {
        self.ask("GET", "/metrics", "").1
    }

    /// Waits until the metrics have `line`.
    fn wait_for(&self, line: &str) {
        wait_for(|| {
            let metrics = self.metrics();
            let found = metrics.lines().any(|found| found == line);
            found
                .then_some(())
                .ok_or(format!("no {line} in\n{metrics}"))
        });
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn gpus_have_their_uuid_and_index_and_unknown_values_are_left_out() {
    let case = Case::with_gpus();
    let metrics = Exporter::start(&case, "").metrics();
    let gpu = "{uuid=\"GPU-0\",index=\"0\"";
    for line in [
        format!("plmkit_gpu_info{gpu},name=\"Fake, 0\"}} 1"),
        format!("plmkit_gpu_utilization_ratio{gpu}}} 0.97"),
        format!("plmkit_gpu_memory_size_bytes{gpu}}} 85899345920"),
        format!("plmkit_gpu_power_watts{gpu}}} 250.5"),
        format!("plmkit_gpu_sm_clock_hertz{gpu}}} 1980000000"),
        format!("plmkit_gpu_throttled{gpu}}} 1"),
        format!("plmkit_gpu_throttle_reason{gpu},reason=\"hw_slowdown\"}} 1"),
        "plmkit_gpu_throttled{uuid=\"GPU-1\",index=\"1\"} 0".to_owned(),
        "# TYPE plmkit_gpu_info gauge".to_owned(),
        "plmkit_exporter_driver_up 1".to_owned(),
    ] {
        assert_contains(&metrics, &format!("\n{line}\n"));
    }
    for unknown in ["plmkit_gpu_utilization_ratio{uuid=\"GPU-1\"", "NaN"] {
        assert!(!metrics.contains(unknown), "{metrics}");
    }
}

#[test]
fn a_run_is_followed_while_it_works() {
    let case = Case::new();
    let write = |lines: usize| {
        case.write("events.jsonl", &events_of_now(lines, &["00.000", "03.000"]));
    };
    let exporter = Exporter::start(&case, " --drop-after 24h --events .");
    write(2);
    exporter.wait_for("plmkit_run_tokens_total{run=\"a\"} 1000");
    exporter.wait_for("plmkit_run_tokens_expected{run=\"a\"} 2890");
    exporter.wait_for("plmkit_run_state{run=\"a\",state=\"running\"} 1");
    write(7);
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
fn a_run_that_ended_long_ago_is_left_out() {
    let case = Case::new();
    // The second run has no times, so the time of the file counts for it.
    case.write("old.jsonl", &events_of_now(7, &[]));
    let metrics = Exporter::start(&case, " --drop-after 1h --events old.jsonl").metrics();
    assert!(!metrics.contains("plmkit_run"), "{metrics}");
    assert_contains(&metrics, "plmkit_exporter_driver_up 0");
}

#[test]
fn paths_and_methods_have_their_status_and_metrics_their_media_type() {
    let case = Case::new();
    let exporter = Exporter::start(&case, "");
    for accept in ["", "Accept: application/openmetrics-text;version=1.0.0\r\n"] {
        let (head, body) = exporter.ask("GET", "/metrics?x=y", accept);
        let kind = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8";
        assert_contains(&head, kind);
        assert!(body.starts_with("# HELP plmkit_exporter_info "), "{body}");
    }
    for (method, target, status, part) in [
        ("GET", "/", "404", "not found: see /metrics\n"),
        ("HEAD", "/metrics", "200", ""),
        ("GET", "/other", "404", "not found: see /metrics\n"),
        ("GET", "/metrics/", "404", "not found: see /metrics\n"),
        ("POST", "/metrics", "405", "only GET and HEAD\n"),
        ("DELETE", "/metrics", "405", "only GET and HEAD\n"),
        ("POST", "/other", "405", "only GET and HEAD\n"),
    ] {
        let (head, body) = exporter.ask(method, target, "");
        assert_contains(&head, &format!("HTTP/1.1 {status} "));
        assert_contains(&body, part);
        assert_eq!(head.contains("Allow: GET, HEAD"), status == "405", "{head}");
        assert_eq!(body.is_empty(), method == "HEAD", "{body}");
    }
    for malformed in ["\x16\x03\x01 not HTTP\r\n\r\n", "GET /metrics\r\n\r\n"] {
        let (head, _) = exporter.send(malformed);
        assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    }
}

#[test]
fn finished_runs_leave_after_their_time() {
    let case = Case::new();
    case.write("events.jsonl", &events_of_now(7, &["00.000", "12.500"]));
    let exporter = Exporter::start(&case, " --drop-after 3s --events .");
    let series = || {
        let metrics = exporter.metrics();
        metrics
            .lines()
            .filter(|line| line.contains("{run=\"a\""))
            .count()
    };
    let count = series();
    assert!(
        (30..=40).contains(&count),
        "docs/monitor-log.md says how many: {count}"
    );
    wait_for(|| (series() == 0).then_some(()).ok_or(String::new()));
}

#[test]
fn stalled_readers_starve_nobody() {
    let case = Case::with_gpus();
    let exporter = Exporter::start(&case, "");
    let stalled = (0..200).map(|_| {
        let mut stream = TcpStream::connect(&exporter.address).unwrap();
        // Sends its request, or a part of it, and reads nothing. The oldest may have been closed.
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n");
        stream
    });
    let stalled: Vec<TcpStream> = stalled.collect();
    let start = Instant::now();
    for _ in 0..20 {
        assert_contains(&exporter.metrics(), "\nplmkit_exporter_driver_up 1\n");
    }
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    drop(stalled);
}

#[test]
fn an_instance_has_metrics_of_its_own() {
    let case = Case::with_gpus();
    let exporter = Exporter::with(&case, "", &[("FAKE_NVML_MIG", "1")]);
    let instance = "plmkit_gpu_memory_used_bytes{uuid=\"MIG-2\",index=\"0\"} 3221225472";
    assert_contains(&exporter.metrics(), instance);
}

#[test]
fn a_port_in_use_is_one_line() {
    let case = Case::new();
    let exporter = Exporter::start(&case, "");
    let output = case.run(&format!("--quiet export --listen {}", exporter.address));
    assert_failed(&output, 73, "cannot listen: ");
    let (code, stderr) = case.code_and_stderr("export --listen localhost:9401");
    assert_eq!(code, 2);
    assert_contains(
        &stderr,
        "expected an address in numbers and a port: 127.0.0.1:9401",
    );
}

#[test]
fn it_serves_until_a_signal_and_dies_of_it() {
    for (name, number) in [("TERM", 15), ("INT", 2)] {
        let mut exporter = Exporter::start(&Case::new(), "");
        kill(name, exporter.child.id());
        assert_eq!(exporter.child.wait().unwrap().signal(), Some(number));
    }
}
