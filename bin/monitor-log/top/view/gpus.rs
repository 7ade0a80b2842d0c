//! GPUs and the processes on them.

use plmkit_logs::thresholds::MEMORY_CRITICAL_ABOVE;
use plmkit_logs::{GpuProcess, GpuSample, Throttle};
use ratatui::style::{Color, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::Sparkline;

use super::super::history::History;
use super::super::text::{DASH, cut, gib, or_dash, power};
use super::{Plan, ScreenRows, bar, heading, percent_of, share_of};

type Gpu<'a> = (u32, &'a GpuSample);

/// Columns of a GPU's number and figures, beside its name.
const BESIDE_NAME: usize = 60;

/// Returns each process with the number of its GPU.
pub(super) fn processes<'a>(gpus: &'a [Gpu<'a>]) -> impl Iterator<Item = (u32, GpuProcess)> + 'a {
    gpus.iter().flat_map(|&(index, row)| {
        let processes = row.processes.iter().flat_map(|processes| &processes.0);
        processes.map(move |&process| (index, process))
    })
}

pub(super) fn draw(rows: &mut ScreenRows, gpus: &[Gpu], history: &History, plan: &Plan) {
    let names = gpus.iter().filter_map(|(_, row)| row.name.as_deref());
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
    let width = longest.min(usize::from(rows.left.width).saturating_sub(BESIDE_NAME));
    for &(index, row) in gpus.iter().take(plan.gpus) {
        let number = if row.is_instance() {
            "   mig ".to_owned()
        } else {
            format!("gpu {index:<2} ")
        };
        if plan.gpu_rows == 1 {
            let mut spans = vec![Span::from(number)];
            if !row.has_values() {
                spans.push(Span::from("lost").fg(Color::Red));
            } else if rows.is_wide() {
                spans.extend(bars(row, 5));
                spans.extend(figures(row));
            } else {
                spans.extend(short_figures(row));
            }
            rows.line(Line::from(spans));
            continue;
        }
        let name = cut(row.name.as_deref().unwrap_or_default(), width, true);
        let mut spans = vec![Span::from(format!("{number}{name:<width$} ")).bold()];
        if row.has_values() {
            spans.extend(figures(row));
        } else {
            spans.push(Span::from(" lost: the driver gives no values").fg(Color::Red));
        }
        rows.line(Line::from(spans));
        let mut spans = vec![Span::from("       ")];
        if rows.is_wide() {
            spans.extend(bars(row, rows.bar_width()));
        } else {
            spans.extend(short_figures(row));
        }
        rows.line(Line::from(spans));
        let mut area = rows.area((plan.gpu_rows - 2) as u16);
        area.x += 7.min(area.width);
        area.width = area.width.saturating_sub(7);
        let past = history.utilization(row, usize::from(area.width));
        let line = Sparkline::default()
            .data(past)
            .max(100)
            .absent_value_symbol("·")
            .fg(Color::Green);
        rows.frame.render_widget(line, area);
    }
}

/// Utilisation and memory. Red is for trouble: a busy GPU has none, nor has one without work.
fn bars(row: &GpuSample, width: u16) -> Vec<Span<'static>> {
    let busy = busy(row);
    let memory = share_of(row.mem_used_mib, row.mem_total_mib);
    let memory_color = if is_full(row) {
        Color::Red
    } else {
        Color::Cyan
    };
    let mut spans = vec![Span::from("util ")];
    spans.extend(bar(busy, width, Color::Green));
    spans.push(Span::from(percent_of(busy)));
    spans.push(Span::from("  mem "));
    spans.extend(bar(memory, width, memory_color));
    let (used, total) = (gib(row.mem_used_mib), gib(row.mem_total_mib));
    spans.push(Span::from(format!(" {used:>5}/{total} GiB  ")));
    spans
}

/// Temperature, power, clock, and what holds the clock down.
fn figures(row: &GpuSample) -> Vec<Span<'static>> {
    let mut temperature = Span::from(format!("{:>3} C  ", or_dash(row.temperature_c)));
    if is_hot(row) {
        temperature = temperature.fg(Color::Red);
    }
    let (power, limit) = power(row);
    let mut spans = vec![
        temperature,
        Span::from(format!("{power:>3}/{limit} W  ")),
        Span::from(format!("{:>4} MHz  ", or_dash(row.sm_clock_mhz))),
    ];
    if let Some(throttle) = row.throttle.as_ref().filter(|throttle| throttle.active()) {
        // A power limit holds the clocks of every busy GPU down.
        let color = if throttle.is_severe() {
            Color::Red
        } else {
            Color::Yellow
        };
        spans.push(Span::from(throttle.to_string()).fg(color));
    }
    spans
}

/// Utilisation, memory, temperature and trouble, for 40 columns.
fn short_figures(row: &GpuSample) -> Vec<Span<'static>> {
    let gib = |mib: Option<u64>| or_dash(mib.map(|mib| mib.div_ceil(1024)));
    let figures = format!(
        "{}  {}/{} GiB  {} C  ",
        percent_of(busy(row)).trim_start(),
        gib(row.mem_used_mib),
        gib(row.mem_total_mib),
        or_dash(row.temperature_c)
    );
    let is_throttled = row.throttle.as_ref().is_some_and(Throttle::is_severe);
    let trouble = [
        (!row.has_values(), "lost"),
        (is_throttled, "throttled"),
        (is_hot(row), "hot"),
        (is_full(row), "full"),
    ];
    // There is room for the worst.
    let worst = trouble.into_iter().find(|(is_there, _)| *is_there);
    let word = worst.map_or("", |(_, word)| word);
    vec![Span::from(figures), Span::from(word).fg(Color::Red)]
}

fn busy(row: &GpuSample) -> Option<f64> {
    row.gpu_util.map(|percent| f64::from(percent) / 100.0)
}

fn is_hot(row: &GpuSample) -> bool {
    row.temperature_c > Some(row.hot_above_c())
}

fn is_full(row: &GpuSample) -> bool {
    share_of(row.mem_used_mib, row.mem_total_mib) > Some(MEMORY_CRITICAL_ABOVE)
}

pub(super) fn draw_processes(rows: &mut ScreenRows, gpus: &[Gpu], history: &History, plan: &Plan) {
    if plan.processes == 0 {
        return;
    }
    let line = |[pid, gpu, memory, busy, command]: [&str; 5]| {
        format!("{pid:>9} {gpu:>4} {memory:>9} {busy:>7}  {command}")
    };
    let titles = ["pid", "gpu", "mem GiB", "util %", "command"];
    let hidden = match processes(gpus).count() - plan.processes {
        0 => String::new(),
        more => format!(", {more} more"),
    };
    rows.line(heading(line(titles) + &hidden));
    for (index, process) in processes(gpus).take(plan.processes) {
        let command = history.commands.get(&process.pid);
        rows.line(Line::from(line([
            &process.pid.to_string(),
            &index.to_string(),
            &gib(process.mem_used_mib),
            &or_dash(process.gpu_util),
            command.map_or(DASH, String::as_str),
        ])));
    }
}
