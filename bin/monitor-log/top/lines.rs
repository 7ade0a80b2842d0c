//! GPUs, host and runs as lines of the view and of printed text.

use std::collections::BTreeSet;

use plmkit_logs::thresholds::MEMORY_CRITICAL_ABOVE;
use plmkit_logs::{GpuSample, Metric};
use plmkit_telemetry::live::{ProcessStatus, RunState, RunStatus};
use plmkit_telemetry::report::Tier;
use ratatui::prelude::IntoCrossterm;
use ratatui::style::{Color, Stylize};
use ratatui::text::{Line, Span};

use super::table::{Row, fitting, table};
use super::text::{duration, or_dash, percent, short, state};
use crate::monitor::Snapshot;

/// The columns of an ordinary terminal.
pub(super) const WIDE: usize = 80;

/// The columns of [`gpu`].
pub(super) const GPU: &str = "<>>>><";

/// Returns a snapshot as text of `width` columns. The compact form has neither limits nor owners.
pub(super) fn printed(
    snapshot: &Snapshot,
    width: usize,
    is_compact: bool,
    has_color: bool,
) -> String {
    let mut lines = vec![title(snapshot, Vec::new(), width)];
    lines.extend(models(&snapshot.rows).map(|models| fitting(vec![models.into()], width)));
    let mut gpus = Vec::new();
    for row in snapshot.gpus() {
        let mut cells = gpu(row, &snapshot.runs, is_compact);
        let is_owner = |process: &&ProcessStatus| {
            let is_here = (Some(process.gpu), &process.gpu_uuid) == (row.index, &row.uuid);
            is_here && !is_compact
        };
        let mut owners = snapshot.processes.iter().filter(is_owner);
        cells.resize(GPU.len(), Span::default());
        cells.extend(owners.next().into_iter().flat_map(owner));
        gpus.push(cells);
        gpus.extend(owners.map(|process| {
            let empty = vec![Span::default(); GPU.len()];
            empty.into_iter().chain(owner(process)).collect()
        }));
    }
    lines.extend(table(&format!("{GPU}~>"), gpus, width));
    lines.extend(snapshot.rows.first().map(|row| host(row, width)));
    lines.extend(runs(&snapshot.runs, &snapshot.rows, width));
    let text = lines.iter().map(|line| {
        if has_color {
            colored(line)
        } else {
            line.to_string().trim_end().to_owned()
        }
    });
    text.map(|line| line + "\n").collect()
}

/// Returns a line with the codes of a terminal.
fn colored(line: &Line) -> String {
    let spans = line.spans.iter().map(|span| {
        let style = line.style.patch(span.style);
        style.into_crossterm().apply(&*span.content).to_string()
    });
    spans.collect()
}

/// Returns machine, time, `more`, and the versions of the driver.
pub(super) fn title(snapshot: &Snapshot, more: Row, width: usize) -> Line<'static> {
    let time = snapshot.rows.first().map(|row| row.timestamp.to_string());
    // Cut to the second.
    let time = time.and_then(|time| Some(time.split_once('.')?.0.replace('T', " ") + " UTC"));
    let time = time.map(|time| {
        time.split_at(if width < WIDE { 11 } else { 0 })
            .1
            .to_owned()
    });
    let versions = &snapshot.versions;
    let version = |name, version: &Option<String>| Some(format!("{name} {}", version.as_ref()?));
    let names = [snapshot.host.clone(), time];
    let versions = [
        version("driver", &versions.driver_version),
        version("CUDA", &versions.cuda_version),
    ];
    let bold = |texts: [Option<String>; 2]| texts.into_iter().flatten().map(Stylize::bold);
    let cells = bold(names).chain(more).chain(bold(versions));
    fitting(cells.collect(), width)
}

/// Counts the GPUs by their names: `8 × NVIDIA H100 80GB HBM3`.
pub(super) fn models(rows: &[GpuSample]) -> Option<String> {
    let gpus = rows
        .iter()
        .filter(|row| row.index.is_some() && !row.is_instance());
    let names: Vec<String> = gpus.map(|row| or_dash(row.name.as_ref())).collect();
    let groups = names.chunk_by(|one, other| one == other);
    let groups: Vec<String> = groups
        .map(|group| format!("{} × {}", group.len(), group[0]))
        .collect();
    (!groups.is_empty()).then(|| groups.join(", "))
}

/// Returns the columns of a GPU or an instance.
pub(super) fn gpu(row: &GpuSample, runs: &[RunStatus], is_compact: bool) -> Row {
    let index = or_dash(row.index);
    if !row.has_values() {
        return vec![index.into(), "lost".fg(Color::Red)];
    }
    let red_if =
        |is_bad, text: String| Span::from(text).fg(if is_bad { Color::Red } else { Color::Reset });
    let both = |columns: [&'static str; 2]| value(row, &columns[..if is_compact { 1 } else { 2 }]);
    let memory = red_if(is_full(row), both(["mem_used_mib", "mem_total_mib"]));
    if row.is_instance() {
        // The driver gives nothing else. Its name ends with its size.
        let size = row
            .name
            .as_ref()
            .and_then(|name| name.split(' ').next_back());
        let size = size.unwrap_or_default().to_owned();
        return vec![
            "└".into(),
            Span::default(),
            memory,
            Span::default(),
            size.into(),
        ];
    }
    let (trouble, color) = trouble(row);
    vec![
        index.into(),
        value(row, &["gpu_util"]).fg(tier_color(gpu_tier(row, runs))),
        memory,
        red_if(is_hot(row), value(row, &["temperature_c"])),
        both(["power_w", "power_limit_w"]).into(),
        trouble.fg(color),
    ]
}

/// Returns the tier of a GPU that a run should keep busy.
pub(super) fn gpu_tier(row: &GpuSample, runs: &[RunStatus]) -> Option<Tier> {
    runs.iter().filter_map(|run| run.gpu_tier(row)).max()
}

pub(super) fn tier_color(tier: Option<Tier>) -> Color {
    match tier {
        None => Color::Reset,
        Some(Tier::None) => Color::Green,
        Some(Tier::Mild) => Color::Yellow,
        Some(Tier::Critical) => Color::Red,
    }
}

/// Returns values of a sample with their unit: `251/300 W`.
pub(super) fn value(row: &GpuSample, columns: &[&str]) -> String {
    let metrics = || columns.iter().filter_map(|column| Metric::of(column));
    let numbers = metrics().map(|metric| or_dash((metric.value)(row).map(f64::round)));
    let unit = metrics().next().map_or("", |metric| metric.unit.symbol());
    let space = if unit.starts_with('°') { "" } else { " " };
    numbers.collect::<Vec<_>>().join("/") + space + unit
}

/// Returns what is worst about a GPU in a word.
fn trouble(row: &GpuSample) -> (&'static str, Color) {
    let reasons = row.throttle.iter().flat_map(|throttle| &throttle.0);
    let holds = |part: &str| reasons.clone().any(|reason| reason.contains(part));
    match row.throttle.as_ref() {
        Some(_) if holds("thermal") => ("heat", Color::Red),
        Some(_) if holds("brake") => ("brake", Color::Red),
        Some(throttle) if throttle.is_severe() => ("slow", Color::Red),
        _ if is_hot(row) => ("hot", Color::Red),
        _ if is_full(row) => ("full", Color::Red),
        // A power limit holds the clocks of every busy GPU down.
        Some(_) if holds("power") => ("power", Color::Yellow),
        Some(throttle) if throttle.active() => ("held", Color::Yellow),
        _ => ("", Color::Reset),
    }
}

fn is_hot(row: &GpuSample) -> bool {
    row.temperature_c > Some(row.hot_above_c())
}

pub(super) fn is_full(row: &GpuSample) -> bool {
    share_of(row.mem_used_mib, row.mem_total_mib) > Some(MEMORY_CRITICAL_ABOVE)
}

/// Returns the share of memory in use.
pub(super) fn share_of(used_mib: Option<u64>, total_mib: Option<u64>) -> Option<f64> {
    Some(used_mib? as f64 / total_mib?.max(1) as f64)
}

/// Returns user, process id and program, and the memory.
fn owner(process: &ProcessStatus) -> [Span<'static>; 2] {
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
    let (user, program) = (known(&process.user), known(&process.program));
    let name = format!("{user}/{}/{program}", process.pid);
    let memory = format!("{} MiB", or_dash(process.mem_used_mib));
    [name.into(), memory.into()]
}

pub(super) fn host(row: &GpuSample, width: usize) -> Line<'static> {
    let values = [
        ("host cpu", &["host_cpu_util"][..]),
        ("memory", &["host_mem_used_mib", "host_mem_total_mib"]),
        ("disk free", &["host_disk_free_mib"]),
        ("read", &["host_disk_read_mib_s"]),
        ("written", &["host_disk_write_mib_s"]),
    ];
    let known = values.iter().filter(|(_, columns)| {
        let metric = Metric::of(columns[0]);
        metric.is_some_and(|metric| (metric.value)(row).is_some())
    });
    let cells = known.map(|(name, columns)| format!("{name} {}", value(row, columns)).into());
    fitting(cells.collect(), width)
}

/// Returns a heading and a line for each run; nothing without runs.
pub(super) fn runs(runs: &[RunStatus], rows: &[GpuSample], width: usize) -> Vec<Line<'static>> {
    if runs.is_empty() {
        return Vec::new();
    }
    let heading = ["run", "state", "done", "tokens/s", "idle", "on", "left"];
    let all = runs.iter().map(|run| {
        let color = match run.state {
            RunState::Running | RunState::Done => Color::Green,
            RunState::Stopped => Color::Yellow,
            RunState::Silent | RunState::Gone | RunState::Failed => Color::Red,
        };
        let tier = run.idle_tier();
        let tier = tier.filter(|tier| *tier > Tier::None && width >= WIDE);
        let tier = tier.map_or_else(String::new, |tier| format!(" {tier}"));
        let rate = run
            .recent
            .tokens_per_s
            .or(run.summary.throughput.tokens_per_s);
        vec![
            run.summary.run.clone().into(),
            state(run).fg(color),
            percent(run.progress.share).into(),
            short(rate).into(),
            (percent(run.idle()) + &tier).fg(tier_color(run.idle_tier())),
            place(run, rows).into(),
            or_dash(run.progress.eta_s.map(duration)).into(),
        ]
    });
    let all = [heading.map(Span::from).to_vec()].into_iter().chain(all);
    let mut lines = table("^<>><<>", all.collect(), width);
    lines[0] = lines[0].clone().underlined();
    lines
}

/// Returns how well the batches of a run are filled, their waits and lengths, and what became of some.
pub(super) fn details(run: &RunStatus) -> Row {
    let (summary, progress) = (&run.summary, &run.progress);
    let packing = &summary.packing;
    let filled = format!(
        "fill {}, least {}, {} below 85 %",
        percent(packing.mean_fill),
        percent(packing.min_fill),
        packing.below_85
    );
    let color = tier_color(packing.tier.filter(|tier| *tier > Tier::None));
    let (done, all) = (progress.batches, or_dash(progress.batches_total));
    let mut cells = vec![format!("  batch {done}/{all}").into(), filled.fg(color)];
    for (name, what, unit) in [
        ("wait_ms", "wait", " ms"),
        ("tokens", "tokens", ""),
        ("longest", "longest", ""),
        ("compute_ms", "compute", " ms"),
    ] {
        let of = summary.distributions.get(name).and_then(Option::as_ref);
        cells.extend(of.map(|of| {
            let (median, p95) = (short(Some(of.p50)), short(Some(of.p95)));
            Span::from(format!("{what} {median}{unit}, p95 {p95}"))
        }));
    }
    let queue = run.recent.queue.or(summary.queue.state);
    let queue = queue.map(|queue| format!("queue {}", <&str>::from(queue)));
    let counts = [
        (summary.oom_splits, "halved"),
        (summary.rejected, "rejected"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts = counts.map(|(count, what)| format!("{count} {what}"));
    let rates = [
        (
            run.recent.sequences_per_s,
            summary.throughput.sequences_per_s,
            "sequences/s",
        ),
        (
            run.recent.residues_per_s,
            summary.throughput.residues_per_s,
            "residues/s",
        ),
    ];
    let rates = rates.map(|(recent, all, what)| format!("{} {what}", short(recent.or(all))));
    cells.extend(queue.into_iter().chain(counts).chain(rates).map(Span::from));
    cells
}

/// Returns the numbers of the GPUs of a run, `gpu 0,1`, or else its device.
fn place(run: &RunStatus, rows: &[GpuSample]) -> String {
    let uuids = run.summary.gpu_uuids.iter().flatten();
    let index = |uuid| {
        rows.iter()
            .find(|row| row.uuid.as_ref() == Some(uuid))?
            .index
    };
    let gpus: BTreeSet<u32> = uuids.filter_map(index).collect();
    let gpus: Vec<String> = gpus.iter().map(u32::to_string).collect();
    if gpus.is_empty() {
        or_dash(run.summary.device.as_ref())
    } else {
        format!("gpu {}", gpus.join(","))
    }
}
