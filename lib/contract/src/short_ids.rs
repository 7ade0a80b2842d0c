//! Ids in short: `P12345` or `NAME_HUMAN` for `sp|P12345|NAME_HUMAN`.

use std::collections::{BTreeSet, HashMap};
use std::iter;

use plmkit_kit::Quoted;

/// Finds the records that asked ids name. An id names the records that have it. If none has it, it names those that have it between
/// the bars of an id of UniProt or NCBI.
#[derive(Clone, Debug, Default)]
pub struct ShortIds {
    /// For each asked id, the ids of records that it may stand for.
    named: HashMap<String, BTreeSet<String>>,
}

impl ShortIds {
    /// Asks for ids.
    pub fn new<'i>(asked: impl IntoIterator<Item = &'i str>) -> Self {
        let asked = asked.into_iter();
        Self {
            named: asked.map(|id| (id.to_owned(), BTreeSet::new())).collect(),
        }
    }

    /// Sees the id of a record.
    pub fn see(&mut self, id: &str) {
        for short in asked_by(id) {
            if let Some(named) = self.named.get_mut(short) {
                named.insert(id.to_owned());
            }
        }
    }

    /// Returns the id of the records that an asked id names, if there are some. The error names those of several.
    pub fn resolve(&self, asked: &str) -> Result<Option<&str>, String> {
        let named = self.named.get(asked);
        if let Some(exact) = named.and_then(|named| named.get(asked)) {
            return Ok(Some(exact));
        }
        let mut named = named.into_iter().flatten();
        match (named.next(), named.next()) {
            (Some(one), Some(other)) => Err(format!(
                "{} is short for {} and {}: expected one of these",
                Quoted(asked),
                Quoted(one),
                Quoted(other)
            )),
            (one, _) => Ok(one.map(String::as_str)),
        }
    }
}

/// Returns what a record may be asked by: its id, and what stands between the bars of one such as `sp|P12345|NAME_HUMAN` or
/// `ref|NP_000537.3|`, whose first field is the tag of a database.
pub fn asked_by(id: &str) -> impl Iterator<Item = &str> {
    let mut fields = id.split('|');
    let tag = fields.next().unwrap_or_default();
    let is_tag = matches!(tag.len(), 2 | 3) && tag.bytes().all(|byte| byte.is_ascii_lowercase());
    let fields = fields.filter(move |field| is_tag && !field.is_empty());
    iter::once(id).chain(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_exact_first_and_then_short_for_one() {
        let records = [
            "sp|P1|ONE_HUMAN",
            "tr|P2|TWO_HUMAN",
            "tr|P3|ONE_HUMAN",
            "sp|P2x|P2",
            "ref|NP_1.2|",
            "sp|P4|P4_HUMAN",
            "P4",
            "k141|7|9",
            "sp|P1|ONE_HUMAN",
        ];
        let several = |id: &str, [one, other]: [&str; 2]| {
            Err(format!(
                "'{id}' is short for '{one}' and '{other}': expected one of these"
            ))
        };
        for (asked, expected) in [
            ("P1", Ok(Some("sp|P1|ONE_HUMAN"))),
            ("sp|P1|ONE_HUMAN", Ok(Some("sp|P1|ONE_HUMAN"))),
            ("TWO_HUMAN", Ok(Some("tr|P2|TWO_HUMAN"))),
            ("NP_1.2", Ok(Some("ref|NP_1.2|"))),
            ("P4", Ok(Some("P4"))),
            (
                "ONE_HUMAN",
                several("ONE_HUMAN", ["sp|P1|ONE_HUMAN", "tr|P3|ONE_HUMAN"]),
            ),
            ("P2", several("P2", ["sp|P2x|P2", "tr|P2|TWO_HUMAN"])),
            ("7", Ok(None)),
            ("sp", Ok(None)),
            ("", Ok(None)),
            ("p1", Ok(None)),
        ] {
            let mut ids = ShortIds::new([asked]);
            for id in records {
                ids.see(id);
            }
            assert_eq!(ids.resolve(asked), expected, "{asked}");
            assert_eq!(ids.resolve("other"), Ok(None));
        }
    }
}
