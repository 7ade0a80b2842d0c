//! Messages on standard error.

use std::fmt;
use std::io::{self, Write};
use std::sync::LazyLock;

use indicatif::{MultiProgress, ProgressDrawTarget};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FmtSpan, FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use crate::LogFormat;

/// Everything that is drawn on standard error, so that messages and a progress bar do not overwrite each other.
pub(crate) static SCREEN: LazyLock<MultiProgress> =
    LazyLock::new(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()));

/// Sends the messages of this process to standard error, in `format`, in the name of `tool`.
pub(crate) fn install(tool: &'static str, format: LogFormat, quiet: bool) {
    let level = if quiet { Level::WARN } else { Level::INFO };
    // A second call, as in tests, keeps what is installed.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_span_events(FmtSpan::NONE)
        .with_writer(Screen)
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
        match self.format {
            LogFormat::Text => {
                let mark = if *event.metadata().level() == Level::WARN {
                    "warning: "
                } else {
                    ""
                };
                writeln!(writer, "{}: {mark}{message}", self.tool)
            }
            LogFormat::Json => {
                let level = event.metadata().level().as_str().to_lowercase();
                let line =
                    serde_json::json!({ "level": level, "tool": self.tool, "message": message });
                writeln!(writer, "{line}")
            }
        }
    }
}

struct Screen;

impl MakeWriter<'_> for Screen {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

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
