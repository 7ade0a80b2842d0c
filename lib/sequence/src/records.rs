//! Records in two buffers.

use std::ops::Range;

/// Successive records. They share two buffers: an allocation for each would cost more than to read it.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Ids and descriptions.
    headers: String,
    /// Sequences.
    text: Vec<u8>,
    spans: Vec<RecordSpan>,
}

/// The place of a record in the buffers.
#[derive(Clone, Debug)]
struct RecordSpan {
    id: Range<usize>,
    description: Option<Range<usize>>,
    sequence: Range<usize>,
}

/// A record as it is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// First word of the header; empty if a blank or nothing follows `>`.
    pub id: &'a str,
    /// The rest of the header, if any.
    pub description: Option<&'a str>,
    /// The bytes of the sequence lines without the line ends.
    pub sequence: &'a [u8],
}

impl Records {
    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// No records, with room for sequences of `bytes`.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self {
            text: Vec::with_capacity(bytes),
            ..Self::default()
        }
    }

    /// Adds a record whose sequence is empty so far.
    pub(crate) fn push_header(&mut self, id: &str, description: Option<&str>) {
        let mut add = |text| {
            let start = self.headers.len();
            self.headers.push_str(text);
            start..self.headers.len()
        };
        self.spans.push(RecordSpan {
            id: add(id),
            description: description.map(add),
            sequence: self.text.len()..self.text.len(),
        });
    }

    /// Appends to the sequence of the last record.
    ///
    /// # Panics
    /// If there are no records.
    pub(crate) fn extend_last(&mut self, residues: &[u8]) {
        self.text.extend_from_slice(residues);
        let last = self.spans.last_mut().expect("a record");
        last.sequence.end = self.text.len();
    }

    /// Removes the last record.
    pub(crate) fn pop(&mut self) {
        if let Some(last) = self.spans.pop() {
            self.headers.truncate(last.id.start);
            self.text.truncate(last.sequence.start);
        }
    }

    /// Adds a record.
    #[cfg(test)]
    pub(crate) fn push(&mut self, record: Record<'_>) {
        self.push_header(record.id, record.description);
        self.extend_last(record.sequence);
    }

    /// Returns record `i`.
    ///
    /// # Panics
    /// If there is no such record.
    pub fn get(&self, i: usize) -> Record<'_> {
        let span = &self.spans[i];
        let description = span.description.clone();
        Record {
            id: &self.headers[span.id.clone()],
            description: description.map(|place| &self.headers[place]),
            sequence: &self.text[span.sequence.clone()],
        }
    }

    /// Returns the sequence of record `i`, to be changed in place.
    ///
    /// # Panics
    /// If there is no such record.
    pub fn sequence_mut(&mut self, i: usize) -> &mut [u8] {
        &mut self.text[self.spans[i].sequence.clone()]
    }

    /// Keeps the first `length` bytes of the sequence of record `i`.
    ///
    /// # Panics
    /// If there is no such record.
    pub(crate) fn shorten(&mut self, i: usize, length: usize) {
        let sequence = &mut self.spans[i].sequence;
        sequence.end = sequence.end.min(sequence.start + length);
    }

    /// Iterates over the records.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Record<'_>> {
        (0..self.len()).map(|i| self.get(i))
    }
}
