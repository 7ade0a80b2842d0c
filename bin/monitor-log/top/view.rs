//! The contents of the screen.

mod plan;

use plmkit_contract::plural;
use plmkit_telemetry::live::ProcessStatus;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Sparkline};

use super::history::History;
use super::keys::Keys;
use super::lines::{self, WIDE};
use super::table::{Row, fitting, table};
use super::text::{duration, or_dash};
use crate::monitor::Snapshot;
use plan::{MAX_GPU_ROWS, MAX_RUN_ROWS, Plan};

/// Draws the last snapshot in as much detail as fits.
pub(super) fn draw(frame: &mut Frame, history: &History, keys: &Keys) {
    let area = frame.area();
    let mut rows = ScreenRows { frame, left: area };
    let Some(snapshot) = &history.last else {
        rows.line(Line::from("monitor-log top: looking for GPUs"));
        return;
    };
    let whole = Plan {
        host: 1,
        gpus: snapshot.gpus().count(),
        gpu_rows: MAX_GPU_ROWS,
        processes: snapshot.processes.len(),
        runs: snapshot.runs.len(),
        run_rows: MAX_RUN_ROWS,
        headings: 1,
        keys: 1,
    };
    let plan = Plan::new(area.height, &whole);
    rows.line(title(history, snapshot, (&whole, &plan), area.width.into()));
    for host in snapshot.rows.iter().take(plan.host) {
        rows.line(lines::host(host, area.width.into()));
    }
    gpus(&mut rows, snapshot, history, &plan);
    processes(&mut rows, snapshot, keys, &plan);
    runs(&mut rows, snapshot, &plan);
    if plan.keys > 0 || keys.is_asking() {
        let last = Rect::new(
            area.x,
            area.bottom().saturating_sub(1),
            area.width,
            area.height.min(1),
        );
        rows.frame.render_widget(Clear, last);
        rows.frame.render_widget(keys.line(area.width.into()), last);
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

    fn width(&self) -> usize {
        self.left.width.into()
    }
}

/// Names machine, time and GPUs, and counts what is not shown.
fn title(
    history: &History,
    snapshot: &Snapshot,
    (whole, plan): (&Plan, &Plan),
    width: usize,
) -> Line<'static> {
    let stale = history
        .stale
        .map(|age| duration(age.as_secs_f64()) + " old");
    let hidden = [
        (whole.gpus - plan.gpus, "GPU"),
        (whole.runs - plan.runs, "run"),
        (whole.processes - plan.processes, "process"),
    ];
    let hidden = hidden.into_iter().filter(|(count, _)| *count > 0);
    let hidden: Vec<String> = hidden.map(|(count, what)| plural(count, what)).collect();
    let hidden = (!hidden.is_empty()).then(|| format!("+ {}", hidden.join(", ")));
    let models = lines::models(&snapshot.rows).unwrap_or_else(|| "no GPU".to_owned());
    let stale = stale.map(|text| Span::from(text).fg(Color::Red));
    let more = stale
        .into_iter()
        .chain(hidden.map(Span::from))
        .chain([Span::from(models)]);
    lines::title(snapshot, more.collect(), width)
}

fn gpus(rows: &mut ScreenRows, snapshot: &Snapshot, history: &History, plan: &Plan) {
    let width = rows.width();
    let cells = snapshot.gpus().take(plan.gpus).map(|row| {
        let used = snapshot.runs.iter().filter(|run| run.uses(row));
        let used: Vec<&str> = used.map(|run| run.summary.run.as_str()).collect();
        let mut cells = lines::gpu(row, &snapshot.runs, width < WIDE);
        cells.resize(lines::GPU.len(), Span::default());
        // A narrow terminal has no room for names.
        cells.extend((width >= WIDE).then(|| Span::from(used.join(", "))));
        cells
    });
    let table = table(&format!("{}^", lines::GPU), cells.collect(), width);
    for (line, row) in table.into_iter().zip(snapshot.gpus()) {
        rows.line(line);
        let color = lines::tier_color(lines::gpu_tier(row, &snapshot.runs));
        let reasons = row.throttle.as_ref().filter(|throttle| throttle.active());
        let named = [
            row.name.as_ref().map(|name| format!("   {name}")),
            reasons.map(ToString::to_string),
            row.sm_clock_mhz
                .map(|_| lines::value(row, &["sm_clock_mhz"])),
        ];
        if plan.gpu_rows > 1 {
            let named = named.into_iter().flatten().map(Span::from);
            rows.line(fitting(named.collect(), width));
        }
        let mut area = rows.area(plan.gpu_rows.saturating_sub(2) as u16);
        area.x += 3.min(area.width);
        area.width = area.width.saturating_sub(3);
        let past = history.utilization(row, usize::from(area.width));
        let line = Sparkline::default()
            .data(past)
            .max(100)
            .absent_value_symbol("·")
            .fg(color);
        rows.frame.render_widget(line, area);
    }
}

fn processes(rows: &mut ScreenRows, snapshot: &Snapshot, keys: &Keys, plan: &Plan) {
    if plan.processes == 0 {
        return;
    }
    let sorted = keys.sorted(&snapshot.processes);
    let chosen = keys.chosen(&sorted);
    // The chosen process is in sight.
    let first = chosen.map_or(0, |place| (place + 1).saturating_sub(plan.processes));
    let heading = [
        "gpu", "pid", "user", "memory", "busy", "cpu", "time", "command",
    ];
    let heading = heading.map(|text| {
        let is_sorted = keys.sort.is_some_and(|sort| text.starts_with(sort));
        Span::from(format!("{text}{}", if is_sorted { "▾" } else { "" }))
    });
    let shown = sorted
        .into_iter()
        .skip(first)
        .take(plan.processes)
        .map(process);
    let all = [heading.to_vec()].into_iter().chain(shown).collect();
    let table = table("<><>>>>~", all, rows.width());
    for (place, line) in table.into_iter().enumerate() {
        rows.line(match place {
            0 => line.underlined(),
            _ if chosen.is_some_and(|chosen| first + place == chosen + 1) => line.reversed(),
            _ => line,
        });
    }
}

fn process(process: &ProcessStatus) -> Row {
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
    let percent = |percent: Option<f64>| or_dash(percent.map(|percent| format!("{percent:.0} %")));
    let cells = [
        process.gpu.to_string(),
        process.pid.to_string(),
        known(&process.user),
        format!("{} MiB", or_dash(process.mem_used_mib)),
        percent(process.gpu_util.map(f64::from)),
        percent(process.cpu_util),
        or_dash(process.age_s.map(duration)),
        known(&process.command),
    ];
    cells.map(Span::from).to_vec()
}

fn runs(rows: &mut ScreenRows, snapshot: &Snapshot, plan: &Plan) {
    let (width, runs) = (rows.width(), &snapshot.runs[..plan.runs]);
    let mut table = lines::runs(runs, &snapshot.rows, width).into_iter();
    let heading = table.next();
    if let Some(heading) = heading.filter(|_| plan.headings > 0) {
        rows.line(heading);
    }
    for (line, run) in table.zip(runs) {
        rows.line(line);
        if plan.run_rows > 1 {
            rows.line(fitting(lines::details(run), width));
        }
    }
}

#[cfg(test)]
mod tests;
