//! Parses FASTA text.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr;

use crate::error::ShardError;
use crate::fasta::Limits;
use crate::input::Input;
use crate::records::Records;

/// Text that starts with a header line and ends where a record ends.
pub(crate) struct Block {
    pub(crate) text: Vec<u8>,
    pub(crate) limits: Limits,
    /// Whether the last record has more text, and is longer than the limits.
    pub(crate) cut: bool,
}

/// The records of a block.
pub(crate) struct Parsed {
    pub(crate) records: Records,
    /// How many descriptions had bytes that were not UTF-8. U+FFFD replaces them.
    pub(crate) descriptions_recoded: u64,
    /// Why the record after these is invalid.
    pub(crate) error: Option<RecordError>,
}

/// Why a record is invalid.
#[derive(Debug)]
pub(crate) struct RecordError {
    id: Option<String>,
    problem: String,
}

impl RecordError {
    fn new(id: Option<&str>, problem: impl Into<String>) -> Self {
        Self {
            id: id.map(str::to_owned),
            problem: problem.into(),
        }
    }

    /// Makes the error of a run: this is the `record`-th of `input`, counted from 1.
    pub(crate) fn of(self, input: &Input, record: u64) -> ShardError {
        ShardError::Record {
            input: input.clone(),
            record,
            id: self.id,
            problem: self.problem,
        }
    }
}

impl Block {
    /// Parses the records. Their sequences stay in the text of the block.
    pub(crate) fn parse(mut self) -> Parsed {
        let mut parsed = Parsed {
            records: Records::default(),
            descriptions_recoded: 0,
            error: None,
        };
        let mut at = 0;
        while at < self.text.len() && parsed.error.is_none() {
            match self.parse_record(at, &mut parsed) {
                Ok(next) => at = next,
                Err(error) => parsed.error = Some(error),
            }
        }
        parsed.records.set_text(self.text);
        parsed
    }

    /// Parses the record that starts at `start`. Returns where it ends.
    fn parse_record(&mut self, start: usize, parsed: &mut Parsed) -> Result<usize, RecordError> {
        let body = self.line_end(start);
        // The sequence is found first: it moves in the text, and the header does not.
        let sequence = self.join_lines(body);
        let (id, description) = header(&self.text[start..body], self.limits.header_bytes)?;
        let (sequence, next) = sequence.map_err(|problem| RecordError::new(Some(id), problem))?;
        if self.cut && next == self.text.len() {
            return Err(RecordError::new(Some(id), self.too_long()));
        }
        parsed.descriptions_recoded += u64::from(matches!(description, Some(Cow::Owned(_))));
        let records = &mut parsed.records;
        records.push_placed(id, description.as_deref(), sequence);
        Ok(next)
    }

    /// Returns the start of the line after that at `at`.
    fn line_end(&self, at: usize) -> usize {
        memchr(b'\n', &self.text[at..]).map_or(self.text.len(), |end| at + end + 1)
    }

    /// Joins the sequence lines that start at `start`. Returns their place, and where the record ends.
    fn join_lines(&mut self, start: usize) -> Result<(Range<usize>, usize), String> {
        let (mut at, mut end) = (start, start);
        while let Some(&first) = self.text.get(at)
            && first != b'>'
        {
            if first == b';' {
                return Err(misplaced(';'));
            }
            let next = self.line_end(at);
            let line = &self.text[at..next];
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let has_end = line.len() < next - at;
            let line = match line.strip_suffix(b"\r") {
                Some(line) if has_end => line,
                _ => line,
            };
            let bytes = line.len();
            if end != at {
                self.text.copy_within(at..at + bytes, end);
            }
            end += bytes;
            at = next;
        }
        if memchr(b'>', &self.text[start..end]).is_some() {
            // Two files were joined, the first without a final line end.
            return Err(misplaced('>'));
        }
        if end - start > self.limits.sequence_bytes {
            return Err(self.too_long());
        }
        Ok((start..end, at))
    }

    fn too_long(&self) -> String {
        let limit = self.limits.sequence_bytes;
        format!("the sequence is too long: expected at most {limit} bytes")
    }
}

fn misplaced(found: char) -> String {
    format!(
        "found '{found}' in its sequence; expected headers at the start of a line and no comments"
    )
}

/// Parses a header line. Returns the id and the description.
fn header(line: &[u8], limit: usize) -> Result<(&str, Option<Cow<'_, str>>), RecordError> {
    let mut header = line;
    while let [line @ .., b'\n' | b'\r'] = header {
        header = line;
    }
    if header.len() > limit {
        let problem = format!("the header line is too long: expected at most {limit} bytes");
        return Err(RecordError::new(None, problem));
    }
    let header = header.strip_prefix(b">").unwrap_or(header);
    let end = header.iter().position(u8::is_ascii_whitespace);
    let (name, description) = header.split_at(end.unwrap_or(header.len()));
    let Ok(id) = std::str::from_utf8(name) else {
        let id = String::from_utf8_lossy(name);
        let problem = "expected an id in UTF-8, found other bytes";
        return Err(RecordError::new(Some(&id), problem));
    };
    // Residues may follow the carriage return, and would be lost.
    if memchr(b'\r', description).is_some() {
        let problem =
            "expected lines that end in LF or CRLF, found a carriage return inside the header";
        return Err(RecordError::new(Some(id), problem));
    }
    let description = description.trim_ascii();
    let description = (!description.is_empty()).then(|| String::from_utf8_lossy(description));
    Ok((id, description))
}
