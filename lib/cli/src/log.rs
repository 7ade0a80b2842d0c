//! Messages on standard error.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::sync::{LazyLock, OnceLock};

use indicatif::{MultiProgress, ProgressDrawTarget};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

use crate::LogFormat;

/// Draws on standard error, so that messages and a progress bar do not overwrite each other.
pub(crate) static SCREEN: LazyLock<MultiProgress> =
    LazyLock::new(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()));

/// The program of this process.
pub(crate) static TOOL: OnceLock<&'static str> = OnceLock::new();

/// Sends the messages of `tool` to standard error, in `format`: those of a level, and of the `quiet` modules warnings and errors.
pub(crate) fn install(
    tool: &'static str,
    format: LogFormat,
    level: Level,
    quiet: &'static [&'static str],
) {
    let _ = TOOL.set(tool);
    // A second call, as in tests, has no effect.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| Screen)
        .event_format(Line {
            tool,
            format,
            quiet,
        })
        .try_init();
}

struct Line {
    tool: &'static str,
    format: LogFormat,
    quiet: &'static [&'static str],
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
        let metadata = event.metadata();
        let is_of = |module: &&str| metadata.target().starts_with(module);
        if *metadata.level() >= Level::INFO && self.quiet.iter().any(is_of) {
            return Ok(());
        }
        let mut message = String::new();
        context.format_fields(Writer::new(&mut message), event)?;
        let level = *metadata.level();
        writer.write_str(&line(self.tool, self.format, level, &message))
    }
}

/// Formats a message of `tool` as a line. Cuts a long one, which has text from outside: of a file, a server, a command line.
pub(crate) fn line(tool: &str, format: LogFormat, level: Level, message: &str) -> String {
    let message = shortened(message);
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

/// The most bytes of a message that are shown.
const LONGEST: usize = 2048;

/// Cuts the middle of a long text: a message begins with its path and ends with what was found.
fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= LONGEST {
        return text.into();
    }
    let begin = text.floor_char_boundary(LONGEST / 2);
    let end = text.ceil_char_boundary(text.len() - LONGEST / 2);
    let left_out = text[begin..end].chars().count();
    let (begin, end) = (&text[..begin], &text[end..]);
    format!("{begin}… ({left_out} characters left out) …{end}").into()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_in_the_middle() {
        let shown = "ä".repeat(LONGEST / 2);
        assert_eq!(shortened(&shown), shown);
        let long = format!("a{}b", "ä".repeat(1 << 19));
        let half = "ä".repeat(LONGEST / 4 - 1);
        let left_out = (1 << 19) - 2 * (LONGEST / 4 - 1);
        let expected = format!("a{half}… ({left_out} characters left out) …{half}b");
        assert_eq!(shortened(&long), expected);
        for format in [LogFormat::Text, LogFormat::Json] {
            let line = line("tool", format, Level::ERROR, &long);
            assert!(line.len() < LONGEST + 200 && line.ends_with('\n'));
        }
    }
}
