"""docs/results.md, word for word, on the results of plmkit; and every reader opens the folder.

Pieces that need packages of another environment are marked `elsewhere`: `make results-check` runs them.
"""

import os
import re
import subprocess
import sys

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from conftest import PROGRAMS, ROOT

PAGE = (ROOT / "docs/results.md").read_text(encoding="utf-8")
ENVIRONMENTS = {"anndata": "ways", "h5py": "ways", "sklearn": "ways", "umap": "ways", "torch": "reference"}


def pieces():
    """Each piece of Python with the one environment that has its packages, named after its section."""
    for section in re.split("^## ", PAGE, flags=re.MULTILINE)[1:]:
        for number, piece in enumerate(re.findall(r"```python\n(.*?)```", section, re.DOTALL)):
            imported = re.findall(r"^(?:import|from) (\w+)", piece, re.MULTILINE)
            environments = {ENVIRONMENTS[name] for name in imported if name in ENVIRONMENTS} or {"readers"}
            [environment] = environments
            marks = [] if environment == "readers" else [pytest.mark.elsewhere]
            yield pytest.param(environment, piece, id=f"{section.splitlines()[0]}-{number}", marks=marks)


@pytest.fixture(scope="module")
def environment():
    """The programs, the module and the checkout, where the page expects them."""
    return os.environ | {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "scripts/wheel/plmkit"), "PLMKIT": str(ROOT)}


@pytest.fixture(scope="module")
def sample(tmp_path_factory, environment):
    """The folder of the page, after its commands. A record is rejected, one is a copy, one is known from the sample `old`, and a row
    could not be embedded: the only thing that a reader's data lack."""
    folder = tmp_path_factory.mktemp("results")
    commands = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
    assert commands.count("--residues") == 1
    commands = commands.replace("--residues", "--residues --inject not-finite=20")
    done = subprocess.run(["sh", "-ec", commands], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "results/one"


def test_every_link_has_its_section():
    sections = {title.lower().replace(" ", "-") for title in re.findall("^## (.*)", PAGE, re.MULTILINE)}
    assert set(re.findall(r"\(#(.*?)\)", PAGE)) == sections


def test_the_folder_is_the_table(sample):
    files = sorted(path.name for path in (sample / "embeddings").iterdir())
    assert len(files) > 2
    assert all(name.endswith(".parquet") for name in files)
    folder = str(sample / "embeddings")
    ordinals = [at for at in range(101) if at != 20]
    assert pd.read_parquet(folder)["ordinal"].tolist() == ordinals
    assert ds.dataset(folder).to_table()["ordinal"].to_pylist() == ordinals
    assert pl.read_parquet(folder)["ordinal"].to_list() == ordinals
    rows = duckdb.execute("SELECT ordinal FROM read_parquet(?)", [f"{folder}/*"]).fetchall()
    assert [row[0] for row in rows] == ordinals
    listed = [path.read_text(encoding="utf-8") for path in sorted((sample / "rejects").iterdir())]
    assert sum(",not_finite," in text for text in listed) == 1


@pytest.mark.parametrize(("venv", "piece"), list(pieces()))
def test_what_results_md_says(sample, environment, venv, piece):
    python = sys.executable if venv == "readers" else ROOT / ".venv" / venv / "bin/python"
    done = subprocess.run([python, "-c", piece], cwd=sample, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.elsewhere
@pytest.mark.parametrize(("name", "leaves"), [("..", False), ("a/b", False), ("../../x", True), ("a/../../x", True), ("{}/x", True)])
def test_no_id_names_a_file_of_fair_esm_outside_the_folder(tmp_path, name, leaves):
    folder = tmp_path / "results/one"
    (folder / "embeddings").mkdir(parents=True)
    vector = [0.5] * 64
    table = pa.table({"id": [name.format(tmp_path)], "mean_4": [vector], "residues_4": [[vector]]})
    pq.write_table(table, folder / "embeddings/part.parquet")
    [(venv, piece)] = [param.values for param in pieces() if param.id == "Files of fair-esm-0"]
    python = ROOT / ".venv" / venv / "bin/python"
    done = subprocess.run([python, "-c", piece], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == leaves, done.stderr
    files = list(tmp_path.rglob("*.pt"))
    assert len(files) == (not leaves)
    assert all(path.is_relative_to(folder / "fair-esm") for path in files)


def test_a_gene_is_the_mean_of_its_isoforms(sample):
    """Of what the pieces above wrote."""
    genes = pd.read_parquet(sample / "genes.parquet").set_index("gene")["mean_4"]
    frame = pd.read_parquet(sample / "embeddings", columns=["id", "mean_4"]).set_index("id")["mean_4"]
    assert np.allclose(genes["TIC214"], (frame["isoform"] + frame["sp|Q6YXP5|TI214_PHYPA"]) / 2)
    assert np.array_equal(genes["NSP5"], frame["tr|A0A0F6VY74|A0A0F6VY74_9REOV"])


def test_a_copy_and_a_known_record_have_the_vectors_of_their_representatives(sample):
    """In the table that the page combines."""
    frame = pd.read_parquet(sample / "all/embeddings").set_index("id")["mean_4"]
    assert len(frame) == 102
    assert np.array_equal(frame["copy"], frame["isoform"])
    old = pd.read_parquet(sample.parent / "old/embeddings", columns=["id", "mean_4"]).set_index("id")["mean_4"]
    assert np.array_equal(frame["elder"], old["elder"])
