"""scripts/reference-to-parquet.py on files of every form, and validate-embeddings on what it writes.

torch is in another environment: its case is marked `elsewhere`, and `make results-check` runs it.
"""

import json
import subprocess
import sys

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import ROOT, run

CONVERTER = ROOT / "scripts/reference-to-parquet.py"
MEAN = ["--column", "mean_4"]

# What fair-esm's extract.py writes for the labels and vectors of an .npz file.
EXTRACT = """
import sys, numpy, torch
data = numpy.load(sys.argv[1])
for name, mean, bos in zip(data["names"], data["mean_4"], data["bos_4"]):
    label = f"{name} some protein OS=Homo sapiens"
    vectors = {"mean_representations": {4: torch.tensor(mean)}, "bos_representations": {4: torch.tensor(bos)}}
    torch.save({"label": label} | vectors, f"{sys.argv[2]}/{str(name).replace('|', '_')}.pt")
"""


@pytest.fixture(scope="module")
def vectors(chain):
    """Ids, and the vectors of each column."""
    table = pq.read_table(chain.embeddings, columns=["id", "mean_4", "bos_4"])
    columns = {name: np.array(table[name].to_pylist(), np.float32) for name in ["mean_4", "bos_4"]}
    return table["id"].to_pylist(), columns


def convert(*arguments, python=sys.executable, code=0):
    done = subprocess.run([python, CONVERTER, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stderr


def compare(chain, reference):
    """How each column agrees; all rows must be compared."""
    validate = [chain.embeddings, "--reference", reference, "--min-cosine", 0.99999, "--report", "-"]
    report = json.loads(run("validate-embeddings", *validate).stdout)
    agreement = {column["column"]: column for column in report["agreement"]}
    assert {column["vectors"] for column in agreement.values()} == {report["rows"]}
    return agreement


def test_an_input_is_not_replaced(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(b"an HDF5 file")
    assert "expected another file than an input" in convert(path, path, code=2)
    assert "expected another file than an input" in convert(tmp_path, path, "--ids", path, code=2)
    assert path.read_bytes() == b"an HDF5 file"


def test_an_array_of_numpy_with_a_file_of_ids(chain, vectors, tmp_path):
    names, columns = vectors
    half = columns["mean_4"].astype(np.float16)
    (tmp_path / "ids.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    for order in np.ascontiguousarray, np.asfortranarray:
        np.save(tmp_path / "vectors.npy", order(half))
        reference = tmp_path / "reference.parquet"
        convert(tmp_path / "vectors.npy", reference, "--ids", tmp_path / "ids.txt", *MEAN)
        assert list(compare(chain, reference)) == ["mean_4"]
        table = pq.read_table(reference)
        assert table["id"].to_pylist() == names
        assert np.array_equal(np.array(table["mean_4"].to_pylist(), np.float32), half.astype(np.float32))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ids.txt", "reference.parquet", "vectors.npy"]


def test_hdf5_with_a_dataset_for_each_protein(chain, vectors, tmp_path):
    names, columns = vectors
    for form in "protein", "residues":
        with h5py.File(tmp_path / f"{form}.h5", "w") as file:
            for name, vector in zip(names, columns["mean_4"], strict=True):
                file[name] = vector if form == "protein" else np.stack([vector - 1, vector + 1])
    reference = tmp_path / "reference.parquet"
    convert(tmp_path / "protein.h5", reference, *MEAN)
    agreement = compare(chain, reference)
    assert agreement["mean_4"]["max_difference"] == 0
    said = convert(tmp_path / "residues.h5", tmp_path / "none.parquet", code=65)
    assert "expected one vector, found the shape (2, 64): --average takes the mean" in said
    convert(tmp_path / "residues.h5", reference, "--average", *MEAN)
    compare(chain, reference)


def test_hdf5_with_one_dataset_for_all(chain, vectors, tmp_path):
    names, columns = vectors
    with h5py.File(tmp_path / "matrix.h5", "w") as file:
        file["some/vectors"], file["some/ids"] = columns["bos_4"], names
    reference = tmp_path / "reference.parquet"
    options = ["--dataset", "some/vectors", "--id-dataset", "some/ids", "--column", "bos_4"]
    convert(tmp_path / "matrix.h5", reference, *options)
    assert compare(chain, reference)["bos_4"]["max_difference"] == 0


@pytest.mark.elsewhere
def test_a_folder_of_fair_esm(chain, vectors, tmp_path):
    names, columns = vectors
    python = ROOT / ".venv/reference/bin/python"
    np.savez(tmp_path / "vectors.npz", names=names, **columns)
    folder = tmp_path / "extracted"
    folder.mkdir()
    subprocess.run([python, "-c", EXTRACT, tmp_path / "vectors.npz", folder], check=True)
    reference = tmp_path / "reference.parquet"
    convert(folder, reference, python=python)
    agreement = compare(chain, reference)
    assert [agreement[name]["max_difference"] for name in ["mean_4", "bos_4"]] == [0, 0]
    (folder / "other.pt").write_bytes(b"no checkpoint")
    assert "other.pt: not a file of fair-esm's extract.py" in convert(folder, reference, python=python, code=65)


def test_a_vector_of_another_protein_is_found(chain, vectors, tmp_path):
    names, columns = vectors
    swapped = columns["mean_4"][[1, 0, *range(2, len(names))]]
    np.save(tmp_path / "vectors.npy", swapped)
    (tmp_path / "ids.txt").write_text("\n".join(names), encoding="utf-8")
    reference = tmp_path / "reference.parquet"
    convert(tmp_path / "vectors.npy", reference, "--ids", tmp_path / "ids.txt", *MEAN)
    with pytest.raises(AssertionError, match="2 vectors below"):
        compare(chain, reference)


BAD = [
    ("gone.npy --ids ids.txt", 66, "gone.npy: No such file"),
    ("v.npy --ids gone.txt", 66, "gone.txt: No such file"),
    ("gone.h5", 66, "gone.h5: No such file"),
    ("v.npy --ids few.txt", 65, "few.txt: expected 3 ids, one a line, for the rows of v.npy, found 2"),
    ("v.npy --ids many.txt", 65, "many.txt: expected 3 ids, one a line, for the rows of v.npy, found more"),
    ("v.npy --ids hole.txt", 65, "hole.txt: line 2: expected an id, found none"),
    ("text.npy --ids ids.txt", 65, "text.npy: not a .npy file"),
    ("flat.npy --ids ids.txt", 65, "flat.npy: expected an array of two dimensions, one vector a row, found the shape (3,)"),
    ("whole.npy --ids ids.txt", 65, "embedding: expected one vector of floating-point numbers, found int64"),
    ("text.h5", 65, "text.h5: cannot be read as HDF5"),
    ("empty.h5", 65, "empty.h5: expected vectors of at least one protein, found none"),
    ("ragged.h5", 65, "ragged.h5: dataset 'B': expected vectors of the sizes {'embedding': 4}, found {'embedding': 3}"),
    ("nested.h5", 65, "nested.h5: dataset 'a': expected a dataset for each protein, or --dataset and --id-dataset, found a group"),
    ("nested.h5 --dataset a/v --id-dataset i", 65, "nested.h5: expected a dataset 'i' with an id a row"),
    ("nested.h5 --dataset a/v --id-dataset a/i", 65, "nested.h5: expected an id for each of 3 vectors, found 2"),
    ("nested.h5 --dataset a/v", 2, "--dataset and --id-dataset need each other"),
    ("v.npy", 2, "a .npy file needs --ids"),
    ("empty.h5 --ids ids.txt", 2, "no other input takes it"),
    ("v.npy --ids ids.txt --average", 2, "are for HDF5 files"),
]


@pytest.mark.parametrize(("line", "code", "what"), BAD)
def test_bad_input_is_one_line(tmp_path, monkeypatch, line, code, what):
    monkeypatch.chdir(tmp_path)
    vectors = np.ones((3, 4), np.float32)
    for name, array in {"v": vectors, "flat": vectors[:, 0], "whole": vectors.astype(int)}.items():
        np.save(f"{name}.npy", array)
    texts = {"ids.txt": "a\nb\nc\n", "few.txt": "a\nb\n", "many.txt": "a\nb\nc\nd\n", "hole.txt": "a\n\nc\n"}
    for name, text in (texts | {"text.npy": "hello", "text.h5": "hello"}).items():
        (tmp_path / name).write_text(text)
    files = {"empty": {}, "ragged": {"A": vectors[0], "B": vectors[0, :3]}, "nested": {"a/v": vectors, "a/i": ["a", "b"]}}
    for name, datasets in files.items():
        with h5py.File(f"{name}.h5", "w") as file:
            for path, data in datasets.items():
                file[path] = data
    before = sorted(tmp_path.iterdir())
    source, *options = line.split()
    said = convert(source, "out.parquet", *options, code=code)
    assert said.startswith("reference-to-parquet.py: ") and said.count("\n") == 1 and what in said, said
    assert sorted(tmp_path.iterdir()) == before


def test_an_output_that_cannot_be_created_is_one_line(tmp_path):
    with h5py.File(tmp_path / "p.h5", "w") as file:
        file["P"] = np.ones(4)
    said = convert(tmp_path / "p.h5", tmp_path / "gone/out.parquet", code=73)
    assert said.endswith("out.parquet: cannot be written: No such file or directory\n"), said
    assert "expected a name that ends in .parquet" in convert(tmp_path / "p.h5", tmp_path / "out", code=2)
