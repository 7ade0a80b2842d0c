//! Variants as tables write them: `A123V`, HGVS, several joined.

use std::str::FromStr;

use plmkit_contract::AMINO_ACIDS;

/// The names of residues in HGVS, each with its letter.
const NAMES: &str = "AlaA CysC AspD GluE PheF GlyG HisH IleI LysK LeuL MetM AsnN ProP GlnQ ArgR SerS ThrT ValV TrpW TyrY AsxB GlxZ PylO SecU XaaX Ter*";

/// The reason of residues without log-probabilities.
pub(super) const NO_AMINO_ACID: &str = "a residue is none of the twenty amino acids";

/// What encloses a variant, or a part of it, whose effect is predicted.
const BRACKETS: [char; 4] = ['(', ')', '[', ']'];

/// A variant of a protein.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// The residue of the protein, its place from 1, and the residue in its place: the same one, or one of [`AMINO_ACIDS`]. The wild
    /// type has none.
    pub sites: Vec<(u8, u32, u8)>,
    /// Why it has no score although it can be read.
    pub reason: Option<String>,
}

/// Why a variant has no score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unscored {
    /// It is of another kind, or has no log-probabilities.
    Other(String),
    /// Its line is wrong: it cannot be read, or does not fit the protein.
    Wrong(String),
}

impl FromStr for Variant {
    type Err = Unscored;

    /// Reads `A123V`, `p.Ala123Val` with or without an accession before it, or several joined by `:` or `;`.
    fn from_str(text: &str) -> Result<Self, Unscored> {
        // VEP writes = as an address does.
        let text = text.trim().replace("%3D", "=");
        let none = ["", "-", ".", "na", "n/a", "nan", "none", "null"];
        if none.contains(&&*text.to_lowercase()) {
            return Err(Unscored::Other("no variant".to_owned()));
        }
        let start = hgvs_start(&text);
        let text = &text[start.unwrap_or(0)..];
        let are_even = |pair: [char; 2]| {
            let [open, close] = pair.map(|bracket| text.matches(bracket).count());
            // That of a gene may be open.
            open == close || start.is_some() && close == open + 1 && text.ends_with(pair[1])
        };
        if !are_even(['(', ')']) || !are_even(['[', ']']) {
            return Err(unreadable());
        }
        let mut variant = Self::default();
        // Alleles that may be on different molecules.
        let has_several = text.contains("];[") || text.contains("(;)");
        variant.reason = has_several.then(|| "several alleles".to_owned());
        for part in text.split([':', ';']) {
            let part = part.trim().trim_matches(BRACKETS);
            let part = part.trim_start_matches("p.").trim_matches(BRACKETS);
            if ["=", "WT", "wt", "_wt"].contains(&part) {
                continue;
            }
            let (sites, reason) = read_part(part, start.is_some()).ok_or_else(unreadable)?;
            variant.reason = variant.reason.or(reason.map(str::to_owned));
            let is_known =
                |site: &(u8, u32, u8)| variant.sites.iter().any(|other| other.1 == site.1);
            if !has_several && sites.iter().any(is_known) {
                let what = "expected one substitution at a position";
                return Err(Unscored::Wrong(what.to_owned()));
            }
            variant.sites.extend(sites);
        }
        Ok(variant)
    }
}

/// Where HGVS begins in a text: `p.`, behind an accession or the name of a variant of a gene, and behind no other variant.
pub(super) fn hgvs_start(text: &str) -> Option<usize> {
    let start = text.find("p.")?;
    let before = text[..start].trim_end_matches(['(', ':', ' ']);
    let of_gene = [":c.", ":g.", ":n.", ":m."]
        .iter()
        .any(|mark| before.contains(mark));
    let mut parts = before.split([':', ';']);
    let is_id =
        !before.contains(char::is_whitespace) && parts.all(|part| read_part(part, true).is_none());
    (before.is_empty() || of_gene || is_id).then_some(start)
}

fn unreadable() -> Unscored {
    let what = "expected a residue, its position from 1 and a residue, such as A123V, p.Ala123Val or A123V:K5R";
    Unscored::Wrong(what.to_owned())
}

/// The sites of a part, and the reason why it has no score.
type Part = (Vec<(u8, u32, u8)>, Option<&'static str>);

/// Reads one change: a substitution, also that of a residue by itself, or another, by the grammar of HGVS. In HGVS, X may be a stop.
///
/// Source: <https://hgvs-nomenclature.org/stable/recommendations/protein/substitution/> and the pages beside it.
fn read_part(text: &str, is_hgvs: bool) -> Option<Part> {
    if ["?", "0", "0?"].contains(&text) {
        return Some((Vec::new(), Some("unknown effect")));
    }
    let ((first, position), change) = located(text)?;
    let mut sites = vec![(first, position, first)];
    let range = change.strip_prefix('_');
    let change = match range {
        None => change,
        Some(range) => {
            let ((last, end), change) = located(range)?;
            sites.push((last, end, last));
            (end > position).then_some(change)?
        }
    };
    let mutant = residue(change).filter(|_| range.is_none());
    let after = |mark: &str| {
        let rest = mutant.map_or(change, |(_, rest)| rest);
        change
            .strip_prefix(mark)
            .or_else(|| rest.strip_prefix(mark))
    };
    let reason = match change {
        "=" if first == b'*' => Some("stop"),
        "=" => None,
        "del" => Some("deletion"),
        "-" if range.is_none() => Some("deletion"),
        "dup" => Some("duplication"),
        "?" if (first, position) == (b'M', 1) => Some("start loss"),
        "?" => Some("unknown effect"),
        _ if change.strip_prefix("delins").is_some_and(are_residues) => Some("deletion-insertion"),
        _ if range.is_some() && change.strip_prefix("ins").is_some_and(are_residues) => {
            Some("insertion")
        }
        _ if after("fs").is_some_and(is_stop_at) => Some("frameshift"),
        _ if after("ext").is_some_and(is_stop_at) => Some("extension"),
        _ if change.strip_prefix('[').is_some_and(is_number) => Some("repeat"),
        _ => {
            let (mutant, rest) = mutant?;
            if !rest.is_empty() {
                return None;
            }
            let is_stop = mutant == b'*' || mutant == b'X' && is_hgvs && change == "X";
            match first {
                _ if is_stop && first != b'*' => Some("stop"),
                b'*' => Some("stop loss"),
                _ if mutant == first || AMINO_ACIDS.contains(&mutant) => {
                    sites[0].2 = mutant;
                    None
                }
                _ => Some(NO_AMINO_ACID),
            }
        }
    };
    // A protein has no stop.
    sites.retain(|site| site.0 != b'*');
    Some((sites, reason))
}

/// A residue with its position from 1 at the start of a text, and the rest.
fn located(text: &str) -> Option<((u8, u32), &str)> {
    let (residue, rest) = residue(text)?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit());
    let (position, rest) = rest.split_at(end?);
    let position = position.parse().ok().filter(|&position| position > 0)?;
    Some(((residue, position), rest))
}

/// Whether a text is residues, or their number.
fn are_residues(text: &str) -> bool {
    let mut rest = text;
    while let Some((_, next)) = residue(rest) {
        rest = next;
    }
    !text.is_empty() && (rest.is_empty() || rest == text && is_number(text.trim_matches(BRACKETS)))
}

/// Whether a text is the place of a new stop, if anything: `Ter23`, `*5`, `-5`, `?`.
fn is_stop_at(text: &str) -> bool {
    let place = residue(text).map_or(text, |(_, place)| place);
    text.is_empty() || is_number(place.trim_start_matches('-'))
}

/// Whether a text is a number, which may be unknown.
fn is_number(text: &str) -> bool {
    text == "?" || !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The residue at the start of a text, by its name or its letter, and the rest.
fn residue(text: &str) -> Option<(u8, &str)> {
    let letters = text.bytes().take_while(u8::is_ascii_alphabetic).count();
    if letters >= 3 {
        let (name, rest) = text.split_at(3);
        let is_name =
            |known: &str| known == name || letters == 3 && known.eq_ignore_ascii_case(name);
        let mut names = NAMES.split(' ').map(|known| known.split_at(3));
        if let Some((_, letter)) = names.find(|(known, _)| is_name(known)) {
            return Some((letter.as_bytes()[0], rest));
        }
    }
    let first = *text.as_bytes().first()?;
    (first == b'*' || first.is_ascii_uppercase()).then(|| (first, &text[1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_read_in_all_forms() {
        let several = vec![(b'A', 1, b'V'), (b'K', 5, b'R')];
        for (text, expected) in [
            ("A123V", vec![(b'A', 123, b'V')]),
            ("X5R", vec![(b'X', 5, b'R')]),
            (" p.Ala123Val ", vec![(b'A', 123, b'V')]),
            ("p.(Ala123Val)", vec![(b'A', 123, b'V')]),
            ("ALA123VAL", vec![(b'A', 123, b'V')]),
            ("NP_000001.1:p.Ala123Val", vec![(b'A', 123, b'V')]),
            (
                "NM_1.3(AP5Z1):c.8C>T (p.Ala123Val)",
                vec![(b'A', 123, b'V')],
            ),
            ("p.A123V", vec![(b'A', 123, b'V')]),
            ("A1V:p.K5R", several.clone()),
            ("Ala1Val:p.Lys5Arg", several.clone()),
            ("A1V:K5R", several.clone()),
            ("A1V;K5R", several.clone()),
            ("p.[Ala1Val;Lys5Arg]", several.clone()),
            ("p.Ala1Val; p.Lys5Arg", several),
            ("WT", vec![]),
            ("_wt", vec![]),
            ("p.=", vec![]),
            ("p.(=)", vec![]),
            ("S2=", vec![(b'S', 2, b'S')]),
            ("p.Met1_Leu3=", vec![(b'M', 1, b'M'), (b'L', 3, b'L')]),
            ("ENSP1.2:p.Ser2%3D", vec![(b'S', 2, b'S')]),
            ("S2S:K5R", vec![(b'S', 2, b'S'), (b'K', 5, b'R')]),
            ("U4U", vec![(b'U', 4, b'U')]),
        ] {
            let expected = Variant {
                sites: expected,
                reason: None,
            };
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn other_changes_have_their_reason_and_what_cannot_be_read_is_wrong() {
        for (reason, texts) in [
            ("stop", "R21* p.Arg21Ter p.R21X p.(Arg21*) A1V:R21* p.Ter9="),
            ("stop loss", "*39Q p.Ter39Gln"),
            (
                "frameshift",
                "p.Arg97ProfsTer23 R97fs p.(Tyr4fs) p.Arg97Profs*23 p.Arg97ProfsTer? R97Pfs",
            ),
            (
                "deletion-insertion",
                "p.Cys28_Lys29delinsTrpVal C28delinsWV",
            ),
            ("deletion", "p.Val7del K23_V25del V7-"),
            (
                "insertion",
                "p.Lys2_Leu3insGln K2_L3insQS p.Lys2_Leu3ins12 p.Lys2_Leu3ins(12)",
            ),
            ("duplication", "p.Val7dup A3_S5dup"),
            ("extension", "p.Met1ext-5 p.Ter110GlnextTer17"),
            ("repeat", "p.Ala2[10]"),
            ("start loss", "p.Met1? M1?"),
            ("unknown effect", "p.? p.(?) p.0 p.Ala5?"),
            ("no variant", "- . NA nan None N/A"),
            (
                "several alleles",
                "p.[Ala2Val];[Leu3Pro] p.[Ala2Val(;)Leu3Pro] p.[Ala2Val];[Ala2Val]",
            ),
            (NO_AMINO_ACID, "A1U p.Ala1Sec A1X p.Ala1Xaa"),
        ] {
            for text in texts.split(' ') {
                let found = match text.parse::<Variant>() {
                    Ok(variant) => variant.reason,
                    Err(Unscored::Other(reason)) => Some(reason),
                    Err(Unscored::Wrong(_)) => None,
                };
                assert_eq!(found.as_deref(), Some(reason), "{text}");
            }
        }
        for text in [
            "A",
            "AV",
            "A0V",
            "A-1V",
            "a1V",
            "A1v",
            "A1V:",
            "1A2",
            "A1.5V",
            "A99999999999V",
            "A1V:A1R",
            "A1V R2K",
            "Alx1Val",
            "c.5A>G",
            "p.",
            "A1",
            "A1VV",
            "é1V",
            "delusion",
            "garbage here:p.A1V",
            "A1V p.K5R",
            "A2V-L3P",
            "A2-V",
            "A2V_L3Pdel",
            "L3_A2del",
            "A2xyzfs",
            "A2VfsL3P",
            "A2dupe",
            "A2insane",
            "A2extra",
            "A2[L",
            "A2V[",
            "((A2V",
            "K2insQ",
        ] {
            let wrong = text.parse::<Variant>().expect_err(text);
            assert!(matches!(wrong, Unscored::Wrong(_)), "{text}: {wrong:?}");
        }
    }
}
