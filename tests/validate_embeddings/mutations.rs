//! Changes of sound embeddings, whose digests are recomputed: which checks find each, what they say, and what nothing finds without
//! computing again.

use plmkit_contract::SequenceDigest;
use serde_json::Value;

use crate::plausible::{DIM, FILES, File, Plausible, noise, proteins};
use crate::set::{check, failed, run};

pub(crate) type Change = fn(&mut Vec<File>);

/// Changes the middle row of the second file.
fn row(files: &mut [File], change: impl Fn(&mut Vec<f32>)) {
    files[1].rows[200].vectors().into_iter().for_each(change);
}

/// Changes all rows of the second file.
fn rows(files: &mut [File], change: impl Fn(&mut Vec<f32>)) {
    for row in &mut files[1].rows {
        row.vectors().into_iter().for_each(&change);
    }
}

fn scale(by: f32) -> impl Fn(&mut Vec<f32>) {
    move |vector| vector.iter_mut().for_each(|value| *value *= by)
}

/// Sets a dimension of all vectors of a list.
fn set(dimension: usize, to: f32) -> impl Fn(&mut Vec<f32>) {
    move |vector| {
        vector
            .iter_mut()
            .skip(dimension)
            .step_by(DIM)
            .for_each(|value| *value = to);
    }
}

/// Exchanges what two rows have in all columns, but not their keys.
fn swap(files: &mut [File], (file, row): (usize, usize), (other_file, other): (usize, usize)) {
    let mut there = files[other_file].rows[other].clone();
    let here = &mut files[file].rows[row];
    for (a, b) in here.vectors().into_iter().zip(there.vectors()) {
        std::mem::swap(a, b);
    }
    let back = &mut files[other_file].rows[other];
    for (a, b) in back.vectors().into_iter().zip(there.vectors()) {
        std::mem::swap(a, b);
    }
}

/// The checks that fail, each with the count that is then not zero, if one is named: `coverage.missing`; nothing fails where only
/// another computation, or the user, knows better. Then what was changed, and after a colon what is said of it.
pub(crate) const MUTATIONS: &[(&str, &str, Change)] = &[
    ("", "sound", |_| {}),
    ("", "two proteins of equal length change vectors", |files| {
        let length = |row: usize| files[1].rows[row].length;
        let other = (201..400)
            .find(|&row| length(row) == length(200))
            .expect("one as long");
        swap(files, (1, 200), (1, other));
    }),
    ("", "a row times 1.01", |files| row(files, scale(1.01))),
    ("", "a file times 1.01", |files| rows(files, scale(1.01))),
    (
        "pooling sequences",
        "all rows of a file shifted by one",
        |files| {
            for at in 0..399 {
                swap(files, (1, at), (1, at + 1));
            }
        },
    ),
    (
        "pooling sequences",
        "two rows of different files change vectors",
        |files| {
            swap(files, (0, 8), (2, 8));
        },
    ),
    ("", "a row times 1000", |files| {
        row(files, scale(1000.0));
    }),
    ("", "a row times 10", |files| {
        row(files, scale(10.0));
    }),
    ("", "a row times 0.001", |files| {
        row(files, scale(0.001));
    }),
    ("pooling", "a row times -1", |files| {
        row(files, scale(-1.0));
    }),
    ("pooling", "a row of noise", |files| {
        row(files, |vector| {
            for (i, value) in vector.iter_mut().enumerate() {
                *value = 5.0 * noise(i as u64);
            }
        });
    }),
    ("zero", "the first half of a row zero", |files| {
        files[1].rows[200].mean[..DIM / 2].fill(0.0);
        files[1].columns = vec!["mean_6"];
    }),
    ("", "a row with its dimensions reversed", |files| {
        row(files, |vector| vector.reverse());
    }),
    ("pooling", "one value 1e30", |files| {
        files[1].rows[200].mean[3] = 1e30;
    }),
    ("pooling", "one value of max 1e30", |files| {
        files[1].rows[200].max[3] = 1e30;
    }),
    ("pooling", "one value of std 1e30", |files| {
        files[1].rows[200].std[3] = 1e30;
    }),
    (
        "finite.not_finite",
        "one value infinite: ordinal 600 'P0600': max_6: 0 NaN, 1 infinite",
        |files| {
            files[1].rows[200].max[3] = f32::INFINITY;
        },
    ),
    (
        "finite.not_finite",
        "one value NaN: ordinal 600 'P0600': std_6: 1 NaN, 0 infinite",
        |files| {
            files[1].rows[200].std[3] = f32::NAN;
        },
    ),
    (
        "zero.zero",
        "a vector zero: ordinal 600 'P0600': mean_6: all values are zero",
        |files| {
            files[1].rows[200].mean.fill(0.0);
        },
    ),
    ("constant", "a dimension zero in a file", |files| {
        rows(files, set(9, 0.0));
    }),
    ("constant", "a dimension zero in all files", |files| {
        for row in files.iter_mut().flat_map(|file| &mut file.rows) {
            row.vectors().into_iter().for_each(set(9, 0.0));
        }
    }),
    ("constant", "a dimension 1.5 in a file", |files| {
        rows(files, set(9, 1.5));
    }),
    (
        "constant sequences",
        "all vectors of a file equal",
        |files| {
            let mut first = files[1].rows[0].clone();
            for row in &mut files[1].rows {
                for (vector, first) in row.vectors().into_iter().zip(first.vectors()).take(3) {
                    vector.clone_from(first);
                }
            }
        },
    ),
    (
        "sequences",
        "the vectors of a row twice, for other residues",
        |files| {
            let other = files[1].rows[100].clone();
            let row = &mut files[1].rows[200];
            (row.mean, row.max, row.std) = (other.mean, other.max, other.std);
        },
    ),
    (
        "pooling",
        "a deviation twice, for other residues",
        |files| {
            files[1].rows[200].std = files[1].rows[100].std.clone();
        },
    ),
    (
        "sequences",
        "other vectors for the same residues",
        |files| {
            let other = files[1].rows[50].clone();
            let row = &mut files[1].rows[209];
            (row.mean, row.max, row.std) = (other.mean, other.max, other.std);
            row.mean[0] += 1e-3;
            row.max[0] += 1e-3;
            row.std[0] += 1e-3;
        },
    ),
    ("pooling sequences", "a file of noise", |files| {
        let mut seed = 0;
        for row in &mut files[1].rows {
            for value in &mut row.mean {
                seed += 1;
                *value = 3.0 * noise(seed);
            }
        }
    }),
    (
        "",
        "a file of another model whose metadata say this one",
        |files| {
            files[1].rows = proteins(1, 2);
        },
    ),
    ("", "a file times 2", |files| rows(files, scale(2.0))),
    ("", "the dimensions of a file shifted by one", |files| {
        rows(files, |vector| {
            for residue in vector.chunks_mut(DIM) {
                residue.rotate_left(1);
            }
        });
    }),
    ("pooling", "std negative", |files| {
        files[1].rows[200].std[7] *= -1.0;
    }),
    ("pooling", "std of a file a tenth", |files| {
        for row in &mut files[1].rows {
            row.std.iter_mut().for_each(|value| *value *= 0.1);
        }
    }),
    ("pooling", "max below mean", |files| {
        let row = &mut files[1].rows[200];
        row.max[7] = row.mean[7] - 0.1;
    }),
    ("pooling", "mean and max exchanged", |files| {
        for row in &mut files[1].rows {
            std::mem::swap(&mut row.mean, &mut row.max);
        }
    }),
    ("pooling", "mean of one residue less", |files| {
        let row = &mut files[1].rows[200];
        let n = row.length as f32;
        for d in 0..DIM {
            row.mean[d] = (row.mean[d] * n - row.residues[d]) / (n - 1.0);
        }
    }),
    ("pooling", "a residue too many", |files| {
        let row = &mut files[1].rows[200];
        let first = row.residues[..DIM].to_vec();
        row.residues.extend(first);
    }),
    (
        "pooling",
        "residues of a row in another order than in max",
        |files| {
            files[1].rows[200].residues[40] += 50.0;
        },
    ),
    (
        "coverage.missing",
        "a row lost: ordinal 600 'P0600': missing",
        |files| {
            drop(files[1].rows.remove(200));
        },
    ),
    (
        "coverage.doubled",
        "a row twice: ordinal 600 'P0600': more than once",
        |files| {
            let row = files[1].rows[200].clone();
            files[1].rows.push(row);
        },
    ),
    (
        "coverage.extra",
        "a row of nowhere: ordinal 5000 'P0600': not in the shards",
        |files| {
            let mut row = files[1].rows[200].clone();
            row.ordinal = 5000;
            files[1].rows.push(row);
        },
    ),
    ("coverage", "a file lost", |files| drop(files.remove(1))),
    (
        "records.id",
        "another id: ordinal 600 'P0600Q': expected id 'P0600'",
        |files| {
            files[1].rows[200].id.push('Q');
        },
    ),
    (
        "records.length",
        "another length: ordinal 600 'P0600': expected length ",
        |files| {
            files[1].rows[200].length += 1;
        },
    ),
    (
        "records.truncated",
        "truncated: ordinal 600 'P0600': expected truncated = false, found true",
        |files| {
            files[1].rows[200].truncated = true;
        },
    ),
    (
        "records.digest",
        "other residues: ordinal 600 'P0600': made from other residues",
        |files| {
            files[1].rows[200].digest = SequenceDigest::default();
        },
    ),
    (
        "coverage.extra",
        "a row within a protein: ordinal 600 'P0600' from residue 5: not in the shards",
        |files| {
            let mut row = files[1].rows[200].clone();
            row.start = 5;
            files[1].rows.push(row);
        },
    ),
    ("coverage origin", "a file given twice", |files| {
        files.push(files[1].clone());
    }),
    ("", "all values of a file a millionth", |files| {
        rows(files, scale(1e-6));
    }),
    ("origin", "a file of another model", |files| {
        let made = files[1].provenance.clone();
        files[1].provenance = made.with("model", "fedcba9876543210");
    }),
    ("origin", "the first file in another type", |files| {
        let made = files[0].provenance.clone();
        files[0].provenance = made.with("dtype", "bf16");
    }),
    ("origin.different", "a file with fewer columns", |files| {
        files[1].columns.pop();
        let made = files[1].provenance.clone();
        files[1].provenance = made.with("columns", &files[1].columns);
    }),
    ("coverage rejected", "nothing embedded", |files| {
        for file in files {
            file.rows.clear();
        }
    }),
];

#[test]
fn the_page_shows_what_was_checked_and_fetches_nothing() {
    let set = Plausible::new();
    let mut files: Vec<File> = (0..FILES).map(|file| set.file(file)).collect();
    files[1].rows[200].id = "<b>P</b>".to_owned();
    files[1].rows[200].mean[3] = 1e30;
    let folder = tempfile::tempdir().expect("temp folder");
    let path = folder.path().join("verdict.html");
    let output = run(set.command(&files).arg("--html").arg(&path));
    assert_eq!(output.status.code(), Some(1));
    let page = std::fs::read_to_string(path).expect("a page");
    for part in [
        "Failed: records (1 row of another id), pooling (1 mean above the maximum, 1 column not of the residues); 1200 rows; not recomputed",
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
    let sound: Vec<File> = (0..FILES).map(|file| set.file(file)).collect();
    let mut wrong = Vec::new();
    for (expected, name, change) in MUTATIONS {
        let mut files = sound.clone();
        change(&mut files);
        let output = run(&mut set.command(&files));
        let stderr = String::from_utf8_lossy(&output.stderr);
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        let found = failed(&report);
        let (code, outcome) = (output.status.code(), &report["outcome"]);
        let all = expected.split_whitespace().all(|expected| {
            let (name, kind) = expected.split_once('.').unwrap_or((expected, ""));
            let is_counted = kind.is_empty() || check(&report, name)["counts"][kind] == 1;
            found.contains(&name) && is_counted
        });
        let is_said = name
            .split_once(": ")
            .is_none_or(|(_, what)| stderr.contains(what));
        let lines = stderr.lines().zip(&found);
        let is_named = |(line, check): (&str, &&str)| {
            line.starts_with(&format!("validate-embeddings: {check}: "))
        };
        if !(all && is_said && lines.clone().all(is_named))
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
