//! Invalid command lines.

use crate::case::Case;

#[test]
fn invalid_command_lines() {
    for (args, expected) in [
        (
            "a.fasta",
            "expected --shards or --max-shard-tokens, found neither",
        ),
        (
            "a.fasta --shards 1 --max-shard-tokens 100",
            "cannot be used with",
        ),
        ("a.fasta --shards 0", "0 is not in 1..=100000"),
        (
            "a.fasta --max-shard-tokens 2",
            "2 is not in 3..18446744073709551615",
        ),
        (
            "a.fasta --max-shard-tokens 5+",
            "expected a whole number, in digits only",
        ),
        (
            "a.fasta --shards 1 --long-policy middle",
            "[possible values: truncate, window, separate, reject]",
        ),
        (
            "a.fasta --shards 1 --long-policy window --overlap 1022",
            "--overlap must be less than --max-residues",
        ),
        (
            "a.fasta --shards 1 --overlap 9",
            "expected --long-policy window with it",
        ),
        (
            "a.fasta --shards 1 --long-policy reject --min-residues 2000",
            "--min-residues is above --max-residues",
        ),
        ("- - --shards 1", "- is given more than once"),
        ("a.fasta --shards 1 --threads 0", "0 is not in 1..=1024"),
    ] {
        let case = Case::new();
        case.write("a.fasta", ">a\nMK\n");
        case.fails(args, 2, expected);
    }
}
