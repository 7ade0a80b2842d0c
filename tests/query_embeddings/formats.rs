//! Rows by their ids in formats of other programs.

use std::fs;

use crate::common::assert_failed;
use crate::dataset::{dataset, expected, interleaved, succeeded};
use crate::guards::tool;
use crate::set::Set;

#[test]
fn selected_vectors_are_a_matrix_or_text() {
    let set = Set::new();
    dataset(&set, 3, interleaved);
    // One of them has two windows; ids are in the order of the input.
    fs::write(set.path("ids"), "P20\nP09\n").expect("write");
    let asked = ["P09", "P20"];
    let rows: Vec<_> = expected()
        .into_iter()
        .filter(|row| asked.contains(&&*row.1))
        .collect();
    succeeded(&tool(
        &set,
        "select sample --ids ids --format npy --out m.npy",
    ));
    let matrix = fs::read(set.path("m.npy")).expect("a matrix");
    let shape = b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 8), }";
    assert!(matrix[10..].starts_with(shape));
    let values = rows.iter().flat_map(|row| row.2.clone());
    assert!(matrix[128..] == values.flat_map(f32::to_le_bytes).collect::<Vec<_>>());
    assert_eq!(
        fs::read_to_string(set.path("m.ids.txt")).expect("ids"),
        "P09\nP09\nP20\n"
    );
    for (format, comma) in [("tsv", "\t"), ("csv", ",")] {
        succeeded(&tool(
            &set,
            &format!("select sample --ids ids --format {format} --out t.{format}"),
        ));
        let text = fs::read_to_string(set.path(&format!("t.{format}"))).expect("a table");
        let mut lines = text
            .lines()
            .map(|line| line.split(comma).collect::<Vec<_>>());
        let header = lines.next().expect("a header");
        assert_eq!(header[..3], ["ordinal", "id", "start"]);
        assert_eq!(
            header[6..],
            [0, 1, 2, 3, 4, 5, 6, 7].map(|at| format!("mean_6_{at}"))
        );
        for (line, ((ordinal, start), id, vector)) in lines.zip(&rows) {
            assert_eq!(line[..3], [&ordinal.to_string(), id, &start.to_string()]);
            let found: Vec<f32> = line[6..]
                .iter()
                .map(|text| text.parse().expect("a number"))
                .collect();
            assert_eq!(&found, vector);
        }
        assert_eq!(text.lines().count(), 4);
        succeeded(&tool(
            &set,
            &format!("select sample --ids ids --format {format} --out t.{format}"),
        ));
        let other = tool(
            &set,
            &format!("select sample --id P01 --format {format} --out t.{format}"),
        );
        assert_failed(&other, 73, ": exists and holds other work");
        succeeded(&tool(
            &set,
            &format!("combine sample --format {format} --out t.{format} --force"),
        ));
        assert_eq!(
            fs::read_to_string(set.path(&format!("t.{format}")))
                .expect("a table")
                .lines()
                .count(),
            31
        );
    }
    for (line, code, what) in [
        (
            "select sample --id P99 --format tsv --out n",
            1,
            "1 of 1 ids are not in the dataset: 'P99'",
        ),
        (
            "select sample --id P01 --format npy --out n",
            2,
            "expected a name that ends with .npy",
        ),
        (
            "select sample --id P01 --column mean_6 --out n",
            2,
            "--column: expected --format npy, tsv or csv with it",
        ),
        (
            "select sample --id P01 --format csv --column mean_7 --out n",
            65,
            "mean_7",
        ),
    ] {
        assert_failed(&tool(&set, line), code, what);
        assert!(!set.path("n").exists(), "{line}");
    }
    let line = "select sample --id P99 --id P01 --allow-missing --format csv --out n";
    assert!(succeeded(&tool(&set, line)).contains("n: 1 row"));
}

#[test]
fn rows_are_looked_up_by_lists_of_ids() {
    let set = Set::new();
    dataset(&set, 3, interleaved);
    fs::write(set.path("ids"), "P05\nP03\n").expect("write");
    fs::write(set.path("fasta"), ">P07 no row\n>P04 one\nMKV\n").expect("write");
    let found = |line: &str| {
        let stdout = String::from_utf8(tool(&set, line).stdout).expect("text");
        let ids = stdout
            .lines()
            .map(|line| line[line.find("\"id\"").expect("an id") + 6..][..3].to_owned());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(
        found("lookup sample P06 --ids ids --column mean_6"),
        ["P06", "P05", "P03"]
    );
    assert_eq!(found("lookup sample P06 P06 --fasta fasta"), ["P06", "P04"]);
    assert_failed(
        &tool(&set, "lookup sample --fasta fasta"),
        1,
        "1 of 2 ids are not in the dataset: 'P07'",
    );
    assert_failed(&tool(&set, "lookup sample"), 2, "required");
}
