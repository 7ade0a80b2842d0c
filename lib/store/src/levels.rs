//! Repetition and definition levels, as the runs that Parquet calls RLE.
//!
//! Source: <https://parquet.apache.org/docs/file-format/data-pages/encodings/#run-length-encoding--bit-packing-hybrid-rle--3>.

/// Levels of up to 8 bits.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    bytes: Vec<u8>,
    level: u8,
    count: u64,
}

impl Levels {
    /// Adds `count` times `level`.
    pub(crate) fn push(&mut self, level: u8, count: usize) {
        if count == 0 {
            return;
        }
        if level != self.level {
            self.end_run();
            self.level = level;
        }
        self.count += count as u64;
    }

    fn end_run(&mut self) {
        if self.count > 0 {
            varint(&mut self.bytes, self.count << 1);
            self.bytes.push(self.level);
            self.count = 0;
        }
    }

    /// Appends the length in bytes and the runs to a page, and begins anew.
    pub(crate) fn append_to(&mut self, page: &mut Vec<u8>) {
        self.end_run();
        page.extend((self.bytes.len() as u32).to_le_bytes());
        page.append(&mut self.bytes);
    }
}

/// Appends an unsigned integer, 7 bits a byte, the lowest first.
pub(crate) fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_levels_are_one_run() {
        let mut levels = Levels::default();
        for (level, count) in [(0, 1), (2, 100), (2, 27), (1, 0), (2, 1), (1, 300)] {
            levels.push(level, count);
        }
        let mut page = Vec::new();
        levels.append_to(&mut page);
        assert_eq!(page, [8, 0, 0, 0, 2, 0, 0x80, 2, 2, 0xd8, 4, 1]);
        page.clear();
        levels.append_to(&mut page);
        assert_eq!(page, [0; 4], "nothing is left");
    }
}
