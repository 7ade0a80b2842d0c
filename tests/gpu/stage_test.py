"""Cases that hang, crash and fail, for test_cases.py."""

import ctypes
import subprocess
import sys
import time

from cases import Case

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def fine(bench):
    bench.row("one", "1", True, {"value": 1})


def follows(bench):
    bench.row("two", "2", True, {"value": bench.earlier("fine", "one")["value"] + 1})


def hangs(bench):
    bench.row("before", "a row of a case that hangs", True)
    child = subprocess.Popen(SLEEP)
    bench.row("child", str(child.pid), None, {"pid": child.pid})
    time.sleep(600)


def crashes(bench):
    bench.row("before", "a row of a case that crashes", True)
    ctypes.string_at(0)


def fails(bench):
    bench.each([("first", lambda: 1 / 0), ("second", lambda: bench.row("second", "goes on", True))])
    raise ValueError("nothing goes on from here")


def leaves_a_process(bench):
    bench.row("child", "", None, {"pid": subprocess.Popen(SLEEP).pid})


def silent(bench):
    pass


def unlikely(bench):
    raise AssertionError("it was begun without the time that it needs")


CASES = [
    Case(fine),
    Case(crashes),
    Case(fails),
    Case(leaves_a_process),
    Case(silent),
    Case(hangs, limit=3),
    Case(unlikely, least=300),
    Case(follows),
]
