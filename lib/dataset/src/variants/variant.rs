//! Variants as tables write them: `A123V`, HGVS, several joined.

use std::str::FromStr;

use plmkit_contract::AMINO_ACIDS;

/// The names of residues in HGVS, each with its letter.
const NAMES: &str = "AlaA CysC AspD GluE PheF GlyG HisH IleI LysK LeuL MetM AsnN ProP GlnQ ArgR SerS ThrT ValV TrpW TyrY AsxB GlxZ PylO SecU XaaX Ter*";

/// What stands behind a position in changes that are no substitutions, each with its name. The first that is found counts.
const OTHER_CHANGES: &str = "fs frameshift,ext extension,delins deletion-insertion,del deletion,ins insertion,dup duplication,- deletion,[ repeat,? unknown effect";

/// The reason of residues without log-probabilities.
pub(super) const NO_AMINO_ACID: &str = "a residue is none of the twenty amino acids";

/// What encloses a variant, or a part of it, whose effect is predicted.
const BRACKETS: [char; 4] = ['(', ')', '[', ']'];

/// Substitutions in one protein, at different positions: the residue of the protein, its place from 1, and the residue in its place,
/// the same one or one of [`AMINO_ACIDS`]. The wild type has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant(pub Vec<(u8, u32, u8)>);

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
        if ["", "-", ".", "NA"].contains(&&*text) {
            return Err(Unscored::Other("no variant".to_owned()));
        }
        let start = text.find("p.");
        let mut substitutions: Vec<(u8, u32, u8)> = Vec::new();
        for part in text[start.unwrap_or(0)..].split([':', ';']) {
            let part = part.trim().trim_matches(BRACKETS);
            let part = part.trim_start_matches("p.").trim_matches(BRACKETS);
            if ["=", "WT", "wt", "_wt"].contains(&part) {
                continue;
            }
            let substitution = substitution(part, start.is_some())?;
            if substitutions.iter().any(|other| other.1 == substitution.1) {
                let what = "expected one substitution at a position";
                return Err(Unscored::Wrong(what.to_owned()));
            }
            substitutions.push(substitution);
        }
        Ok(Self(substitutions))
    }
}

/// Reads one substitution, also that of a residue by itself. In HGVS, X may be a stop.
fn substitution(text: &str, is_hgvs: bool) -> Result<(u8, u32, u8), Unscored> {
    let what = "expected a residue, its position from 1 and a residue, such as A123V, p.Ala123Val or A123V:K5R";
    let unreadable = || Unscored::Wrong(what.to_owned());
    let other = |what: &str| Err(Unscored::Other(what.to_owned()));
    if ["?", "0", "0?"].contains(&text) {
        return other("unknown effect");
    }
    let (wild_type, rest) = residue(text).ok_or_else(unreadable)?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit());
    let (position, change) = rest.split_at(end.ok_or_else(unreadable)?);
    let position = position.parse().ok().filter(|&position| position > 0);
    let position = position.ok_or_else(unreadable)?;
    let mut changes = OTHER_CHANGES
        .split(',')
        .filter_map(|one| one.split_once(' '));
    let mutant = match changes.find(|(mark, _)| change.contains(mark)) {
        Some(("?", _)) if (wild_type, position) == (b'M', 1) => return other("start loss"),
        Some((_, name)) => return other(name),
        None if change == "=" => Some((wild_type, "")),
        None => residue(change),
    };
    let Some((mutant, "")) = mutant else {
        return Err(unreadable());
    };
    match (wild_type, mutant) {
        (_, b'*') => other("stop"),
        (_, b'X') if is_hgvs && change == "X" => other("stop"),
        (b'*', _) => other("stop loss"),
        _ if mutant == wild_type || AMINO_ACIDS.contains(&mutant) => {
            Ok((wild_type, position, mutant))
        }
        _ => other(NO_AMINO_ACID),
    }
}

/// The residue at the start of a text, by its letter or its name, and the rest.
fn residue(text: &str) -> Option<(u8, &str)> {
    let letters = text.bytes().take_while(u8::is_ascii_alphabetic).count();
    if letters == 3 {
        let (name, rest) = text.split_at(letters);
        let mut names = NAMES.split(' ').map(|known| known.split_at(letters));
        let (_, letter) = names.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        return Some((letter.as_bytes()[0], rest));
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
            ("A1V:K5R", several.clone()),
            ("A1V;K5R", several.clone()),
            ("p.[Ala1Val;Lys5Arg]", several.clone()),
            ("p.Ala1Val; p.Lys5Arg", several),
            ("WT", vec![]),
            ("_wt", vec![]),
            ("p.=", vec![]),
            ("p.(=)", vec![]),
            ("S2=", vec![(b'S', 2, b'S')]),
            ("ENSP1.2:p.Ser2%3D", vec![(b'S', 2, b'S')]),
            ("S2S:K5R", vec![(b'S', 2, b'S'), (b'K', 5, b'R')]),
            ("U4U", vec![(b'U', 4, b'U')]),
        ] {
            assert_eq!(text.parse(), Ok(Variant(expected)), "{text}");
        }
    }

    #[test]
    fn other_changes_have_their_reason_and_what_cannot_be_read_is_wrong() {
        for (reason, texts) in [
            ("stop", "R21* p.Arg21Ter p.R21X p.(Arg21*) A1V:R21* p.Ter9="),
            ("stop loss", "*39Q p.Ter39Gln"),
            ("frameshift", "p.Arg97ProfsTer23 R97fs p.(Tyr4fs)"),
            (
                "deletion-insertion",
                "p.Cys28_Lys29delinsTrpVal C28delinsWV",
            ),
            ("deletion", "p.Val7del K23_V25del V7-"),
            ("insertion", "p.Lys2_Leu3insGln K2_L3insQS"),
            ("duplication", "p.Val7dup A3_S5dup"),
            ("extension", "p.Met1ext-5 p.Ter110GlnextTer17"),
            ("repeat", "p.Ala2[10]"),
            ("start loss", "p.Met1? M1?"),
            ("unknown effect", "p.? p.(?) p.0 p.Ala5?"),
            ("no variant", "- . NA"),
            (NO_AMINO_ACID, "A1U p.Ala1Sec A1X p.Ala1Xaa"),
        ] {
            for text in texts.split(' ') {
                let unscored = Err(Unscored::Other(reason.to_owned()));
                assert_eq!(text.parse::<Variant>(), unscored, "{text}");
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
        ] {
            let wrong = text.parse::<Variant>().expect_err(text);
            assert!(matches!(wrong, Unscored::Wrong(_)), "{text}: {wrong:?}");
        }
    }
}
