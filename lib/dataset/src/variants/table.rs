//! Tables of variants: CSV or TSV, whose own columns stay.

use std::iter;

use csv::{StringRecord, WriterBuilder};
use plmkit_contract::ShortIds;
use plmkit_kit::{LIST_SHOWN, Quoted, one_line};
use plmkit_store::{IdValue, read_records};

use super::variant::{Unscored, Variant, hgvs_start};

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
    /// How many lines have another id than theirs before the variant, of no protein that is known, and the first one.
    pub others: Option<(u64, String)>,
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
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
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
        let (mut lines, mut has_ids) = (Vec::new(), id.is_some() || only.is_some());
        for record in records {
            let (line, record) = record?;
            let value = record[variants].trim().to_owned();
            let id = id.map(|place| record[place].trim());
            let id = id.filter(|id| !id.is_empty()).or(only);
            let id = id.or_else(|| accession(&value)).map(str::to_owned);
            has_ids |= id.is_some();
            let mut variant = value.parse();
            if id.is_none() && variant.is_ok() {
                let what = "expected an id before p., or a column of ids";
                variant = Err(Unscored::Wrong(what.to_owned()));
            }
            let id = id.unwrap_or_default();
            lines.push((IdValue { line, id, value }, variant, record));
        }
        if !has_ids && !lines.is_empty() {
            let several = || "expected a column of ids: there are several proteins".to_owned();
            return Err(place(None, IDS).err().unwrap_or_else(several));
        }
        // A table that was scored before gets numbered columns.
        let ends = iter::once(String::new()).chain((2..).map(|number| format!("_{number}")));
        let mut added = ends.map(|end| ["score", "reason"].map(|name| format!("{name}{end}")));
        let added = added.find(|added| !added.iter().any(|name| names.contains(name)));
        header.extend(added.into_iter().flatten());
        Ok(Self {
            comment: comment.to_vec(),
            ids: id.map(|place| header[place].to_owned()),
            others: None,
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
            let Some(other) = accession(&line.value).filter(|other| *other != line.id) else {
                continue;
            };
            let known = named.resolve(other).ok().flatten();
            if known.is_none() && variant.is_ok() {
                self.others.get_or_insert((0, other.to_owned())).0 += 1;
            }
            if let Some(other) = known.filter(|other| *other != line.id) {
                let what = format!(
                    "expected a variant of this protein, found one of {}",
                    Quoted(other)
                );
                *variant = Err(Unscored::Wrong(what));
            }
        }
    }

    /// Whether a table is this one with scores, of other lines maybe.
    pub fn has_written(&self, text: &[u8]) -> bool {
        let records = read_records(&text[self.comment.len().min(text.len())..]).1;
        let first = records.first().and_then(|(_, record)| record.as_ref().ok());
        first == Some(&self.header) && records.iter().all(|(_, record)| record.is_ok())
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
    let start = hgvs_start(variant)?;
    let id = variant[..start].strip_suffix(':')?.trim();
    (!id.is_empty() && !id.contains(':')).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_before_the_header_stay_and_accessions_are_ids() {
        let text = "##a\n##b\n#x\thgvs_p\n1\tNP_1.2:p.Ala1Val\n2\tA1V\n";
        let mixed = read(text, [None; 2], None).expect("a table");
        assert!(
            matches!(&mixed.lines[1].1, Err(Unscored::Wrong(what)) if what.contains("expected an id before p."))
        );
        let error = read("##\nhgvs_p\nA1V\n", [None; 2], None).expect_err("no id");
        assert!(
            error.starts_with("line 2: expected a column protein_id or"),
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
    fn a_table_knows_what_it_wrote() {
        let table = read("id,mutant\nP1,A1V\n", [None; 2], None).expect("a table");
        for (text, expected) in [
            ("id,mutant,score,reason\nP1,A1V,1,\n", true),
            ("id\tmutant\tscore\treason\n", true),
            ("id,mutant,score,reason\nP1,A1V,1,\nmy note\n", false),
            ("mutant,score,reason\nA1V,1,\n", false),
            ("id,mutant\nP1,A1V\n", false),
            ("{\n  \"samples\": 1\n}\n", false),
            ("", false),
        ] {
            assert_eq!(table.has_written(text.as_bytes()), expected, "{text}");
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
