"""Scores of variants against sums of the columns that hold them, and what is refused."""

import subprocess

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import MODEL, PROGRAMS, PROTEINS

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
LONG = "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQFEVVHSLAKWKR" * 9


@pytest.fixture(scope="module", params=["stitch", "separate", "truncate"])
def scored(request, tmp_path_factory):
    """Results with scores: real proteins, one with residues that are none of the twenty, and one of several windows, or cut."""
    folder = tmp_path_factory.mktemp(request.param)
    fasta = folder / "a.fasta"
    fasta.write_text(PROTEINS.read_text(encoding="utf-8") + f">odd\nMKXUVLA\n>long\n{LONG}\n", encoding="utf-8")
    windows = request.param if request.param != "truncate" else "stitch"
    options = ["--long-policy truncate --max-residues 300", "--long-policy window --max-residues 300"][request.param != "truncate"]
    command = [PROGRAMS / "plmkit", fasta, "--out", folder / "r", "--model", MODEL, "--device", "cpu", "--max-shard-tokens", "20000"]
    command += ["--fasta-shard", options, "--gpu-embed", f"--scores --windows {windows}" if request.param == "separate" else "--scores"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "r/a"


def variants(scored, lines):
    table = scored / "variants.csv"
    table.write_text("id,variant\n" + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return subprocess.run([PROGRAMS / "query-embeddings", "variants", scored, table], capture_output=True, text=True, check=False)


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


def test_a_score_is_the_sum_of_log_ratios(scored):
    rows = log_probs(scored, "long")
    ratio = lambda position, mutant: rows[position][AMINO_ACIDS.index(mutant)] - rows[position][AMINO_ACIDS.index(LONG[position - 1])]
    some = [(position, mutant) for position in (1, 2, 100, 150, 250, 290, len(rows)) for mutant in "AWY" if mutant != LONG[position - 1]]
    single = {f"{LONG[position - 1]}{position}{mutant}": ratio(position, mutant) for position, mutant in some}
    several = f"{LONG[4]}5W:{LONG[99]}100C"
    expected = single | {several: ratio(5, "W") + ratio(100, "C")}
    done = variants(scored, [f"long,{variant}" for variant in expected])
    assert done.returncode == 0, done.stderr
    lines = [line.split(",") for line in done.stdout.splitlines()]
    assert lines[0] == ["id", "variant", "score"]
    assert [line[:2] for line in lines[1:]] == [["long", variant] for variant in expected]
    assert np.allclose([float(line[2]) for line in lines[1:]], list(expected.values()), atol=1e-5)


def test_what_has_no_score_is_told(scored):
    beyond = f"{LONG[-1]}{len(LONG)}{'A' if LONG[-1] != 'A' else 'C'}"
    done = variants(scored, ["odd,M1A", "odd,X3A", "odd,M1A:U4C", f"long,{beyond}"])
    assert done.returncode == 0, done.stderr
    scores = [line.split(",")[2] for line in done.stdout.splitlines()[1:]]
    is_cut = len(log_probs(scored, "long")) < len(LONG)
    assert [bool(score) for score in scores] == [True, False, False, not is_cut]
    assert f"{3 if is_cut else 2} variants without a score" in done.stderr


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("odd,A1C", 65, "line 2 'odd' 'A1C': expected A at position 1, found M"),
        ("odd,M1A:M1C", 65, "expected one substitution at a position"),
        ("odd,M1X", 65, "one of the twenty amino acids"),
        ("nobody,A1C", 1, "1 of 1 ids are not in the dataset: 'nobody'"),
    ],
)
def test_what_is_wrong_is_refused(scored, line, code, words):
    done = variants(scored, [line])
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_dataset_without_scores_or_shards_is_refused(scored, tmp_path):
    (tmp_path / "other.csv").write_text("sample,variant\na,A1C\n", encoding="utf-8")
    run = lambda *words: subprocess.run([PROGRAMS / "query-embeddings", *words], capture_output=True, text=True, check=False)
    done = run("variants", scored, tmp_path / "other.csv")
    assert done.returncode == 65 and "expected the columns id and variant, found 'sample,variant'" in done.stderr
    (tmp_path / "one.csv").write_text("id,variant\nodd,M1A\n", encoding="utf-8")
    assert run("combine", scored, "--out", tmp_path / "combined").returncode == 0
    done = run("variants", tmp_path / "combined", tmp_path / "one.csv")
    assert done.returncode == 66 and "which have the residues of the proteins" in done.stderr
