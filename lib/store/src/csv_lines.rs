//! Lines of tables that users write: CSV, or TSV, with a header.

use csv::{ByteRecord, ReaderBuilder, StringRecord};

/// Reads these columns of a table, CSV, or TSV if its first line has a tab. Returns the cells of each line, by its number from 1, or what
/// is wrong with it. An error of the header is the only line. Lines without text are left out.
///
/// The byte-order mark of a file is no part of a name. A second one is.
pub fn read_columns<const N: usize>(
    text: &[u8],
    columns: [&str; N],
) -> Vec<(u64, Result<[String; N], String>)> {
    let header = text.split(|&byte| byte == b'\n').next();
    let has_tab = header.is_some_and(|line| line.contains(&b'\t'));
    // It leaves out a byte-order mark.
    let mut reader = ReaderBuilder::new()
        .delimiter(if has_tab { b'\t' } else { b',' })
        .has_headers(false)
        .flexible(true)
        .from_reader(text);
    let (mut at, mut line) = (0, 1);
    let mut lines = Vec::new();
    let mut header: Option<(usize, [usize; N])> = None;
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
        let record = match checked(record) {
            Ok(record) if record.iter().all(str::is_empty) => continue,
            Ok(record) => record,
            Err(what) => {
                lines.push((line, Err(what.to_owned())));
                continue;
            }
        };
        match header {
            None => match places(&record, columns) {
                Ok(places) => header = Some((record.len(), places)),
                Err(what) => return vec![(line, Err(what))],
            },
            Some((count, _)) if count != record.len() => {
                let what = format!("expected {count} columns, found {}", record.len());
                lines.push((line, Err(what)));
            }
            Some((_, places)) => {
                lines.push((line, Ok(places.map(|place| record[place].to_owned()))));
            }
        }
    }
    if header.is_none() && lines.is_empty() {
        let missing = places(&StringRecord::new(), columns).err();
        lines.extend(missing.map(|what| (1, Err(what))));
    }
    lines
}

/// Returns a record as text, with no blanks around its cells.
fn checked(record: csv::Result<ByteRecord>) -> Result<StringRecord, &'static str> {
    let record = record.ok().map(StringRecord::from_byte_record);
    let Some(Ok(mut record)) = record else {
        return Err("expected UTF-8, found other bytes");
    };
    if record.iter().any(|cell| cell.contains(['\n', '\r'])) {
        return Err("a line break in a cell: expected the end of its quote");
    }
    record.trim();
    Ok(record)
}

/// Returns the places of these columns in a header.
fn places<const N: usize>(header: &StringRecord, columns: [&str; N]) -> Result<[usize; N], String> {
    let mut places = [0; N];
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
