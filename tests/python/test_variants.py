"""Scores of variants against sums of the columns that hold them, and what is refused."""

import shutil
import subprocess

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import MODEL, PROGRAMS, PROTEINS

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
DOMAIN = "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQFEVVHSLAKWKR"
LONG = DOMAIN * 9
# As long as titin.
TITIN = (DOMAIN * 441)[:34350]


def plmkit(folder, name, text, shard_options, embed_options, *options):
    """A run on a FASTA file of this name, whose results are in `results-NAME/NAME`."""
    fasta = folder / f"{name}.fasta"
    fasta.write_text(text, encoding="utf-8")
    command = [PROGRAMS / "plmkit", fasta, "--out", folder / f"results-{name}", "--model", MODEL, "--device", "cpu", "--max-shard-tokens", "20000"]
    command += [*shard_options.split(), *embed_options.split(), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module", params=["stitch", "separate", "truncate", "masked"])
def scored(request, tmp_path_factory):
    """Results with scores: proteins with residues that are none of the twenty and with one residue, and one of several windows, or cut.

    If residues are masked, which takes a pass for each, without real proteins and the longest.
    """
    folder, way = tmp_path_factory.mktemp(request.param), request.param
    text = f">odd\nMKXUVLA\n>one\nM\n>long\n{LONG}\n"
    if way != "masked":
        text += PROTEINS.read_text(encoding="utf-8") + f">titin\n{TITIN}\n"
    policy = "truncate" if way == "truncate" else "window"
    embed = {"separate": "--scores --windows separate", "masked": "--scores masked"}.get(way, "--scores")
    done = plmkit(folder, "a", text, f"--long-policy {policy} --max-residues 300", embed)
    assert done.returncode == 0, done.stderr
    return folder / "results-a/a"


def variants(scored, lines, *options):
    table = scored / "variants.csv"
    table.write_text("id,variant\n" + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return subprocess.run([PROGRAMS / "query-embeddings", "variants", scored, table, *options], capture_output=True, text=True, check=False)


def log_probs(scored, protein):
    """The log-probabilities of each position, from 1, of the window in whose middle it lies."""
    found = {}
    for path in sorted((scored / "embeddings").glob("*.parquet")):
        table = pq.read_table(path, columns=["id", "start", "log_probs"])
        for name, start, rows in zip(*(table[column].to_pylist() for column in table.column_names)):
            for at, row in enumerate(rows if name == protein else []):
                depth = min(at + 1, len(rows) - at)
                if depth > found.get(start + at + 1, (0,))[0]:
                    found[start + at + 1] = depth, np.float64(row)
    return {position: row for position, (_, row) in found.items()}


@pytest.mark.parametrize("protein", [LONG, TITIN, "M"])
def test_a_score_is_the_sum_of_log_ratios(scored, protein):
    name = {LONG: "long", TITIN: "titin", "M": "one"}[protein]
    rows = log_probs(scored, name)
    if not rows:
        pytest.skip("the longest protein is not masked")
    ratio = lambda position, mutant: rows[position][AMINO_ACIDS.index(mutant)] - rows[position][AMINO_ACIDS.index(protein[position - 1])]
    positions = [position for position in (1, 2, 100, 150, 250, 290, 20000, len(rows)) if position <= len(rows)]
    some = [(position, mutant) for position in positions for mutant in "AWY" if mutant != protein[position - 1]]
    expected = {f"{protein[position - 1]}{position}{mutant}": ratio(position, mutant) for position, mutant in some}
    if len(protein) > 100:
        expected[f"{protein[4]}5W:{protein[99]}100C"] = ratio(5, "W") + ratio(100, "C")
    done = variants(scored, [f"{name},{variant}" for variant in expected])
    assert done.returncode == 0, done.stderr
    lines = [line.split(",") for line in done.stdout.splitlines()]
    assert lines[0] == ["id", "variant", "score", "reason"] and {line[3] for line in lines[1:]} == {""}
    assert [line[:2] for line in lines[1:]] == [[name, variant] for variant in expected]
    assert f"scores are {'masked' if 'masked' in str(scored) else 'wild-type'} marginals" in done.stderr
    assert np.allclose([float(line[2]) for line in lines[1:]], list(expected.values()), atol=1e-5)


def test_what_has_no_score_has_a_reason(scored):
    beyond = f"{LONG[-1]}{len(LONG)}{'A' if LONG[-1] != 'A' else 'C'}"
    asked = ["odd,M1A", "odd,X3A", "odd,M1A:U4C", "odd,WT", "odd,U4=", "odd,K2*", "odd,p.Lys2fs", f"long,{beyond}"]
    done = variants(scored, asked)
    assert done.returncode == 0, done.stderr
    found = [line.split(",")[2:] for line in done.stdout.splitlines()[1:]]
    is_cut = len(log_probs(scored, "long")) < len(LONG)
    others = ["a residue is none of the twenty amino acids"] * 2
    assert [reason for _, reason in found] == ["", *others, "", "", "stop", "frameshift", "not embedded or not masked" if is_cut else ""]
    assert [bool(score) for score, _ in found] == [not reason for _, reason in found] and found[3][0] == found[4][0] == "0"
    assert f"{len(asked)} lines, {3 if is_cut else 4} with a score" in done.stderr


def test_without_variants_nothing_is_scored(scored):
    done = variants(scored, [])
    assert (done.returncode, done.stdout) == (0, "id,variant,score,reason\n")


def test_masked_and_wild_type_scores_are_never_mixed(tmp_path):
    positions = tmp_path / "positions.csv"
    positions.write_text("id,position\nodd,1\nodd,7\n", encoding="utf-8")
    masked = f"--scores masked --scores-positions {positions}"
    for name, options in [("w", "--scores"), ("m", masked)]:
        done = plmkit(tmp_path, name, ">odd\nMKXUVLA\n>two\nMKV\n", "", options)
        assert done.returncode == 0, done.stderr
    rows = pq.read_table(tmp_path / "results-m/m/embeddings", columns=["id", "log_probs", "log_likelihood"]).to_pylist()
    scored = {row["id"]: ~np.isnan(np.float32(row["log_probs"])).any(axis=1) for row in rows}
    assert scored["odd"].tolist() == [True, False, False, False, False, False, True] and not scored["two"].any()
    assert [row["log_likelihood"] for row in rows] == [None, None]
    done = variants(tmp_path / "results-m/m", ["odd,M1A", "odd,K2A", "odd,M1A:A7C", "two,M1A"])
    assert [bool(line.split(",")[2]) for line in done.stdout.splitlines()[1:]] == [True, False, True, False]
    assert done.stdout.count("not embedded or not masked") == 2 and "masked marginals" in done.stderr

    combine = [PROGRAMS / "query-embeddings", "combine", tmp_path / "results-w/w", tmp_path / "results-m/m", "--out", tmp_path / "both"]
    done = subprocess.run(combine, capture_output=True, text=True, check=False)
    assert done.returncode == 65 and "scores" in done.stderr, done.stderr
    done = plmkit(tmp_path, "n", ">two\nMKV\n>new\nMKVL\n", "", "--scores masked", "--known", tmp_path / "results-w/w")
    assert done.returncode == 65 and "scores" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("odd,A1C", "line 2 'odd' 'A1C': expected A at position 1, found M"),
        (f"long,A{len(LONG) + 1}C", f"expected A at position {len(LONG) + 1}, found a protein of {len(LONG)} residues"),
        ("odd,M1A:M1C", "expected one substitution at a position"),
        ("odd,1", "expected a residue, its position from 1 and a residue"),
        ("nobody,A1C", "line 2 'nobody' 'A1C': no protein 'nobody'"),
    ],
)
def test_a_wrong_line_has_a_reason_or_is_refused(scored, line, words):
    done = variants(scored, [line, "odd,M1A"])
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[0]) == (1, "id,variant,score,reason"), done.stderr
    assert words in done.stderr and "; the first of 1 that are wrong" in done.stderr
    assert lines[1].startswith(f"{line},,") and lines[1].split(",", 3)[3].strip('"') in done.stderr
    assert lines[2].split(",")[2] and len(lines) == 3
    done = variants(scored, [line, "odd,M1A"], "--strict")
    assert (done.returncode, done.stdout) == (65, ""), done.stderr
    assert words in done.stderr and done.stderr.count("\n") == 1


def test_a_dataset_without_scores_or_shards_is_refused(scored, tmp_path):
    (tmp_path / "other.csv").write_text("sample,variant\na,A1C\n", encoding="utf-8")
    run = lambda *words: subprocess.run([PROGRAMS / "query-embeddings", *words], capture_output=True, text=True, check=False)
    done = run("variants", scored, tmp_path / "other.csv")
    assert done.returncode == 65 and "found 'sample,variant'" in done.stderr
    (tmp_path / "one.csv").write_text("id,variant\nodd,M1A\n", encoding="utf-8")
    assert run("combine", scored, "--out", tmp_path / "combined").returncode == 0
    done = run("variants", tmp_path / "combined", tmp_path / "one.csv")
    assert done.returncode == 66 and "which have the residues of the proteins" in done.stderr


def test_residues_are_those_of_the_embedded_record(tmp_path):
    """Neither of another record of the same id, nor of shards of another FASTA."""
    done = plmkit(tmp_path, "same", ">a\nMKVL\n>a\nMKVV\n>b\nMK\n", "--duplicate-ids keep", "--scores")
    assert done.returncode == 0, done.stderr
    same = tmp_path / "results-same/same"
    for line in ("a,L4A", "a,V4A"):
        done = variants(same, [line])
        assert done.returncode == 65 and "'a' is the id of several records" in done.stderr, done.stderr
    assert variants(same, ["b,K2A"]).returncode == 0
    assert plmkit(tmp_path, "other", ">a\nMKVL\n>b\nMA\n", "", "--scores").returncode == 0
    shutil.rmtree(same / "shards")
    shutil.copytree(tmp_path / "results-other/other/shards", same / "shards")
    done = variants(same, ["b,A2K"])
    assert done.returncode == 65 and "not the manifest of this dataset" in done.stderr, done.stderr


def test_other_positions_in_the_file_are_other_work(tmp_path):
    positions = tmp_path / "positions.csv"
    positions.write_text("id,position\na,1\n", encoding="utf-8")
    options = ("p", ">a\nMKVL\n", "", f"--scores masked --scores-positions {positions}")
    assert plmkit(tmp_path, *options).returncode == 0
    assert plmkit(tmp_path, *options).returncode == 0
    positions.write_text("id,position\na,2\n", encoding="utf-8")
    done = plmkit(tmp_path, *options)
    assert done.returncode == 73 and "scores_positions was" in done.stderr, done.stderr


def test_a_record_with_the_residues_of_another_has_its_scores(tmp_path):
    done = plmkit(tmp_path, "a", ">rep\nMKVLA\n>copy\nMKVLA\n>other\nMKV\n", "--dedup", "--scores")
    assert done.returncode == 0, done.stderr
    sample = tmp_path / "results-a/a"
    asked = ["copy,K2A", "rep,V3G", "copy,V3G", "other,M1V"]
    scores = dict(zip(asked, (line.split(",")[2] for line in variants(sample, asked).stdout.splitlines()[1:]), strict=True))
    assert scores["copy,V3G"] == scores["rep,V3G"] != ""
    assert variants(sample, ["copy,K2A"]).stdout.splitlines()[1] == f"copy,K2A,{scores['copy,K2A']},"
    assert "'copy' 'G2A': expected G at position 2, found K" in variants(sample, ["copy,G2A"]).stderr


def test_an_id_of_several_records_is_refused_and_that_of_a_copy_has_its_scores(tmp_path):
    options = "--duplicate-ids keep --dedup"
    text = ">A1\nMKTAY\n>A2\nMKTAW\n>B\nMKTAY\n>B\nMKTAW\n>C\nMKTAW\n>A1\nMKTAY\n>D\nMKVV\n>E\nMKVV\n>E\nMKLL\n"
    done = plmkit(tmp_path, "a", text, options, "--scores")
    assert done.returncode == 0, done.stderr
    scored = tmp_path / "results-a/a"
    for line in ("B,M1V", "E,M1V"):
        done = variants(scored, [line])
        assert done.returncode == 65, done.stderr
        assert f"'{line[0]}' is the id of several records: expected one" in done.stderr
    done = variants(scored, ["A1,M1V", "A2,M1V", "C,M1V"])
    assert done.returncode == 0, done.stderr
    scores = [line.split(",")[2] for line in done.stdout.splitlines()[1:]]
    assert scores[1] == scores[2] != scores[0]
