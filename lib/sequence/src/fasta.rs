//! FASTA records, one after another.

use std::borrow::Cow;
use std::io::{BufRead, Read};

use plmkit_contract::{InputSummary, Quoted, Stop};
use plmkit_store::FileKind;

use crate::error::{RecordProblem, ShardError};
use crate::input::Input;
use crate::source::{Source, inner_error};

/// Sizes above which an input is refused before it takes the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a header line.
    pub header_bytes: usize,
    /// Bytes of the sequence lines of one record.
    pub sequence_bytes: usize,
    /// Bytes of blank lines before the first record.
    pub blank_bytes: usize,
}

/// 1 MiB of header; 16 MiB of sequence, several hundred times the longest protein known (titin, 35,000 residues).
impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 1 << 20,
            sequence_bytes: 1 << 24,
            blank_bytes: 1 << 24,
        }
    }
}

/// One record as it is in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// 1-based position in its file.
    pub number: u64,
    /// First word of the header; empty where a blank or nothing follows the `>`.
    pub id: String,
    /// The rest of the header, if there is any.
    pub description: Option<String>,
    /// Whether bytes of the description were not UTF-8 and became U+FFFD.
    pub description_recoded: bool,
    /// The bytes of the sequence lines without the line ends.
    pub sequence: Vec<u8>,
}

/// Reads the records of one input. After an error the reader is of no further use.
///
/// ```
/// use plmkit_contract::Stop;
/// use plmkit_sequence::{FastaReader, Input, Limits};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("a.fasta");
/// std::fs::write(&path, ">P1 a protein\r\nMKV\r\n\r\nLA\r\n>P2\n")?;
/// let mut reader = FastaReader::open(&Input::File(path), Limits::default(), &Stop::default())?;
/// let record = reader.read()?.unwrap();
/// assert_eq!((record.id.as_str(), record.description.as_deref()), ("P1", Some("a protein")));
/// assert_eq!(record.sequence, b"MKVLA");
/// let record = reader.read()?.unwrap();
/// assert_eq!((record.id.as_str(), record.number), ("P2", 2));
/// assert_eq!(reader.read()?, None);
/// assert_eq!(reader.finish()?.records, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FastaReader {
    inner: noodles_fasta::io::Reader<Source>,
    limits: Limits,
    /// The header line of the current record.
    header: Vec<u8>,
    records: u64,
}

impl FastaReader {
    /// Opens an input. A pipe is at its end once `stop` is asked for.
    pub fn open(input: &Input, limits: Limits, stop: &Stop) -> Result<Self, ShardError> {
        Ok(Self::new(Source::open(input, stop)?, limits))
    }

    fn new(source: Source, limits: Limits) -> Self {
        Self {
            inner: noodles_fasta::io::Reader::new(source),
            limits,
            header: Vec::new(),
            records: 0,
        }
    }

    /// Reads the next record; `None` after the last.
    pub fn read(&mut self) -> Result<Option<Record>, ShardError> {
        if self.records == 0 {
            self.skip_to_first()?;
        }
        if self.source().fill_buf().map_err(inner_error)?.is_empty() {
            return Ok(None);
        }
        self.records += 1;
        let mut record = self.read_header()?;
        record.sequence = self.read_sequence(&record.id)?;
        Ok(Some(record))
    }

    /// What was read: the input's name, digest, bytes and records.
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

    /// Whether the rest of the input is damaged: then the damage explains what is wrong with the records before it. Plain
    /// text cannot tell.
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

    /// What is wrong with the current record.
    fn failed(&self, id: Option<&str>, problem: RecordProblem) -> ShardError {
        ShardError::Record {
            input: self.inner.get_ref().input().clone(),
            record: self.records,
            id: id.map(str::to_owned),
            problem,
        }
    }

    /// Skips blank lines before the first record.
    fn skip_to_first(&mut self) -> Result<(), ShardError> {
        let limit = self.limits.blank_bytes;
        let source = self.source();
        let (mut line, mut blanks) = (1, 0);
        loop {
            let bytes = source.fill_buf().map_err(inner_error)?;
            let Some(blank) = bytes.iter().position(|byte| !byte.is_ascii_whitespace()) else {
                if bytes.is_empty() {
                    return Ok(());
                }
                line += newlines(bytes);
                let count = bytes.len();
                source.consume(count);
                blanks += count;
                if blanks > limit {
                    return Err(ShardError::NotFasta {
                        line,
                        found: "blank lines only".to_owned(),
                        input: source.input().clone(),
                    });
                }
                continue;
            };
            line += newlines(&bytes[..blank]);
            if bytes[blank] == b'>' {
                source.consume(blank);
                return Ok(());
            }
            source.consume(blank);
            let mut start = Vec::new();
            Read::take(&mut *source, 200)
                .read_until(b'\n', &mut start)
                .map_err(inner_error)?;
            let input = source.input().clone();
            let found = match &input {
                _ if start.starts_with(b"\xef\xbb\xbf") => {
                    Some("a byte order mark (bytes EF BB BF); save the text without it".to_owned())
                }
                Input::File(path) if !source.is_compressed() => {
                    FileKind::detect(path).map(|kind| kind.to_string())
                }
                _ => None,
            };
            return Err(ShardError::NotFasta {
                line,
                found: found.unwrap_or_else(|| {
                    Quoted(String::from_utf8_lossy(&start).trim_end()).to_string()
                }),
                input,
            });
        }
    }

    /// Reads a header line. The record has no sequence yet.
    fn read_header(&mut self) -> Result<Record, ShardError> {
        let limit = self.limits.header_bytes;
        let mut header = std::mem::take(&mut self.header);
        header.clear();
        // The limit is of the line without its end.
        Read::take(self.source(), limit as u64 + 2)
            .read_until(b'\n', &mut header)
            .map_err(inner_error)?;
        self.header = header;
        let failed = |id: Option<&str>, problem| self.failed(id, problem);
        let mut header = &self.header[..];
        while let [line @ .., b'\n' | b'\r'] = header {
            header = line;
        }
        if header.len() > limit {
            return Err(failed(None, RecordProblem::HeaderTooLong(limit)));
        }
        let header = header.strip_prefix(b">").unwrap_or(header);
        let end = header.iter().position(u8::is_ascii_whitespace);
        let (name, description) = header.split_at(end.unwrap_or(header.len()));
        let Ok(id) = std::str::from_utf8(name) else {
            let id = String::from_utf8_lossy(name);
            return Err(failed(Some(&id), RecordProblem::IdEncoding));
        };
        // Residues may stand behind it, and they would be lost.
        if description.contains(&b'\r') {
            return Err(failed(Some(id), RecordProblem::LineEnd));
        }
        let description = description.trim_ascii();
        let description = (!description.is_empty()).then(|| String::from_utf8_lossy(description));
        Ok(Record {
            number: self.records,
            id: id.to_owned(),
            description_recoded: matches!(description, Some(Cow::Owned(_))),
            description: description.map(Cow::into_owned),
            sequence: Vec::new(),
        })
    }

    fn read_sequence(&mut self, id: &str) -> Result<Vec<u8>, ShardError> {
        let mut sequence = Vec::new();
        let limit = self.limits.sequence_bytes;
        loop {
            // Skips line ends, and is at its end at a '>' that happens to be the first byte of a buffer.
            let mut lines = self.inner.sequence_reader();
            let count = lines.fill_buf().map_err(inner_error)?.len();
            let source = self.source();
            let starts_line = source.at_line_start();
            let bytes = source.fill_buf().map_err(inner_error)?;
            if count == 0 && (starts_line || bytes.is_empty()) {
                return Ok(sequence);
            }
            let bytes = &bytes[..count];
            let misplaced = if count == 0 || bytes.contains(&b'>') {
                Some('>')
            } else {
                (starts_line && bytes[0] == b';').then_some(';')
            };
            if let Some(found) = misplaced {
                return Err(self.failed(Some(id), RecordProblem::Misplaced(found)));
            }
            if sequence.len() + count > limit {
                return Err(self.failed(Some(id), RecordProblem::SequenceTooLong(limit)));
            }
            sequence.extend_from_slice(bytes);
            source.consume(count);
        }
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.split(|&byte| byte == b'\n').count() as u64 - 1
}

#[cfg(test)]
mod tests;
