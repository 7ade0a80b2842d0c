//! Parses FASTA text.

use std::borrow::Cow;
use std::io::BufRead;

use memchr::memchr;

use crate::error::RecordError;
use crate::records::Records;

/// Limits of an input, which bound the memory of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of the `>` and the id.
    pub id_bytes: usize,
    /// The most bytes that are kept of a description.
    pub description_bytes: usize,
    /// The most bytes of the sequence lines of a record.
    pub sequence_bytes: usize,
    /// The most bytes of blank lines before the first record.
    pub blank_bytes: usize,
}

/// An id of 1 MiB; a description of 64 KiB, because thousands are in memory at once; a sequence of 16 MiB, several hundred times the
/// longest known protein (titin, 35,000 residues).
impl Default for Limits {
    fn default() -> Self {
        Self {
            id_bytes: 1 << 20,
            description_bytes: 1 << 16,
            sequence_bytes: 1 << 24,
            blank_bytes: 1 << 24,
        }
    }
}

impl Limits {
    /// Those of contigs: a sequence of 1 GiB. The chromosomes of wheat have up to 0.9 GB.
    pub fn for_contigs() -> Self {
        Self {
            sequence_bytes: 1 << 30,
            ..Self::default()
        }
    }
}

/// Text that starts with a header line and ends where a record ends.
pub(crate) struct FastaBlock {
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
    /// How many descriptions were cut, because they are longer than the limit.
    pub(crate) descriptions_cut: u64,
    /// Why the record after these is invalid.
    pub(crate) error: Option<RecordError>,
}

impl FastaBlock {
    /// Parses the records.
    pub(crate) fn parse(self) -> Parsed {
        let mut parsed = Parsed {
            records: Records::with_capacity(self.text.len()),
            descriptions_recoded: 0,
            descriptions_cut: 0,
            error: None,
        };
        let mut at = 0;
        while at < self.text.len() && parsed.error.is_none() {
            match self.parse_record(at, &mut parsed) {
                Ok(next) => at = next,
                Err(error) => parsed.error = Some(error),
            }
        }
        parsed
    }

    /// Parses the record that starts at `start`. Returns where it ends.
    fn parse_record(&self, start: usize, parsed: &mut Parsed) -> Result<usize, RecordError> {
        let body = memchr(b'\n', &self.text[start..]);
        let body = body.map_or(self.text.len(), |end| start + end + 1);
        let (id, description, cut) = header(&self.text[start..body], &self.limits)?;
        let recoded = matches!(description, Some(Cow::Owned(_)));
        parsed.records.push_header(id, description.as_deref());
        match self.parse_sequence(body, &mut parsed.records) {
            Ok(next) => {
                parsed.descriptions_recoded += u64::from(recoded);
                parsed.descriptions_cut += u64::from(cut);
                Ok(next)
            }
            Err(problem) => {
                parsed.records.pop();
                Err(RecordError::new(Some(id), problem))
            }
        }
    }

    /// Adds the sequence lines that start at `start` to the last record. Returns where they end.
    fn parse_sequence(&self, start: usize, records: &mut Records) -> Result<usize, String> {
        let mut reader = noodles_fasta::io::Reader::new(&self.text[start..]);
        let mut lines = reader.sequence_reader();
        let mut bytes = 0;
        // Slices never fail.
        while let Ok(line @ [first, ..]) = lines.fill_buf() {
            if *first == b';' {
                return Err(misplaced(';'));
            }
            if memchr(b'>', line).is_some() {
                // Two files were joined, the first without a final line end.
                return Err(misplaced('>'));
            }
            bytes += line.len();
            if bytes > self.limits.sequence_bytes {
                return Err(self.too_long());
            }
            records.extend_last(line);
            let length = line.len();
            lines.consume(length);
        }
        let next = self.text.len() - reader.get_ref().len();
        // The reader takes a carriage return for a line end.
        if next < self.text.len() && self.text[next - 1] != b'\n' {
            return Err(misplaced('>'));
        }
        if self.cut && next == self.text.len() {
            return Err(self.too_long());
        }
        Ok(next)
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

/// Parses a header line. Returns the id, the description, and whether it was cut: NCBI's nr joins the headers of equal proteins to
/// lines of megabytes.
fn header<'a>(
    line: &'a [u8],
    limits: &Limits,
) -> Result<(&'a str, Option<Cow<'a, str>>, bool), RecordError> {
    let mut header = line;
    while let [line @ .., b'\n' | b'\r'] = header {
        header = line;
    }
    let end = header.iter().position(u8::is_ascii_whitespace);
    let (name, description) = header.split_at(end.unwrap_or(header.len()));
    let limit = limits.id_bytes;
    if name.len() > limit {
        let problem =
            format!("the header line is too long: expected at most {limit} bytes before a blank");
        return Err(RecordError::new(None, problem));
    }
    let name = name.strip_prefix(b">").unwrap_or(name);
    let Ok(id) = std::str::from_utf8(name) else {
        let id = String::from_utf8_lossy(name);
        let problem = "expected an id in UTF-8, found other bytes";
        return Err(RecordError::new(Some(&id), problem));
    };
    // Readers of HDF5 end a string there, so that two ids would be one.
    if memchr(0, name).is_some() {
        return Err(RecordError::new(
            Some(id),
            "expected an id without NUL bytes",
        ));
    }
    // Residues may follow the carriage return, and would be lost.
    if memchr(b'\r', description).is_some() {
        let problem =
            "expected lines that end in LF or CRLF, found a carriage return inside the header";
        return Err(RecordError::new(Some(id), problem));
    }
    let limit = limits.description_bytes;
    let cut = description.len() > limit;
    let description = description[..character_end(description, limit)].trim_ascii();
    let description = (!description.is_empty()).then(|| String::from_utf8_lossy(description));
    Ok((id, description, cut))
}

/// Returns where the last character of UTF-8 ends that is whole in the first `limit` bytes of `text`.
fn character_end(text: &[u8], limit: usize) -> usize {
    let is_start = |at: &usize| text[*at] & 0xc0 != 0x80;
    match text.len() {
        length if length <= limit => length,
        _ => (limit.saturating_sub(3)..=limit)
            .rev()
            .find(is_start)
            .unwrap_or(limit),
    }
}
