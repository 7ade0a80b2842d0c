//! Lines of tables that users write: CSV, or TSV, with a header.

use csv::{ByteRecord, ReaderBuilder, StringRecord};

/// Reads these columns of a table, see [`read_records`]. Returns the cells of each line with text, without blanks around them, by its
/// number, or what is wrong with it. An error of the header is the only line.
pub fn read_columns<const N: usize>(
    text: &[u8],
    columns: [&str; N],
) -> Vec<(u64, Result<[String; N], String>)> {
    let is_blank = |record: &StringRecord| record.iter().all(|cell| cell.trim().is_empty());
    let mut records = read_records(text).1;
    records.retain(|(_, record)| !record.as_ref().is_ok_and(is_blank));
    let mut records = records.into_iter();
    let (line, header) = records.next().unwrap_or((1, Ok(StringRecord::new())));
    let places = match header.and_then(|header| places(header, columns)) {
        Ok(places) => places,
        Err(what) => return vec![(line, Err(what))],
    };
    let lines = records.map(|(line, record)| {
        let cell = |record: StringRecord| places.map(|place| record[place].trim().to_owned());
        (line, record.map(cell))
    });
    lines.collect()
}

/// A record of a table, or what is wrong with it, with the number of its line from 1.
pub type TableRecord = (u64, Result<StringRecord, String>);

/// Reads the records of a table, CSV, or TSV if its first line has a tab: its header, and each line that is not empty, which has
/// as many columns. Returns its delimiter, too.
///
/// The byte-order mark of a file is no part of a name. A second one is.
pub fn read_records(text: &[u8]) -> (u8, Vec<TableRecord>) {
    let header = text.split(|&byte| byte == b'\n').next();
    let has_tab = header.is_some_and(|line| line.contains(&b'\t'));
    let delimiter = if has_tab { b'\t' } else { b',' };
    // It leaves out a byte-order mark.
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter)
        .has_headers(false)
        .flexible(true)
        .from_reader(text);
    let (mut at, mut line) = (0, 1);
    let (mut lines, mut columns) = (Vec::new(), None);
    for record in reader.byte_records() {
        let position = match &record {
            Ok(record) => record.position(),
            Err(error) => error.position(),
        };
        // The count of the crate takes the end of a line by CR and LF for two, and leaves out blank lines.
        let start = position.map_or(at, |position| position.byte() as usize);
        let is_end = |byte: &&u8| b"\r\n".contains(byte);
        let start = start + text[start..].iter().take_while(is_end).count();
        line += text[at..start].split(|&byte| byte == b'\n').count() as u64 - 1;
        at = start;
        let record = checked(record).and_then(|record| {
            let (expected, found) = (*columns.get_or_insert(record.len()), record.len());
            let what = || format!("expected {expected} columns, found {found}");
            (expected == found).then_some(record).ok_or_else(what)
        });
        lines.push((line, record));
    }
    (delimiter, lines)
}

/// Returns a record as text.
fn checked(record: csv::Result<ByteRecord>) -> Result<StringRecord, String> {
    let record = record.ok().map(StringRecord::from_byte_record);
    let Some(Ok(record)) = record else {
        return Err("expected UTF-8, found other bytes".to_owned());
    };
    if record.iter().any(|cell| cell.contains(['\n', '\r'])) {
        return Err("a line break in a cell: expected the end of its quote".to_owned());
    }
    Ok(record)
}

/// Returns the places of these columns in a header.
fn places<const N: usize>(
    mut header: StringRecord,
    columns: [&str; N],
) -> Result<[usize; N], String> {
    let mut places = [0; N];
    header.trim();
    for (place, name) in places.iter_mut().zip(columns) {
        let mut found = (0..header.len()).filter(|&at| &header[at] == name);
        *place = match (found.next(), found.next()) {
            (Some(place), None) => place,
            (Some(_), Some(_)) => return Err(format!("the column {name} is there twice")),
            (None, _) => {
                let (columns, found) = (columns.join(","), header.iter().collect::<Vec<_>>());
                let found = found.join(",");
                return Err(format!("expected the columns {columns}, found '{found}'"));
            }
        };
    }
    Ok(places)
}
