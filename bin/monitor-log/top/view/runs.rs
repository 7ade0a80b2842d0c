//! Runs.

use std::fmt::Write;

use plmkit_telemetry::live::{RunState, RunStatus};
use ratatui::style::{Color, Stylize};
use ratatui::text::{Line, Span};

use super::super::text::{DASH, batches, duration, or_dash, percent, queue, short, state};
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
    let run = &status.summary;
    let color = match status.state {
        RunState::Running | RunState::Done => Color::Green,
        RunState::Stopped => Color::Yellow,
        RunState::Silent | RunState::Failed => Color::Red,
    };
    let with = format!(
        "{} {}",
        or_dash(run.device.as_ref()),
        or_dash(run.dtype.as_ref())
    );
    let mut spans = vec![Span::from(format!("{:<30.30} {with:<10.10} ", run.run))];
    spans.push(Span::from(format!("{:<8} ", state(status))).fg(color));
    spans.extend(bar(status.progress.share, 8, color));
    spans.push(Span::from(percent_of(status.progress.share)));
    spans.push(Span::from(match status.progress.eta_s {
        Some(left) => format!("  {} left", duration(left)),
        None => String::new(),
    }));
    Line::from(spans)
}

fn throughput(status: &RunStatus) -> Line<'static> {
    let (run, recent) = (&status.summary, &status.recent);
    let wait = recent
        .mean_wait_ms
        .map_or_else(|| DASH.to_owned(), |ms| format!("{ms:.1}"));
    let mut text = format!(
        "  {} tokens/s  queue {} {}, wait {wait} ms  packing {}  batch {}",
        short(recent.tokens_per_s.or(run.throughput.tokens_per_s)),
        queue(status),
        or_dash(recent.queue_depth.as_ref()),
        percent(run.packing.mean_utilization),
        batches(status),
    );
    for (count, what) in [(run.oom_splits, "halved"), (run.rejected, "rejected")] {
        if count > 0 {
            let _ = write!(text, "  {count} {what}");
        }
    }
    // Where the terminal is narrow this is cut off: it says nearly the same as tokens.
    let residues = recent.residues_per_s.or(run.throughput.residues_per_s);
    let _ = write!(text, "  {} residues/s", short(residues));
    Line::from(text)
}
