//! Why the bytes of an input cannot be had.

use std::io;

use plmkit_contract::{Exit, Failure, io_text};

use crate::compression::Format;
use crate::input::Input;

/// Why the bytes of an input cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The input is not there or may not be opened.
    #[error("{input}: cannot open: {}", io_text(.source))]
    Open {
        /// The input.
        input: Input,
        /// Why.
        source: io::Error,
    },
    /// Reading failed midway.
    #[error("{input}: cannot read: {}", io_text(.source))]
    Read {
        /// The input.
        input: Input,
        /// Why.
        source: io::Error,
    },
    /// The compressed stream ends before its end.
    #[error("{input}: the {format} stream is cut: expected its end, found the end of the file")]
    Truncated {
        /// The input.
        input: Input,
        /// Its compression.
        format: Format,
    },
    /// The compressed stream is damaged.
    #[error("{input}: the {format} stream is damaged: {what}")]
    Damaged {
        /// The input.
        input: Input,
        /// Its compression.
        format: Format,
        /// What the decoder says.
        what: String,
    },
    /// A compression that is not read.
    #[error("{input}: expected plain, gzip, bgzip or zstd, found {format}")]
    Unsupported {
        /// The input.
        input: Input,
        /// Its compression.
        format: Format,
    },
}

impl Failure for SourceError {
    fn exit(&self) -> Exit {
        match self {
            Self::Open { .. } => Exit::NoInput,
            Self::Read { .. } => Exit::Io,
            Self::Truncated { .. } | Self::Damaged { .. } | Self::Unsupported { .. } => Exit::Data,
        }
    }
}

impl SourceError {
    pub(super) fn new(input: &Input, format: Format, source: io::Error) -> Self {
        let input = input.clone();
        match source.kind() {
            _ if source.raw_os_error().is_some() => Self::Read { input, source },
            io::ErrorKind::UnexpectedEof => Self::Truncated { input, format },
            _ => Self::Damaged {
                input,
                format,
                what: io_text(&source),
            },
        }
    }
}
