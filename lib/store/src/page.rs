//! What a Parquet page header claims.

use crate::compact::{Compact, Flaw, Type, expect};
use crate::limits::PageLimits;

/// The part of a page header that decides how much memory the page takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageHeader {
    pub(crate) kind: usize,
    /// Bytes of the page, decompressed.
    pub(crate) bytes: usize,
    /// Bytes of the page in the file.
    pub(crate) stored: usize,
    pub(crate) data: DataPage,
}

/// What the header of a data page adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DataPage {
    /// Values, nulls included.
    pub(crate) values: usize,
    pub(crate) encoding: usize,
    /// Bytes of levels before the values, which are never compressed: version 2 of data pages only.
    pub(crate) levels: Option<usize>,
}

/// Encodings by their numbers in `parquet.thrift`.
pub(crate) mod encoding {
    pub(crate) const PLAIN: usize = 0;
    pub(crate) const RLE: usize = 3;
    pub(crate) const DELTA_BINARY_PACKED: usize = 5;
    pub(crate) const DELTA_LENGTH_BYTE_ARRAY: usize = 6;
    pub(crate) const DELTA_BYTE_ARRAY: usize = 7;
    pub(crate) const BYTE_STREAM_SPLIT: usize = 9;
}

/// Fields of structs in `parquet.thrift`, with their types.
const PAGE_HEADER: [(i16, Type); 8] = [
    (1, Type::Integer),
    (2, Type::Integer),
    (3, Type::Integer),
    (4, Type::Integer),
    (5, Type::Struct),
    (6, Type::Struct),
    (7, Type::Struct),
    (8, Type::Struct),
];
const DATA_PAGE_HEADER: [(i16, Type); 5] = [
    (1, Type::Integer),
    (2, Type::Integer),
    (3, Type::Integer),
    (4, Type::Integer),
    (5, Type::Struct),
];
const DATA_PAGE_HEADER_V2: [(i16, Type); 8] = [
    (1, Type::Integer),
    (2, Type::Integer),
    (3, Type::Integer),
    (4, Type::Integer),
    (5, Type::Integer),
    (6, Type::Integer),
    (7, Type::Bool),
    (8, Type::Struct),
];
const DICTIONARY_PAGE_HEADER: [(i16, Type); 3] =
    [(1, Type::Integer), (2, Type::Integer), (3, Type::Bool)];
const STATISTICS: [(i16, Type); 8] = [
    (1, Type::Binary),
    (2, Type::Binary),
    (3, Type::Integer),
    (4, Type::Integer),
    (5, Type::Binary),
    (6, Type::Binary),
    (7, Type::Bool),
    (8, Type::Bool),
];

const DATA_PAGE: usize = 0;
const DATA_PAGE_V2: usize = 3;

impl PageHeader {
    /// Reads the header at the front of `bytes`, and how many of them it takes.
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, usize), Flaw> {
        let mut compact = Compact::new(bytes);
        let mut header = Self::default();
        let (mut first, mut second) = (None, None);
        compact.fields(|compact, field, kind| {
            expect(&PAGE_HEADER, field, kind)?;
            match field {
                1 => header.kind = compact.size()?,
                2 => header.bytes = compact.size()?,
                3 => header.stored = compact.size()?,
                5 => first = Some(data_page(compact)?),
                7 => compact.flat(&DICTIONARY_PAGE_HEADER)?,
                8 => second = Some(data_page_v2(compact)?),
                _ => compact.skip(kind)?,
            }
            Ok(())
        })?;
        header.data = match header.kind {
            DATA_PAGE => first,
            DATA_PAGE_V2 => second,
            _ => Some(DataPage::default()),
        }
        .ok_or(Flaw::Wrong("a data page has no header of its own"))?;
        Ok((header, bytes.len() - compact.left()))
    }

    /// Whether it is a page of values, not of a dictionary or an index.
    pub(crate) fn is_data(&self) -> bool {
        [DATA_PAGE, DATA_PAGE_V2].contains(&self.kind)
    }

    /// Whether all claims are below `limits` and can be in the `left` bytes that follow the header.
    pub(crate) fn check(&self, limits: &PageLimits, left: u64) -> Result<(), String> {
        let stored = self.stored as u64;
        let expanded = stored.saturating_mul(limits.expansion as u64);
        let bytes = expanded.max(limits.bytes as u64);
        let values = (expanded / 2).max(limits.values as u64);
        let claims = [
            ("bytes in the file", stored, left),
            ("bytes", self.bytes as u64, bytes),
            ("values", self.data.values as u64, values),
            (
                "bytes of levels",
                self.data.levels.unwrap_or(0) as u64,
                self.bytes as u64,
            ),
        ];
        match claims.iter().find(|(_, claim, limit)| claim > limit) {
            None => Ok(()),
            Some((what, claim, limit)) => Err(format!(
                "a page claims {claim} {what}; expected at most {limit}"
            )),
        }
    }
}

/// A `DataPageHeader`.
fn data_page(compact: &mut Compact<'_>) -> Result<DataPage, Flaw> {
    let mut page = DataPage::default();
    compact.fields(|compact, field, kind| {
        expect(&DATA_PAGE_HEADER, field, kind)?;
        match field {
            1 => page.values = compact.size()?,
            2 => page.encoding = compact.size()?,
            5 => compact.flat(&STATISTICS)?,
            _ => compact.skip(kind)?,
        }
        Ok(())
    })?;
    Ok(page)
}

/// A `DataPageHeaderV2`.
fn data_page_v2(compact: &mut Compact<'_>) -> Result<DataPage, Flaw> {
    let mut page = DataPage::default();
    let mut levels = [0; 2];
    compact.fields(|compact, field, kind| {
        expect(&DATA_PAGE_HEADER_V2, field, kind)?;
        match field {
            1 => page.values = compact.size()?,
            4 => page.encoding = compact.size()?,
            5 => levels[0] = compact.size()?,
            6 => levels[1] = compact.size()?,
            8 => compact.flat(&STATISTICS)?,
            _ => compact.skip(kind)?,
        }
        Ok(())
    })?;
    page.levels = Some(levels[0] + levels[1]);
    Ok(page)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::OWN_PAGE;

    /// A data page of 100 bytes, 40 stored, 7 values in encoding 6
    const HEADER: [u8; 16] = [
        0x15, 0, 0x15, 200, 1, 0x15, 80, 0x2c, 0x15, 14, 0x15, 12, 0x15, 6, 0, 0,
    ];

    #[test]
    fn a_header_is_read_and_measured() {
        let bytes = [&HEADER[..], b"the page"].concat();
        let (header, length) = PageHeader::read(&bytes).expect("whole");
        assert_eq!(length, HEADER.len());
        assert_eq!((header.bytes, header.stored), (100, 40));
        assert_eq!((header.data.values, header.data.encoding), (7, 6));
        assert!(header.is_data());
        for end in 0..HEADER.len() {
            assert_eq!(PageHeader::read(&HEADER[..end]), Err(Flaw::Cut), "{end}");
        }
    }

    #[test]
    fn a_claim_above_its_limit_is_refused() {
        let (header, _) = PageHeader::read(&HEADER).expect("whole");
        assert_eq!(header.check(&OWN_PAGE, 40), Ok(()));
        let error = header.check(&OWN_PAGE, 39).expect_err("short");
        assert_eq!(
            error,
            "a page claims 40 bytes in the file; expected at most 39"
        );
        let huge = PageHeader {
            bytes: 1 << 31,
            ..header
        };
        assert!(huge.check(&OWN_PAGE, 40).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Ok((header, length)) = PageHeader::read(&bytes) {
                prop_assert!(length <= bytes.len());
                let _ = header.check(&OWN_PAGE, 40);
            }
        }
    }
}
