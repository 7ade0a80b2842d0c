//! Tables that users write, with an id and a value in each line.

use std::fmt::Display;
use std::io::Read;
use std::path::Path;

use plmkit_kit::Quoted;

use crate::{StoreError, open_input, read_columns};

/// A line of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdValue {
    /// Its number in the file, from 1.
    pub line: u64,
    pub id: String,
    /// The value, as text.
    pub value: String,
}

impl IdValue {
    /// Makes the error of this line of the table at `path`.
    pub fn error(&self, path: &Path, what: impl Display) -> StoreError {
        let (line, id, value) = (self.line, Quoted(&self.id), Quoted(&self.value));
        StoreError::malformed(path, format_args!("line {line} {id} {value}: {what}"))
    }
}

/// Reads the columns `id` and `column` of a CSV file, or of a TSV file if its first line has a tab.
pub fn read_id_values(path: &Path, column: &str) -> Result<Vec<IdValue>, StoreError> {
    let mut text = Vec::new();
    let read = open_input(path)?.read_to_end(&mut text);
    read.map_err(StoreError::cannot_read(path))?;
    let lines = read_columns(&text, ["id", column]).into_iter();
    let lines = lines.map(|(line, cells)| {
        let malformed = |what| StoreError::malformed(path, format_args!("line {line}: {what}"));
        let [id, value] = cells.map_err(malformed)?;
        Ok(IdValue { line, id, value })
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(u64, String, String)>, String> {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("table");
        std::fs::write(&path, text).expect("written");
        let lines = read_id_values(&path, "position").map_err(|error| error.to_string())?;
        let lines = lines
            .into_iter()
            .map(|line| (line.line, line.id, line.value));
        Ok(lines.collect())
    }

    #[test]
    fn columns_are_found_by_name_in_csv_and_tsv() {
        let expected = vec![
            (2, "a,b".to_owned(), "7".to_owned()),
            (3, "c".to_owned(), String::new()),
        ];
        let csv = "\u{feff}position,note,id\n7,x,\"a,b\"\n,y, c \n";
        assert_eq!(read(csv).as_ref(), Ok(&expected));
        let tsv = "id\tposition\r\na,b\t7\r\nc\t\r\n";
        assert_eq!(read(tsv).as_ref(), Ok(&expected));
        let blank = "\nid,position\n\n,\nc,\n";
        assert_eq!(read(blank), Ok(vec![(5, "c".to_owned(), String::new())]));
        let marked = "id,position\n\u{feff}c,\n";
        let expected = vec![(2, "\u{feff}c".to_owned(), String::new())];
        assert_eq!(read(marked), Ok(expected));
        assert_eq!(read("id,position\n"), Ok(Vec::new()));
        for (text, what) in [
            (
                "id,place\n",
                "line 1: expected the columns id,position, found 'id,place'",
            ),
            ("", "line 1: expected the columns id,position, found ''"),
            ("id,position,id\n", "line 1: the column id is there twice"),
            (
                "position,id,position\n",
                "line 1: the column position is there twice",
            ),
            (
                "\u{feff}\u{feff}id,position\n",
                "line 1: expected the columns id,position, found '\\u{feff}id,position'",
            ),
            (
                "position,\u{feff}id\n",
                "line 1: expected the columns id,position, found",
            ),
            (
                "id,position\na,\"7\nb,8\n",
                "line 2: a line break in a cell",
            ),
            ("id,position\n\na\n", "line 3: expected 2 columns, found 1"),
        ] {
            let error = read(text).expect_err(what);
            assert!(error.contains(what), "{error}");
        }
    }
}
