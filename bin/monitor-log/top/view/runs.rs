//! Runs.

use plmkit_logs::thresholds::{IDLE_CRITICAL_ABOVE, IDLE_MILD_ABOVE};
use plmkit_telemetry::live::{RunState, RunStatus};
use ratatui::style::{Color, Stylize};
use ratatui::text::{Line, Span};

use super::super::text::{batches, cut, device, duration, or_dash, percent, queue, rates, state};
use super::{Plan, ScreenRows, bar, heading, percent_of};

pub(super) fn draw(rows: &mut ScreenRows, runs: &[RunStatus], plan: &Plan) {
    if plan.runs == 0 {
        return;
    }
    let hidden = match runs.len() - plan.runs {
        0 => String::new(),
        more => format!(", {more} more"),
    };
    rows.line(heading(format!("runs{hidden}")));
    let shown = &runs[..plan.runs];
    let longest = |text: fn(&RunStatus) -> String| {
        let lengths = shown.iter().map(|run| text(run).chars().count());
        lengths.max().unwrap_or(0)
    };
    let (states, devices) = (longest(state), longest(device));
    let columns = Columns {
        run: longest(|run| run.summary.run.clone()),
        device: if rows.is_wide() { devices + 1 } else { 0 },
        state: states,
        bar: if rows.is_wide() { 8 } else { 0 },
    };
    let columns = columns.fitted(rows.left.width);
    for run in shown {
        rows.line(progress(run, &columns));
        if plan.run_rows > 1 {
            rows.line(throughput(run, rows.left.width));
        }
    }
}

/// Widths of the columns.
struct Columns {
    run: usize,
    device: usize,
    state: usize,
    bar: u16,
}

impl Columns {
    /// Columns of the share that is done and of the time that is left.
    const END: usize = 6 + 14;

    /// Cuts the names of the runs, so that all other columns fit.
    fn fitted(self, width: u16) -> Self {
        let others = 2 + self.device + self.state + usize::from(self.bar) + Self::END;
        let left = usize::from(width).saturating_sub(others);
        Self {
            run: self.run.min(left.max(4)),
            ..self
        }
    }
}

fn progress(status: &RunStatus, columns: &Columns) -> Line<'static> {
    let color = match status.state {
        RunState::Running | RunState::Done => Color::Green,
        RunState::Stopped => Color::Yellow,
        RunState::Silent | RunState::Gone | RunState::Failed => Color::Red,
    };
    let left = status.progress.eta_s.map(duration);
    let left = left.map_or_else(String::new, |left| format!("  {left} left"));
    let run = cut(&status.summary.run, columns.run, true);
    let device: String = device(status).chars().take(columns.device).collect();
    let (run_width, device_width, state_width) = (columns.run, columns.device, columns.state);
    let mut spans = vec![Span::from(format!(
        "{run:<run_width$} {device:<device_width$}"
    ))];
    spans.push(Span::from(format!("{:<state_width$} ", state(status))).fg(color));
    spans.extend(bar(status.progress.share, columns.bar, color));
    spans.push(Span::from(percent_of(status.progress.share)));
    spans.push(Span::from(left));
    Line::from(spans)
}

/// Shows the figures that fit, each whole.
fn throughput(status: &RunStatus, width: u16) -> Line<'static> {
    let (run, recent) = (&status.summary, &status.recent);
    let [tokens, sequences, residues] = rates(status);
    let idle = status.idle();
    let mut idle_cell = Span::from(format!("  idle {}", percent(idle)));
    if idle > Some(IDLE_CRITICAL_ABOVE) {
        idle_cell = idle_cell.fg(Color::Red);
    } else if idle > Some(IDLE_MILD_ABOVE) {
        idle_cell = idle_cell.fg(Color::Yellow);
    }
    let mut cells = vec![
        Span::from(format!("  tokens {tokens}/s")),
        Span::from(format!("  sequences {sequences}/s")),
        idle_cell,
        Span::from(format!(
            "  packing {}",
            percent(run.packing.mean_utilization)
        )),
        Span::from(format!("  batch {}", batches(status))),
    ];
    for (count, what) in [(run.oom_splits, "halved"), (run.rejected, "rejected")] {
        if count > 0 {
            cells.push(Span::from(format!("  {count} {what}")));
        }
    }
    // Last, because a narrow terminal has no room for them.
    cells.push(Span::from(format!(
        "  queue {} {}, wait {} ms",
        queue(status),
        or_dash(recent.queue_depth),
        or_dash(recent.mean_wait_ms.map(|ms| format!("{ms:.1}"))),
    )));
    cells.push(Span::from(format!("  residues {residues}/s")));
    let mut end = 0;
    let fitting = cells.into_iter().take_while(|cell| {
        end += cell.width();
        end <= usize::from(width)
    });
    fitting.collect()
}
