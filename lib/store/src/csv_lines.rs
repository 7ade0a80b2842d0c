//! Numbers of lines in CSV.

/// Counts the lines of a CSV text. The count of the `csv` crate takes the end of a line by CR and LF for two, and leaves out blank
/// lines.
#[derive(Debug)]
pub struct CsvLines<'a> {
    text: &'a [u8],
    at: usize,
    line: u64,
}

impl<'a> CsvLines<'a> {
    /// Starts at the first line.
    pub fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            at: 0,
            line: 1,
        }
    }

    /// Returns the line, from 1, of the record that begins at `position`, which is after the one before.
    pub fn line_at(&mut self, position: Option<&csv::Position>) -> u64 {
        let is_end = |byte: &&u8| b"\r\n".contains(byte);
        let start = position.map_or(self.at, |position| position.byte() as usize);
        let start = start + self.text[start..].iter().take_while(is_end).count();
        let between = self.text[self.at..start].split(|&byte| byte == b'\n');
        self.line += between.count() as u64 - 1;
        self.at = start;
        self.line
    }
}
