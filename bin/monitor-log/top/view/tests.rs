//! What is drawn, at several sizes, and the picture of it beside the program.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use plmkit_logs::event::{BatchDone, Event, Outcome, RunDone, RunStarted};
use plmkit_logs::{GpuProcess, GpuSample, Processes, Throttle, Timestamp};
use plmkit_telemetry::live::LiveRuns;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};

use super::*;

fn at(second: u32) -> Timestamp {
    format!("2026-01-31T12:{:02}:{:02}Z", second / 60, second % 60)
        .parse()
        .unwrap()
}

/// A GPU in the second that is seen.
fn gpu(index: u32, second: u32) -> GpuSample {
    let mut row = GpuSample::at(at(second));
    row.host_cpu_util = Some(34.5);
    row.host_mem_used_mib = Some(96 * 1024);
    row.host_mem_total_mib = Some(512 * 1024);
    row.index = Some(index);
    row.uuid = Some(format!("GPU-{index}"));
    row.name = Some("NVIDIA H100 80GB HBM3".to_owned());
    if index == 3 {
        // It is lost.
        return row;
    }
    row.gpu_util = Some([97, 60, 12][index as usize] - (second * (index + 3)) % 11);
    row.mem_used_mib = Some([60, 79, 20][index as usize] * 1024);
    row.mem_total_mib = Some(80 * 1024);
    row.temperature_c = Some([61, 83, 45][index as usize]);
    row.power_w = Some([612.4, 380.0, 120.0][index as usize]);
    row.power_limit_w = Some(700.0);
    row.sm_clock_mhz = Some(1980);
    let reasons: &[&str] = if index == 1 {
        &["sw_thermal_slowdown"]
    } else {
        &[]
    };
    row.throttle = Some(Throttle(
        reasons.iter().map(|&reason| reason.to_owned()).collect(),
    ));
    row.processes = Some(Processes(
        (index < 2)
            .then_some(GpuProcess {
                pid: 4711 + index,
                mem_used_mib: Some(5120),
                gpu_util: Some(88),
            })
            .into_iter()
            .collect(),
    ));
    row
}

fn runs() -> LiveRuns {
    let name = |pid| format!("2026-01-31T11:58:00.000Z-{pid}");
    let mut runs = LiveRuns::default();
    for pid in [4711, 4100] {
        runs.add(
            &Event::Run(RunStarted {
                run: name(pid),
                time: Some(at(0)),
                device: Some("cuda:0".to_owned()),
                dtype: Some("f16".to_owned()),
                batches_total: Some(200),
                tokens_total: Some(200 * 16_000),
                ..RunStarted::default()
            }),
            at(0),
        );
        for batch in 0..120 {
            runs.add(
                &Event::Batch(BatchDone {
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
                }),
                at(0),
            );
        }
    }
    runs.add(
        &Event::Done(RunDone {
            run: name(4100),
            time: Some(at(118)),
            tokens: 120 * 16_000,
            elapsed_s: 118.0,
            outcome: Outcome::Failed,
            ..RunDone::default()
        }),
        at(0),
    );
    runs
}

fn history(gpus: u32) -> History {
    let runs = runs().status(at(120));
    let mut history = History::default();
    for second in 0..120 {
        let mut rows: Vec<GpuSample> = (0..gpus).map(|index| gpu(index, second)).collect();
        if rows.is_empty() {
            let mut host = gpu(3, second);
            (host.index, host.uuid, host.name) = (None, None, None);
            rows.push(host);
        }
        let snapshot = Snapshot {
            rows,
            runs: runs.clone(),
            notes: Vec::new(),
        };
        history.add(snapshot, |pid| {
            (pid == 4711).then(|| "gpu-embed".to_owned())
        });
    }
    history
}

fn drawn(history: &History, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, history)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let cells = buffer
        .content()
        .chunks(usize::from(buffer.area.width).max(1));
    cells
        .map(|row| {
            let text: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
            text.trim_end().to_owned()
        })
        .collect()
}

#[test]
fn an_ordinary_terminal_shows_everything() {
    let screen = lines(&drawn(&history(4), 80, 24));
    let text = screen.join("\n");
    assert_eq!(
        screen[0],
        "monitor-log top  2026-01-31 12:01:59 UTC  4 GPUs  q: quit"
    );
    assert!(
        screen[1].starts_with("host   cpu  ████") && screen[1].ends_with(" 96.0/512.0 GiB"),
        "{text}"
    );
    for part in [
        "gpu 0  NVIDIA H100 80GB HBM  61 C  612/700 W  1980 MHz",
        "gpu 1  NVIDIA H100 80GB HBM  83 C  380/700 W  1980 MHz  sw_thermal_slowdown",
        " 60.0/80.0 GiB",
        "gpu 3  NVIDIA H100 80GB HBM   - C    -/- W     - MHz",
        "util ··············   -    mem ··············",
        "     4711    0       5.0      88  gpu-embed",
        "     4712    1       5.0      88  -",
        "2026-01-31T11:58:00.000Z-4711  cuda:0 f16 running  ████▊░░░  60 %  1:20 left",
        "  16.0 k tokens/s  queue full 4, wait 0.2 ms  packing 97 %  batch 120/200",
        "2026-01-31T11:58:00.000Z-4100  cuda:0 f16 failed   ████▊░░░  60 %",
    ] {
        assert!(text.contains(part), "expected {part} in\n{text}");
    }
}

#[test]
fn any_size_is_drawn_and_the_most_important_comes_first() {
    let history = history(4);
    for (width, height) in [
        (0, 0),
        (1, 1),
        (20, 5),
        (80, 2),
        (80, 8),
        (200, 60),
        (300, 10),
    ] {
        let shown = lines(&drawn(&history, width, height)).join(
            "
",
        );
        assert_eq!(
            shown.contains("monitor-log top"),
            width >= 20,
            "{width}x{height}"
        );
    }
    let small = lines(&drawn(&history, 80, 8)).join("\n");
    assert!(
        small.contains("gpu 3 ") && small.contains("running") && small.contains("runs, 1 more"),
        "{small}"
    );
    let tall = drawn(&history, 120, 50);
    let sparkline = lines(&tall)
        .iter()
        .filter(|line| line.contains('▇') || line.contains('█'))
        .count();
    assert!(sparkline > 12, "{}", lines(&tall).join("\n"));
}

#[test]
fn without_a_gpu_there_are_the_host_and_the_runs_and_before_the_first_look_a_word() {
    let text = lines(&drawn(&history(0), 80, 24)).join("\n");
    assert!(
        text.contains("no GPU") && text.contains("host   cpu") && text.contains("running"),
        "{text}"
    );
    assert!(!text.contains("gpu 0"), "{text}");
    let text = lines(&drawn(&History::default(), 80, 24)).join("\n");
    assert!(
        text.starts_with("monitor-log top: looking for GPUs"),
        "{text}"
    );
}

#[test]
fn what_is_too_much_or_too_little_is_red() {
    let buffer = drawn(&history(4), 80, 24);
    let red = |row: u16| (0..80).any(|x| buffer[(x, row)].fg == Color::Red);
    let found: Vec<bool> = (2..14).map(red).collect();
    // GPU 1 is hot and full, GPU 2 idles.
    assert_eq!(
        found,
        [
            false, false, false, true, true, false, false, true, false, false, false, false
        ]
    );
}

/// The picture is made again by `PLMKIT_BLESS=1 cargo test --bin monitor-log`.
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
    for (y, row) in buffer
        .content()
        .chunks(usize::from(buffer.area.width))
        .enumerate()
    {
        let mut x = 0;
        while x < row.len() {
            let style = (row[x].fg, row[x].modifier);
            let same = row[x..]
                .iter()
                .take_while(|cell| (cell.fg, cell.modifier) == style)
                .count();
            let text: String = row[x..x + same]
                .iter()
                .map(ratatui::buffer::Cell::symbol)
                .collect();
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
