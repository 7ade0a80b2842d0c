//! The table of samples: CSV or TSV with the columns `sample` and `fasta`.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use plmkit_cli::Fault;
use plmkit_contract::is_sample_name;
use plmkit_kit::is_stream;
use plmkit_store::read_columns;

use crate::fasta::sample_name;
use crate::layout::TAKEN;

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableRow {
    pub(crate) sample: String,
    pub(crate) fasta: PathBuf,
}

impl TableRow {
    /// Names the sample in an error of its FASTA, unless the name of the file says it.
    pub(crate) fn name(&self, fault: Fault) -> Fault {
        if sample_name(&self.fasta) == self.sample {
            return fault;
        }
        fault.reworded(|message| format!("sample '{}': {message}", self.sample))
    }
}

/// Whether a text is a table of samples: its first line names the two columns.
pub(crate) fn is_table(text: &[u8]) -> bool {
    let line = text.split(|&byte| byte == b'\n').next();
    // The header of gzip has the name of a file.
    str::from_utf8(line.unwrap_or_default()).is_ok_and(|line| {
        line.contains("sample") && line.contains("fasta") && !line.starts_with('>')
    })
}

/// Reads a table. Returns its rows, and what is wrong, a message for each error.
pub(crate) fn read_table(text: &[u8]) -> (Vec<TableRow>, Vec<String>) {
    let (mut rows, mut errors) = (Vec::new(), Vec::new());
    let mut seen = BTreeSet::new();
    for (line, cells) in read_columns(text, ["sample", "fasta"]) {
        match cells.and_then(row) {
            Ok(row) if !seen.insert((row.sample.clone(), plain(&row.fasta))) => {
                let (fasta, sample) = (row.fasta.display(), &row.sample);
                errors.push(format!(
                    "line {line}: '{fasta}' of '{sample}' is there twice"
                ));
            }
            Ok(row) => rows.push(row),
            Err(what) => errors.push(format!("line {line}: {what}")),
        }
    }
    if rows.is_empty() && errors.is_empty() {
        errors.push("no samples".to_owned());
    }
    (rows, errors)
}

fn row([sample, fasta]: [String; 2]) -> Result<TableRow, String> {
    check_name(&sample)?;
    if fasta.is_empty() {
        return Err(format!("'{sample}' has no FASTA"));
    }
    if is_stream(fasta.as_ref()) {
        return Err(format!(
            "'{fasta}' of '{sample}': expected a file, which a run that resumes can read again"
        ));
    }
    let fasta = fasta.into();
    Ok(TableRow { sample, fasta })
}

/// Checks the name of a sample, which becomes that of a folder.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    if !is_sample_name(name) {
        return Err(format!(
            "sample name '{name}': expected up to 200 letters, digits, '_', '-' and '.', the first no '-' or '.'"
        ));
    }
    if TAKEN.contains(&name) {
        return Err(format!(
            "sample name '{name}': the results have something else of that name"
        ));
    }
    Ok(())
}

/// The path without `.` and double slashes: the same place, written one way.
fn plain(path: &Path) -> PathBuf {
    let components = path.components();
    let named = components.filter(|component| *component != Component::CurDir);
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(sample: &str, fasta: &str) -> TableRow {
        TableRow {
            sample: sample.to_owned(),
            fasta: fasta.into(),
        }
    }

    #[test]
    fn tables_of_spreadsheets_and_by_hand_are_read() {
        for (text, expected) in [
            (
                "sample,fasta\na,x.fasta\na,y z.faa\n",
                vec![row("a", "x.fasta"), row("a", "y z.faa")],
            ),
            (
                "sample\tfasta\na\tx, \"y\".fasta\n",
                vec![row("a", "x, \"y\".fasta")],
            ),
            (
                "\u{feff}\"sample\",\"fasta\"\r\n\"a\",\"x, \"\"y\"\".fasta\"\r\n\r\n,\r\n",
                vec![row("a", "x, \"y\".fasta")],
            ),
            (
                " fasta , n, sample \n\"x.fasta\" ,1, a",
                vec![row("a", "x.fasta")],
            ),
        ] {
            assert!(is_table(text.as_bytes()));
            assert_eq!(read_table(text.as_bytes()), (expected, Vec::new()));
        }
    }

    #[test]
    fn a_compressed_file_is_no_table_whatever_its_name() {
        assert!(!is_table(
            b"\x1f\x8b\x08\x08\x01\x02\x03\x04\0\x03soil_sample.fasta\0"
        ));
    }

    #[test]
    fn every_error_is_told_with_its_line() {
        let text = "sample,fasta\na b,x\n,x\n..,x\nmultiqc,x\na,x\na,./x\nb,x,y\nc,\nd,-\n";
        let (rows, errors) = read_table(text.as_bytes());
        assert_eq!(rows, [row("a", "x")]);
        let starts = [
            "line 2: sample name 'a b'",
            "line 3: sample name ''",
            "line 4: sample name '..'",
            "line 5: sample name 'multiqc': the results",
            "line 7: './x' of 'a' is there twice",
            "line 8: expected 2 columns, found 3",
            "line 9: 'c' has no FASTA",
            "line 10: '-' of 'd': expected a file",
        ];
        // The end of a line by CR and LF is one.
        let of_dos = text.replace('\n', "\r\n");
        assert_eq!(read_table(of_dos.as_bytes()), (rows, errors.clone()));
        assert_eq!(errors.len(), starts.len());
        for (error, start) in errors.iter().zip(starts) {
            assert!(error.starts_with(start), "{error}");
        }
    }

    #[test]
    fn a_header_without_its_columns_ends_the_table() {
        for (text, error) in [
            (
                "name,fasta\na,x\n",
                "line 1: expected the columns sample,fasta, found 'name,fasta'",
            ),
            (
                "sample,fasta,sample\na,x,b\n",
                "line 1: the column sample is there twice",
            ),
            ("sample,fasta\n", "no samples"),
            (
                "\u{feff}\u{feff}sample,fasta\na,x\n",
                "line 1: expected the columns sample,fasta, found '\u{feff}sample,fasta'",
            ),
            (
                "sample,fasta\na,\"x\nb,y\n",
                "line 2: a line break in a cell: expected the end of its quote",
            ),
        ] {
            assert_eq!(
                read_table(text.as_bytes()),
                (Vec::new(), vec![error.to_owned()])
            );
        }
    }
}
