//! GPUs and the processes on them.

use plmkit_logs::thresholds::{
    GPU_CRITICAL_BELOW, GPU_HOT_ABOVE_C, GPU_MILD_BELOW, MEMORY_CRITICAL_ABOVE,
};
use plmkit_logs::{GpuProcess, GpuSample};
use ratatui::style::{Color, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::Sparkline;

use super::super::history::History;
use super::super::text::{DASH, gib, or_dash, power};
use super::{Plan, ScreenRows, bar, heading, percent_of, share_of};

type Gpu<'a> = (u32, &'a GpuSample);

/// Returns each process with the number of its GPU.
pub(super) fn processes<'a>(gpus: &'a [Gpu<'a>]) -> impl Iterator<Item = (u32, GpuProcess)> + 'a {
    gpus.iter().flat_map(|&(index, row)| {
        let processes = row.processes.iter().flat_map(|processes| &processes.0);
        processes.map(move |&process| (index, process))
    })
}

pub(super) fn draw(rows: &mut ScreenRows, gpus: &[Gpu], history: &History, plan: &Plan) {
    for &(index, row) in gpus.iter().take(plan.gpus) {
        if plan.gpu_rows == 1 {
            let mut spans = vec![Span::from(format!("gpu {index:<2} "))];
            spans.extend(bars(row, 5));
            spans.extend(figures(row));
            rows.line(Line::from(spans));
            continue;
        }
        let name = row.name.as_deref().unwrap_or_default();
        let mut spans = vec![Span::from(format!("gpu {index:<2} {name:<20.20} ")).bold()];
        spans.extend(figures(row));
        rows.line(Line::from(spans));
        let mut spans = vec![Span::from("       ")];
        spans.extend(bars(row, rows.bar_width()));
        rows.line(Line::from(spans));
        let mut area = rows.area((plan.gpu_rows - 2) as u16);
        area.x += 7.min(area.width);
        area.width = area.width.saturating_sub(7);
        let past = history.utilization(index, usize::from(area.width));
        let line = Sparkline::default()
            .data(past)
            .max(100)
            .absent_value_symbol("·")
            .fg(Color::Green);
        rows.frame.render_widget(line, area);
    }
}

/// Utilisation and memory.
fn bars(row: &GpuSample, width: u16) -> Vec<Span<'static>> {
    let busy = row.gpu_util.map(|percent| f64::from(percent) / 100.0);
    let memory = share_of(row.mem_used_mib, row.mem_total_mib);
    let busy_color = match busy {
        Some(share) if share < GPU_CRITICAL_BELOW => Color::Red,
        Some(share) if share < GPU_MILD_BELOW => Color::Yellow,
        _ => Color::Green,
    };
    let memory_color = if memory > Some(MEMORY_CRITICAL_ABOVE) {
        Color::Red
    } else {
        Color::Cyan
    };
    let mut spans = vec![Span::from("util ")];
    spans.extend(bar(busy, width, busy_color));
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
    if row.temperature_c > Some(GPU_HOT_ABOVE_C) {
        temperature = temperature.fg(Color::Red);
    }
    let (power, limit) = power(row);
    let mut spans = vec![
        temperature,
        Span::from(format!("{power:>3}/{limit} W  ")),
        Span::from(format!("{:>4} MHz  ", or_dash(row.sm_clock_mhz))),
    ];
    if let Some(throttle) = row.throttle.as_ref().filter(|throttle| throttle.active()) {
        spans.push(Span::from(throttle.to_string()).fg(Color::Yellow));
    }
    spans
}

pub(super) fn draw_processes(rows: &mut ScreenRows, gpus: &[Gpu], history: &History, plan: &Plan) {
    if plan.processes == 0 {
        return;
    }
    let line = |[pid, gpu, memory, busy, command]: [&str; 5]| {
        format!("{pid:>9} {gpu:>4} {memory:>9} {busy:>7}  {command}")
    };
    let titles = ["pid", "gpu", "mem GiB", "util %", "command"];
    rows.line(heading(line(titles)));
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
