//! Thrift's compact protocol, in which Parquet writes its footer and its page headers: enough of it to check what
//! they claim.
//!
//! Source: <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>.

/// Structs in structs: Parquet has 6.
const DEPTH: usize = 16;

/// The smallest struct of Parquet that comes in lists, the order of a column, takes so many.
const STRUCT_BYTES: usize = 3;

/// What is wrong with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// They end too early.
    Cut,
    /// They are not those of the format, or claim too much.
    Wrong(&'static str),
}

/// How a value is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Bool,
    Byte,
    /// Of 16, 32 or 64 bits.
    Integer,
    Double,
    Binary,
    List,
    Map,
    Struct,
}

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compact<'a> {
    rest: &'a [u8],
}

impl<'a> Compact<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes that are left.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Reads a struct; `field` reads or [skips](Self::skip) the value of each field, which it gets by its number.
    pub(crate) fn fields(
        &mut self,
        mut field: impl FnMut(&mut Self, i16, Type) -> Result<(), Flaw>,
    ) -> Result<(), Flaw> {
        let mut id = 0_i16;
        loop {
            let head = self.byte()?;
            let (step, code) = (head >> 4, head % 16);
            if code == 0 {
                return Ok(());
            }
            let next = match step {
                0 => i16::try_from(self.integer()?).ok(),
                step => id.checked_add(i16::from(step)),
            };
            id = next.ok_or(Flaw::Wrong("a field number is out of range"))?;
            field(self, id, type_of(code)?)?;
        }
    }

    /// Skips a struct whose known fields are of these types.
    pub(crate) fn flat(&mut self, known: &[(i16, Type)]) -> Result<(), Flaw> {
        self.fields(|compact, field, kind| {
            expect(known, field, kind)?;
            compact.skip(kind)
        })
    }

    /// A signed integer.
    pub(crate) fn integer(&mut self) -> Result<i64, Flaw> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// An integer that counts or measures something.
    pub(crate) fn size(&mut self) -> Result<usize, Flaw> {
        let size = i32::try_from(self.integer()?).ok();
        size.and_then(|size| usize::try_from(size).ok())
            .ok_or(Flaw::Wrong("a size is negative or above 2^31"))
    }

    /// The head of a list: how many values follow, and their type. So many can be in the bytes that are left.
    pub(crate) fn list(&mut self) -> Result<(usize, Type), Flaw> {
        let head = self.byte()?;
        if head == 0 {
            // Some writers leave the type out where nothing follows.
            return Ok((0, Type::Byte));
        }
        let count = match head >> 4 {
            15 => usize::try_from(self.varint()?).unwrap_or(usize::MAX),
            count => usize::from(count),
        };
        let kind = type_of(head & 0x0f)?;
        let least = if kind == Type::Struct {
            STRUCT_BYTES
        } else {
            1
        };
        match count.checked_mul(least) {
            Some(bytes) if bytes <= self.left() => Ok((count, kind)),
            _ => Err(Flaw::Cut),
        }
    }

    /// Skips the value of a field.
    pub(crate) fn skip(&mut self, kind: Type) -> Result<(), Flaw> {
        self.skip_value(kind, DEPTH, true)
    }

    fn skip_value(&mut self, kind: Type, depth: usize, in_field: bool) -> Result<(), Flaw> {
        let depth = depth
            .checked_sub(1)
            .ok_or(Flaw::Wrong("structs lie too deep in structs"))?;
        match kind {
            // The value of a field is in its type.
            Type::Bool if in_field => Ok(()),
            Type::Bool | Type::Byte => self.take(1),
            Type::Integer => self.varint().map(drop),
            Type::Double => self.take(8),
            Type::Binary => {
                let length = self.varint()?;
                self.take(usize::try_from(length).unwrap_or(usize::MAX))
            }
            Type::List => {
                let (count, kind) = self.list()?;
                (0..count).try_for_each(|_| self.skip_value(kind, depth, false))
            }
            Type::Map => Err(Flaw::Wrong("a map, which Parquet does not have")),
            Type::Struct => self.fields(|compact, _, kind| compact.skip_value(kind, depth, true)),
        }
    }

    fn take(&mut self, count: usize) -> Result<(), Flaw> {
        self.rest = self.rest.get(count..).ok_or(Flaw::Cut)?;
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, Flaw> {
        let (&first, rest) = self.rest.split_first().ok_or(Flaw::Cut)?;
        self.rest = rest;
        Ok(first)
    }

    /// An unsigned integer, 7 bits a byte, the lowest first.
    pub(crate) fn varint(&mut self) -> Result<u64, Flaw> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Flaw::Wrong("an integer has more than 64 bits"))
    }
}

/// Checks that a field of a known number has its type. A decoder that goes by numbers would read on from another
/// place than one that goes by types, and find other claims.
pub(crate) fn expect(known: &[(i16, Type)], field: i16, kind: Type) -> Result<(), Flaw> {
    match known.iter().find(|(number, _)| *number == field) {
        Some((_, expected)) if *expected != kind => Err(Flaw::Wrong("a field has a wrong type")),
        _ => Ok(()),
    }
}

fn type_of(code: u8) -> Result<Type, Flaw> {
    Ok(match code {
        1 | 2 => Type::Bool,
        3 => Type::Byte,
        4..=6 => Type::Integer,
        7 => Type::Double,
        8 => Type::Binary,
        9 | 10 => Type::List,
        11 => Type::Map,
        12 => Type::Struct,
        _ => return Err(Flaw::Wrong("a value has no known type")),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn integers_are_zigzag_and_varint() {
        for (bytes, expected) in [
            (&[0][..], 0),
            (&[1], -1),
            (&[2], 1),
            (&[0xd8, 0x04], 300),
            (&[0xff; 9], 0),
        ] {
            let found = Compact::new(bytes).integer();
            let expected = if bytes.len() == 9 {
                Err(Flaw::Cut)
            } else {
                Ok(expected)
            };
            assert_eq!(found, expected);
        }
        assert!(matches!(
            Compact::new(&[0xff; 11]).varint(),
            Err(Flaw::Wrong(_))
        ));
    }

    #[test]
    fn a_list_longer_than_the_bytes_is_cut() {
        // 2^34 integers in 3 bytes
        let claim = [0xf5, 0x80, 0x80, 0x80, 0x80, 0x40, 1, 2, 3];
        assert_eq!(Compact::new(&claim).list(), Err(Flaw::Cut));
        assert_eq!(Compact::new(&[0x25, 2, 4]).list(), Ok((2, Type::Integer)));
        assert_eq!(Compact::new(&[0x2c, 0, 0]).list(), Err(Flaw::Cut));
    }

    #[test]
    fn structs_can_not_lie_in_structs_for_ever() {
        let deep = [0x1c; 1000];
        assert!(matches!(
            Compact::new(&deep).skip(Type::Struct),
            Err(Flaw::Wrong(_))
        ));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for kind in [Type::Struct, Type::List, Type::Binary, Type::Integer] {
                let mut compact = Compact::new(&bytes);
                let _ = compact.skip(kind);
                prop_assert!(compact.left() <= bytes.len());
            }
        }
    }
}
