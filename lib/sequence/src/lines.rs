//! Tells the lines of a sequence from other text.

use plmkit_kit::Quoted;

/// The sizes of blocks that blanks may divide residues into: ten, as the public databases do, or one, as models of transformers
/// want them. A block of three may be `Met`, and one of another size a word.
const BLOCKS: [usize; 2] = [1, 10];

/// The start of a line that is no part of a sequence, and why.
pub(crate) type Foreign = (usize, String);

/// Whether no byte of a sequence needs [`check`].
pub(crate) fn are_plain(sequence: &[u8]) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'>' && byte != b';';
    sequence.iter().fold(true, |all, &b| all & is_plain(b))
}

/// Checks the sequence lines of a record, and returns the number of blanks between its residues.
///
/// Blanks are an aid to reading if they divide all lines of the record into blocks of one size. The last of a line may be smaller, if
/// no later line is longer. Other blanks are those of text, such as a title, positions or the message of a server; `any_blanks` accepts
/// them.
pub(crate) fn check(lines: &[u8], any_blanks: bool) -> Result<u64, Foreign> {
    let (mut at, mut blanks, mut suspect) = (0, 0, (true, usize::MAX, &lines[..0]));
    let (mut block, mut most, mut is_text) = (None, usize::MAX, false);
    for line in lines.split(|byte| b"\r\n".contains(byte)) {
        let is_foreign = |&(i, &byte): &(usize, &u8)| match byte {
            b' ' | b'\t' => false,
            b';' => i == 0,
            _ => byte == b'>' || !byte.is_ascii_graphic(),
        };
        if let Some((_, found)) = line.iter().enumerate().find(is_foreign) {
            let expected = if found.is_ascii_graphic() {
                // Perhaps two files were joined, the first without a final line end.
                "headers at the start of a line and no comments"
            } else {
                "printable ASCII; the input may be damaged, or another file may follow"
            };
            let found = found.escape_ascii();
            let problem = format!("found '{found}' in its sequence; expected {expected}");
            return Err((at, problem));
        }
        let pieces = line.split(|byte| b" \t".contains(byte));
        let pieces = pieces.map(|piece| piece.strip_suffix(b"*").unwrap_or(piece));
        let (mut is_even, mut is_last, mut letters, before) = (true, false, 0, blanks);
        for (number, piece) in pieces.filter(|piece| !piece.is_empty()).enumerate() {
            let size = piece.len();
            let block = *block.get_or_insert(size);
            is_text |=
                is_last || size > block || !BLOCKS.contains(&block) || piece[0].is_ascii_digit();
            is_last = size < block;
            is_even &= size == block;
            blanks += u64::from(number > 0);
            letters += size;
        }
        is_text |= letters > most;
        if is_last {
            most = letters;
        }
        if blanks > before {
            // The first line with a block of another size, if there is one.
            suspect = suspect.min((is_even, at, line));
        }
        at += line.len() + 1;
    }
    let (_, at, line) = suspect;
    if is_text && blanks > 0 && !any_blanks {
        let found = Quoted(str::from_utf8(line.trim_ascii()).unwrap_or_default());
        let way_out = if line.iter().any(u8::is_ascii_digit) {
            "numbers are no residues: remove them first"
        } else {
            "--drop-blanks takes every letter as a residue"
        };
        let problem = format!(
            "found {found} in its sequence; expected no blanks between residues, or blocks of ten in all its lines; {way_out}"
        );
        return Err((at, problem));
    }
    Ok(blanks)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEQUENCE: &str = "MKVLAAGIVGLCAKAYLEMSTNPKPQRKTKRNTNRRPQDVKFPGG";
    const TEN: &str = "MKVLAAGIVG LCAKAYLEMS";

    #[test]
    fn text_is_told_from_blocks() {
        for (text, blanks) in [
            (TEN, 1),
            ("MKVLAAGIVG\tLCA", 1),
            ("  mkvlaagivg  lcakaylems \r\n  mkv*\r\n", 1),
            ("MKVLAAGIVG LCAKAYLEMS*", 1),
            ("MKVLAAGIVG LCAKAYLEMS *", 1),
            ("M K V", 2),
            ("M K V\nL A *", 3),
            (" MKV \n\tLAA *\n\n G", 0),
            ("MKV\nPROTEIN\nLAA", 0),
            ("MKVLAAGIVG LCA\nKAYLEMSTNP KPQ", 2),
            ("", 0),
        ] {
            assert_eq!(check(text.as_bytes(), false), Ok(blanks), "{text:?}");
        }
        for (lines, line) in [
            (&[SEQUENCE, "Too Many Requests"][..], 1),
            (&[SEQUENCE, "RETRY LATER"], 1),
            (&[SEQUENCE, "Gateway Timeout"], 1),
            (&[SEQUENCE, "Connection reset"], 1),
            (&["Access Denied"], 0),
            (&[TEN, "Not Now"], 1),
            (&["SACCHAROMYCES CEREVISIAE", SEQUENCE], 0),
            (&["of bakers yeast", TEN], 0),
            (&["CYTOCHROME OXIDASE", TEN], 0),
            (&["CYTOCHROME C", SEQUENCE], 0),
            (&["Met Lys Val Leu"], 0),
            (&["MKV LAA GIV G"], 0),
            (&["MKVLAAGIVG LCA KAYLEMSTNP"], 0),
            (&[TEN, SEQUENCE], 0),
            (&["1 mkvlaagivg lcakaylems", "21 tnpkp"], 0),
            (&["MKVLAAGIVG LCAKAYLEMS 20"], 0),
            (&["MKVLAAGIVG LCAKAYLEMS", "        10         20"], 1),
        ] {
            let text = lines.join("\n");
            let (at, problem) = check(text.as_bytes(), false).expect_err("text");
            let found = format!("found '{}' in its sequence", lines[line].trim());
            assert!(problem.starts_with(&found), "{problem}");
            assert_eq!(text[..at].lines().count(), line, "{text}");
            assert!(check(text.as_bytes(), true).is_ok());
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_always_found() {
        for byte in 0..=u8::MAX {
            let lines = [&b"MK\nMKV"[..], &[byte], b"LA"].concat();
            let is_text = byte.is_ascii_graphic() && byte != b'>' || b" \t\r\n".contains(&byte);
            let found = check(&lines, true);
            assert_eq!(found.is_ok(), is_text, "{byte}");
            assert!(is_text || !are_plain(&lines) && found.is_err_and(|(at, _)| at == 3));
        }
        assert!(check(b"MK\n;MK", true).is_err_and(|(at, _)| at == 3));
    }

    proptest! {
        #[test]
        fn blocks_of_ten_change_nothing(sequence in "[A-Z]{1,200}", blocks in 1usize..9) {
            let lines: Vec<_> = sequence.as_bytes().chunks(10).collect();
            let lines: Vec<_> = lines.chunks(blocks).map(|line| line.join(&b' ')).collect();
            let blanks = (sequence.len() - 1) / 10 - (lines.len() - 1);
            prop_assert_eq!(check(&lines.join(&b'\n'), false), Ok(blanks as u64));
        }
    }
}
