//! Reads FASTA records.

use std::path::Path;

use memchr::{memchr2, memrchr_iter};
use plmkit_contract::InputSummary;
use plmkit_kit::{Quoted, Stop};
use plmkit_store::FileKind;

use crate::block::{FastaBlock, Limits, newlines};
use crate::error::ShardError;
use crate::input::shown;
use crate::records::Records;
use crate::source::Source;

/// The usual size of a block. The text of a block stays in the cache of a core.
pub(crate) const BLOCK_BYTES: usize = 1 << 19;

/// How much text after an invalid record is read for damage that explains it: a second's work.
const EXPLAINED_BYTES: u64 = 1 << 30;

/// Reads one input in blocks of whole records. Do not use the reader after an error.
///
/// ```
/// use plmkit_kit::Stop;
/// use plmkit_sequence::{FastaReader, Limits};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("a.fasta");
/// std::fs::write(&path, ">P1 a protein\r\nMKV\r\n\r\nLA\r\n>P2\n")?;
/// let mut reader = FastaReader::open(&path, Limits::default(), &Stop::default())?;
/// let records = reader.read()?.expect("the first block");
/// let record = records.get(0);
/// assert_eq!((record.id, record.description), ("P1", Some("a protein")));
/// assert_eq!(record.sequence, b"MKVLA");
/// assert_eq!(records.get(1).id, "P2");
/// assert!(reader.read()?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FastaReader {
    source: Source,
    limits: Limits,
    block_bytes: usize,
    /// The start of the next block; `None` before the first.
    rest: Option<Vec<u8>>,
    /// The number of its first line.
    line: u64,
    /// Records that [`read`](Self::read) returned.
    records: u64,
}

impl FastaReader {
    /// Opens an input, which may be `-`, standard input. Once a stop is requested, reading fails.
    pub fn open(input: &Path, limits: Limits, stop: &Stop) -> Result<Self, ShardError> {
        Ok(Self::new(Source::open(input, stop)?, limits, BLOCK_BYTES))
    }

    fn new(source: Source, limits: Limits, block_bytes: usize) -> Self {
        Self {
            source,
            limits,
            block_bytes,
            rest: None,
            line: 1,
            records: 0,
        }
    }

    /// Reads the records of the next block. Returns `None` after the last.
    pub fn read(&mut self) -> Result<Option<Records>, ShardError> {
        let Some(block) = self.read_block()? else {
            return Ok(None);
        };
        let parsed = block.parse();
        self.records += parsed.records.len() as u64;
        match parsed.error {
            Some(error) => {
                let input = shown(self.source.input()).to_owned();
                Err(ShardError::Record(input, self.records + 1, error))
            }
            None => Ok(Some(parsed.records)),
        }
    }

    /// Reads the next block. Returns `None` after the last.
    pub(crate) fn read_block(&mut self) -> Result<Option<FastaBlock>, ShardError> {
        let mut text = if let Some(rest) = self.rest.take() {
            rest
        } else {
            self.skip_to_first()?;
            Vec::new()
        };
        // A block that has more, and no second record, ends inside its record.
        let (limits, line) = (self.limits, self.line);
        let block = |text, cut| FastaBlock {
            text,
            limits,
            line,
            cut,
        };
        let header = limits.id_bytes + limits.description_bytes + 1;
        let most = header + 2 * limits.sequence_bytes + self.block_bytes;
        let mut searched = 1;
        loop {
            let until = self.block_bytes.max(text.len() + self.block_bytes / 2);
            if !self.source.fill(&mut text, until + 1)? {
                self.rest = Some(Vec::new());
                return Ok((!text.is_empty()).then(|| block(text, false)));
            }
            let is_long = text.len() > header && memchr2(b'\n', b'\r', &text).is_none();
            let mut id = text.iter().take(limits.id_bytes + 1);
            if is_long && id.any(u8::is_ascii_whitespace) {
                // A byte more than is kept, which tells the parser that there is more.
                text.truncate(header);
                self.skip_line()?;
                searched = header;
                continue;
            }
            let last = last_record(&text, searched);
            // An id that is too long is an error.
            let cut = is_long || last.is_none() && text.len() > most;
            if last.is_some() || cut {
                let next = last.unwrap_or(text.len());
                let mut rest = Vec::with_capacity(self.block_bytes.max(text.len() - next) + 1);
                rest.extend_from_slice(&text[next..]);
                self.rest = Some(rest);
                text.truncate(next);
                self.line += newlines(&text);
                return Ok(Some(block(text, cut)));
            }
            searched = text.len();
        }
    }

    /// Reads the rest, and returns the input's name, digest, bytes and number of records, which the caller counted.
    pub(crate) fn finish(self, records: u64) -> Result<InputSummary, ShardError> {
        let name = self.source.input().file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let (digest, bytes) = self.source.finish()?;
        Ok(InputSummary {
            name,
            digest,
            bytes,
            records,
        })
    }

    /// Reads on in a compressed input, for [`EXPLAINED_BYTES`], and returns its damage if there is any. It may explain an
    /// invalid record. Plain text has no checksum.
    pub(crate) fn damage(mut self) -> Option<ShardError> {
        let end = self.source.bytes_read() + EXPLAINED_BYTES;
        while self.source.is_compressed() && self.source.bytes_read() < end {
            match self.source.skip() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(error),
            }
        }
        None
    }

    /// Skips the rest of a line, up to a carriage return: residues may follow it.
    fn skip_line(&mut self) -> Result<(), ShardError> {
        loop {
            let bytes = self.source.peek()?;
            let end = memchr2(b'\n', b'\r', bytes);
            let (skipped, ended) = (
                end.unwrap_or(bytes.len()),
                end.is_some() || bytes.is_empty(),
            );
            self.source.consume(skipped);
            if ended {
                return Ok(());
            }
        }
    }

    /// Skips blank lines before the first record.
    fn skip_to_first(&mut self) -> Result<(), ShardError> {
        let limit = self.limits.blank_bytes;
        let source = &mut self.source;
        let mut skipped = 0;
        loop {
            let bytes = source.peek()?;
            let is_end = bytes.is_empty();
            let first = bytes.iter().position(|byte| !byte.is_ascii_whitespace());
            let found = first.map(|first| bytes[first]);
            let blank = first.unwrap_or(bytes.len());
            self.line += newlines(&bytes[..blank]);
            source.consume(blank);
            skipped += blank;
            match found {
                Some(b'>') => return Ok(()),
                Some(_) => return Err(other_text(source, self.line)?),
                None if is_end => return Ok(()),
                None if skipped > limit => {
                    return Err(not_fasta(source.input(), self.line, "blank lines only"));
                }
                None => {}
            }
        }
    }
}

/// Returns the start of the last record that starts at `searched` or later.
fn last_record(text: &[u8], searched: usize) -> Option<usize> {
    let starts = memrchr_iter(b'>', text.get(searched..)?);
    let mut starts = starts.map(|at| at + searched);
    starts.find(|&at| text[at - 1] == b'\n')
}

/// Makes the error of an input that has something else than a record in this line.
fn not_fasta(input: &Path, line: u64, found: &str) -> ShardError {
    let what = format!("not FASTA: expected '>' at the start of line {line}, found {found}");
    ShardError::Text(shown(input).to_owned(), what)
}

/// Makes the error of a source whose next bytes, in this line, do not start a record.
fn other_text(source: &mut Source, line: u64) -> Result<ShardError, ShardError> {
    let mut start = Vec::new();
    source.fill(&mut start, 200)?;
    let start = start.split_inclusive(|&byte| byte == b'\n').next();
    let start = start.unwrap_or_default();
    let input = source.input();
    let kind = if start.starts_with(b"\xef\xbb\xbf") {
        Some("a byte order mark (bytes EF BB BF); save the text without it".to_owned())
    } else if source.is_compressed() || input == "-" {
        None
    } else {
        FileKind::detect(input).map(|kind| kind.to_string())
    };
    let quoted = || Quoted(String::from_utf8_lossy(start).trim_end()).to_string();
    Ok(not_fasta(input, line, &kind.unwrap_or_else(quoted)))
}

#[cfg(test)]
mod tests;
