"""Runs the cases of a stage one after the other, each a process group of its own that cannot outlive its time or this process."""

import json
import os
import selectors
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import Callable

from report import FAILED, NOT_RUN, TIMED_OUT

# Seconds at the end that no case gets, and how long one that is to be killed may say where it hangs.
RESERVE, LAST_WORDS = 4.0, 0.5
TOLD = 4000


@dataclass
class Case:
    """`run(bench)`, which takes at most `limit` seconds, and is not begun with fewer than `least` left."""

    run: Callable
    limit: float = 60
    least: float = 5
    name: str = ""

    def __post_init__(self):
        self.name = self.name or self.run.__name__


def run_all(cases, command, log, report, deadline):
    """Runs `command(case, descriptor)`, which writes rows to that descriptor, for each case until the deadline."""
    for case in cases:
        left = deadline - RESERVE - (time.monotonic() - report.start)
        if left < case.least:
            what = f"{max(0, left):.0f} s were left before the deadline, and it needs {case.least:.0f}"
            report.add(row(case.name, "", NOT_RUN, 0, what))
            continue
        limit = min(case.limit, left)
        run_one(case, command, log, report, limit)


def row(case, what, verdict, seconds, text, figures=None, **more):
    return {
        "case": case, "what": what, "verdict": verdict, "seconds": round(seconds, 2), "text": text, "figures": figures or {}, **more
    }  # fmt: skip


def run_one(case, command, log, report, limit):
    start, began, reader_writer = time.monotonic(), log.stat().st_size if log.exists() else 0, os.pipe()
    reader, writer = reader_writer
    with log.open("ab") as said:
        # Its standard input ends with this process, and it with its standard input: see `end_with_parent`.
        process = subprocess.Popen(
            command(case, writer), stdin=subprocess.PIPE, stdout=said, stderr=said, pass_fds=[writer], start_new_session=True
        )
    os.close(writer)
    rows = Rows(reader, case.name, report)
    # Looked at and not reaped: as long as it is a zombie, its group's number is nobody else's.
    while (ended := os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is None:
        rows.take(0.1)
        if time.monotonic() - start > limit:
            break
    if ended is None:
        # faulthandler writes where each thread is.
        os.kill(process.pid, signal.SIGUSR1)
        time.sleep(LAST_WORDS)
    kill_group(process.pid)
    code = process.wait()
    process.stdin.close()
    rows.take(0)
    os.close(reader)
    took, tail = time.monotonic() - start, last_of(log, began)
    if ended is None:
        report.add(row(case.name, "", TIMED_OUT, took, f"killed after {limit:.0f} s", stderr=tail))
    elif code:
        how = f"died of signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if not rows.failed:
            report.add(row(case.name, "", FAILED, took, how, stderr=tail))
    elif not rows.count:
        report.add(row(case.name, "", FAILED, took, "it ended without a row", stderr=tail))


def kill_group(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def last_of(log, begin):
    with log.open("rb") as file:
        file.seek(max(begin, log.stat().st_size - TOLD))
        return file.read().decode(errors="replace")


class Rows:
    """Lines of JSON from a pipe, each a row of the report."""

    def __init__(self, reader, case, report):
        self.reader, self.case, self.report = reader, case, report
        self.rest, self.count, self.failed, self.open = b"", 0, False, True
        os.set_blocking(reader, False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(reader, selectors.EVENT_READ)

    def take(self, wait):
        """What lies ready, or comes within so many seconds."""
        if not self.open:
            time.sleep(wait)
            return
        while self.selector.select(wait):
            found = os.read(self.reader, 1 << 16)
            if not found:
                self.open = False
                self.selector.close()
                return
            *lines, self.rest = (self.rest + found).split(b"\n")
            for line in lines:
                self.count += 1
                read = json.loads(line)
                self.failed |= read["verdict"] == FAILED
                self.report.add(read)
            wait = 0


def end_with_parent():
    """Kills the group of this process when the process that started it is gone, however it went."""

    def watch():
        while os.read(0, 1):
            pass
        kill_group(0)

    threading.Thread(target=watch, daemon=True).start()
