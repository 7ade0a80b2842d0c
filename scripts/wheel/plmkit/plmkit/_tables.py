"""Tables of results."""

from __future__ import annotations

import hashlib
import json
import numbers
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Union

from plmkit._programs import PlmkitError, arguments, run

NO_OPTIONS = ("--check-options", "--generate", "--help", "--log-format", "--stage", "--task", "--verbose", "--version")  # of a call that returns rows

Sequences = Union[str, "os.PathLike[str]", Iterable["str | os.PathLike[str]"], Mapping[str, str], Iterable[tuple[str, str]]]
"""FASTA files, a sample each, or a table of samples, by their paths; or residues by id."""


def embed(
    sequences: Sequences,
    model: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    progress: bool = False,
    **options: object,
) -> Any:
    """Embeds sequences, and returns their rows: `id`, `length` and a column for each pooling and layer, such as `mean_33`.

    `model` is a folder or an id of the Hugging Face Hub. `out` is a folder for the results, which stay: the same call resumes after an
    interruption, and returns finished results. Without it, a temporary folder is used. `progress` shows messages on standard error.

    `options` are those of `plmkit --help`, with `_` for `-`: `pool=["mean", "max"]`, `dtype="int8"`, `long_policy="window"`,
    `invalid="reject"`. With `dedup` and `known`, each record still has a row: a copy of that of its sequence.

    Warns of rejected records. Raises PlmkitError, for invalid and duplicate records too, unless an option accepts them.
    """
    import pyarrow.parquet  # noqa: F401  before anything is computed

    if not isinstance(progress, bool):
        raise PlmkitError(2, f"progress: expected True or False, found {progress!r}")
    if out is None:
        with tempfile.TemporaryDirectory(prefix="plmkit-") as temporary:
            return embed(sequences, model, out=temporary, progress=progress, **options)
    if not os.fspath(out):
        raise PlmkitError(2, "out: expected a folder, found ''")
    folder = Path(out).expanduser()
    options.pop("quiet", None)  # it is, unless progress is shown
    words = list(arguments(options))
    for word in words:
        if word.partition("=")[0] in NO_OPTIONS:
            raise PlmkitError(2, f"{word}: expected options that decide rows; progress=True shows messages, as text")
    files, others, made = _files(sequences, folder / "pipeline_info", bool(options.get("force")))
    try:
        run("plmkit", f"--out={folder}", f"--model={os.path.expanduser(model)}", *words, "--", *files, progress=progress)
    except PlmkitError:
        for one in made:  # a refused run changes nothing, and the same call writes the sequences again
            if one == made[0] or not any(one.iterdir()):
                shutil.rmtree(one, ignore_errors=True)
        raise
    for other in others:
        shutil.rmtree(other.parent, ignore_errors=True)
    samples = _by_dataset(run("query-embeddings", "files", "--last-run", "--unverified", "--", os.fspath(folder)))
    known = [word for word in words if word.startswith("--known=")]
    with tempfile.TemporaryDirectory(prefix="plmkit-") as combined:
        for number, sample in enumerate(samples):
            if (counts := _counts(sample))["aliases"] or counts["known"]:
                run("query-embeddings", "combine", "--out", new := f"{combined}/{number}", *known, "--", sample)
                samples[sample], counts = sorted(map(str, Path(new).glob("embeddings/*.parquet"))), _counts(new)
            if rejected := sum(counts["rejected"].values()):
                what = f"{rejected} rejected record{' has' if rejected == 1 else 's have'} no row, see shards/rejects.csv and rejects"
                warnings.warn(f"{sample}: {what}", stacklevel=2)
        return _table(sum(samples.values(), []))


def read(results: str | os.PathLike[str], columns: Iterable[str] | None = None, *, verify: bool = True) -> Any:
    """Reads the embeddings in a folder of results, of a sample, or of Parquet files, or in one file, in the order of the last run.

    `columns` names those to read. A sample must have passed its validation, be whole, and made as the others; all files are compared
    with their checksums (`verify=False` does without). What the last run did not validate is left out, with a warning, and so is what
    files without a sample may lack.

    Rejected records are not in it, nor, with a warning, those that `dedup` and `known` leave out; `query-embeddings combine` gives
    these a row again.
    """
    import pyarrow.parquet  # noqa: F401  before anything is verified

    names = list(columns) if isinstance(columns, Iterable) and not isinstance(columns, (str, bytes)) else []
    if columns is not None and not (names and all(isinstance(name, str) for name in names)):
        raise TypeError(f"columns={columns!r}: expected names, such as ['id', 'mean_33'], or None for all")
    samples = _by_dataset(run("query-embeddings", "files", *([] if verify else ["--unverified"]), "--", os.path.expanduser(results)))
    for sample in samples:
        if left_out := sum(_counts(sample)[name] or 0 for name in ("aliases", "known")):
            what = f"{left_out} record{' has' if left_out == 1 else 's have'} no row, since others have their residues"
            warnings.warn(f"{sample}: {what}; query-embeddings combine gives them rows", stacklevel=2)
    return _table(sum(samples.values(), []), names or None)


def _by_dataset(listed: str) -> dict[str, list[str]]:
    """The files that `query-embeddings files` lists, by their dataset; one without a dataset by itself."""
    files: dict[str, list[str]] = {}
    for line in listed.split("\n")[:-1]:
        files.setdefault((one := json.loads(line))["dataset"], []).append(one["file"])
    return files


def _counts(dataset: str) -> dict:
    path = Path(dataset, "dataset.json")
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"aliases": 0, "known": 0, "rejected": {}}


def _table(files: list[str], columns: list[str] | None = None) -> Any:
    import pyarrow.parquet

    files = [os.path.abspath(path) for path in files]  # a relative path may be an address to pyarrow
    try:
        found = pyarrow.parquet.read_schema(files[0]).names
        if lost := [name for name in columns or () if name not in found]:
            raise PlmkitError(65, f"{files[0]}: expected a column {lost[0]!r}, found {', '.join(found)}")
        return pyarrow.concat_tables(pyarrow.parquet.read_table(path, columns=columns, partitioning=None) for path in files)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise PlmkitError(65, f"{os.path.dirname(files[0])}: {str(error).partition(chr(10))[0]}") from error


def _files(sequences: Sequences, info: Path, force: bool) -> tuple[list[str], list[Path], list[Path]]:
    """The files that hold the sequences, those in memory by their content; those of other calls in `info`; and the folders made for them."""
    given = listed(sequences)
    if given and all(isinstance(one, (str, os.PathLike)) for one in given):
        return [os.path.expanduser(file) for file in given], [], []
    try:
        text = fasta(given).encode()
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


def listed(sequences: Sequences) -> list:
    """The files, or the pairs of an id and residues."""
    if isinstance(sequences, (bytes, bytearray)) or not isinstance(sequences, (str, os.PathLike, Iterable)):
        raise TypeError(f"{sequences!r}: expected FASTA files, or residues by id")
    return [sequences] if isinstance(sequences, (str, os.PathLike)) else list(sequences.items() if hasattr(sequences, "items") else sequences)


def fasta(given: Iterable[object]) -> str:
    """FASTA of pairs of an id and residues."""
    records = []
    for pair in given:
        one, residues = pair if isinstance(pair, (tuple, list)) and len(pair) == 2 else (pair, None)
        is_id = isinstance(one, (str, numbers.Integral)) and not isinstance(one, bool) and str(one).split() == [str(one)]
        if not is_id or not isinstance(residues, str) or set(residues) & set(">\r\n"):
            raise PlmkitError(65, f"{one!r}: expected an id without blanks, as text or a whole number, and residues as text; or files alone")
        records.append(f">{one}\n{residues}\n")
    return "".join(records)
