"""Protein sequences to embeddings of ESM models, by the programs of plmkit.

    import plmkit

    table = plmkit.embed({"P1": "MKVLAAGG", "P2": "MSTNPKPQ"}, model="facebook/esm2_t6_8M_UR50D", download=True)
    table = plmkit.embed("proteins.fasta", model="facebook/esm2_t33_650M_UR50D", out="results")
    table = plmkit.read("results", columns=["id", "mean_33"])

The functions return tables of pyarrow, which has to be installed (pip install pyarrow). Python only starts the programs.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    import pyarrow

OF_SAMPLE = "embeddings/[!.]*.parquet"

__all__ = ["PlmkitError", "Sequences", "embed", "read", "run"]

Sequences = Union[str, "os.PathLike[str]", Iterable["str | os.PathLike[str]"], Mapping[str, str], Iterable[tuple[str, str]]]
"""FASTA files, a sample each, or a table of samples, by their paths; or residues by id."""


class PlmkitError(RuntimeError):
    """A run that failed, with what the program said.

    `code` is its exit code: 1 for a negative verdict, 2 for wrong options, 65 and 66 for bad and missing inputs, 69 for a missing
    device, 73 for results of other work in the folder, 75 for what may succeed later.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type, tuple[int, str]]:
        return type(self), (self.code, str(self))


def embed(
    sequences: Sequences,
    model: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    progress: bool = False,
    **options: object,
) -> pyarrow.Table:
    """Embeds sequences, and returns their rows: `id`, `length` and a column for each pooling and layer, such as `mean_33`.

    `model` is a folder or an id of the Hugging Face Hub. `out` is a folder for the results, which stay: the same call resumes after an
    interruption, and returns finished results. Without it, a temporary folder is used. `progress` shows messages on standard error.

    `options` are those of `plmkit --help`, with `_` for `-`: `pool=["mean", "max"]`, `dtype="int8"`, `windows=True`,
    `fasta_shard="--invalid reject"`.

    Warns of rejected records. Raises PlmkitError, for invalid and duplicate records too, unless an option accepts them.
    """
    import pyarrow.parquet  # noqa: F401  before anything is computed

    if out is None:
        with tempfile.TemporaryDirectory(prefix="plmkit-") as folder:
            return embed(sequences, model, out=folder, progress=progress, **options)
    folder = Path(out)
    options.pop("quiet", None)  # it is, unless progress is shown
    arguments = ["--out", os.fspath(folder), "--model", os.fspath(model), *_arguments(options)]
    written = folder / "pipeline_info/sequences.fasta"
    before = written.read_bytes() if options.get("force") and written.exists() else None
    try:
        run("plmkit", *arguments, "--", *_files(sequences, written, bool(options.get("force"))), progress=progress)
    except PlmkitError as error:
        if before and error.code in (2, 65, 66, 69):  # a refused run changes nothing
            written.write_bytes(before)
        raise
    for sample, rejected in _samples(folder).items():
        if rejected not in ("", "0"):
            records = "1 rejected record has" if rejected == "1" else f"{rejected} rejected records have"
            warnings.warn(f"{folder / sample}: {records} no row, see shards/rejects.csv and rejects", stacklevel=2)
    return _table([path for sample in _samples(folder) for path in sorted((folder / sample).glob(OF_SAMPLE))])  # not those of other calls


def read(results: str | os.PathLike[str], columns: list[str] | None = None, *, verify: bool = True) -> pyarrow.Table:
    """Reads the embeddings in a folder of results, of a sample, or of Parquet files: sample by sample, in the order of the last run.

    `columns` names those to read; all by default. A sample must have passed its validation and be whole, and its files are compared
    with their checksums, for which they are read once more; `verify=False` does without. Warns of samples that were not validated.

    Records without a row of their own (rejected ones, and those that `dedup` and `known` leave out) are not in the table;
    `query-embeddings combine` gives the latter a row again.
    """
    import pyarrow.parquet

    folder = Path(results)
    patterns = (OF_SAMPLE, f"*/{OF_SAMPLE}", "[!.]*.parquet")
    files = next(filter(None, (sorted(folder.glob(pattern)) for pattern in patterns)), None)
    if files is None:
        raise PlmkitError(66, f"{folder}: no embeddings: expected DIR/*.parquet, DIR/embeddings/*.parquet or DIR/*/embeddings/*.parquet")
    verdicts = {}
    for sample in sorted({file.parent.parent for file in files if file.parent.name == "embeddings"}):
        if (sample / "dataset.json").exists() and verify:
            verdicts[sample] = _verdict(sample)
        elif (sample / "shards").exists() and not (sample / "dataset.json").exists():
            warnings.warn(f"{sample}: not validated, so rows may be missing or wrong", stacklevel=2)
    if len(models := {verdict["model_digest"]: sample for sample, verdict in verdicts.items()}) > 1:
        raise PlmkitError(65, f"{folder}: different models: {', '.join(map(str, models.values()))}; verify=False reads them")
    of_run = dict(zip(_samples(folder), itertools.count()))
    files.sort(key=lambda file: of_run.get(file.parent.parent.name, len(of_run)))
    for _, of_folder in itertools.groupby([file for file in files if verify and file.absolute().parent.name == "embeddings"], lambda file: file.parent):
        run("validate-embeddings", "--allow-empty", *map(os.fspath, of_folder))
    for sample, verdict in verdicts.items():
        judged = {part["file"]: part["digest"] for part in verdict["embeddings"]}
        for path in sample.glob(OF_SAMPLE):
            if pyarrow.parquet.read_metadata(path).metadata[b"plmkit.rows"].decode() != judged.get(f"embeddings/{path.name}"):
                raise PlmkitError(65, f"{path}: not what dataset.json is the verdict of; validate it again, or verify=False reads it")
    return _table(files, columns)


def _verdict(sample: Path) -> dict:
    try:
        verdict = json.loads((sample / "dataset.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise PlmkitError(65, f"{sample}/dataset.json: {error}") from error
    if verdict["outcome"] != "pass":
        raise PlmkitError(65, f"{sample}: its validation failed, see dataset.json; verify=False reads it")
    for part in verdict["embeddings"]:
        if not (sample / part["file"]).exists():
            raise PlmkitError(66, f"{sample}/{part['file']}: missing, though dataset.json lists it; verify=False reads the others")
    return verdict


def _samples(folder: Path) -> dict[str, str]:
    """The samples of the last run in a folder of results, in its order, with the number of their rejected records."""
    summary = folder / "summary.tsv"
    lines = summary.read_text(encoding="utf-8").splitlines()[1:] if summary.exists() else []
    return {fields[0]: fields[3] for fields in (line.split("\t") for line in lines) if len(fields) > 3}


def _table(files: list[Path], columns: list[str] | None = None) -> pyarrow.Table:
    import pyarrow.parquet

    if not files:
        raise PlmkitError(66, "no embeddings: this call made none")
    try:
        return pyarrow.concat_tables(pyarrow.parquet.read_table(path, columns=columns, partitioning=None) for path in files)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        what = str(error).partition("\n")[0]
        raise PlmkitError(65, f"{files[0].parent}: {what}") from error


def run(program: str, *arguments: str, progress: bool = False) -> None:
    """Runs a program of plmkit to its end; interrupted, it saves its work first. Raises PlmkitError if its exit code is not 0."""
    quiet, said = [] if progress else ["--quiet"], []
    # In a session of its own: a Ctrl-C reaches the program once, from here.
    with subprocess.Popen(
        [_path(program), *quiet, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PLMKIT_PARENT": str(os.getpid())},  # it ends with this process, however that ends
        start_new_session=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                said.append(line.rstrip("\n"))
                if progress:
                    sys.stderr.write(line)
                elif ": warning: " in line:
                    warnings.warn(line.rstrip("\n").replace(": warning: ", ": ", 1), stacklevel=3)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if process.returncode:
        # As a shell counts: 128 and the signal.
        code = process.returncode if process.returncode > 0 else 128 - process.returncode
        errors = [line for line in said if ": warning: " not in line]
        raise PlmkitError(code, "\n".join(errors[-20:]) or f"{program}: exit code {code}")


def _path(program: str) -> str:
    """The program of this environment, or the one on the PATH."""
    own = Path(sysconfig.get_path("scripts"), program)
    found = str(own) if own.exists() else shutil.which(program)
    if found is None:
        raise PlmkitError(69, f"{program}: not in {own.parent} and not on the PATH")
    return found


def _arguments(options: Mapping[str, object]) -> Iterator[str]:
    """The options of a command line."""
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, (list, tuple)):
            values = value if name == "known" else [",".join(map(str, value))]
            yield from (f"{option}={one}" for one in values)
        elif value is True:
            yield option
        elif value is not None and value is not False:
            yield f"{option}={value}"


def _files(sequences: Sequences, path: Path, force: bool) -> list[str]:
    """The files that hold the sequences. Those in memory are written to `path`; what an earlier call wrote stays, but for `force`."""
    if isinstance(sequences, (str, os.PathLike)):
        return [os.fspath(sequences)]
    given = list(sequences.items() if hasattr(sequences, "items") else sequences)  # a pandas.Series has them, too
    if given and all(isinstance(one, (str, os.PathLike)) for one in given):
        return [os.fspath(file) for file in given]
    records = []
    for one, residues in given:
        name = str(one)
        if name.split() != [name] or not isinstance(residues, str) or set(residues) & set(">\r\n"):
            raise PlmkitError(65, f"{one!r}: expected an id without blanks, and residues as text")
        records.append(f">{name}\n{residues}\n")
    text = "".join(records)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return [os.fspath(path)]
        if path.exists() and not force:
            raise PlmkitError(73, f"{path}: has other sequences: expected another folder, or force=True, which replaces them")
        path.write_text(text, encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise PlmkitError(65 if isinstance(error, UnicodeError) else 73, f"{path}: {error}") from error
    return [os.fspath(path)]
