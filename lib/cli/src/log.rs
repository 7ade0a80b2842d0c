//! Messages on standard error.

use std::fmt;
use std::io::{self, Write};
use std::sync::LazyLock;

use indicatif::{MultiProgress, ProgressDrawTarget};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

use crate::LogFormat;

/// Draws on standard error, so that messages and a progress bar do not overwrite each other.
pub(crate) static SCREEN: LazyLock<MultiProgress> =
    LazyLock::new(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()));

/// Sends the messages of `tool` to standard error, in `format`.
pub(crate) fn install(tool: &'static str, format: LogFormat, quiet: bool) {
    let level = if quiet { Level::WARN } else { Level::INFO };
    // A second call, as in tests, has no effect.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| Screen)
        .event_format(Line { tool, format })
        .try_init();
}

struct Line {
    tool: &'static str,
    format: LogFormat,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut message = String::new();
        context.format_fields(Writer::new(&mut message), event)?;
        let level = *event.metadata().level();
        writer.write_str(&line(self.tool, self.format, level, &message))
    }
}

/// Formats a message of `tool` as a line.
pub(crate) fn line(tool: &str, format: LogFormat, level: Level, message: &str) -> String {
    match format {
        LogFormat::Text => {
            let mark = if level == Level::WARN {
                "warning: "
            } else {
                ""
            };
            format!("{tool}: {mark}{message}\n")
        }
        LogFormat::Json => {
            let level = level.as_str().to_lowercase();
            let line = serde_json::json!({ "level": level, "tool": tool, "message": message });
            format!("{line}\n")
        }
    }
}

struct Screen;

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A closed standard error must not end a run.
        let _ = SCREEN.suspend(|| io::stderr().lock().write_all(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
