//! The contents of the screen, and of printed text: GPUs, runs and processes as lines.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::mem;

use plmkit_kit::one_line;
use plmkit_logs::thresholds::MEMORY_CRITICAL_ABOVE;
use plmkit_logs::{GpuSample, Metric, Tier};
use plmkit_page::short;
use plmkit_telemetry::live::{ProcessStatus, RunState, RunStatus};
use ratatui::Frame;
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::super::monitor::Snapshot;
use super::table::{Row, joined, table};

/// The longest name of a run, in characters.
const MAX_NAME: usize = 40;

/// Draws a snapshot. The last line has the key that quits, and the last message.
pub(super) fn draw(frame: &mut Frame, snapshot: Option<&Snapshot>, note: Option<&str>) {
    let area = frame.area();
    let height = usize::from(area.height);
    let mut lines = match snapshot {
        Some(snapshot) => lines(snapshot, height.saturating_sub(1)),
        None => vec![Line::from("monitor-log top: looking for GPUs")],
    };
    lines.resize(height.saturating_sub(1), Line::default());
    let note = note.map(|note| note.to_owned().yellow());
    let last = ["q quit".dim()].into_iter().chain(note).collect();
    lines.push(joined(last));
    frame.render_widget(Paragraph::new(lines), area);
}

/// Returns a snapshot as text.
pub(super) fn printed(snapshot: &Snapshot) -> String {
    let lines = lines(snapshot, usize::MAX);
    let text = lines
        .iter()
        .map(|line| line.to_string().trim_end().to_owned() + "\n");
    text.collect()
}

/// Returns the lines of a snapshot, at most `height`.
fn lines(snapshot: &Snapshot, height: usize) -> Vec<Line<'static>> {
    let parts = [
        gpus(snapshot),
        runs(&snapshot.runs, &snapshot.rows),
        processes(snapshot),
    ];
    let all = parts.concat();
    let shown = all.len().min(height.saturating_sub(1));
    let mut lines = vec![title(snapshot, all.len() - shown)];
    lines.extend(all.into_iter().take(shown));
    lines
}

/// Returns machine, time, what is not shown, the versions of the driver, and the GPUs by their names.
fn title(snapshot: &Snapshot, hidden: usize) -> Line<'static> {
    let time = Some(snapshot.time.format("%T UTC"));
    let hidden = (hidden > 0).then(|| format!("+ {hidden} rows"));
    let gpus = snapshot.rows.iter().filter(|row| !row.is_instance());
    let names: Vec<String> = gpus.map(|row| or_dash(row.name.as_ref())).collect();
    let models = names.chunk_by(|one, other| one == other);
    let models: Vec<String> = models
        .map(|group| format!("{} × {}", group.len(), group[0]))
        .collect();
    let models = match &models[..] {
        [] => "no GPU".to_owned(),
        models => models.join(", "),
    };
    let version = |name, version: &Option<String>| Some(format!("{name} {}", version.as_ref()?));
    let versions = &snapshot.versions;
    let cells = [
        snapshot.host.clone().map(Stylize::bold),
        time.map(Stylize::bold),
        hidden.map(Span::from),
        version("driver", &versions.driver_version).map(Span::from),
        version("CUDA", &versions.cuda_version).map(Span::from),
        Some(models.into()),
    ];
    joined(cells.into_iter().flatten().collect())
}

/// Returns a line for each GPU and instance.
fn gpus(snapshot: &Snapshot) -> Vec<Line<'static>> {
    let rows = snapshot.rows.iter().map(|row| {
        let tiers = snapshot.runs.iter().filter_map(|run| run.gpu_tier(row));
        gpu(row, tier_style(tiers.max()))
    });
    table("<>>>><>", rows.collect())
}

/// Returns the columns of a GPU or an instance.
fn gpu(row: &GpuSample, busy: Style) -> Row {
    let red_if = |is_bad, text: String| if is_bad { text.red() } else { text.into() };
    let memory = value(row, &["mem_used_mib", "mem_total_mib"]).into();
    let share = red_if(is_full(row), percent(memory_share(row)));
    if row.is_instance() {
        // The driver gives nothing else. Its name ends with its size.
        let name = row.name.as_deref().unwrap_or_default();
        let size = name.rsplit(' ').next().unwrap_or_default().to_owned();
        let none = Span::default();
        let power = none.clone();
        return vec![
            "└".into(),
            none.clone(),
            share,
            none,
            power,
            size.into(),
            memory,
        ];
    }
    vec![
        or_dash(row.index).into(),
        Span::styled(value(row, &["gpu_util"]), busy),
        share,
        red_if(is_hot(row), value(row, &["temperature_c"])),
        value(row, &["power_w", "power_limit_w"]).into(),
        trouble(row),
        memory,
    ]
}

fn tier_style(tier: Option<Tier>) -> Style {
    match tier {
        None => Style::new(),
        Some(Tier::None) => Color::Green.into(),
        Some(Tier::Mild) => Color::Yellow.into(),
        Some(Tier::Critical) => Color::Red.into(),
    }
}

/// Returns a value, or a dash if it is unknown.
fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Returns a share from 0 to 1 as a percentage.
fn percent(share: Option<f64>) -> String {
    or_dash(share.map(|share| format!("{:.0} %", share * 100.0)))
}

/// Returns a duration: `42 s`, `3:07`, `2:15:00`.
fn duration(seconds: f64) -> String {
    let total = seconds.round() as u64;
    let (hours, minutes, rest) = (total / 3600, total / 60 % 60, total % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest} s"),
        (0, _) => format!("{minutes}:{rest:02}"),
        _ => format!("{hours}:{minutes:02}:{rest:02}"),
    }
}

/// Returns values of a sample with their unit: `251/300 W`.
fn value(row: &GpuSample, columns: &[&str]) -> String {
    let metrics = || columns.iter().filter_map(|column| Metric::of(column));
    let numbers = metrics().map(|metric| or_dash((metric.value)(row).map(f64::round)));
    let unit = metrics().next().map_or("", |metric| metric.unit);
    let space = if unit.starts_with('°') { "" } else { " " };
    numbers.collect::<Vec<_>>().join("/") + space + unit
}

/// Returns what is worst about a GPU in a word.
fn trouble(row: &GpuSample) -> Span<'static> {
    let reasons = row.throttle.iter().flat_map(|throttle| &throttle.0);
    let holds = |part: &str| reasons.clone().any(|reason| reason.contains(part));
    match row.throttle.as_ref() {
        _ if !row.has_values() => "lost".red(),
        Some(_) if holds("thermal") => "heat".red(),
        Some(_) if holds("brake") => "brake".red(),
        Some(throttle) if throttle.is_severe() => "slow".red(),
        _ if is_hot(row) => "hot".red(),
        _ if is_full(row) => "full".red(),
        _ if row.ecc_uncorrected > Some(0) => "ecc".red(),
        _ if row.xid_errors > Some(0) => "xid".red(),
        // A power limit holds the clocks of every busy GPU down.
        Some(_) if holds("power") => "power".yellow(),
        Some(throttle) if throttle.active() => "held".yellow(),
        _ => Span::default(),
    }
}

fn is_hot(row: &GpuSample) -> bool {
    row.temperature_c > Some(row.hot_above_c())
}

fn is_full(row: &GpuSample) -> bool {
    memory_share(row) > Some(MEMORY_CRITICAL_ABOVE)
}

fn memory_share(row: &GpuSample) -> Option<f64> {
    let total = row.mem_total_mib.filter(|&total| total > 0)?;
    Some((row.mem_used_mib? as f64 / total as f64).min(1.0))
}

/// Returns a heading and a line for each process; nothing without processes.
fn processes(snapshot: &Snapshot) -> Vec<Line<'static>> {
    if snapshot.processes.is_empty() {
        return Vec::new();
    }
    let heading = ["gpu", "pid", "memory", "busy", "command"];
    let all = [heading.map(Span::from).to_vec()].into_iter();
    let all = all.chain(snapshot.processes.iter().map(process));
    let mut lines = table("<>>><", all.collect());
    lines[0] = mem::take(&mut lines[0]).underlined();
    lines
}

fn process(process: &ProcessStatus) -> Row {
    let cells = [
        process.gpu.to_string(),
        process.pid.to_string(),
        format!("{} MiB", or_dash(process.mem_used_mib)),
        format!("{} %", or_dash(process.gpu_util)),
        process.command.clone().unwrap_or_else(|| "?".to_owned()),
    ];
    cells.map(Span::from).to_vec()
}

/// Returns a heading, and a line or two for each run; nothing without runs.
fn runs(runs: &[RunStatus], rows: &[GpuSample]) -> Vec<Line<'static>> {
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
        let told = tier.filter(|tier| *tier > Tier::None);
        let told = told.map_or_else(String::new, |tier| format!(" {tier}"));
        let state = match run.state {
            RunState::Silent => format!("no news for {}", duration(run.silence_s)),
            state => <&str>::from(state).to_owned(),
        };
        let recent = run.recent.tokens_per_s;
        vec![
            one_line(&run.summary.name, MAX_NAME).into(),
            state.fg(color),
            percent(run.progress.share).into(),
            or_dash(recent.or(run.summary.throughput.tokens_per_s).map(short)).into(),
            Span::styled(percent(run.idle()) + &told, tier_style(tier)),
            place(run, rows).into(),
            or_dash(run.progress.eta_s.map(duration)).into(),
        ]
    });
    let all = [heading.map(Span::from).to_vec()].into_iter().chain(all);
    let mut table = table("<<>><<>", all.collect()).into_iter();
    let mut lines: Vec<Line> = table.next().map(Stylize::underlined).into_iter().collect();
    for (line, run) in table.zip(runs) {
        lines.push(line);
        lines.push(joined(details(run)));
    }
    lines
}

/// Returns how well the batches of a run are filled, their waits and lengths, and what became of some.
fn details(run: &RunStatus) -> Row {
    let (summary, total) = (&run.summary, &run.summary.total);
    let packing = &total.packing;
    let (done, all) = (run.progress.batches, or_dash(run.progress.batches_total));
    let (mean, least) = (percent(summary.mean_fill), percent(packing.min_fill));
    let filled = format!(
        "fill {mean}, least {least}, {} below 85 %",
        packing.below_85
    );
    let style = tier_style(summary.packing_tier.filter(|tier| *tier > Tier::None));
    let batches = total.batches.max(1) as f64;
    let wait = total.stages.get("wait").map(|wait| {
        let (mean, most) = (short(wait.ms / batches), short(wait.max_ms));
        format!("wait {mean} ms, most {most}")
    });
    let mean = short(total.tokens as f64 / batches);
    let longest = total.longest.map(|longest| format!(", longest {longest}"));
    let queue = run.recent.queue.or(summary.queue);
    let queue = queue.map(<&str>::from);
    let count = |count: u64, what| (count > 0).then(|| format!("{count} {what}"));
    let more = [
        wait,
        Some(format!("tokens {mean}{}", longest.unwrap_or_default())),
        queue.map(|queue| format!("queue {queue}")),
        count(total.oom_splits, "halved"),
        count(total.rejected, "rejected"),
    ];
    let mut cells = vec![
        format!("  batch {done}/{all}").into(),
        Span::styled(filled, style),
    ];
    cells.extend(more.into_iter().flatten().map(Span::from));
    cells
}

/// Returns the numbers of the GPUs of a run, `gpu 0,1`, or else its device.
fn place(run: &RunStatus, rows: &[GpuSample]) -> String {
    let setup = &run.summary.setup;
    let uuids = || setup.gpu_uuids.iter().flatten();
    let is_own = |row: &&GpuSample| uuids().any(|uuid| row.uuid.as_ref() == Some(uuid));
    let gpus = rows.iter().filter(is_own).filter_map(|row| row.index);
    let gpus: BTreeSet<u32> = gpus.collect();
    let gpus: Vec<String> = gpus.iter().map(u32::to_string).collect();
    match &gpus[..] {
        [] => or_dash(setup.device.as_ref()),
        _ => format!("gpu {}", gpus.join(",")),
    }
}

#[cfg(test)]
mod tests;
