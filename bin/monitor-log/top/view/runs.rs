//! Runs.

use std::fmt::Write;

use plmkit_telemetry::live::{RunState, RunStatus};
use ratatui::style::{Color, Stylize};
use ratatui::text::{Line, Span};

use super::super::text::{batches, device, duration, or_dash, percent, queue, rates, state};
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
    for run in runs.iter().take(plan.runs) {
        rows.line(progress(run));
        if plan.run_rows > 1 {
            rows.line(throughput(run));
        }
    }
}

fn progress(status: &RunStatus) -> Line<'static> {
    let color = match status.state {
        RunState::Running | RunState::Done => Color::Green,
        RunState::Stopped => Color::Yellow,
        RunState::Silent | RunState::Failed => Color::Red,
    };
    let (run, device) = (&status.summary.run, device(status));
    let left = status.progress.eta_s.map(duration);
    let left = left.map_or_else(String::new, |left| format!("  {left} left"));
    let mut spans = vec![Span::from(format!("{run:<30.30} {device:<10.10} "))];
    spans.push(Span::from(format!("{:<8} ", state(status))).fg(color));
    spans.extend(bar(status.progress.share, 8, color));
    spans.push(Span::from(percent_of(status.progress.share)));
    spans.push(Span::from(left));
    Line::from(spans)
}

fn throughput(status: &RunStatus) -> Line<'static> {
    let (run, recent) = (&status.summary, &status.recent);
    let (tokens, residues) = rates(status);
    let mut text = format!(
        "  {tokens} tokens/s  queue {} {}, wait {} ms  packing {}  batch {}",
        queue(status),
        or_dash(recent.queue_depth),
        or_dash(recent.mean_wait_ms.map(|ms| format!("{ms:.1}"))),
        percent(run.packing.mean_utilization),
        batches(status),
    );
    for (count, what) in [(run.oom_splits, "halved"), (run.rejected, "rejected")] {
        if count > 0 {
            let _ = write!(text, "  {count} {what}");
        }
    }
    // Last, because a narrow terminal cuts it off: it says nearly the same as tokens.
    let _ = write!(text, "  {residues} residues/s");
    Line::from(text)
}
