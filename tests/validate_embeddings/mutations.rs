//! Changes of sound embeddings, whose digests are recomputed: which checks find each, what they say, and what nothing finds without
//! computing again.

use plmkit_contract::{ByteDigest, Provenance, SOURCE, SequenceDigest, StoreDtype};
use serde_json::Value;

use crate::plausible::{DIM, Data, File, Plausible, Protein, list_of_rows, noise, proteins};
use crate::set::{check, failed, run};

/// What is changed: P0600, the middle row of the second file, all rows of that file, or more.
#[derive(Clone, Copy)]
enum Change {
    /// Each vector of P0600.
    Vectors(fn(&mut Vec<f32>)),
    /// Each vector of the file.
    AllVectors(fn(&mut Vec<f32>)),
    Row(fn(&mut Protein)),
    Rows(fn(&mut Protein)),
    File(fn(&mut File)),
    Set(fn(&mut Data)),
}

use Change::{AllVectors, File as Whole, Row, Rows, Set, Vectors};

impl Change {
    fn apply(self, data: &mut Data) {
        let file = &mut data.files[1];
        match self {
            Vectors(change) => file.rows[200].vectors().into_iter().for_each(change),
            AllVectors(change) => {
                let rows = file.rows.iter_mut();
                rows.flat_map(Protein::vectors).for_each(change);
            }
            Row(change) => change(&mut file.rows[200]),
            Rows(change) => file.rows.iter_mut().for_each(change),
            Whole(change) => change(file),
            Set(change) => change(data),
        }
    }
}

fn scale(vector: &mut [f32], by: f32) {
    for value in vector {
        *value *= by;
    }
}

/// Sets a dimension of all vectors of a list.
fn set(vectors: &mut [f32], dimension: usize, to: f32) {
    let values = vectors.iter_mut().skip(dimension).step_by(DIM);
    values.for_each(|value| *value = to);
}

/// Exchanges what two rows have in all columns, but not their keys.
fn swap(data: &mut Data, (file, row): (usize, usize), (other_file, other): (usize, usize)) {
    let files = &mut data.files;
    let mut here = files[file].rows[row].clone();
    let mut there = files[other_file].rows[other].clone();
    files[file].rows[row].take_vectors(&mut there);
    files[other_file].rows[other].take_vectors(&mut here);
}

/// Makes a file by another work.
fn remake(file: &mut File, change: impl FnOnce(Provenance) -> Provenance) {
    file.provenance = change(file.provenance.clone());
}

/// Takes P0600 out of the second file, and lists what was rejected when that was made. `LENGTH` is that of P0600.
fn reject(data: &mut Data, lines: &str) {
    drop(data.files[1].rows.remove(200));
    list(data, lines);
}

/// Gives the list of the rows that were rejected when the second file was made. `LENGTH` is that of P0600.
fn list(data: &mut Data, lines: &str) {
    let length = data.shards[1].rows[200].length.to_string();
    let lines = lines.replace("LENGTH", &length);
    let digest = ByteDigest::compute(list_of_rows(&lines).as_bytes());
    remake(&mut data.files[1], |made| {
        made.with_rejects(digest.to_string())
    });
    data.lists.push(lines);
}

/// Adds a second window to P0600.
fn windows(data: &mut Data) {
    let length = data.shards[1].rows[200].length + 20;
    for rows in [&mut data.files[1].rows, &mut data.shards[1].rows] {
        rows[200].length = length;
        let mut window = rows[200].clone();
        window.start = 20;
        rows.insert(201, window);
    }
    reembed(data);
}

/// Takes P0600 out of its shard and its file, and rejects these records.
fn without_record(data: &mut Data, rejects: &str) {
    rejects.clone_into(&mut data.rejects);
    drop(data.files[1].rows.remove(200));
    drop(data.shards[1].rows.remove(200));
    reembed(data);
}

/// Makes the second file of the batches of its shard, which was changed.
fn reembed(data: &mut Data) {
    let inputs = vec![data.shards[1].batches()];
    remake(&mut data.files[1], |made| Provenance { inputs, ..made });
}

fn stitch(data: &mut Data) {
    data.files.iter_mut().for_each(|file| file.stitched = true);
}

/// Rotates the dimensions of all vectors of a list.
#[allow(clippy::ptr_arg)] // a change
fn turn(vectors: &mut Vec<f32>) {
    for vector in vectors.chunks_mut(DIM) {
        vector.rotate_left(1);
    }
}

#[allow(clippy::ptr_arg)] // a change
fn shuffle(vector: &mut Vec<f32>) {
    for (value, place) in vector.iter_mut().zip(0..) {
        *value = 5.0 * noise(place);
    }
}

/// What was changed, and the checks that fail, each with what is then counted, once or as often as it says: `coverage.missing=400`;
/// after a colon, what is said of it. Nothing fails where only another computation, or the user, knows better.
const MUTATIONS: &[(&str, Change, &str)] = &[
    ("nothing", Set(|_| {}), ""),
    ("a row times 1.01", Vectors(|it| scale(it, 1.01)), ""),
    ("a row times 10", Vectors(|it| scale(it, 10.0)), ""),
    (
        "a row times 20",
        Vectors(|it| scale(it, 20.0)),
        "outliers.size=3: 'P0600': mean_6: expected a norm within ten times the median of its file, found ",
    ),
    (
        "a row times 1000",
        Vectors(|it| scale(it, 1000.0)),
        "outliers.size=3",
    ),
    (
        "a row times 0.001",
        Vectors(|it| scale(it, 0.001)),
        "outliers.size=3",
    ),
    (
        "a row times 0.01",
        Vectors(|it| scale(it, 0.01)),
        "outliers.size=3",
    ),
    (
        "a row of 1e-40",
        Vectors(|it| it.fill(1e-40)),
        "outliers.size=3",
    ),
    (
        "a row of fresh memory",
        Vectors(|it| it.fill(f32::from_bits(0xcdcd_cdcd))),
        "outliers.size=3",
    ),
    (
        "a row of pointers",
        Vectors(|it| {
            for (value, place) in it.iter_mut().zip(0_u32..) {
                let half = [0x1234_5678 + 64 * place, 0x7f3a];
                *value = f32::from_bits(half[place as usize % 2]);
            }
        }),
        "outliers.size=3",
    ),
    (
        "a mean in the other order of bytes",
        Row(|it| {
            for value in &mut it.mean {
                *value = f32::from_bits(value.to_bits().swap_bytes() & 0xbfff_ffff);
            }
        }),
        "outliers",
    ),
    (
        "the mean of another row with the other sign",
        Whole(|it| {
            it.rows[200].mean = it.rows[100].mean.iter().map(|value| -value).collect();
        }),
        "outliers.direction: 'P0600': mean_6: expected a cosine to the mean vector of its file of at least -0.2, found -",
    ),
    ("a row reversed", Vectors(|it| it.reverse()), ""),
    (
        "a row times -1",
        Vectors(|it| scale(it, -1.0)),
        "pooling outliers.direction=2",
    ),
    ("a row of noise", Vectors(shuffle), "pooling"),
    ("a file times 1.01", AllVectors(|it| scale(it, 1.01)), ""),
    ("a file times 2", AllVectors(|it| scale(it, 2.0)), ""),
    ("a file times 1e-6", AllVectors(|it| scale(it, 1e-6)), ""),
    ("a file of turned dimensions", AllVectors(turn), ""),
    (
        "a file of another model whose metadata say this one",
        Whole(|it| it.rows = proteins(1, 2)),
        "",
    ),
    (
        "two proteins of equal length change vectors",
        Set(|it| {
            let length = |row: usize| it.files[1].rows[row].length;
            let other = (201..400).find(|&row| length(row) == length(200));
            swap(it, (1, 200), (1, other.expect("one as long")));
        }),
        "",
    ),
    (
        "all rows of a file shifted by one",
        Set(|it| (0..399).for_each(|at| swap(it, (1, at), (1, at + 1)))),
        "pooling sequences",
    ),
    (
        "two rows of different files change vectors",
        Set(|it| swap(it, (0, 8), (2, 8))),
        "pooling sequences",
    ),
    (
        "the first half of a row zero",
        Whole(|it| {
            it.rows[200].mean[..DIM / 2].fill(0.0);
            it.columns = vec!["mean_6"];
        }),
        "zero",
    ),
    ("a mean 1e30", Row(|it| it.mean[3] = 1e30), "pooling"),
    ("a max 1e30", Row(|it| it.max[3] = 1e30), "pooling"),
    ("a std 1e30", Row(|it| it.std[3] = 1e30), "pooling"),
    (
        "a value infinite",
        Row(|it| it.max[3] = f32::INFINITY),
        "finite.not_finite: ordinal 600 'P0600': max_6: 0 NaN, 1 infinite",
    ),
    (
        "a value NaN",
        Row(|it| it.std[3] = f32::NAN),
        "finite.not_finite: ordinal 600 'P0600': std_6: 1 NaN, 0 infinite",
    ),
    (
        "a vector zero",
        Row(|it| it.mean.fill(0.0)),
        "zero.zero: ordinal 600 'P0600': mean_6: all values are zero",
    ),
    (
        "a dimension 0",
        AllVectors(|it| set(it, 9, 0.0)),
        "constant",
    ),
    (
        "a dimension 1.5",
        AllVectors(|it| set(it, 9, 1.5)),
        "constant",
    ),
    (
        "a dimension zero in all files",
        Set(|it| {
            let rows = it.files.iter_mut().flat_map(|file| &mut file.rows);
            rows.flat_map(Protein::vectors)
                .for_each(|it| set(it, 9, 0.0));
        }),
        "constant",
    ),
    (
        "all vectors of a file equal",
        Whole(|it| {
            let first = it.rows[0].clone();
            for row in &mut it.rows {
                row.take_pooled(&first);
            }
        }),
        "constant sequences",
    ),
    (
        "the vectors of a row twice, for other residues",
        Whole(|it| {
            let other = it.rows[100].clone();
            it.rows[200].take_pooled(&other);
        }),
        "sequences",
    ),
    (
        "a deviation twice, for other residues",
        Whole(|it| it.rows[200].std = it.rows[100].std.clone()),
        "pooling",
    ),
    (
        "other vectors for the same residues",
        Whole(|it| {
            let other = it.rows[50].clone();
            it.rows[209].take_pooled(&other);
            let row = &mut it.rows[209];
            for vector in [&mut row.mean, &mut row.max, &mut row.std] {
                vector[0] += 1e-3;
            }
        }),
        "sequences",
    ),
    (
        "a file of noise",
        Rows(|it| {
            let seed = it.ordinal * DIM as u64;
            for (value, place) in it.mean.iter_mut().zip(1..) {
                *value = 3.0 * noise(seed + place);
            }
        }),
        "pooling sequences",
    ),
    ("a negative std", Row(|it| it.std[7] *= -1.0), "pooling"),
    (
        "std of a file a tenth",
        Rows(|it| scale(&mut it.std, 0.1)),
        "pooling",
    ),
    (
        "max below mean",
        Row(|it| it.max[7] = it.mean[7] - 0.1),
        "pooling",
    ),
    (
        "mean and max exchanged",
        Rows(|it| std::mem::swap(&mut it.mean, &mut it.max)),
        "pooling",
    ),
    (
        "mean of one residue less",
        Row(|it| {
            let n = it.length as f32;
            for d in 0..DIM {
                it.mean[d] = (it.mean[d] * n - it.residues[d]) / (n - 1.0);
            }
        }),
        "pooling",
    ),
    (
        "a residue too many",
        Row(|it| it.residues.extend_from_within(..DIM)),
        "pooling",
    ),
    (
        "residues of a row in another order than in max",
        Row(|it| it.residues[40] += 50.0),
        "pooling",
    ),
    (
        "a row lost",
        Whole(|it| drop(it.rows.remove(200))),
        "coverage.missing: ordinal 600 'P0600': missing",
    ),
    (
        "a row twice",
        Whole(|it| it.rows.push(it.rows[200].clone())),
        "coverage.doubled: ordinal 600 'P0600': more than once",
    ),
    (
        "a row of nowhere",
        Whole(|it| {
            let ordinal = 5000;
            it.rows.push(Protein {
                ordinal,
                ..it.rows[200].clone()
            });
        }),
        "coverage.extra: ordinal 5000 'P0600': not in the shards",
    ),
    (
        "a row within a protein",
        Whole(|it| {
            let start = 5;
            it.rows.push(Protein {
                start,
                ..it.rows[200].clone()
            });
        }),
        "coverage.extra: ordinal 600 'P0600' from residue 5: not in the shards",
    ),
    (
        "two rows of a file in another order",
        Whole(|it| it.rows.swap(200, 201)),
        "origin.not_in_order: ordinal 600 'P0600': after ordinal 601",
    ),
    (
        "two rows of a shard in another order",
        Set(|it| it.shards[1].rows.swap(200, 201)),
        "origin.not_in_order: ordinal 600 'P0600': after ordinal 601",
    ),
    (
        "a file lost",
        Set(|it| drop(it.files.remove(1))),
        "coverage",
    ),
    (
        "a file twice",
        Set(|it| it.files.push(it.files[1].clone())),
        "coverage origin.embedded_twice",
    ),
    (
        "nothing embedded",
        Set(|it| it.files.iter_mut().for_each(|file| file.rows.clear())),
        "coverage rejected",
    ),
    (
        "another id",
        Row(|it| it.id.push('Q')),
        "records.id: ordinal 600 'P0600Q': expected id 'P0600'",
    ),
    (
        "a long id of two lines",
        Row(|it| it.id = format!("a\nb{}", "é".repeat(10_000))),
        "records.id: ordinal 600 'a\\nbé",
    ),
    (
        "another length",
        Row(|it| it.length += 1),
        "records.length: ordinal 600 'P0600': expected length ",
    ),
    (
        "truncated",
        Row(|it| it.truncated = true),
        "records.truncated: ordinal 600 'P0600': expected truncated = false, found true",
    ),
    (
        "other residues",
        Row(|it| it.digest = SequenceDigest::default()),
        "records.digest: ordinal 600 'P0600': made from other residues",
    ),
    ("all files of whole proteins", Set(stitch), ""),
    (
        "other windows",
        Set(|it| {
            stitch(it);
            it.files[1].rows[200].n_windows = 2;
        }),
        "records.n_windows: expected to be made from 1 windows, found 2",
    ),
    (
        "a row that is listed as not finite",
        Set(|it| reject(it, "600,P0600,LENGTH,not_finite,0\n")),
        "",
    ),
    (
        "a row that is listed under another id",
        Set(|it| reject(it, "600,PQ,LENGTH,not_finite,0\n")),
        "coverage.missing: missing: it is listed as 'PQ' of length ",
    ),
    (
        "a row that is listed with another length",
        Set(|it| reject(it, "600,P0600,900,not_finite,0\n")),
        "coverage.missing: missing: it is listed as 'P0600' of length 900",
    ),
    (
        "a list that is not given",
        Set(|it| {
            reject(it, "600,P0600,LENGTH,not_finite,0\n");
            it.lists.clear();
        }),
        "coverage.without_list: 1 row missing, 1 file without list of rejects",
    ),
    ("a protein in two windows", Set(windows), ""),
    (
        "the second window listed as not finite",
        Set(|it| {
            windows(it);
            drop(it.files[1].rows.remove(201));
            list(it, "600,P0600,LENGTH,not_finite,20\n");
        }),
        "",
    ),
    (
        "the second window listed, and the first missing",
        Set(|it| {
            windows(it);
            reject(it, "600,P0600,LENGTH,not_finite,20\n");
        }),
        "coverage.missing: ordinal 600 'P0600': missing",
    ),
    (
        "a window missing",
        Set(|it| {
            windows(it);
            drop(it.files[1].rows.remove(201));
        }),
        "coverage.missing: ordinal 600 'P0600' from residue 20: missing",
    ),
    (
        // By the two that are read together, and by the one that is read with the embeddings.
        "a shard three times",
        Set(|it| {
            let shard = it.shards[1].clone();
            it.shards.extend([shard.clone(), shard]);
        }),
        "coverage.doubled_in_shards=800: 800 rows in the shards more than once",
    ),
    (
        "a record lost",
        Set(|it| without_record(it, "")),
        "ordinals.absent: ordinal 600: neither in the shards nor in the rejects",
    ),
    (
        "a record rejected",
        Set(|it| without_record(it, "600,P0600,0,empty\n")),
        "",
    ),
    (
        "a record rejected twice",
        Set(|it| without_record(it, "600,P0600,0,empty\n600,P0600,0,empty\n")),
        "ordinals.rejected_twice: ordinal 600: in the rejects more than once",
    ),
    (
        "a record of the shards rejected",
        Set(|it| "8,P0008,5,too_short\n".clone_into(&mut it.rejects)),
        "ordinals.in_both: ordinal 8: both in the shards and in the rejects",
    ),
    (
        "a third of the records rejected",
        Set(|it| {
            drop((it.files.remove(1), it.shards.remove(1)));
            let lines = (400..800).map(|ordinal| format!("{ordinal},P{ordinal:04},0,empty\n"));
            it.rejects = lines.collect();
        }),
        "rejected.too_many_rejected: 400 of 1200 records are rejected, 33.333 %: expected at most 5.000 %",
    ),
    (
        "no number in any row of a file",
        Set(|it| {
            let rows = it.files[1].rows.drain(..);
            let line =
                |row: Protein| format!("{},{},{},not_finite,0\n", row.ordinal, row.id, row.length);
            let lines: String = rows.map(line).collect();
            list(it, &lines);
        }),
        "rejected.too_many_rejected: probably weights of 'a/model' are NaN or infinite",
    ),
    (
        "a file of another model",
        Whole(|it| remake(it, |made| made.with("model", "fedcba9876543210"))),
        "origin.different",
    ),
    (
        "a file in another type",
        Whole(|it| remake(it, |made| made.with("dtype", "bf16"))),
        "origin.different",
    ),
    (
        "a file of another program",
        Whole(|it| {
            let other = Provenance::new("another", it.provenance.inputs.clone());
            let options = it.provenance.options.clone();
            it.provenance = Provenance { options, ..other };
        }),
        "origin.different: expected the program 'gpu-embed' as in ",
    ),
    (
        "a file of other shards",
        Whole(|it| remake(it, |made| made.with(SOURCE, "other"))),
        "origin.different: not of the same set of shards as ",
    ),
    (
        "a file of other batches",
        Whole(|it| it.provenance.inputs = vec!["other".to_owned()]),
        "origin.other_batches: which are not those of a shard",
    ),
    (
        "a file of the batches of another",
        Set(|it| it.files[1].provenance.inputs = it.files[0].provenance.inputs.clone()),
        "origin.embedded_twice: made from the same batches as ",
    ),
    (
        "a shard of another input",
        Set(|it| it.shards[1].provenance.inputs.push("other".to_owned())),
        "origin.different: made from other inputs than ",
    ),
    (
        "a shard cut in another way",
        Set(|it| {
            let made = it.shards[1].provenance.clone();
            it.shards[1].provenance = made.with("max_residues", 500);
        }),
        "origin.different: max_residues",
    ),
    (
        "a file with fewer columns",
        Whole(|it| {
            it.columns.pop();
            let columns = it.columns.clone();
            remake(it, |made| made.with("columns", columns));
        }),
        "origin.different origin.other_columns",
    ),
    (
        "a file of half the dimensions",
        AllVectors(|it| it.truncate(it.len() / 2)),
        "origin.other_columns: found mean_6 (16), max_6 (16), ",
    ),
    (
        "a file in f16",
        Whole(|it| it.store_dtype = StoreDtype::F16),
        "origin.other_columns:  in f16",
    ),
    (
        "a file of whole proteins",
        Whole(|it| it.stitched = true),
        "origin.other_columns: in f32, stitched from windows",
    ),
    (
        "columns in another order, and a mean zero in each file of two",
        Set(|it| {
            it.files[1].columns = vec!["std_6", "max_6", "mean_6", "residues_6"];
            let first = it.files[..2].iter_mut().map(|file| &mut file.rows[0]);
            first.for_each(|row| row.mean.fill(0.0));
        }),
        "origin.other_columns zero.zero=2",
    ),
    (
        "a list of other embeddings",
        Set(|it| it.lists.push(String::new())),
        "origin.other_rejects: not the list of any of the embeddings, or altered",
    ),
];

#[test]
fn the_page_shows_what_was_checked_and_fetches_nothing() {
    let set = Plausible::new();
    let mut data = set.sound.clone();
    data.files[1].rows[200].id = "<b>P</b>".to_owned();
    data.files[1].rows[200].mean[3] = 1e30;
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("verdict.html");
    let output = run(set.command(&data).arg("--html").arg(&path));
    assert_eq!(output.status.code(), Some(1));
    let page = std::fs::read_to_string(path).expect("a page");
    for part in [
        "Failed: records (1 row of another id), outliers (2 vectors of another size), pooling (1 mean above the maximum, 1 column not of the residues); 1200 rows; not recomputed",
        "Remedy: Embed these rows again",
        "&lt;b&gt;P&lt;/b&gt;",
        "Does a second computation give the same?",
        "a/model",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert_eq!(page.matches("<svg").count(), 0);
    for part in ["<b>", "<script", "src=", "href=", "url("] {
        assert!(!page.contains(part), "{part}");
    }
}

#[test]
fn each_mutation_is_found_by_the_checks_that_are_for_it() {
    let set = Plausible::new();
    let mut wrong = Vec::new();
    for (name, change, expected) in MUTATIONS {
        let (expected, said) = expected.split_once(": ").unwrap_or((expected, ""));
        let mut data = set.sound.clone();
        change.apply(&mut data);
        let output = run(&mut set.command(&data));
        let stderr = String::from_utf8_lossy(&output.stderr);
        let Ok(report) = serde_json::from_slice::<Value>(&output.stdout) else {
            wrong.push(format!("{name}: {stderr}"));
            continue;
        };
        let found = failed(&report);
        let (code, outcome) = (output.status.code(), &report["outcome"]);
        let all = expected.split_whitespace().all(|expected| {
            let (name, kind) = expected.split_once('.').unwrap_or((expected, ""));
            let (kind, count) = kind.split_once('=').unwrap_or((kind, "1"));
            let counted = &check(&report, name)["counts"][kind];
            found.contains(&name) && (kind.is_empty() || counted.as_u64() == count.parse().ok())
        });
        let lines = stderr.lines().zip(&found);
        let is_named = |(line, check): (&str, &&str)| {
            line.starts_with(&format!("validate-embeddings: {check}: "))
                && line.chars().count() < 500
        };
        // Ten of each kind are listed, of all files together.
        let listed = check(&report, "coverage")["offenders"].as_array();
        if !(all && stderr.contains(said) && lines.clone().all(is_named))
            || listed.is_none_or(|listed| listed.len() > 20)
            || stderr.lines().count() != found.len()
            || found.is_empty() != expected.is_empty()
            || outcome != if found.is_empty() { "pass" } else { "fail" }
            || code != Some(i32::from(!found.is_empty()))
        {
            wrong.push(format!(
                "{name}: expected {expected:?}, found {found:?}, exit code {code:?}: {stderr}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
