//! Reads FASTA records.

use std::borrow::Cow;
use std::io::{BufRead, Read};

use plmkit_contract::{InputSummary, Quoted, Stop};
use plmkit_store::FileKind;

use crate::error::ShardError;
use crate::input::Input;
use crate::records::Records;
use crate::source::{Source, inner_error};

/// Limits of an input, which bound the memory of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of a header line.
    pub header_bytes: usize,
    /// The most bytes of the sequence lines of a record.
    pub sequence_bytes: usize,
    /// The most bytes of blank lines before the first record.
    pub blank_bytes: usize,
}

/// A header of 1 MiB; a sequence of 16 MiB, several hundred times the longest known protein (titin, 35,000 residues).
impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 1 << 20,
            sequence_bytes: 1 << 24,
            blank_bytes: 1 << 24,
        }
    }
}

/// Reads the records of one input. Do not use the reader after an error.
///
/// ```
/// use plmkit_contract::Stop;
/// use plmkit_sequence::{FastaReader, Input, Limits, Records};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("a.fasta");
/// std::fs::write(&path, ">P1 a protein\r\nMKV\r\n\r\nLA\r\n>P2\n")?;
/// let mut reader = FastaReader::open(&Input::File(path), Limits::default(), &Stop::default())?;
/// let mut records = Records::default();
/// while reader.read(&mut records)? {}
/// let record = records.get(0);
/// assert_eq!((record.id, record.description), ("P1", Some("a protein")));
/// assert_eq!(record.sequence, b"MKVLA");
/// assert_eq!(records.get(1).id, "P2");
/// assert_eq!(reader.finish()?.records, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FastaReader {
    inner: noodles_fasta::io::Reader<Source>,
    limits: Limits,
    /// The header line of the current record.
    header: Vec<u8>,
    records: u64,
    descriptions_recoded: u64,
}

impl FastaReader {
    /// Opens an input. A pipe ends once a stop is requested.
    pub fn open(input: &Input, limits: Limits, stop: &Stop) -> Result<Self, ShardError> {
        Ok(Self::new(Source::open(input, stop)?, limits))
    }

    fn new(source: Source, limits: Limits) -> Self {
        Self {
            inner: noodles_fasta::io::Reader::new(source),
            limits,
            header: Vec::new(),
            records: 0,
            descriptions_recoded: 0,
        }
    }

    /// Adds the next record to `records`. Returns false after the last.
    pub fn read(&mut self, records: &mut Records) -> Result<bool, ShardError> {
        if self.records == 0 {
            self.skip_to_first()?;
        }
        if self.source().fill_buf().map_err(inner_error)?.is_empty() {
            return Ok(false);
        }
        self.records += 1;
        self.read_header(records)?;
        let read = self.read_sequence(records);
        if read.is_err() {
            records.pop();
        }
        read.map(|()| true)
    }

    /// Returns how many descriptions so far had bytes that were not UTF-8. U+FFFD replaces them.
    pub fn descriptions_recoded(&self) -> u64 {
        self.descriptions_recoded
    }

    /// Returns the input's name, digest, bytes and records.
    pub fn finish(self) -> Result<InputSummary, ShardError> {
        let source = self.inner.into_inner();
        let name = source.input().name();
        let (digest, bytes) = source.finish().map_err(inner_error)?;
        Ok(InputSummary {
            name,
            digest,
            bytes,
            records: self.records,
        })
    }

    /// Reads the rest of a compressed input, and returns its damage if there is any. It may explain an invalid record. Plain
    /// text has no checksum.
    pub(crate) fn damage(self, stop: &Stop) -> Option<ShardError> {
        let source = self.inner.into_inner();
        if source.is_compressed() {
            source.digest(stop).err()
        } else {
            None
        }
    }

    fn source(&mut self) -> &mut Source {
        self.inner.get_mut()
    }

    /// Makes an error of the current record.
    fn invalid(&self, id: Option<&str>, problem: impl Into<String>) -> ShardError {
        ShardError::Record {
            input: self.inner.get_ref().input().clone(),
            record: self.records,
            id: id.map(str::to_owned),
            problem: problem.into(),
        }
    }

    /// Skips blank lines before the first record.
    fn skip_to_first(&mut self) -> Result<(), ShardError> {
        let limit = self.limits.blank_bytes;
        let source = self.source();
        let (mut line, mut skipped) = (1, 0);
        loop {
            let bytes = source.fill_buf().map_err(inner_error)?;
            let is_end = bytes.is_empty();
            let first = bytes.iter().position(|byte| !byte.is_ascii_whitespace());
            let found = first.map(|first| bytes[first]);
            let blank = first.unwrap_or(bytes.len());
            line += newlines(&bytes[..blank]);
            source.consume(blank);
            skipped += blank;
            match found {
                Some(b'>') => return Ok(()),
                Some(_) => return Err(not_fasta(source, line)),
                None if is_end => return Ok(()),
                None if skipped > limit => {
                    let (input, found) = (source.input().clone(), "blank lines only".to_owned());
                    return Err(ShardError::NotFasta { input, line, found });
                }
                None => {}
            }
        }
    }

    /// Reads a header line. The record has no sequence yet.
    fn read_header(&mut self, records: &mut Records) -> Result<(), ShardError> {
        let limit = self.limits.header_bytes;
        let mut header = std::mem::take(&mut self.header);
        header.clear();
        // The limit excludes the line end.
        Read::take(self.source(), limit as u64 + 2)
            .read_until(b'\n', &mut header)
            .map_err(inner_error)?;
        self.header = header;
        let mut header = &self.header[..];
        while let [line @ .., b'\n' | b'\r'] = header {
            header = line;
        }
        if header.len() > limit {
            let problem = format!("the header line is too long: expected at most {limit} bytes");
            return Err(self.invalid(None, problem));
        }
        let header = header.strip_prefix(b">").unwrap_or(header);
        let end = header.iter().position(u8::is_ascii_whitespace);
        let (name, description) = header.split_at(end.unwrap_or(header.len()));
        let Ok(id) = std::str::from_utf8(name) else {
            let id = String::from_utf8_lossy(name);
            let problem = "expected an id in UTF-8, found other bytes";
            return Err(self.invalid(Some(&id), problem));
        };
        // Residues may follow the carriage return, and would be lost.
        if description.contains(&b'\r') {
            let problem =
                "expected lines that end in LF or CRLF, found a carriage return inside the header";
            return Err(self.invalid(Some(id), problem));
        }
        let description = description.trim_ascii();
        let description = (!description.is_empty()).then(|| String::from_utf8_lossy(description));
        self.descriptions_recoded += u64::from(matches!(description, Some(Cow::Owned(_))));
        records.push(id, description.as_deref());
        Ok(())
    }

    fn read_sequence(&mut self, records: &mut Records) -> Result<(), ShardError> {
        let limit = self.limits.sequence_bytes;
        let mut total = 0;
        loop {
            // This reader skips line ends. It also ends at a '>' that is the first byte of a buffer.
            let mut lines = self.inner.sequence_reader();
            let count = lines.fill_buf().map_err(inner_error)?.len();
            let source = self.source();
            let starts_line = source.at_line_start();
            let bytes = source.fill_buf().map_err(inner_error)?;
            if count == 0 && (starts_line || bytes.is_empty()) {
                return Ok(());
            }
            let bytes = &bytes[..count];
            let misplaced = if count == 0 || bytes.contains(&b'>') {
                Some('>')
            } else {
                (starts_line && bytes[0] == b';').then_some(';')
            };
            let problem = if let Some(found) = misplaced {
                // A '>' inside a line: two files were joined, the first without a final line end.
                format!(
                    "found '{found}' in its sequence; expected headers at the start of a line and no comments"
                )
            } else if total + count > limit {
                format!("the sequence is too long: expected at most {limit} bytes")
            } else {
                records.extend_last(bytes);
                total += count;
                source.consume(count);
                continue;
            };
            return Err(self.invalid(Some(records.last().id), problem));
        }
    }
}

/// Makes the error of a source whose next bytes, in this line, do not start a record.
fn not_fasta(source: &mut Source, line: u64) -> ShardError {
    let mut start = Vec::new();
    let read = Read::take(&mut *source, 200).read_until(b'\n', &mut start);
    if let Err(error) = read {
        return inner_error(error);
    }
    let input = source.input().clone();
    let kind = match &input {
        _ if start.starts_with(b"\xef\xbb\xbf") => {
            Some("a byte order mark (bytes EF BB BF); save the text without it".to_owned())
        }
        Input::File(path) if !source.is_compressed() => {
            FileKind::detect(path).map(|kind| kind.to_string())
        }
        _ => None,
    };
    let quoted = || Quoted(String::from_utf8_lossy(&start).trim_end()).to_string();
    let found = kind.unwrap_or_else(quoted);
    ShardError::NotFasta { input, line, found }
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.split(|&byte| byte == b'\n').count() as u64 - 1
}

#[cfg(test)]
mod tests;
