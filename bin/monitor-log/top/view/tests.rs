//! The view at several sizes, and the picture of it beside the program.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use std::{env, fs};

use plmkit_logs::event::{BatchDone, Event, Outcome, RunDone, RunStarted};
use plmkit_logs::{GpuSample, Timestamp};
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
fn gpu(index: u32, second: u32) -> GpuSample {
    let mut row = GpuSample {
        host_cpu_util: Some(34.5),
        host_mem_used_mib: Some(96 * 1024),
        host_mem_total_mib: Some(512 * 1024),
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
    let (percent, gib, celsius, watts, processes) = match index {
        0 => (97, 60, 61, 612.4, "4711:5120:88"),
        1 => (60, 79, 83, 380.0, "4712:5120:88"),
        2 => (12, 20, 45, 120.0, "none"),
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
    row.processes = processes.parse().ok();
    row
}

/// A running and a failed run.
fn runs() -> LiveRuns {
    let name = |pid| format!("2026-01-31T11:58:00.000Z-{pid}");
    let mut runs = LiveRuns::default();
    for pid in [4711, 4100] {
        let started = RunStarted {
            run: name(pid),
            time: Some(at(0)),
            device: Some("cuda:0".to_owned()),
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
                queue_depth: Some(4),
                sequences: 60,
                tokens: 16_000,
                residues: 15_880,
                utilization: Some(0.97),
                rejected: u64::from(batch == 7),
                ..BatchDone::default()
            };
            runs.add(&Event::Batch(done), at(0));
        }
    }
    let failed = RunDone {
        run: name(4100),
        time: Some(at(118)),
        tokens: 120 * 16_000,
        elapsed_s: 118.0,
        outcome: Outcome::Failed,
        ..RunDone::default()
    };
    runs.add(&Event::Done(failed), at(0));
    runs
}

fn history(gpus: u32) -> History {
    let runs = runs().status(at(120));
    let mut history = History::default();
    for second in 0..120 {
        let mut rows: Vec<GpuSample> = (0..gpus).map(|index| gpu(index, second)).collect();
        if rows.is_empty() {
            rows.push(GpuSample {
                index: None,
                ..gpu(3, second)
            });
        }
        let snapshot = Snapshot {
            rows,
            runs: runs.clone(),
            ..Snapshot::default()
        };
        let command = |pid| (pid == 4711).then(|| "gpu-embed".to_owned());
        history.add(snapshot, command);
    }
    history
}

fn drawn(history: &History, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, history)).unwrap();
    terminal.backend().buffer().clone()
}

fn symbols(cells: &[Cell]) -> String {
    cells.iter().map(Cell::symbol).collect()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width).max(1);
    let rows = buffer.content().chunks(width);
    rows.map(|row| symbols(row).trim_end().to_owned()).collect()
}

#[test]
fn every_size_is_drawn_and_the_most_important_items_come_first() {
    let history = history(4);
    let text = |width, height| lines(&drawn(&history, width, height)).join("\n");
    for (width, height) in [(0, 0), (1, 1), (20, 5), (80, 2), (300, 10)] {
        let has_title = text(width, height).contains("top  ");
        assert_eq!(has_title, width >= 20, "{width}x{height}");
    }
    let small = text(80, 8);
    for part in ["gpu 3 ", "running", "runs, 1 more"] {
        assert!(small.contains(part), "expected {part} in\n{small}");
    }
    let tall = text(120, 50);
    let bars = tall.lines().filter(|line| line.contains(['▇', '█']));
    assert!(bars.count() > 12, "{tall}");
}

#[test]
fn forty_columns_have_all_states_and_count_what_is_hidden() {
    let mut history = history(8);
    history.stale = Some(Duration::from_secs(12));
    let expected = [
        "top  12:01:59  8 GPUs, 2 more  12 s old",
        "host   cpu    34 %  mem  96.0/512.0 GiB",
        "gpu 0  92 %  60/80 GiB  61 C",
        "gpu 1  57 %  79/80 GiB  83 C  throttled",
        "gpu 2  11 %  20/80 GiB  45 C",
        "gpu 3  lost",
        "gpu 4  lost",
        "gpu 5  lost",
        "runs, 1 more",
        "….000Z-4711 running   60 %  1:19 left",
    ];
    assert_eq!(lines(&drawn(&history, 40, 10)), expected);
}

#[test]
fn instances_are_under_their_gpu_and_have_no_utilization_of_its() {
    let instance = |uuid: &str, second| GpuSample {
        index: Some(0),
        uuid: Some(format!("MIG-{uuid}")),
        name: Some("NVIDIA H100 80GB HBM3 MIG 1g.10gb".to_owned()),
        mem_used_mib: Some(5 * 1024),
        mem_total_mib: Some(10 * 1024),
        ..GpuSample::at(at(second))
    };
    let mut history = History::default();
    for second in 0..40 {
        let snapshot = Snapshot {
            rows: vec![gpu(0, second), instance("a", second), instance("b", second)],
            runs: Vec::new(),
            ..Snapshot::default()
        };
        history.add(snapshot, |_| None);
    }
    let text = lines(&drawn(&history, 120, 40));
    assert!(text[0].contains("  1 GPU, 2 instances"), "{}", text[0]);
    let named = text.iter().filter(|line| line.contains("NVIDIA"));
    let starts: Vec<&str> = named.map(|line| &line[..7]).collect();
    assert_eq!(starts, ["gpu 0  ", "   mig ", "   mig "]);
    let graphs = text
        .iter()
        .filter(|line| line.contains('▅') || line.contains('▇'));
    let first = text
        .iter()
        .position(|line| line.starts_with("   mig"))
        .unwrap();
    let below = text[first..].iter().filter(|line| line.contains('▇'));
    assert!(
        graphs.count() > 0 && below.count() == 0,
        "{}",
        text.join("\n")
    );
}

#[test]
fn a_figure_of_a_run_is_shown_whole_or_not_at_all() {
    let history = history(1);
    let figures = |width| {
        let mut all = lines(&drawn(&history, width, 50)).into_iter();
        all.find(|line| line.starts_with("  tokens")).unwrap()
    };
    let all = figures(200);
    for width in 40..200 {
        let shown = figures(width);
        let hidden = all.strip_prefix(&shown).unwrap();
        assert!(hidden.is_empty() || hidden.starts_with("  "), "{shown}|");
    }
}

#[test]
fn names_are_whole_on_a_wide_screen_and_red_is_for_trouble() {
    let history = history(4);
    let wide = drawn(&history, 200, 50);
    let text = lines(&wide).join("\n");
    for part in [
        "gpu 3  NVIDIA H100 80GB HBM3  lost: the driver gives no values",
        "2026-01-31T11:58:00.000Z-4711 cuda:0 f16 running ",
        "tokens 16.0 k/s  sequences 60/s  idle 0 %  packing 97 %  batch 120/200",
    ] {
        assert!(text.contains(part), "expected {part} in\n{text}");
    }
    let mut red: Vec<String> = Vec::new();
    for row in wide.content().chunks(200) {
        let cells: Vec<Cell> = row
            .iter()
            .filter(|cell| cell.fg == Color::Red)
            .cloned()
            .collect();
        red.extend(
            Some(symbols(&cells).replace(|symbol| ('▁'..='▏').contains(&symbol), ""))
                .filter(|text| !text.is_empty()),
        );
    }
    assert_eq!(
        red,
        [
            " 83 C  sw_thermal_slowdown",
            " lost: the driver gives no values",
            "failed  "
        ]
    );
}

#[test]
fn without_a_gpu_there_are_the_host_and_the_runs_and_before_the_first_snapshot_a_message() {
    let text = lines(&drawn(&history(0), 80, 24)).join("\n");
    for part in ["no GPU", "host   cpu", "running"] {
        assert!(text.contains(part), "expected {part} in\n{text}");
    }
    assert!(!text.contains("gpu 0"), "{text}");
    let first = &lines(&drawn(&History::default(), 80, 24))[0];
    assert_eq!(first, "monitor-log top: looking for GPUs");
}

/// The picture shows all text and colours of a large terminal. `PLMKIT_BLESS=1 cargo test --bin monitor-log` writes it.
#[test]
fn the_picture_is_that_of_the_view() {
    let picture = svg(&drawn(&history(4), 100, 30));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("bin/monitor-log/top.svg");
    if env::var_os("PLMKIT_BLESS").is_some() {
        fs::write(&path, &picture).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == picture,
        "{} is old",
        path.display()
    );
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
