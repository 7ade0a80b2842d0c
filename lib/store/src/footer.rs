//! What a Parquet footer claims, checked before it is decoded: lists become memory by their claimed length, and the
//! schema is walked by recursion.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;

use crate::compact::{Compact, Flaw, Type, expect};
use crate::limits::{FOOTER_BYTES, FOOTER_PART, SCHEMA_DEPTH, SCHEMA_NODES};

/// Fields of structs in `parquet.thrift`, with their types.
const FILE_META_DATA: [(i16, Type); 9] = [
    (1, Type::Integer),
    (2, Type::List),
    (3, Type::Integer),
    (4, Type::List),
    (5, Type::List),
    (6, Type::Binary),
    (7, Type::List),
    (8, Type::Struct),
    (9, Type::Binary),
];
const SCHEMA_ELEMENT: [(i16, Type); 10] = [
    (1, Type::Integer),
    (2, Type::Integer),
    (3, Type::Integer),
    (4, Type::Binary),
    (5, Type::Integer),
    (6, Type::Integer),
    (7, Type::Integer),
    (8, Type::Integer),
    (9, Type::Integer),
    (10, Type::Struct),
];

/// The last bytes of a file: the footer's length and the magic string.
const TRAILER: usize = 8;

/// The footer of a Parquet file of `len` bytes. The inner error says what is wrong with it.
pub(crate) fn read_footer(file: &File, len: u64) -> io::Result<Result<Bytes, String>> {
    let Some(end) = len.checked_sub(TRAILER as u64) else {
        return Ok(Err(format!("it has {len} bytes")));
    };
    let mut trailer = [0; TRAILER];
    file.read_exact_at(&mut trailer, end)?;
    let (length, magic) = trailer.split_at(4);
    if magic != b"PAR1" {
        return Ok(Err("it does not end with 'PAR1'".to_owned()));
    }
    let length = length
        .iter()
        .rev()
        .fold(0, |sum, &byte| sum << 8 | u64::from(byte));
    let limit = FOOTER_BYTES.max(len / FOOTER_PART);
    let start = match end.checked_sub(length) {
        Some(start) if length <= limit => start,
        _ => return Ok(Err(format!("it claims a footer of {length} bytes"))),
    };
    let mut footer = vec![0; (end - start) as usize];
    file.read_exact_at(&mut footer, start)?;
    Ok(match check(&footer) {
        Ok(()) => Ok(footer.into()),
        Err(Flaw::Cut) => Err("its footer is cut".to_owned()),
        Err(Flaw::Wrong(what)) => Err(format!("its footer is damaged: {what}")),
    })
}

/// Checks a `FileMetaData`.
fn check(footer: &[u8]) -> Result<(), Flaw> {
    let mut nodes = None;
    Compact::new(footer).fields(|compact, field, kind| {
        expect(&FILE_META_DATA, field, kind)?;
        match field {
            2 => {
                nodes = Some(schema(compact)?);
                Ok(())
            }
            4 => {
                let nodes = nodes.ok_or(Flaw::Wrong("row groups before the schema"))?;
                let groups = structs(compact)?;
                (0..groups).try_for_each(|_| row_group(compact, nodes))
            }
            _ => compact.skip(kind),
        }
    })
}

/// Checks the schema, a tree whose nodes are listed depth first, and returns their number.
fn schema(compact: &mut Compact<'_>) -> Result<usize, Flaw> {
    let nodes = structs(compact)?;
    if nodes > SCHEMA_NODES {
        return Err(Flaw::Wrong("too many columns"));
    }
    // Children that are still to come, of each ancestor.
    let mut open: Vec<usize> = Vec::new();
    for _ in 0..nodes {
        let mut children = 0;
        compact.fields(|compact, field, kind| {
            expect(&SCHEMA_ELEMENT, field, kind)?;
            match field {
                5 => {
                    children = compact.size()?;
                    Ok(())
                }
                10 => logical_type(compact),
                _ => compact.skip(kind),
            }
        })?;
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if children > 0 {
            open.push(children);
        }
        while open.last() == Some(&0) {
            open.pop();
        }
        if open.len() > SCHEMA_DEPTH {
            return Err(Flaw::Wrong("columns lie too deep in columns"));
        }
    }
    if open.is_empty() {
        Ok(nodes)
    } else {
        Err(Flaw::Wrong("a column has fewer children than it claims"))
    }
}

/// Checks a `LogicalType`, a union of structs.
fn logical_type(compact: &mut Compact<'_>) -> Result<(), Flaw> {
    compact.fields(|compact, field, kind| {
        if kind != Type::Struct {
            return Err(Flaw::Wrong("a logical type is no struct"));
        }
        match field {
            // DECIMAL: scale, precision.
            5 => compact.flat(&[(1, Type::Integer), (2, Type::Integer)]),
            // TIME, TIMESTAMP: whether adjusted to UTC, unit.
            7 | 8 => compact.fields(|compact, field, kind| {
                expect(&[(1, Type::Bool), (2, Type::Struct)], field, kind)?;
                match kind {
                    Type::Struct => {
                        compact.flat(&[(1, Type::Struct), (2, Type::Struct), (3, Type::Struct)])
                    }
                    _ => compact.skip(kind),
                }
            }),
            // INTEGER: width, whether signed.
            10 => compact.flat(&[(1, Type::Byte), (2, Type::Bool)]),
            // VARIANT: version. GEOMETRY, GEOGRAPHY: coordinates, algorithm.
            16 => compact.flat(&[(1, Type::Byte)]),
            17 | 18 => compact.flat(&[(1, Type::Binary), (2, Type::Integer)]),
            // The others are empty.
            _ => compact.skip(kind),
        }
    })
}

/// Checks a `RowGroup`: no more column chunks than there are nodes.
fn row_group(compact: &mut Compact<'_>, nodes: usize) -> Result<(), Flaw> {
    compact.fields(|compact, field, kind| {
        if (field, kind) == (1, Type::List) && { *compact }.list()?.0 > nodes {
            return Err(Flaw::Wrong("a row group has more columns than the schema"));
        }
        compact.skip(kind)
    })
}

/// The head of a list of structs.
fn structs(compact: &mut Compact<'_>) -> Result<usize, Flaw> {
    match compact.list()? {
        (count, Type::Struct) | (count @ 0, _) => Ok(count),
        _ => Err(Flaw::Wrong("a list of the wrong type")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A schema node with so many children and no name, which is of no concern here.
    fn node(children: u8) -> Vec<u8> {
        vec![0x55, children * 2, 0x15, 0, 0]
    }

    fn footer(schema: &[Vec<u8>], rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x29, 0xfc, schema.len() as u8];
        bytes.extend(schema.concat());
        bytes.extend(rest);
        bytes.push(0);
        bytes
    }

    #[test]
    fn a_tree_that_closes_is_a_schema() {
        assert_eq!(check(&footer(&[node(2), node(0), node(0)], &[])), Ok(()));
        let open = footer(&[node(3), node(0), node(0)], &[]);
        assert!(matches!(check(&open), Err(Flaw::Wrong(_))));
        let deep: Vec<_> = (0..40).map(|_| node(1)).chain([node(0)]).collect();
        assert_eq!(
            check(&footer(&deep, &[])),
            Err(Flaw::Wrong("columns lie too deep in columns"))
        );
    }

    #[test]
    fn a_field_of_another_type_hides_no_claims() {
        // Field 3 of a node as a struct, which would be read as an integer and what follows as other fields.
        let confused = vec![0x3c, 0xff, 0xff, 0];
        assert_eq!(
            check(&footer(&[confused], &[0; 8])),
            Err(Flaw::Wrong("a field has a wrong type"))
        );
        // A logical type INTEGER whose width is a varint and not a byte.
        let confused = vec![0xac, 0xac, 0x15, 0x80, 0x01, 0, 0, 0];
        assert_eq!(
            check(&footer(&[confused], &[0; 8])),
            Err(Flaw::Wrong("a field has a wrong type"))
        );
    }

    #[test]
    fn a_row_group_has_the_columns_of_the_schema() {
        let schema = [node(1), node(0)];
        let three_columns = [0x29, 0x1c, 0x19, 0x3c, 0, 0, 0, 0];
        let padded = [&three_columns[..], &[0; 12]].concat();
        assert_eq!(
            check(&footer(&schema, &padded)),
            Err(Flaw::Wrong("a row group has more columns than the schema"))
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = check(&bytes);
        }
    }
}
