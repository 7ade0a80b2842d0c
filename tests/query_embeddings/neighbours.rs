//! Nearest neighbours, compared with all pairs in f64.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use plmkit_contract::{EmbeddingLayout, Provenance, SequenceDigest, StoreDtype};
use plmkit_store::{EmbeddingsReader, EmbeddingsWriter};

use crate::common::{assert_failed, command, run, visible};
use crate::dataset::{dataset, interleaved, succeeded};
use crate::guards::tool;
use crate::set::{Row, Set, rows};

/// Rows of these vectors, with ordinals from 0 on.
fn rows_of(vectors: impl IntoIterator<Item = Vec<f32>>) -> Vec<Row> {
    let numbered = (0..).zip(vectors);
    let row = |(ordinal, vector)| Row {
        ordinal,
        id: format!("P{ordinal:02}"),
        start: 0,
        length: 10,
        truncated: false,
        digest: SequenceDigest::new(&[]),
        vector,
    };
    numbered.map(row).collect()
}

/// `count` vectors of `dim` small integers, of which many are equal or equally near.
fn few_values(count: u64, dim: u64, seed: u64) -> Vec<Row> {
    let value = |row: u64, at: u64| (row * row + seed + at * (row % 5 + 1)) % 7;
    rows_of((0..count).map(|row| (0..dim).map(|at| value(row, at) as f32 - 2.5).collect()))
}

/// Writes the neighbours as text, and returns its lines.
fn found(set: &Set, line: &str) -> Vec<String> {
    let line = format!("neighbours {line} --format tsv --force --out hits.tsv");
    succeeded(&tool(set, &line));
    let text = fs::read_to_string(set.path("hits.tsv")).expect("hits");
    text.lines().skip(1).map(str::to_owned).collect()
}

/// The same of all pairs.
fn expected(queries: &[Row], targets: &[Row], metric: &str, top: usize, same: bool) -> Vec<String> {
    let sum = |one: &Row, other: &Row, term: fn(f64, f64) -> f64| {
        let pairs = one.vector.iter().zip(&other.vector);
        pairs
            .map(|(&one, &other)| term(one.into(), other.into()))
            .sum::<f64>()
    };
    let dot = |one: &Row, other: &Row| sum(one, other, |one, other| one * other);
    let score = |one: &Row, other: &Row| match metric {
        "cosine" => (dot(one, other) / (dot(one, one) * dot(other, other)).sqrt()).clamp(-1.0, 1.0),
        "dot" => dot(one, other),
        _ => sum(one, other, |one, other| (one - other).powi(2)).sqrt(),
    };
    let mut lines = Vec::new();
    for query in queries {
        let others = targets
            .iter()
            .filter(|target| !(same && target.ordinal == query.ordinal));
        let mut hits: Vec<(f64, &Row)> = others
            .map(|target| (score(query, target), target))
            .collect();
        hits.sort_by(|one, other| {
            let nearer = one.0.total_cmp(&other.0);
            if metric == "euclidean" {
                nearer
            } else {
                nearer.reverse()
            }
        });
        lines.extend(
            (1..)
                .zip(&hits[..top.min(hits.len())])
                .map(|(rank, (score, target))| {
                    format!(
                        "{}\t{}\t{rank}\t{score:?}\t{}\t{}\t{}\t{}",
                        query.id,
                        target.id,
                        query.ordinal,
                        target.ordinal,
                        query.start,
                        target.start
                    )
                }),
        );
    }
    lines
}

#[test]
fn hits_are_those_of_all_pairs_and_equally_near_ones_are_in_the_order_of_the_input() {
    for (dim, dtype) in [
        (1, StoreDtype::F32),
        (8, StoreDtype::F16),
        (130, StoreDtype::F32),
    ] {
        let set = Set::new();
        let [queries, targets] =
            [(100, 3), (1500, 0)].map(|(count, seed)| few_values(count, dim, seed));
        set.embeddings("q", &queries, dtype);
        set.embeddings("t", &targets, dtype);
        for metric in ["cosine", "dot", "euclidean"] {
            for top in [1, 7, 2000] {
                let lines = found(&set, &format!("q t --metric {metric} --top {top}"));
                // Sums of these values, and so scores, are exact but for the order of a cosine's last bits.
                assert!(
                    lines == expected(&queries, &targets, metric, top, false),
                    "{metric} {dim} {top}"
                );
            }
            let lines = found(&set, &format!("t t --metric {metric} --top 3"));
            assert!(
                lines == expected(&targets, &targets, metric, 3, true),
                "{metric} {dim}"
            );
        }
    }
}

#[test]
fn the_table_depends_on_neither_threads_parts_memory_nor_order() {
    let set = Set::new();
    let all = few_values(3000, 70, 1);
    set.embeddings("one.parquet", &all, StoreDtype::F32);
    fs::create_dir_all(set.path("many/embeddings")).expect("folder");
    for part in 0..5 {
        let rows: Vec<Row> = all
            .iter()
            .filter(|row| row.ordinal * 7 % 5 == part)
            .cloned()
            .collect();
        set.embeddings(
            &format!("many/embeddings/{}.parquet", 5 - part),
            &rows,
            StoreDtype::F32,
        );
    }
    let written = |line: &str| {
        let line = format!("neighbours {line} --out hits.parquet --force");
        let stderr = succeeded(&tool(&set, &line));
        (fs::read(set.path("hits.parquet")).expect("hits"), stderr)
    };
    let (one, stderr) = written("one.parquet one.parquet --threads 1");
    assert!(
        stderr.contains("3000 rows against 3000: about "),
        "{stderr}"
    );
    assert!(
        stderr.contains(" MiB of memory, 1 thread, 1 pass"),
        "{stderr}"
    );
    for line in [
        "one.parquet one.parquet --threads 2",
        "many one.parquet --threads 5",
        "many many --threads 5",
        "one.parquet many",
    ] {
        assert!(written(line).0 == one, "{line}");
    }
    let line = "query-embeddings neighbours one.parquet one.parquet --out hits.parquet --force";
    let stderr = run(command(&set.path("."), line).env("SLURM_CPUS_PER_TASK", "1"));
    assert!(
        stderr.contains(" MiB of memory, 1 thread, 1 pass"),
        "{stderr}"
    );
    let refused = tool(&set, "neighbours many many --out hits.parquet --memory 1K");
    assert_failed(&refused, 2, "--memory: expected ");
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    let words: Vec<&str> = stderr.split(' ').collect();
    let least = words
        .iter()
        .position(|word| *word == "MiB")
        .map(|at| words[at - 1]);
    let line = format!("many many --memory {}M", least.expect("a number"));
    let (few, stderr) = written(&line);
    assert!(few == one && stderr.contains("3 passes"), "{stderr}");
    // The same again is kept, and another table is not replaced.
    let again = |line: &str| {
        tool(
            &set,
            &format!("neighbours {line} --quiet --out hits.parquet"),
        )
    };
    succeeded(&again("many many"));
    assert_failed(
        &again("many many --top 2"),
        73,
        "hits.parquet: exists and holds other work",
    );
    assert!(fs::read(set.path("hits.parquet")).expect("hits") == one);
}

#[test]
fn no_record_is_a_neighbour_of_itself_or_of_its_windows() {
    let set = Set::new();
    dataset(&set, 3, interleaved);
    let lines = found(&set, "sample sample --top 50");
    assert_eq!(lines, expected(&rows(), &rows(), "cosine", 50, true));
    let lines = found(
        &set,
        "sample sample/dataset.json --top 1 --metric euclidean",
    );
    assert_eq!(lines, expected(&rows(), &rows(), "euclidean", 1, true));
    // In another dataset, equal rows are neighbours.
    let mut fewer = rows();
    fewer.truncate(4);
    set.embeddings("fewer", &fewer, StoreDtype::F32);
    let lines = found(&set, "fewer sample --top 1");
    assert!(
        lines.iter().all(|line| line.contains("\t1\t1.0\t")),
        "{lines:?}"
    );
}

#[test]
fn scores_below_the_least_are_left_out() {
    let set = Set::new();
    let rows = few_values(60, 8, 0);
    set.embeddings("a", &rows, StoreDtype::F32);
    for (metric, least) in [
        ("cosine", 0.75),
        ("dot", 20.0),
        ("cosine", 1.0),
        ("cosine", 2.0),
    ] {
        let score = |line: &String| {
            line.split('\t')
                .nth(3)
                .and_then(|score| score.parse::<f64>().ok())
        };
        let mut all = expected(&rows, &rows, metric, 5, true);
        all.retain(|line| score(line) >= Some(least));
        let lines = found(
            &set,
            &format!("a a --top 5 --metric {metric} --min-score {least}"),
        );
        assert_eq!(lines, all, "{metric} {least}");
    }
}

#[test]
fn nothing_against_nothing_is_an_empty_table() {
    let set = Set::new();
    set.embeddings("none", &[], StoreDtype::F32);
    set.embeddings("some", &rows(), StoreDtype::F32);
    for line in ["none some", "some none", "none none"] {
        assert_eq!(found(&set, line), Vec::<String>::new(), "{line}");
    }
    let line = "neighbours none some --out hits.parquet";
    assert!(succeeded(&tool(&set, line)).contains("0 hits"));
}

#[test]
fn ids_are_quoted_in_text() {
    let set = Set::new();
    let mut rows = rows_of([vec![1.0, 0.0], vec![1.0, 0.5]]);
    rows[0].id = "a\"b,c'é".to_owned();
    set.embeddings("odd", &rows, StoreDtype::F32);
    let lines = found(&set, "odd odd");
    assert!(
        lines[0].starts_with("\"a\"\"b,c'é\"\tP01\t1\t0.894427190999"),
        "{lines:?}"
    );
}

#[test]
fn vectors_of_the_largest_and_the_smallest_values_are_compared_exactly() {
    let set = Set::new();
    let scales = [3e38, 1e30, 1e19, 1.0, 1e-19, 1e-30, 1e-44];
    let directions = [
        [1.0, 0.5, 0.25],
        [1.0, 0.5, 0.75],
        [1.0, -0.5, 0.75],
        [0.5, -1.0, 0.25],
    ];
    let vectors = scales
        .iter()
        .flat_map(|scale| directions.map(|of| of.map(|value| value * scale).to_vec()));
    let rows = rows_of(vectors);
    set.embeddings("wide", &rows, StoreDtype::F32);
    for metric in ["cosine", "dot", "euclidean"] {
        let lines = found(&set, &format!("wide wide --top 4 --metric {metric}"));
        let id = |line: &String| line.split('\t').nth(1).map(str::to_owned);
        let expected = expected(&rows, &rows, metric, 4, true);
        assert_eq!(
            lines.iter().map(id).collect::<Vec<_>>(),
            expected.iter().map(id).collect::<Vec<_>>(),
            "{metric}"
        );
    }
}

#[test]
fn vectors_without_a_direction_are_refused() {
    let set = Set::new();
    set.embeddings("good", &rows(), StoreDtype::F32);
    for (value, metric, what) in [
        (f32::NAN, "cosine", "mean_6 has a value that is not finite"),
        (
            f32::INFINITY,
            "dot",
            "mean_6 has a value that is not finite",
        ),
        (
            f32::NEG_INFINITY,
            "euclidean",
            "mean_6 has a value that is not finite",
        ),
        (
            0.0,
            "cosine",
            "mean_6 has a vector of zeros, which has no cosine",
        ),
    ] {
        let sample = dataset(&set, 3, |row| (row.ordinal % 3) as usize);
        fs::remove_file(sample.join("dataset.json")).expect("remove");
        let mut bad = rows();
        bad.retain(|row| row.ordinal % 3 == 1);
        bad[4].vector = if value == 0.0 {
            vec![0.0; 8]
        } else {
            [vec![value], vec![1.0; 7]].concat()
        };
        set.embeddings(
            "sample/embeddings/shard-00001.parquet",
            &bad,
            StoreDtype::F32,
        );
        for sides in ["good sample", "sample good"] {
            let line = format!("neighbours {sides} --metric {metric} --quiet --out new");
            let what = format!("sample/embeddings/shard-00001.parquet: ordinal 16 'P16': {what}");
            assert_failed(&tool(&set, &line), 65, &what);
            assert!(!visible(&set.path(".")).contains(&"new".to_owned()));
        }
        if value == 0.0 {
            found(&set, "good sample --metric dot");
            found(&set, "good sample --metric euclidean");
        }
    }
}

/// Writes a file again with another origin and layout.
fn made_otherwise(
    from: &Path,
    to: &Path,
    change: impl Fn(Provenance, &mut EmbeddingLayout) -> Provenance,
) {
    let mut reader = EmbeddingsReader::open(from).expect("a file");
    let mut layout = reader.layout().clone();
    let provenance = change(reader.provenance().clone(), &mut layout);
    let mut writer = EmbeddingsWriter::create(to, &layout).expect("create");
    while let Some(batch) = reader.next_batch().expect("sound") {
        let mut columns = batch.columns().to_vec();
        columns.resize(
            writer.schema().fields().len(),
            Arc::clone(&columns[columns.len() - 1]),
        );
        let batch = RecordBatch::try_new(Arc::clone(writer.schema()), columns);
        writer.write(&batch.expect("the columns")).expect("write");
    }
    writer.finish(&provenance).expect("finish");
}

#[test]
fn vectors_that_were_not_made_alike_are_refused() {
    let set = Set::new();
    let one = set.embeddings("one", &rows(), StoreDtype::F32);
    set.embeddings("half", &rows(), StoreDtype::F16);
    set.embeddings("narrow", &rows_of([vec![1.0; 4]]), StoreDtype::F32);
    let option = |name, value| move |of: Provenance, _: &mut EmbeddingLayout| of.with(name, value);
    made_otherwise(&one, &set.path("model"), option("model", "another"));
    made_otherwise(&one, &set.path("bf16"), option("dtype", "bf16"));
    made_otherwise(&one, &set.path("layer"), |of, layout| {
        layout.columns = vec!["mean_7".parse().expect("a column")];
        of
    });
    made_otherwise(&one, &set.path("two"), |of, layout| {
        layout.columns.push("bos_6".parse().expect("a column"));
        of
    });
    for (other, what) in [
        (
            "half",
            "half: expected store_dtype f32 as in one, found f16",
        ),
        ("narrow", "narrow: expected dimension 8 as in one, found 4"),
        (
            "model",
            "model: expected model unset as in one, found \"another\"",
        ),
        (
            "bf16",
            "bf16: expected dtype unset as in one, found \"bf16\"",
        ),
        (
            "layer",
            "layer: expected column mean_6 as in one, found mean_7",
        ),
    ] {
        assert_failed(
            &tool(&set, &format!("neighbours one {other} --out new")),
            65,
            what,
        );
    }
    let what = "expected one column with one vector for each protein, found mean_6, bos_6: name it with --column";
    assert_failed(&tool(&set, "neighbours one two --out new"), 2, what);
    let lines = found(&set, "one two --column mean_6 --top 2");
    assert_eq!(lines, expected(&rows(), &rows(), "cosine", 2, false));
}

#[test]
fn options_are_checked_before_anything_is_read() {
    let set = Set::new();
    set.embeddings("a", &rows(), StoreDtype::F32);
    for (options, code, what) in [
        (
            "--metric euclidean --min-score 1",
            2,
            "--min-score: expected --metric cosine or dot",
        ),
        ("--min-score NaN", 2, "--min-score: expected a number"),
        ("--top 0", 2, "--top"),
        ("--memory 1X", 2, "expected bytes, such as 500M or 8G"),
        ("--memory 99999999999G", 2, "expected bytes"),
        (
            "--column mean_7",
            65,
            "expected a column 'mean_7', found mean_6",
        ),
    ] {
        assert_failed(
            &tool(&set, &format!("neighbours a a --out new {options}")),
            code,
            what,
        );
    }
    assert_failed(
        &tool(&set, "neighbours a a --out a --force"),
        2,
        "are the same file",
    );
    assert_failed(
        &tool(&set, "neighbours a none --out new"),
        66,
        "none: no such file or folder",
    );
    assert!(!set.path("new").exists());
}
