//! The view at several sizes, and the picture of it beside the program.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use plmkit_logs::event::{BatchDone, Event, Outcome, RunDone, RunStarted};
use plmkit_logs::{GpuProcess, GpuSample, Processes, Timestamp};
use plmkit_telemetry::live::LiveRuns;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use super::*;

fn at(second: u32) -> Timestamp {
    format!("2026-01-31T12:{:02}:{:02}Z", second / 60, second % 60)
        .parse()
        .unwrap()
}

/// A GPU in a second of the recording.
fn gpu_row(index: u32, second: u32) -> GpuSample {
    let mut row = GpuSample {
        index: Some(index),
        uuid: Some(format!("GPU-{index}")),
        name: Some("NVIDIA H100 80GB HBM3".to_owned()),
        ..GpuSample::at(at(second))
    };
    let reasons = if index == 1 {
        "sw_thermal_slowdown"
    } else {
        "none"
    };
    let (percent, gib, celsius, watts, pid) = match index {
        0 => (97, 60, 61, 612.4, 4711),
        1 => (60, 79, 83, 380.0, 4712),
        2 => (12, 20, 45, 120.0, 0),
        // It is lost.
        _ => return row,
    };
    row.gpu_util = Some(percent - (second * (index + 3)) % 11);
    row.mem_used_mib = Some(gib * 1024);
    row.mem_total_mib = Some(80 * 1024);
    row.temperature_c = Some(celsius);
    (row.power_w, row.power_limit_w) = (Some(watts), Some(700.0));
    row.sm_clock_mhz = Some(1980);
    row.throttle = reasons.parse().ok();
    let process = GpuProcess {
        pid,
        mem_used_mib: Some(5120),
        gpu_util: Some(88),
    };
    row.processes = Some(Processes(Vec::from_iter(Some(process).filter(|_| pid > 0))));
    row
}

/// A MIG instance of GPU 2.
fn instance(uuid: &str, second: u32) -> GpuSample {
    GpuSample {
        index: Some(2),
        uuid: Some(format!("MIG-{uuid}")),
        name: Some("NVIDIA H100 80GB HBM3 MIG 1g.10gb".to_owned()),
        mem_used_mib: Some(5 * 1024),
        mem_total_mib: Some(10 * 1024),
        ..GpuSample::at(at(second))
    }
}

/// A running and a failed run.
fn live_runs() -> LiveRuns {
    let name = |pid| format!("2026-01-31T11:58:00.000Z-{pid}");
    let mut runs = LiveRuns::default();
    for pid in [4711, 4100] {
        let started = RunStarted {
            run: name(pid),
            time: Some(at(0)),
            device: Some("cuda:0".to_owned()),
            gpu_uuids: Some(vec!["GPU-0".to_owned(), "GPU-2".to_owned()]),
            dtype: Some("f16".to_owned()),
            batches_total: Some(200),
            tokens_total: Some(200 * 16_000),
            ..RunStarted::default()
        };
        runs.add(&Event::Run(started), at(0));
        for batch in 0..120 {
            let done = BatchDone {
                run: name(pid),
                batch,
                time: Some(at(batch as u32)),
                elapsed_s: Some(batch as f64),
                wait_ms: Some(0.25),
                compute_ms: Some(999.75),
                queue_depth: Some(4),
                sequences: 60,
                tokens: 16_000,
                residues: 15_880,
                token_budget: Some(16_495),
                rejected: u64::from(batch == 7),
                ..BatchDone::default()
            };
            runs.add(&Event::Batch(done), at(0));
        }
    }
    let failed = RunDone {
        run: name(4100),
        time: Some(at(118)),
        elapsed_s: 118.0,
        outcome: Outcome::Failed,
        ..RunDone::default()
    };
    runs.add(&Event::Done(failed), at(0));
    runs
}

fn snapshot(gpus: u32) -> Snapshot {
    let runs = live_runs().status(at(120));
    let process = |pid, gpu, command: &str| ProcessStatus {
        pid,
        gpu,
        gpu_uuid: Some(format!("GPU-{gpu}")),
        mem_used_mib: Some(5120),
        gpu_util: Some(88),
        command: Some(command.to_owned()),
    };
    let hidden = ProcessStatus {
        pid: 4712,
        gpu: 1,
        ..ProcessStatus::default()
    };
    let processes = [
        process(4711, 0, "gpu-embed batches.arrow --out e.parquet"),
        hidden,
        process(5122, 1, "python train.py --epochs 3"),
    ];
    let second = 119;
    let mut rows: Vec<GpuSample> = (0..gpus).map(|index| gpu_row(index, second)).collect();
    if gpus == 8 {
        rows.splice(3..3, ["a", "b"].map(|uuid| instance(uuid, second)));
    }
    Snapshot {
        time: at(second),
        host: Some("node17".to_owned()),
        rows,
        processes: processes.to_vec(),
        runs,
        ..Snapshot::default()
    }
}

fn drawn(snapshot: &Snapshot, note: Option<&str>, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| draw(frame, Some(snapshot), note))
        .unwrap();
    terminal.backend().buffer().clone()
}

fn symbols(cells: &[Cell]) -> String {
    cells.iter().map(Cell::symbol).collect()
}

fn text_of(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width).max(1);
    let rows = buffer.content().chunks(width);
    rows.map(|row| symbols(row).trim_end().to_owned()).collect()
}

#[test]
fn every_size_is_drawn() {
    let snapshot = snapshot(4);
    for (width, height) in [(0, 0), (1, 1), (20, 5), (80, 2), (300, 10), (40, 60)] {
        let text = text_of(&drawn(&snapshot, None, width, height)).join("\n");
        assert_eq!(text.contains("node17"), width >= 20, "{width}x{height}");
    }
}

#[test]
fn the_last_line_has_the_last_message() {
    let note = Some("run.jsonl: not a run event");
    let text = text_of(&drawn(&snapshot(4), note, 40, 5));
    assert_eq!(text[4], "q quit  run.jsonl: not a run event");
}

/// `PLMKIT_BLESS=1 cargo test -p plmkit-programs` writes the screens.
#[test]
fn screens_are_as_they_were() {
    let snapshot = snapshot(8);
    for (width, height) in [(80, 24), (200, 50), (40, 12)] {
        let screen = text_of(&drawn(&snapshot, None, width, height)).join("\n") + "\n";
        let name = format!("tests/fixtures/monitor_log/top-{width}x{height}.txt");
        assert_golden(&name, &screen);
    }
}

fn assert_golden(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name);
    if env::var_os("PLMKIT_BLESS").is_some() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == found, "{name} is old; found\n{found}");
}

#[test]
fn durations_grow_from_seconds_to_hours() {
    let found = [41.6, 59.6, 187.0, 8100.0].map(duration);
    assert_eq!(found, ["42 s", "1:00", "3:07", "2:15:00"]);
}

#[test]
fn the_worst_of_a_gpu_is_a_word() {
    let word = |change: fn(&mut GpuSample)| {
        let mut row = gpu_row(0, 0);
        change(&mut row);
        trouble(&row).content.into_owned()
    };
    assert_eq!(word(|_| {}), "");
    assert_eq!(word(|row| row.xid_errors = Some(1)), "xid");
    assert_eq!(word(|row| row.ecc_uncorrected = Some(1)), "ecc");
    assert_eq!(word(|row| row.mem_used_mib = Some(79 << 10)), "full");
    assert_eq!(word(|row| row.temperature_c = Some(81)), "hot");
    for (reasons, expected) in [
        ("sw_power_cap", "power"),
        ("sync_boost", "held"),
        ("sw_power_cap+hw_slowdown", "slow"),
        ("hw_power_brake_slowdown+hw_slowdown", "brake"),
        ("hw_slowdown+hw_thermal_slowdown", "heat"),
    ] {
        let mut row = gpu_row(0, 0);
        row.throttle = reasons.parse().ok();
        assert_eq!(trouble(&row).content, expected, "{reasons}");
    }
}

/// The picture shows all text and colours of a large terminal. `PLMKIT_BLESS=1 cargo test -p plmkit-programs` writes it.
#[test]
fn the_picture_is_that_of_the_view() {
    let picture = svg(&drawn(&snapshot(4), None, 100, 30));
    assert_golden("lib/programs/src/monitor_log/top.svg", &picture);
}

fn svg(buffer: &Buffer) -> String {
    const CELL: (f64, f64) = (8.4, 17.0);
    let place = |x: usize, y: usize| (10.0 + x as f64 * CELL.0, 22.0 + y as f64 * CELL.1);
    let (width, height) = place(buffer.area.width.into(), buffer.area.height.into());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"monospace\" \
         font-size=\"14\">\n<title>monitor-log top</title>\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#16181d\"/>\n"
    );
    let rows = buffer.content().chunks(buffer.area.width.into());
    for (y, row) in rows.enumerate() {
        let mut x = 0;
        while x < row.len() {
            let style = (row[x].fg, row[x].modifier);
            let cells = row[x..].iter();
            let same = cells.take_while(|cell| (cell.fg, cell.modifier) == style);
            let same = same.count();
            let text = symbols(&row[x..x + same]);
            if !text.trim().is_empty() {
                let (left, base) = place(x, y);
                let text = text.trim_end().replace('&', "&amp;").replace('<', "&lt;");
                let long = text.chars().count() as f64 * CELL.0;
                writeln!(
                    svg,
                    "<text x=\"{left:.1}\" y=\"{base:.0}\" textLength=\"{long:.1}\" xml:space=\"preserve\" {}>{text}</text>",
                    look(style)
                )
                .unwrap();
            }
            x += same;
        }
    }
    svg + "</svg>\n"
}

fn look((color, modifier): (Color, Modifier)) -> String {
    let fill = match color {
        Color::Red => "#f0716b",
        Color::Yellow => "#e5c265",
        Color::Green => "#7cc86f",
        Color::Cyan => "#5fb8c9",
        _ => "#d7dae0",
    };
    let mut look = format!("fill=\"{fill}\"");
    for (part, attribute) in [
        (Modifier::BOLD, " font-weight=\"bold\""),
        (Modifier::DIM, " fill-opacity=\"0.45\""),
        (Modifier::UNDERLINED, " text-decoration=\"underline\""),
    ] {
        if modifier.contains(part) {
            look += attribute;
        }
    }
    look
}
