//! Records in one buffer.

/// Successive records. They share one buffer: an allocation for each would cost more than to read it.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Id, description and sequence of each record.
    text: Vec<u8>,
    spans: Vec<Span>,
}

/// The place of a record in the buffer.
#[derive(Clone, Copy, Debug)]
struct Span {
    id: usize,
    description: usize,
    sequence: usize,
    end: usize,
    has_description: bool,
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

    /// Returns the bytes of all records.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Removes all records, and keeps the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.spans.clear();
    }

    /// Makes room for records of this many bytes together.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.text.reserve_exact(bytes);
    }

    /// Adds a record without a sequence.
    pub(crate) fn push(&mut self, id: &str, description: Option<&str>) {
        let start = self.text.len();
        self.text.extend_from_slice(id.as_bytes());
        let middle = self.text.len();
        self.text
            .extend_from_slice(description.unwrap_or_default().as_bytes());
        let end = self.text.len();
        self.spans.push(Span {
            id: start,
            description: middle,
            sequence: end,
            end,
            has_description: description.is_some(),
        });
    }

    /// Adds bytes to the sequence of the last record.
    pub(crate) fn extend_last(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
        if let Some(last) = self.spans.last_mut() {
            last.end = self.text.len();
        }
    }

    /// Removes the last record.
    pub(crate) fn pop(&mut self) {
        if let Some(last) = self.spans.pop() {
            self.text.truncate(last.id);
        }
    }

    /// Returns record `i`.
    ///
    /// # Panics
    /// If there is no such record.
    pub fn get(&self, i: usize) -> Record<'_> {
        let span = self.spans[i];
        let text = |start, end| {
            let text = std::str::from_utf8(&self.text[start..end]);
            text.expect("ids and descriptions are pushed as text")
        };
        Record {
            id: text(span.id, span.description),
            description: span
                .has_description
                .then(|| text(span.description, span.sequence)),
            sequence: &self.text[span.sequence..span.end],
        }
    }

    /// Returns the last record.
    ///
    /// # Panics
    /// If there are none.
    pub(crate) fn last(&self) -> Record<'_> {
        self.get(self.len() - 1)
    }

    /// Returns the sequence of record `i`, to be changed in place.
    ///
    /// # Panics
    /// If there is no such record.
    pub fn sequence_mut(&mut self, i: usize) -> &mut [u8] {
        let span = self.spans[i];
        &mut self.text[span.sequence..span.end]
    }

    /// Iterates over the records.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Record<'_>> {
        (0..self.len()).map(|i| self.get(i))
    }
}
