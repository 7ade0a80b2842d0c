use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Of a genetic code.
type How = fn(u8) -> Translation;

const SPLIT: How = |code| six_frame(StopPolicy::Split, code);
const DROP: How = |code| six_frame(StopPolicy::Drop, code);
const X: How = |code| six_frame(StopPolicy::X, code);
const STOPS: How = |code| orf(OrfBetween::Stops, code);
const START_STOP: How = |code| orf(OrfBetween::StartStop, code);

fn six_frame(stops: StopPolicy, genetic_code: u8) -> Translation {
    Translation::SixFrame {
        stops,
        genetic_code,
    }
}

fn orf(orf_between: OrfBetween, genetic_code: u8) -> Translation {
    Translation::Orf {
        orf_between,
        genetic_code,
    }
}

/// Translates, and returns the end of the id and the residues of each peptide.
fn translated(how: How, code: u8, min_residues: u32, bases: &str) -> Vec<(String, String)> {
    let translator = Translator::new(how(code), min_residues);
    let mut sets = bases.as_bytes().to_vec();
    let (length, known) = to_sets(&mut sets, false);
    let translated = translator.translate(&sets[..length], known.expect("bases"));
    assert_eq!(translated.replaced, 0);
    let text = |residues: &[u8]| String::from_utf8(residues.to_vec()).expect("ASCII");
    translated
        .iter()
        .map(|(place, residues)| (place.to_string(), text(residues)))
        .collect()
}

fn expect(how: How, code: u8, bases: &str, expected: &[(&str, &str)]) {
    let found = translated(how, code, 1, bases);
    let found: Vec<_> = found
        .iter()
        .map(|(place, residues)| (&**place, &**residues))
        .collect();
    assert_eq!(found, expected, "{bases}");
}

/// The frames and places are those of EMBOSS 6.6.0 `transeq -frame 6` and `getorf` for this sequence.
#[test]
fn frames_are_split_at_stops() {
    let bases = "TTGAAACTGCCCTAACTGAAATT";
    let expected = [
        ("1_1_12", "LKLP"),
        ("1_16_21", "LK"),
        ("2_5_16", "NCPN"),
        ("2_20_22", "N"),
        ("3_3_23", "ETALTEI"),
        ("-1_1_21", "FQLGQFQ"),
        ("-2_2_22", "ISVRAVS"),
        ("-3_15_23", "NFS"),
        ("-3_3_11", "GSF"),
    ];
    expect(SPLIT, 11, bases, &expected);
    expect(STOPS, 11, bases, &expected);
    let start_stop = [
        ("1_1_12", "MKLP"),
        ("1_16_21", "MK"),
        // A start codon at the end: getorf leaves it out.
        ("3_21_23", "M"),
        ("-2_2_22", "MSVRAVS"),
    ];
    expect(START_STOP, 11, bases, &start_stop);
    let long: Vec<_> = expected
        .iter()
        .filter(|(_, residues)| residues.len() > 3)
        .collect();
    assert_eq!(translated(SPLIT, 11, 4, bases).len(), long.len());
}

#[test]
fn frames_with_stops_are_dropped_or_have_x() {
    let bases = "ATGTGAAAATAA";
    let x = [
        ("1_1_9", "MXK"),
        ("2_2_10", "CEN"),
        ("3_3_11", "VKI"),
        ("-1_1_12", "LFSH"),
        ("-2_2_10", "IFT"),
        ("-3_3_11", "YFH"),
    ];
    expect(X, 1, bases, &x);
    expect(DROP, 1, bases, &x[1..]);
    // In code 4, TGA is W.
    expect(
        DROP,
        4,
        "ATGTGATAA",
        &[
            ("1_1_6", "MW"),
            ("2_2_7", "CD"),
            ("3_3_8", "VI"),
            ("-1_1_9", "LSH"),
            ("-2_2_7", "IT"),
            ("-3_3_8", "YH"),
        ],
    );
}

#[test]
fn contigs_of_less_than_a_codon_have_no_peptides() {
    for bases in ["", "A", "AT"] {
        expect(SPLIT, 1, bases, &[]);
    }
    expect(SPLIT, 1, "CAG", &[("1_1_3", "Q"), ("-1_1_3", "L")]);
    expect(SPLIT, 1, "TAA", &[("-1_1_3", "L")]);
}

#[test]
fn ambiguous_codons_are_what_all_their_codons_are() {
    for (codon, residue) in [
        ("TAR", None),
        ("TRA", None),
        ("NNN", Some("X")),
        ("GCN", Some("A")),
        ("gcu", Some("A")),
        ("YTR", Some("L")),
        ("MGR", Some("R")),
        ("RAY", Some("X")),
        ("TAN", Some("X")),
        ("ATH", Some("I")),
        ("ATN", Some("X")),
    ] {
        let found = translated(SPLIT, 1, 1, codon);
        let found = found.iter().find(|(place, _)| place == "1_1_3");
        assert_eq!(found.map(|(_, residues)| &**residues), residue, "{codon}");
    }
    // TTG and CTG are starts of the standard code, YTG may be either, and is none.
    let starts = |bases| translated(START_STOP, 1, 1, bases).len();
    assert_eq!(
        (starts("TTGGCC"), starts("CTGGCC"), starts("YTGGCC")),
        (1, 1, 0)
    );
}

/// Translates one codon of A, C, G, T and N by the lines of NCBI's table.
fn naive(code: &str, codon: &[u8]) -> char {
    let (residues, _) = genetic_code::codons(genetic_code(code).expect("a code"));
    let is = |letter: u8, base: usize| letter == b'N' || b"TCAG"[base % 4] == letter;
    let codons =
        (0..64).filter(|at| is(codon[0], at / 16) && is(codon[1], at / 4) && is(codon[2], *at));
    let found: BTreeSet<u8> = codons.map(|at| residues[at]).collect();
    match found.first() {
        Some(&residue) if found.len() == 1 => residue.into(),
        _ => 'X',
    }
}

fn reverse_complement(bases: &str) -> String {
    let pair = |base| match base {
        'A' => 'T',
        'T' => 'A',
        'C' => 'G',
        'G' => 'C',
        other => other,
    };
    bases.chars().rev().map(pair).collect()
}

proptest! {
    #[test]
    fn frames_are_those_of_a_naive_translation(bases in "[ACGT]{0,80}", code in proptest::sample::select(&[1u8, 2, 4, 11, 22, 27, 33][..])) {
        let found = translated(SPLIT, code, 1, &bases);
        let reversed = reverse_complement(&bases);
        let mut expected = Vec::new();
        for offset in 0..3 {
            // The codons of frame −k end where those of frame k begin.
            let forward = bases.get(offset..).unwrap_or_default();
            let whole = forward.len() / 3 * 3;
            let backward = &reversed[forward.len() - whole..][..whole];
            for (sign, strand) in [("", &forward[..whole]), ("-", backward)] {
                let residues = strand.as_bytes().chunks(3).map(|codon| naive(&code.to_string(), codon));
                let residues: String = residues.collect();
                let peptides = residues.split('*').filter(|peptide| !peptide.is_empty());
                expected.extend(peptides.map(|peptide| (format!("{sign}{}", offset + 1), peptide.to_owned())));
            }
        }
        let mut found: Vec<_> = found.into_iter().map(|(place, residues)| {
            (place.split('_').next().expect("a frame").to_owned(), residues)
        }).collect();
        // Stable: the order in a frame stays.
        found.sort_by(|a, b| a.0.cmp(&b.0));
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn places_hold_the_codons_of_their_peptides(bases in "[ACGTN]{0,80}", start_stop: bool) {
        let how = if start_stop { START_STOP } else { STOPS };
        for (place, residues) in translated(how, 11, 1, &bases) {
            let numbers: Vec<i32> = place.split('_').map(|number| number.parse().expect("a number")).collect();
            let [frame, start, end] = numbers[..] else { unreachable!("three numbers") };
            prop_assert_eq!((start - frame.abs()) % 3, 0);
            let codons = &bases[start as usize - 1..end as usize];
            let codons = if frame > 0 { codons.to_owned() } else { reverse_complement(codons) };
            let codons = codons.as_bytes().chunks(3);
            let expected: String = codons.map(|codon| naive("11", codon)).collect();
            let expected = if start_stop { format!("M{}", &expected[1..]) } else { expected };
            prop_assert_eq!(residues, expected);
        }
    }

    #[test]
    fn the_other_strand_has_the_same_peptides(bases in "[ACGTRYSWKMBDHVN]{0,80}") {
        let letters = "ACGTRYSWKMBDHVN";
        let pairs = "TGCAYRSWMKVHDBN";
        let pair = |base| {
            char::from(pairs.as_bytes()[letters.find::<char>(base).expect("a letter")])
        };
        let reversed: String = bases.chars().rev().map(pair).collect();
        for how in [SPLIT, START_STOP, X] {
            let [mut found, mut other] = [&bases, &reversed].map(|bases| translated(how, 11, 1, bases));
            for (place, _) in &mut other {
                let numbers: Vec<i32> = place.split('_').map(|number| number.parse().expect("a number")).collect();
                let length = i32::try_from(bases.len()).expect("a short contig");
                let (start, end) = (length + 1 - numbers[2], length + 1 - numbers[1]);
                let frame = ((start - 1) % 3 + 1) * -numbers[0].signum();
                *place = format!("{frame}_{start}_{end}");
            }
            found.sort();
            other.sort();
            prop_assert_eq!(found, other);
        }
    }
}
