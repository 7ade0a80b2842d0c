"""Runs the programs."""

from __future__ import annotations

import errno
import os
import select
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any


class PlmkitError(RuntimeError):
    """A run that failed, with what the program said. `code` is its exit code: 1 for a negative verdict, 2 for wrong options, 65 and 66
    for bad and missing inputs, 69 for a missing device, 73 for results of other work in the folder, 75 for what may succeed later."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type, tuple[int, str]]:
        return type(self), (self.code, str(self))


def run(program: str, *arguments: str, progress: bool = False) -> str:
    """Runs a program of plmkit to its end; interrupted, it saves its work first. Returns what it printed; raises PlmkitError if its exit
    code is not 0."""
    quiet, said = [] if progress else ["--quiet"], []
    with tempfile.TemporaryFile() as printed:
        process = started(program, [*quiet, *arguments], stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.PIPE)
        with process:
            try:
                for line in lines(process.stderr):
                    said.append(line)
                    if progress:
                        sys.stderr.write(f"{line}\n")
                    elif ": warning: " in line:
                        warnings.warn(line.replace(": warning: ", ": ", 1), stacklevel=3)
            except BaseException:
                process.terminate()
                process.wait()
                raise
        if process.returncode:
            code = process.returncode if process.returncode > 0 else 128 - process.returncode  # as a shell counts
            raise PlmkitError(code, "\n".join([line for line in said if ": warning: " not in line][-20:]) or f"{program}: exit code {code}")
        printed.seek(0)
        return printed.read().decode("utf-8", "replace")


def started(program: str, words: Iterable[str], **how: Any) -> subprocess.Popen:
    """Starts a program, in a session of its own: a Ctrl-C reaches it once, from here. It ends with this process, however that ends."""
    environment = {**os.environ, "PLMKIT_PARENT": str(os.getpid())}
    try:
        return subprocess.Popen([program_path(program), *words], env=environment, start_new_session=True, **how)
    except (OSError, ValueError) as error:  # such as a NUL in an argument
        is_refused = getattr(error, "errno", None) in (errno.EAGAIN, errno.ENOMEM)
        raise PlmkitError(75 if is_refused else 2, f"{program}: cannot start: {error}") from error


def lines(pipe: IO[bytes] | None) -> Iterator[str]:
    """The lines of a pipe. Waits by poll, which ends with a signal: a read goes on after one where a library, such as polars, asks for it."""
    rest, ready = b"", select.poll()
    if pipe is not None:
        ready.register(pipe, select.POLLIN)
        while ready.poll() and (more := os.read(pipe.fileno(), 1 << 16)):
            *whole, rest = (rest + more).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)
    if rest:
        yield rest.decode(errors="replace")


def program_path(program: str) -> str:
    """The program of this environment, or the one on the PATH."""
    own = Path(sysconfig.get_path("scripts"), program)
    if found := str(own) if own.exists() else shutil.which(program):
        return found
    raise PlmkitError(69, f"{program}: not in {own.parent} and not on the PATH")


def arguments(options: Mapping[str, object]) -> Iterator[str]:
    """The options of a command line."""
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, (list, tuple)):
            values = value if name == "known" else [",".join(map(str, value))]
            yield from (f"{option}={one}" for one in values)
        elif value is not None and value is not False:
            yield option if value is True else f"{option}={value}"
