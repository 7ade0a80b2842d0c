//! Command lines that make no sense.

use crate::case::Case;

fn message(args: &str) -> String {
    let case = Case::new();
    case.write("a.fasta", ">a\nMK\n");
    let output = case.command(args).output().expect("run");
    assert_eq!(output.status.code(), Some(2), "{args}");
    assert!(!case.out().exists(), "{args}");
    crate::case::stderr(&output)
}

#[test]
fn one_target_is_required() {
    assert!(message("a.fasta").contains("expected --shards or --max-shard-tokens, found neither"));
    assert!(message("a.fasta --shards 1 --max-shard-tokens 100").contains("cannot be used with"));
}

#[test]
fn values_that_make_no_sense() {
    assert!(message("a.fasta --shards 0").contains("0 is not in 1..=100000"));
    assert!(
        message("a.fasta --shards 1 --long-policy middle")
            .contains("[possible values: truncate, window, split-off, reject]")
    );
    assert!(
        message("a.fasta --shards 1 --long-policy window --overlap 1022")
            .contains("--overlap must be less than --max-residues")
    );
    assert!(
        message("a.fasta --shards 1 --overlap 9").contains("expected --long-policy window with it")
    );
    assert!(
        message("a.fasta --shards 1 --long-policy reject --min-residues 2000")
            .contains("--min-residues is above --max-residues")
    );
    assert!(message("- - --shards 1").contains("- is given more than once"));
    assert!(message("a.fasta --shards 1 --threads 0").contains("0 is not in 1..=1024"));
}
