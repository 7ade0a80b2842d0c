//! The page of a run.

use super::*;

/// The points of the map: the group of each, its place and its name.
fn points(page: &str) -> Vec<(usize, [f64; 2], String)> {
    let groups = page.split("<g class=\"hue\"").skip(1).enumerate();
    let of_group = |(place, group): (usize, &str)| {
        let circles = group.split("<circle cx=\"").skip(1).map(move |circle| {
            let (x, rest) = circle.split_once("\" cy=\"").expect("a place");
            let (y, rest) = rest.split_once("\"><title>").expect("a name");
            let (name, _) = rest.split_once("</title>").expect("an end");
            let at = [x, y].map(|value| value.parse().expect("a number"));
            (place, at, name.to_owned())
        });
        circles.collect::<Vec<_>>()
    };
    groups.flat_map(of_group).collect()
}

#[test]
fn a_run_has_one_page_that_tells_all_of_its_samples() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 40);
    let text = fs::read_to_string(folder.join("a.fasta")).expect("read");
    let long = "MKVLAY".repeat(300);
    let more = format!(">long<b>\n{long}\n>short\n\n>letter\nMK1\n>a&b\nMKV\n");
    let text = format!("{text}\n{more}");
    fs::write(folder.join("b.fasta"), text).expect("write");
    fs::write(folder.join("none.fasta"), ">x\n1\n").expect("write");
    let line = "a.fasta b.fasta none.fasta --out results --invalid=reject --max-rejected=100%";
    let mut all = plmkit(folder, line);
    assert!(all.output().expect("run").status.success());
    let path = folder.join("results/index.html");
    let page = fs::read_to_string(&path).expect("a page");
    for part in [
        "<title>Embeddings in results</title>",
        "</span> 2 of 3 samples passed: 82 rows, 3 rejected, ",
        "<td>none</td><td><span class=\"badge fair\">empty</span></td>",
        "<td>long&lt;b&gt;</td><td class=\"number\">41</td><td class=\"number\">1,800</td>",
        "truncated beyond 1022 residues</text>",
        "Relative paths are as they were given when this page was made.",
        "plmkit.read(&quot;results&quot;)",
        "FROM &#39;results/*/embeddings/*.parquet&#39;",
        "<li>mean_4 (64 values of f32 for each protein)</li>",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // No element of a record, no script, nothing of a network.
    for wrong in ["<b>", "<script", "http:", "https:", "url("] {
        assert!(!page.contains(wrong), "{wrong}");
    }
    let found = points(&page);
    assert_eq!(found.len(), 82);
    // Equal records are at one place.
    let first = |group: usize, name: &str| {
        let mut points = found.iter();
        points
            .find(|(of, _, found)| *of == group && found.ends_with(name))
            .map(|point| point.1)
    };
    let id = found[0].2.strip_prefix("a: ").expect("its sample");
    assert_eq!(first(0, id), first(1, id));
    assert!(first(1, "b: a&amp;b").is_some());

    // A run with nothing to do leaves it, and the command makes the same.
    let time = || path.metadata().expect("a file").modified().expect("a time");
    let before = time();
    run(&mut plmkit(folder, line));
    assert_eq!(time(), before);
    fs::remove_file(&path).expect("remove");
    run(&mut command(folder, "plmkit report results"));
    assert_eq!(fs::read_to_string(&path).expect("a page"), page);
    let moved = "plmkit report results --place /data/it's";
    run(&mut command(folder, moved));
    let page = fs::read_to_string(&path).expect("a page");
    assert!(page.contains("Embeddings in /data/it&#39;s</title>") && !page.contains("DuckDB"));
}

#[test]
fn a_page_tells_what_is_wrong() {
    let folder = tempfile::tempdir().expect("temp folder");
    let folder = folder.path();
    proteins(folder, "a.fasta", 3);
    let failed = plmkit(folder, "a.fasta --out results --inject=not-finite=1");
    let failed = { failed }.output().expect("run");
    assert_eq!(failed.status.code(), Some(1));
    let path = folder.join("results/index.html");
    let page = fs::read_to_string(&path).expect("a page");
    for part in [
        "0 of 1 sample passed: 2 rows, 1 rejected",
        "a: the validation failed",
        "Remedy: ",
        "1 not_finite",
    ] {
        assert!(page.contains(part), "{part}");
    }
    fs::write(
        folder.join("results/a/embeddings/shard-00000.parquet"),
        "PAR1",
    )
    .expect("write");
    run(&mut command(folder, "plmkit report results"));
    let page = fs::read_to_string(&path).expect("a page");
    for part in [
        "files are lost or damaged",
        "results/a/embeddings/shard-00000.parquet: ",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // Other samples are.
    proteins(folder, "b.fasta", 5);
    run(&mut plmkit(folder, "a.fasta b.fasta --out two"));
    fs::write(folder.join("two/a/embeddings/shard-00000.parquet"), "PAR1").expect("write");
    run(&mut command(folder, "plmkit report two"));
    let page = fs::read_to_string(folder.join("two/index.html")).expect("a page");
    for part in ["two/a/embeddings/", "5 of 8 rows by the first two"] {
        assert!(page.contains(part), "{part}");
    }
    for table in ["sample\tb\n", "PAR1"] {
        fs::write(folder.join("two/summary.tsv"), table).expect("write");
        let what = "two/summary.tsv: expected the table of samples that plmkit writes";
        assert_failed(&plmkit_at(folder, "plmkit report two"), 65, what);
    }

    // A later verdict counts.
    run(&mut plmkit(folder, "b.fasta --out later"));
    run(&mut plmkit(folder, "b.fasta --out other --dtype=bf16"));
    let reference = "--reference other/b/embeddings/shard-00000.parquet --min-cosine 0.9999999";
    let line = format!("validate-embeddings --dataset later/b {reference}");
    let failed = command(folder, &line).output().expect("run");
    assert_eq!(failed.status.code(), Some(1));
    run(&mut command(folder, "plmkit report later"));
    let page = fs::read_to_string(folder.join("later/index.html")).expect("a page");
    for part in [
        "0 of 1 sample passed",
        "b: the validation failed",
        "Once all samples in the folder have passed",
    ] {
        assert!(page.contains(part), "{part}");
    }

    let nothing = plmkit_at(folder, "plmkit report a.fasta");
    assert_eq!(nothing.status.code(), Some(66));
    fs::create_dir(folder.join("mine")).expect("folder");
    fs::copy(
        folder.join("results/summary.tsv"),
        folder.join("mine/summary.tsv"),
    )
    .expect("copy");
    fs::write(folder.join("mine/index.html"), "<p>mine").expect("write");
    let mine = plmkit_at(folder, "plmkit report mine");
    assert_eq!(mine.status.code(), Some(73), "{mine:?}");
    assert_eq!(
        fs::read(folder.join("mine/index.html")).expect("read"),
        b"<p>mine"
    );
}

fn plmkit_at(folder: &Path, line: &str) -> std::process::Output {
    command(folder, line).output().expect("run")
}
