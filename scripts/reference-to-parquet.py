#!/usr/bin/env python3
"""Turns vectors of proteins into a Parquet file that validate-embeddings --reference reads.

    reference-to-parquet.py vectors.npy reference.parquet --ids ids.txt
    reference-to-parquet.py per-protein.h5 reference.parquet
    reference-to-parquet.py matrix.h5 reference.parquet --dataset embeddings --id-dataset ids
    reference-to-parquet.py folder reference.parquet

The input is one of these:

- A .npy file with one vector a row. --ids names a text file with the id of each row on its own line.
- An HDF5 file as UniProt publishes its embeddings: a dataset for each protein, named by its accession, with one vector. Of
  datasets with one vector for each residue, --average takes the mean.
- An HDF5 file with the vectors in the rows of --dataset and their ids in --id-dataset.
- A folder with the .pt files of fair-esm's extract.py. Its mean_representations become columns mean_LAYER, its
  bos_representations bos_LAYER. The id is the first word of the label.

Values are stored as float32, which holds float16 exactly. Memory does not depend on the number of proteins. It needs Python with
numpy and pyarrow, and h5py for HDF5 or torch for .pt files.
"""

import argparse
import os
import sys
from contextlib import closing, contextmanager
from pathlib import Path

# Of .npy files and datasets, so many rows are read at a time, and of HDF5 files so many names; so many values are a row group of the
# output.
ROWS = 1024
NAMES = 1 << 12
VALUES = 1 << 22


class Refused(Exception):
    """What is wrong with the input."""


class Unwritten(Exception):
    """Why there is no output, and the exit code."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", type=Path, help="a .npy file, an HDF5 file, or a folder with .pt files")
    parser.add_argument("output", type=Path, help="the .parquet file to write; an existing one is replaced")
    parser.add_argument("--ids", type=Path, metavar="FILE", help="ids of the rows of a .npy file, one a line")
    parser.add_argument("--dataset", metavar="NAME", help="the dataset of an HDF5 file with the vectors of all proteins")
    parser.add_argument("--id-dataset", metavar="NAME", help="the dataset with their ids")
    parser.add_argument("--average", action="store_true", help="take the mean over residues, where a protein has a vector for each")
    parser.add_argument("--column", metavar="NAME", help="name of the column of a .npy or HDF5 file; default: embedding")
    arguments = parser.parse_args()
    try:
        if what := misused(arguments):
            return failed(parser, what, 2)
        convert(arguments)
    except ImportError as error:
        return failed(parser, f"{error.name} is missing: expected numpy and pyarrow, h5py for HDF5, torch for .pt files", 69)
    except Refused as error:
        return failed(parser, error, 65)
    except Unwritten as error:
        return failed(parser, *error.args)
    except OSError as error:
        return failed(parser, f"{error.filename}: {error.strerror}", 66)
    return 0


def failed(parser, what, code):
    # What libraries and files say may have several lines.
    print(f"{parser.prog}: {' '.join(str(what).split())}", file=sys.stderr)
    return code


def misused(arguments):
    """What is wrong with the options, or None."""
    folder = arguments.input.is_dir()
    npy = not folder and arguments.input.suffix == ".npy"
    output = arguments.output
    if output.suffix != ".parquet":
        return f"{output}: expected a name that ends in .parquet"
    if any(path and path.exists() and output.exists() and path.samefile(output) for path in [arguments.input, arguments.ids]):
        return f"{output}: expected another file than an input"
    if npy != (arguments.ids is not None):
        return "a .npy file needs --ids, and no other input takes it"
    if (arguments.dataset is None) != (arguments.id_dataset is None):
        return "--dataset and --id-dataset need each other"
    if (folder or npy) and (arguments.dataset or arguments.average):
        return "--dataset, --id-dataset and --average are for HDF5 files"
    if folder and arguments.column:
        return "--column is for .npy and HDF5 files: columns of .pt files are named by their layers"
    if arguments.dataset and arguments.average:
        return "--average is for a dataset for each protein, not for --dataset"
    return None


def convert(arguments):
    path, column = arguments.input, arguments.column or "embedding"
    path.stat()
    output = arguments.output
    begun = output.with_name(f".{output.name}.{os.getpid()}")
    with written(output, 73):
        begun.touch()
    try:
        with closing(Table(output, begun)) as table:
            if path.is_dir():
                read_pt(path, table)
            elif path.suffix == ".npy":
                read_npy(path, arguments.ids, column, table)
            else:
                read_hdf5(path, arguments, column, table)
            table.finish(path)
        with written(output, 73):
            begun.replace(output)
    finally:
        begun.unlink(missing_ok=True)


@contextmanager
def written(output, code):
    try:
        yield
    except OSError as error:
        raise Unwritten(f"{output}: cannot be written: {error.strerror or error}", code) from error


class Table:
    """The output: ids, and vectors by column. The first row says which columns there are, and how long their vectors."""

    def __init__(self, output, begun):
        self.output, self.begun = output, begun
        self.sizes, self.writer = None, None
        self.ids, self.rows, self.values = [], [], 0

    def add(self, where, name, vectors):
        """`where` says where the row comes from; `vectors` has an array of numpy for each column."""
        sizes = {}
        for column, vector in vectors.items():
            if vector.dtype.kind != "f" or vector.ndim != 1 or not len(vector):
                found = f"{vector.dtype} of shape {vector.shape}"
                raise Refused(f"{where}: {column}: expected one vector of floating-point numbers, found {found}")
            sizes[column] = len(vector)
        self.sizes = self.sizes or sizes
        if sizes != self.sizes:
            raise Refused(f"{where}: expected vectors of the sizes {self.sizes}, found {sizes}")
        if not name:
            raise Refused(f"{where}: expected an id, found none")
        self.ids.append(name)
        self.rows.append(vectors)
        self.values += sum(sizes.values())
        if self.values >= VALUES:
            self.flush()

    def flush(self):
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet as pq

        arrays = {"id": pa.array(self.ids, pa.string())}
        for column, size in self.sizes.items():
            values = np.concatenate([row[column].astype(np.float32) for row in self.rows])
            arrays[column] = pa.FixedSizeListArray.from_arrays(pa.array(values), size)
        table = pa.table(arrays)
        with written(self.output, 74):
            if self.writer is None:
                self.writer = pq.ParquetWriter(self.begun, table.schema, use_dictionary=False)
            self.writer.write_table(table, row_group_size=len(self.ids))
        self.ids, self.rows, self.values = [], [], 0

    def finish(self, path):
        if self.sizes is None:
            raise Refused(f"{path}: expected vectors of at least one protein, found none")
        if self.ids:
            self.flush()
        self.close()
        with written(self.output, 74):
            with self.begun.open("rb+") as file:
                os.fsync(file.fileno())

    def close(self):
        if self.writer:
            with written(self.output, 74):
                self.writer.close()


def read_npy(path, ids, column, table):
    import numpy as np

    def rows():
        # Mapped anew each time, so that no more of it stays in memory.
        return np.load(path, mmap_mode="r", allow_pickle=False)

    try:
        found = rows()
    except (ValueError, EOFError) as error:
        raise Refused(f"{path}: not a .npy file, or one without numbers") from error
    shape = found.shape
    if len(shape) != 2:
        raise Refused(f"{path}: expected an array of two dimensions, one vector a row, found the shape {shape}")
    expected = f"{ids}: expected {shape[0]} ids, one a line, for the rows of {path}"
    with ids.open(encoding="utf-8") as lines:
        try:
            for begin in range(0, shape[0], ROWS):
                for row, vector in enumerate(np.array(rows()[begin : begin + ROWS]), begin):
                    if not (line := lines.readline()):
                        raise Refused(f"{expected}, found {row}")
                    table.add(f"{ids}: line {row + 1}", line.strip(), {column: vector})
            if any(line.strip() for line in lines):
                raise Refused(f"{expected}, found more")
        except UnicodeDecodeError as error:
            raise Refused(f"{ids}: expected UTF-8: {error}") from error


def read_hdf5(path, arguments, column, table):
    import h5py

    # Opening says what is missing or may not be read; h5py says the same in other words.
    path.open("rb").close()
    try:
        if arguments.dataset:
            with h5py.File(path) as file:
                read_matrix(path, file, arguments, column, table)
            return
        for name, dataset in datasets(path):
            where = f"{path}: dataset {name!r}"
            table.add(where, name, {column: one_vector(where, dataset, arguments.average)})
    except (OSError, UnicodeDecodeError, RuntimeError) as error:
        raise Refused(f"{path}: cannot be read as HDF5: {error}") from error


def datasets(path):
    """Name and dataset of each protein in an HDF5 file. The library keeps what it reads of a file, and its keys are a list of all
    names: the file is opened for some of them at a time."""
    import h5py

    begin, count = 0, 1
    while begin < count:
        found = []

        def take(name, found=found):
            found.append(name.decode())
            return len(found) == NAMES

        with h5py.File(path) as file:
            count = len(file)
            if count:
                _, begin = file.id.links.iterate(take, idx=begin)
            for name in found:
                yield name, file[name]


def one_vector(where, dataset, average):
    import h5py
    import numpy as np

    if not isinstance(dataset, h5py.Dataset):
        raise Refused(f"{where}: expected a dataset for each protein, or --dataset and --id-dataset, found a group")
    if dataset.ndim == 2 and not average:
        hint = "--average takes the mean over residues; --dataset says that its rows are proteins"
        raise Refused(f"{where}: expected one vector, found the shape {dataset.shape}: {hint}")
    array = np.asarray(dataset[()])
    if array.ndim == 2 and len(array) and array.dtype.kind == "f":
        return array.mean(0, dtype=np.float64)
    return array


def read_matrix(path, file, arguments, column, table):
    import h5py

    names = [arguments.dataset, arguments.id_dataset]
    vectors, ids = (file.get(name) for name in names)
    for name, dataset, kind, dimensions in [(names[0], vectors, "one vector a row", 2), (names[1], ids, "an id a row", 1)]:
        if not isinstance(dataset, h5py.Dataset) or dataset.ndim != dimensions:
            raise Refused(f"{path}: expected a dataset {name!r} with {kind}")
    if len(vectors) != len(ids):
        raise Refused(f"{path}: expected an id for each of {len(vectors)} vectors, found {len(ids)}")
    if h5py.check_string_dtype(ids.dtype):
        ids = ids.asstr()
    elif ids.dtype.kind not in "iu":
        raise Refused(f"{path}: dataset {names[1]!r}: expected text or integers, found {ids.dtype}")
    for begin in range(0, len(vectors), ROWS):
        end = begin + ROWS
        for row, (name, vector) in enumerate(zip(ids[begin:end], vectors[begin:end], strict=True), begin):
            table.add(f"{path}: row {row}", str(name), {column: vector})


def read_pt(folder, table):
    import numpy as np
    import torch

    for path in files(folder):
        try:
            data = torch.load(path, map_location="cpu", weights_only=True)
        except OSError:
            raise
        except Exception as error:
            # What torch says is an advice to run the code in the file.
            raise Refused(f"{path}: not a file of fair-esm's extract.py, or one with other objects than tensors") from error
        label = data.get("label") if isinstance(data, dict) else None
        if not isinstance(label, str):
            raise Refused(f"{path}: expected the key 'label' with text, as fair-esm's extract.py writes it")
        vectors = {}
        for pool in "mean", "bos":
            for layer, tensor in sorted(data.get(f"{pool}_representations", {}).items()):
                vectors[f"{pool}_{layer}"] = np.asarray(tensor.float())
        if not vectors:
            raise Refused(f"{path}: expected 'mean_representations' or 'bos_representations': run extract.py with --include mean")
        # The whole line of the FASTA file; ids are first words.
        table.add(path, next(iter(label.split()), ""), vectors)


def files(folder):
    """The .pt files of a folder and of those in it: extract.py makes a folder of a label with a slash."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from files(entry.path)
            elif entry.name.endswith(".pt"):
                yield entry.path


if __name__ == "__main__":
    sys.exit(main())
