//! The contents of the screen.

mod bar;
mod gpus;
mod plan;
mod runs;

use plmkit_contract::plural;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::history::{self, History};
use super::text::{DASH, duration, gib};
use crate::monitor::Snapshot;
use bar::bar;
use plan::{MAX_GPU_ROWS, MAX_RUN_ROWS, Plan};

/// Columns of a terminal that has room for bars.
const WIDE: u16 = 80;

/// Draws the last snapshot in as much detail as fits.
pub(super) fn draw(frame: &mut Frame, history: &History) {
    let left = frame.area();
    let mut rows = ScreenRows { frame, left };
    let Some(snapshot) = &history.last else {
        rows.line(Line::from("monitor-log top: looking for GPUs"));
        return;
    };
    let gpus: Vec<_> = history::gpus(&snapshot.rows).collect();
    let whole = Plan {
        gpus: gpus.len(),
        gpu_rows: MAX_GPU_ROWS,
        processes: gpus::processes(&gpus).count(),
        runs: snapshot.runs.len(),
        run_rows: MAX_RUN_ROWS,
        notes: history.notes.len().min(1),
    };
    let plan = Plan::new(left.height, &whole);
    rows.line(title(history, snapshot, &whole, (&plan, left.width)));
    let host = host(snapshot, rows.bar_width());
    rows.line(host);
    gpus::draw(&mut rows, &gpus, history, &plan);
    gpus::draw_processes(&mut rows, &gpus, history, &plan);
    runs::draw(&mut rows, &snapshot.runs, &plan);
    if let Some(note) = history.notes.last().filter(|_| plan.notes > 0) {
        rows.line(Line::from(note.as_str()).fg(Color::Yellow));
    }
}

/// The free rows of the screen, which are taken from the top.
struct ScreenRows<'a, 'b> {
    frame: &'a mut Frame<'b>,
    left: Rect,
}

impl ScreenRows<'_, '_> {
    /// Takes the next rows, as many as are left.
    fn area(&mut self, height: u16) -> Rect {
        let height = height.min(self.left.height);
        let taken = Rect {
            height,
            ..self.left
        };
        self.left.y += height;
        self.left.height -= height;
        taken
    }

    fn line(&mut self, line: Line) {
        let area = self.area(1);
        self.frame.render_widget(Paragraph::new(line), area);
    }

    /// Two bars with their figures fill 80 columns. A wider terminal has longer bars, a narrower one has none.
    fn bar_width(&self) -> u16 {
        match self.left.width.checked_sub(WIDE) {
            Some(more) => 14 + more / 2,
            None => 0,
        }
    }

    fn is_wide(&self) -> bool {
        self.left.width >= WIDE
    }
}

/// Names the moment and what there is, and counts what is not shown.
fn title(
    history: &History,
    snapshot: &Snapshot,
    whole: &Plan,
    (plan, width): (&Plan, u16),
) -> Line<'static> {
    let time = snapshot.rows.first().map(|row| row.timestamp.to_string());
    // Cut to the second.
    let time = time.and_then(|time| Some(time.split_once('.')?.0.replace('T', " ")));
    let mut time = time.unwrap_or_default();
    let all = history::gpus(&snapshot.rows);
    let instances = all.filter(|(_, row)| row.is_instance()).count();
    let mut found = match whole.gpus - instances {
        0 => "no GPU".to_owned(),
        gpus => plural(gpus, "GPU"),
    };
    if instances > 0 {
        found.push_str(", ");
        found.push_str(&plural(instances, "instance"));
    }
    if whole.gpus > plan.gpus {
        let more = (whole.gpus - plan.gpus).to_string();
        found.extend([", ", &more, " more"]);
    }
    let is_wide = width >= WIDE;
    let name = if is_wide {
        time += " UTC";
        "monitor-log top"
    } else {
        time = time.split_off(time.find(' ').map_or(0, |at| at + 1));
        "top"
    };
    let mut spans = vec![
        Span::from(name).bold(),
        Span::from(format!("  {time}  {found}")),
    ];
    if let Some(age) = history.stale {
        let age = duration(age.as_secs_f64());
        spans.push(Span::from(format!("  {age} old")).fg(Color::Red));
    }
    if whole.processes > 0 && plan.processes == 0 {
        let end = if whole.processes == 1 { "" } else { "es" };
        spans.push(Span::from(format!("  {} process{end}", whole.processes)));
    }
    if whole.runs > 0 && plan.runs == 0 {
        spans.push(Span::from(format!("  {}", plural(whole.runs, "run"))));
    }
    if is_wide {
        spans.push(Span::from("  q: quit").dim());
    }
    Line::from(spans)
}

fn host(snapshot: &Snapshot, width: u16) -> Line<'static> {
    let Some(row) = snapshot.rows.first() else {
        return Line::default();
    };
    let cpu = row.host_cpu_util.map(|percent| percent / 100.0);
    let (used, total) = (row.host_mem_used_mib, row.host_mem_total_mib);
    let mut spans = vec![Span::from("host   cpu  ")];
    spans.extend(bar(cpu, width, Color::Cyan));
    spans.push(Span::from(percent_of(cpu)));
    spans.push(Span::from("  mem "));
    spans.extend(bar(share_of(used, total), width, Color::Cyan));
    spans.push(Span::from(format!(" {}/{} GiB", gib(used), gib(total))));
    Line::from(spans)
}

/// Returns the share of memory in use.
fn share_of(used_mib: Option<u64>, total_mib: Option<u64>) -> Option<f64> {
    Some(used_mib? as f64 / total_mib?.max(1) as f64)
}

/// Formats a share as a column.
fn percent_of(share: Option<f64>) -> String {
    match share {
        Some(share) => format!(" {:>3.0} %", share * 100.0),
        None => format!(" {DASH:>3}  "),
    }
}

/// Formats the heading of a list.
fn heading(text: String) -> Line<'static> {
    Line::from(text).underlined()
}

#[cfg(test)]
mod tests;
