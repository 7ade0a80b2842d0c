"""Protein sequences to embeddings of ESM models, by the programs of plmkit.

    import plmkit

    table = plmkit.embed({"P1": "MKVLAAGG", "P2": "MSTNPKPQ"}, model="facebook/esm2_t6_8M_UR50D", download=True)
    table = plmkit.read("results", columns=["id", "mean_33"])

The functions return tables of pyarrow, which has to be installed (pip install pyarrow). Python only starts the programs.
"""

from __future__ import annotations

import hashlib
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

OF_INPUT = ("combined", "description", "kernels", "packing", "sample", "source")  # options that decide no vector

__all__ = ["PlmkitError", "Sequences", "embed", "read", "run"]

Sequences = Union[str, "os.PathLike[str]", Iterable["str | os.PathLike[str]"], Mapping[str, str], Iterable[tuple[str, str]]]
"""FASTA files, a sample each, or a table of samples, by their paths; or residues by id."""


class PlmkitError(RuntimeError):
    """A run that failed, with what the program said. `code` is its exit code: 1 for a negative verdict, 2 for wrong options, 65 and 66
    for bad and missing inputs, 69 for a missing device, 73 for results of other work in the folder, 75 for what may succeed later."""

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
    files, others, made = _files(sequences, folder / "pipeline_info", bool(options.get("force")))
    try:
        run("plmkit", "--out", os.fspath(folder), "--model", os.fspath(model), *_arguments(options), "--", *files, progress=progress)
    except PlmkitError:
        for one in made:  # a refused run changes nothing, and the same call writes the sequences again
            if one == made[0] or not any(one.iterdir()):
                shutil.rmtree(one, ignore_errors=True)
        raise
    for other in others:
        shutil.rmtree(other.parent, ignore_errors=True)
    for sample, (rejected, _) in _samples(folder).items():
        if rejected not in ("", "0"):
            what = f"{rejected} rejected record{' has' if rejected == '1' else 's have'} no row, see shards/rejects.csv and rejects"
            warnings.warn(f"{folder / sample}: {what}", stacklevel=2)
    return _table([path for sample in _samples(folder) for path in sorted((folder / sample).glob(OF_SAMPLE))])  # not those of other calls


def read(results: str | os.PathLike[str], columns: list[str] | None = None, *, verify: bool = True) -> pyarrow.Table:
    """Reads the embeddings in a folder of results, of a sample, or of Parquet files, in the order of the last run.

    `columns` names those to read. A sample must have passed its validation, be whole, and made as the others; its files are compared with
    their checksums (`verify=False` does without). What the last run did not validate is left out, with a warning.

    Rejected records are not in it, nor those that `dedup` and `known` leave out; `query-embeddings combine` gives these a row again.
    """
    import pyarrow.parquet

    folder = Path(results)
    files = next(filter(None, (sorted(folder.glob(names)) for names in (OF_SAMPLE, f"*/{OF_SAMPLE}", "[!.]*.parquet"))), [])
    if not files:
        raise PlmkitError(66, f"{folder}: no embeddings: expected DIR/*.parquet, DIR/embeddings/*.parquet or DIR/*/embeddings/*.parquet")
    found = {file.parent.parent for file in files if file.parent.name == "embeddings"}
    listed, verdicts = _samples(folder), {}
    for sample in sorted(found | {folder / name for name in listed}) if verify else ():
        if listed.get(sample.name, ("", ""))[1] == "not validated":
            warnings.warn(f"{sample}: not validated by the last run, so its rows are left out", stacklevel=2)
            files = [file for file in files if file.parent.parent != sample]
        elif (sample / "dataset.json").exists() or sample not in found:
            verdicts[sample] = _verdict(sample)
        elif (sample / "shards").exists():
            warnings.warn(f"{sample}: not validated, so rows may be missing or wrong", stacklevel=2)
    if len(works := {work: sample for sample, (work, _, _) in verdicts.items() if work}) > 1:
        raise PlmkitError(65, f"{folder}: different models or options: {', '.join(map(str, works.values()))}; verify=False reads them")
    rows_of = [of for _, _, of in verdicts.values()]
    if len({name for _, name in rows_of}) < len(rows_of) or len({combined for combined, _ in rows_of}) > 1:
        raise PlmkitError(65, f"{folder}: rows may be in several folders, of one sample or combined: {', '.join(map(str, verdicts))}; verify=False reads them")
    files.sort(key=lambda file: list(listed).index(name) if (name := file.parent.parent.name) in listed else len(listed))
    for parent in dict.fromkeys(file.parent for file in files if verify and file.absolute().parent.name == "embeddings"):
        run("validate-embeddings", "--allow-empty", *(os.fspath(file) for file in files if file.parent == parent))
    for sample, (_, judged, _) in verdicts.items():
        for path in sample.glob(OF_SAMPLE):
            if pyarrow.parquet.read_metadata(path).metadata[b"plmkit.rows"].decode() != judged.get(f"embeddings/{path.name}"):
                raise PlmkitError(65, f"{path}: not what dataset.json is the verdict of; validate it again, or verify=False reads it")
    return _table(files, columns)


def _verdict(sample: Path) -> tuple[str | None, dict[str, str], tuple[bool, str]]:
    """What made the vectors of a sample, if it has some; the digests of its files by their paths; whether it is combined, and its name."""
    path = sample / "dataset.json"
    try:
        verdict = json.loads(path.read_text(encoding="utf-8"))
        judged = {part["file"]: part["digest"] for part in verdict["embeddings"]}
        options = {key: value for key, value in verdict["options"].items() if key not in OF_INPUT}
        work = json.dumps([verdict["model_digest"], verdict["columns"], options]) if verdict["model_digest"] else None
        if verdict["outcome"] != "pass":
            raise PlmkitError(65, f"{sample}: its validation failed, see dataset.json; verify=False reads it")
    except OSError as error:
        raise PlmkitError(66, f"{path}: {error.strerror}, though summary.tsv lists its sample; verify=False reads the others") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise PlmkitError(65, f"{path}: not as validate-embeddings wrote it: {error!r}") from error
    if missing := [part for part in judged if not (sample / part).exists()]:
        raise PlmkitError(66, f"{sample}/{missing[0]}: missing, though dataset.json lists it; verify=False reads the others")
    return work, judged, ("combined" in verdict, verdict.get("sample") or sample.name)


def _samples(folder: Path) -> dict[str, tuple[str, str]]:
    """The samples of the last run in a folder of results, in its order, with the number of rejected records and the verdict."""
    summary = folder / "summary.tsv"
    lines = summary.read_text(encoding="utf-8").splitlines()[1:] if summary.exists() else []
    return {fields[0]: (fields[3], fields[7]) for fields in (line.split("\t") for line in lines) if len(fields) > 7}


def _table(files: list[Path], columns: list[str] | None = None) -> pyarrow.Table:
    import pyarrow.parquet

    if not files:
        raise PlmkitError(66, "no embeddings: no record has some, or no sample was validated")
    try:
        return pyarrow.concat_tables(pyarrow.parquet.read_table(path, columns=columns, partitioning=None) for path in files)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise PlmkitError(65, f"{files[0].parent}: {str(error).partition(chr(10))[0]}") from error


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
        try:
            for line in process.stderr or ():
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
        code = process.returncode if process.returncode > 0 else 128 - process.returncode  # as a shell counts
        raise PlmkitError(code, "\n".join([line for line in said if ": warning: " not in line][-20:]) or f"{program}: exit code {code}")


def _path(program: str) -> str:
    """The program of this environment, or the one on the PATH."""
    own = Path(sysconfig.get_path("scripts"), program)
    if found := str(own) if own.exists() else shutil.which(program):
        return found
    raise PlmkitError(69, f"{program}: not in {own.parent} and not on the PATH")


def _arguments(options: Mapping[str, object]) -> Iterator[str]:
    """The options of a command line."""
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, (list, tuple)):
            values = value if name == "known" else [",".join(map(str, value))]
            yield from (f"{option}={one}" for one in values)
        elif value is not None and value is not False:
            yield option if value is True else f"{option}={value}"


def _files(sequences: Sequences, info: Path, force: bool) -> tuple[list[str], list[Path], list[Path]]:
    """The files that hold the sequences, those in memory by their content; those of other calls in `info`; and the folders made for them."""
    given = [sequences] if isinstance(sequences, (str, os.PathLike)) else list(sequences.items() if hasattr(sequences, "items") else sequences)
    if given and all(isinstance(one, (str, os.PathLike)) for one in given):
        return [os.fspath(file) for file in given], [], []
    records = []
    for one, residues in given:
        if (name := str(one)).split() != [name] or not isinstance(residues, str) or set(residues) & set(">\r\n"):
            raise PlmkitError(65, f"{one!r}: expected an id without blanks, and residues as text")
        records.append(f">{name}\n{residues}\n")
    try:
        text = "".join(records).encode()
        path = info / hashlib.sha256(text).hexdigest()[:16] / "sequences.fasta"
        others = [other for other in info.glob("*/sequences.fasta") if other != path]
        if others and not force:
            raise PlmkitError(73, f"{others[0]}: other sequences: expected another folder, or force=True, which replaces them")
        if (made := [folder for folder in (path.parent, info, *info.parents) if not folder.exists()]) or not path.exists() or path.read_bytes() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            (part := path.with_name(f".{os.getpid()}")).write_bytes(text)
            part.replace(path)  # as a whole, or not at all
    except (OSError, UnicodeError) as error:
        raise PlmkitError(65 if isinstance(error, UnicodeError) else 73, f"{info}: {error}") from error
    return [os.fspath(path)], others, made
