//! Tables of variants: CSV or TSV, whose own columns stay.

use std::iter;

use csv::{StringRecord, WriterBuilder};
use plmkit_contract::{LIST_SHOWN, Quoted, ShortIds, one_line};
use plmkit_store::{IdValue, read_records};

use super::variant::{Unscored, Variant};

/// Usual names of the column of variants, and of that of proteins' ids. The first that a table has is taken.
const VARIANTS: &str =
    "mutant or variant or mutation or hgvs_p or hgvsp or hgvs_pro or hgvsp_short";
const IDS: &str = "protein_id or protein or seq_id or uniprot_id or id or target";

/// A table of variants.
#[derive(Debug)]
pub struct Table {
    /// The lines before the header, which begin with `##`.
    comment: Vec<u8>,
    delimiter: u8,
    /// The column of ids, if there is one.
    pub ids: Option<String>,
    /// The header, with two more columns: the score of a line, and the reason why it has none.
    header: StringRecord,
    /// The lines with text: the id of each, its variant, and its cells.
    pub lines: Vec<(IdValue, Result<Variant, Unscored>, StringRecord)>,
}

impl Table {
    /// Reads a table with these columns of variants and of ids, or those with usual names. Without ids, it is of the `only` protein.
    ///
    /// # Errors
    /// It has no header with the column, or a line has other columns.
    pub fn read(
        text: &[u8],
        [column, ids]: [Option<&str>; 2],
        only: Option<&str>,
    ) -> Result<Self, String> {
        let (mut start, mut before) = (0, 0);
        while text[start..].starts_with(b"##") {
            let end = text[start..].iter().position(|&byte| byte == b'\n');
            start = end.map_or(text.len(), |end| start + end + 1);
            before += 1;
        }
        let (comment, text) = text.split_at(start);
        let (delimiter, records) = read_records(text);
        let mut records = records.into_iter().map(|(line, record)| {
            let line = before + line;
            let record = record.map_err(|what| format!("line {line}: {what}"));
            record.map(|record| (line, record))
        });
        let (_, mut header) = records.next().transpose()?.unwrap_or_default();
        let names = header
            .iter()
            .map(|name| name.trim().trim_start_matches('#').to_lowercase());
        let names: Vec<String> = names.collect();
        let place = |asked: Option<&str>, usual| {
            let asked = asked.unwrap_or(usual).to_lowercase();
            let mut each = asked.split(" or ");
            let place = each.find_map(|name| names.iter().position(|own| own == name));
            let place = place.ok_or_else(|| {
                let found = one_line(&Vec::from_iter(&header).join(","), LIST_SHOWN);
                format!(
                    "line {}: expected a column {asked}, found '{found}'",
                    before + 1
                )
            })?;
            if names.iter().filter(|own| **own == names[place]).count() > 1 {
                let name = Quoted(&header[place]);
                return Err(format!(
                    "line {}: expected one column {name}, found several",
                    before + 1
                ));
            }
            Ok(place)
        };
        let variants = place(column, VARIANTS)?;
        let id = match ids {
            Some("") => None,
            Some(_) => Some(place(ids, IDS)?),
            None => place(ids, IDS).ok(),
        };
        let mut lines = Vec::new();
        for record in records {
            let (line, record) = record?;
            let value = record[variants].trim().to_owned();
            let id = id.map(|place| record[place].trim()).or(only);
            let id = id.or_else(|| accession(&value)).map(str::to_owned);
            let id = id.ok_or_else(|| {
                let missing = place(None, IDS).err();
                missing.unwrap_or_else(|| {
                    "expected a column of ids: there are several proteins".to_owned()
                })
            })?;
            let variant = value.parse();
            lines.push((IdValue { line, id, value }, variant, record));
        }
        // A table that was scored before gets numbered columns.
        let ends = iter::once(String::new()).chain((2..).map(|number| format!("_{number}")));
        let mut added = ends.map(|end| ["score", "reason"].map(|name| format!("{name}{end}")));
        let added = added.find(|added| !added.iter().any(|name| names.contains(name)));
        header.extend(added.into_iter().flatten());
        Ok(Self {
            comment: comment.to_vec(),
            ids: id.map(|place| header[place].to_owned()),
            delimiter,
            header,
            lines,
        })
    }

    /// All ids, those before the variants included.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        let lines = self.lines.iter().map(|(line, ..)| line);
        lines
            .flat_map(|line| [Some(&*line.id), accession(&line.value)])
            .flatten()
    }

    /// Takes ids that are short for others for these. A line whose variant begins with the id of another protein is wrong.
    pub fn name(&mut self, named: &ShortIds) {
        for (line, variant, _) in &mut self.lines {
            match named.resolve(&line.id) {
                Ok(Some(id)) => id.clone_into(&mut line.id),
                Ok(None) => {}
                Err(what) => *variant = Err(Unscored::Wrong(what)),
            }
            let other = accession(&line.value).and_then(|id| named.resolve(id).ok()?);
            if let Some(other) = other.filter(|other| *other != line.id) {
                let what = format!(
                    "expected a variant of this protein, found one of {}",
                    Quoted(other)
                );
                *variant = Err(Unscored::Wrong(what));
            }
        }
    }

    /// The table with the score of each line, in f32, or the reason why it has none.
    pub fn with(&self, scores: &[Result<f64, Unscored>], delimiter: Option<u8>) -> Vec<u8> {
        let mut writer = WriterBuilder::new();
        writer.delimiter(delimiter.unwrap_or(self.delimiter));
        let mut writer = writer.from_writer(self.comment.clone());
        // Memory takes all.
        let _ = writer.write_record(&self.header);
        for ((.., record), score) in self.lines.iter().zip(scores) {
            let added = match score {
                Ok(score) => [&*(*score as f32).to_string(), ""],
                Err(Unscored::Other(reason) | Unscored::Wrong(reason)) => ["", &**reason],
            };
            let _ = writer.write_record(record.iter().chain(added));
        }
        writer.into_inner().unwrap_or_default()
    }
}

/// The id before a variant in HGVS.
fn accession(variant: &str) -> Option<&str> {
    variant.split_once(":p.").map(|(id, _)| id.trim())
}

/// Whether a table has the columns that [`Table::with`] adds.
pub fn has_scores(text: &[u8]) -> bool {
    let mut records = read_records(text).1.into_iter();
    let header = records.find_map(|(_, record)| record.ok());
    let added = header.iter().flatten().skip(1).map(|name| {
        let end = name.trim_end_matches(|letter: char| letter == '_' || letter.is_ascii_digit());
        end.to_owned()
    });
    let added: Vec<String> = added.collect();
    added.ends_with(&["score".to_owned(), "reason".to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_before_the_header_stay_and_accessions_are_ids() {
        let text = "##a\n##b\n#x\thgvs_p\n1\tNP_1.2:p.Ala1Val\n2\tA1V\n";
        let error = read(text, [None; 2], None).expect_err("no id");
        assert!(
            error.starts_with("line 3: expected a column protein_id or"),
            "{error}"
        );
        let text = &text[..text.len() - "2\tA1V\n".len()];
        let table = read(text, [None; 2], None).expect("a table");
        let (line, ..) = &table.lines[0];
        assert_eq!((line.line, &*line.id), (4, "NP_1.2"));
        let scored = String::from_utf8(table.with(&[Ok(1.0)], None)).expect("text");
        assert_eq!(
            scored,
            "##a\n##b\n#x\thgvs_p\tscore\treason\n1\tNP_1.2:p.Ala1Val\t1\t\n"
        );
    }

    #[test]
    fn a_table_with_scores_is_known_by_its_last_columns() {
        for (text, expected) in [
            ("mutant,score,reason\nA1V,1,\n", true),
            ("\u{feff}id\tmutant\tscore_2\treason_2\n", true),
            ("mutant,score\nA1V,1\n", false),
            ("score,reason\n", false),
            ("{\n  \"samples\": 1\n}\n", false),
            ("", false),
        ] {
            assert_eq!(has_scores(text.as_bytes()), expected, "{text}");
        }
    }

    fn read(text: &str, columns: [Option<&str>; 2], only: Option<&str>) -> Result<Table, String> {
        Table::read(text.as_bytes(), columns, only)
    }

    #[test]
    fn own_columns_stay_and_two_are_added() {
        for (text, delimiter, expected) in [
            (
                "mutant,n\nA1V,x\nA2,\n",
                None,
                "mutant,n,score,reason\nA1V,x,-0.25,\nA2,,,\"a, b\"\n",
            ),
            (
                "\u{feff}\"Mutant\",\"n,\"\r\n\"A1V\", x \r\n\r\nA2,\"\"\"\"",
                None,
                "Mutant,\"n,\",score,reason\nA1V, x ,-0.25,\nA2,\"\"\"\",,\"a, b\"\n",
            ),
            (
                "Score,score_2,mutant\n1,\"2\t\",A1V\n",
                Some(b'\t'),
                "Score\tscore_2\tmutant\tscore_3\treason_3\n1\t\"2\t\"\tA1V\t-0.25\t\n",
            ),
            (
                "a\tmutant\n,\tA1V\n",
                Some(b','),
                "a,mutant,score,reason\n\",\",A1V,-0.25,\n",
            ),
            ("mutant\n", None, "mutant,score,reason\n"),
        ] {
            let table = read(text, [None; 2], Some("only")).expect(text);
            let scores = [Ok(-0.25), Err(Unscored::Other("a, b".to_owned()))];
            let text = table.with(&scores[..table.lines.len()], delimiter);
            assert_eq!(String::from_utf8(text).expect("text"), expected);
        }
    }

    #[test]
    fn columns_are_found_by_name() {
        for (text, columns, expected) in [
            (
                "id,variant,mutant\n\na, B ,A1V\n",
                [None, None],
                ["a", "A1V"],
            ),
            (
                "ID,Protein,HGVSp\n\n7, P1,A1V \n",
                [None, None],
                ["P1", "A1V"],
            ),
            ("x,HGVS_p\n\nP1,A1V\n", [None, None], ["only", "A1V"]),
            ("x,y\n\nP1,A1V\n", [Some("Y"), Some("x")], ["P1", "A1V"]),
            ("id,mutant\n\n7,A1V\n", [None, Some("")], ["only", "A1V"]),
            ("##v\n#Id\tHGVSp\nP1\tA1V\n", [None, None], ["P1", "A1V"]),
        ] {
            let table = read(text, columns, Some("only")).expect(text);
            let (line, ..) = &table.lines[0];
            assert_eq!((line.line, [&*line.id, &*line.value]), (3, expected));
        }
        let ids = [None, Some("x")];
        for (text, columns, only, what) in [
            (
                "",
                [None; 2],
                None,
                "line 1: expected a column mutant or variant or",
            ),
            ("A1V,2\n", [None; 2], None, "found 'A1V,2'"),
            (
                "mutant,n\nA1V\n",
                [None; 2],
                Some("a"),
                "line 2: expected 2 columns, found 1",
            ),
            (
                "mutant,n\n\nA1V,2,3\n",
                [None; 2],
                Some("a"),
                "line 3: expected 2 columns, found 3",
            ),
            (
                "mutant,n\nA1V,\"a\nb\"\n",
                [None; 2],
                Some("a"),
                "line 2: a line break in a cell",
            ),
            (
                "mutant\n",
                ids,
                Some("a"),
                "expected a column x, found 'mutant'",
            ),
            (
                "mutant\nA1V\n",
                [None; 2],
                None,
                "or id or target, found 'mutant'",
            ),
            (
                "mutant\nA1V\n",
                [None, Some("")],
                None,
                "or id or target, found 'mutant'",
            ),
            (
                "id,mutant,Mutant\n",
                [None; 2],
                None,
                "line 1: expected one column 'mutant', found several",
            ),
        ] {
            let error = read(text, columns, only).expect_err(what);
            assert!(error.contains(what), "{error}");
        }
        let error = Table::read(b"mutant\n\xff\n", [None; 2], Some("a")).expect_err("no UTF-8");
        assert!(error.contains("expected UTF-8"), "{error}");
    }
}
