"""docs/results.md, word for word, on the results of the shell chain; and every reader opens the folder."""

import os
import re
import subprocess
import sys

import duckdb
import pandas as pd
import polars as pl
import pyarrow.dataset as ds
import pytest
from conftest import MODEL, PROGRAMS, PROTEINS, ROOT

PIECES = re.findall(r"```python\n(.*?)```", (ROOT / "docs/results.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A sample of several shards, one record of which is rejected and one row of which cannot be embedded."""
    folder = tmp_path_factory.mktemp("results")
    fasta = folder / "proteins.fasta"
    fasta.write_text(PROTEINS.read_text(encoding="utf-8") + ">short\nM\n", encoding="utf-8")
    (folder / "samples.csv").write_text(f"sample,fasta\none,{fasta}\n", encoding="utf-8")
    options = {
        "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
        "MAX_SHARD_TOKENS": "12000",
        "FASTA_SHARD": "--min-residues 5",
        "GPU_EMBED": "--device cpu --inject not-finite=20",
    }
    command = [ROOT / "workflows/shell/plmkit.sh", folder / "samples.csv", folder / "results", MODEL]
    done = subprocess.run(command, env=os.environ | options, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "results/one"


def test_the_folder_is_the_table(sample):
    files = sorted(path.name for path in (sample / "embeddings").iterdir())
    assert len(files) > 2
    assert all(name.endswith(".parquet") for name in files)
    folder = str(sample / "embeddings")
    ordinals = [at for at in range(100) if at != 20]
    assert pd.read_parquet(folder)["ordinal"].tolist() == ordinals
    assert ds.dataset(folder).to_table()["ordinal"].to_pylist() == ordinals
    assert pl.read_parquet(folder)["ordinal"].to_list() == ordinals
    rows = duckdb.execute("SELECT ordinal FROM read_parquet(?)", [f"{folder}/*"]).fetchall()
    assert [row[0] for row in rows] == ordinals
    listed = [path.read_text(encoding="utf-8") for path in sorted((sample / "rejects").iterdir())]
    assert sum(",not_finite," in text for text in listed) == 1


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.strip().splitlines()[-1][:40])
def test_what_results_md_says(sample, piece):
    done = subprocess.run([sys.executable, "-c", piece], cwd=sample, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
