"""What becomes of cases that fail, and of a report whose writer is killed. Needs nothing but the standard library."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).parent


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid, seconds=5):
    end = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not alive(pid)


class Cases(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.report = self.folder / "out" / "report.json"

    def start(self, *options):
        command = [sys.executable, HERE, "--stage", "test", "--work", self.folder / "work", "--out", self.folder / "out", *options]
        environment = os.environ | {"PROGRAMS": "/nowhere"}
        return subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, env=environment)

    def read(self):
        return json.loads(self.report.read_text(encoding="utf-8"))

    def row(self, case, what=""):
        return next(row for row in self.read()["rows"] if (row["case"], row["what"]) == (case, what))

    def test_every_case_has_its_row_and_the_next_one_runs(self):
        start = time.monotonic()
        self.assertEqual(self.start("--deadline", "120").wait(), 1)
        self.assertLess(time.monotonic() - start, 60)
        self.assertTrue(self.read()["finished"])
        self.assertEqual(self.row("follows", "two")["figures"]["value"], 2)
        self.assertEqual(self.row("crashes", "before")["verdict"], "met")
        self.assertEqual((self.row("crashes")["verdict"], self.row("crashes")["text"]), ("failed", "died of signal SIGSEGV"))
        self.assertIn("Segmentation fault", self.row("crashes")["stderr"])
        self.assertIn("ZeroDivisionError", self.row("fails", "first")["traceback"])
        self.assertEqual(self.row("fails", "second")["verdict"], "met")
        self.assertIn("nothing goes on from here", self.row("fails")["traceback"])
        self.assertEqual(self.row("silent")["verdict"], "failed")
        self.assertEqual(self.row("hangs")["verdict"], "timed out")
        self.assertIn("stage_test.py", self.row("hangs")["stderr"])
        self.assertEqual(self.row("unlikely")["verdict"], "not run")
        for case in "hangs", "leaves_a_process":
            self.assertTrue(gone(self.row(case, "child")["figures"]["pid"], 1), case)

    def test_a_deadline_holds(self):
        start = time.monotonic()
        self.start("--deadline", "9", "--only", "hangs,fine").wait()
        self.assertLess(time.monotonic() - start, 9)
        self.assertTrue(self.read()["finished"])

    def test_a_killed_run_leaves_its_report_and_no_process(self):
        # At many moments: while a row is written as well.
        for delay in 0.0, 0.002, 0.005, 0.01, 0.05, 0.5:
            process = self.start("--only", "fine,hangs")
            while not (self.report.is_file() and any(row["what"] == "before" for row in self.read()["rows"])):
                self.assertIsNone(process.poll(), "it ended")
                time.sleep(0.001)
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            process.wait()
            found = self.read()
            self.assertFalse(found["finished"])
            self.assertEqual(found["rows"][0]["text"], "1")
            for row in found["rows"]:
                self.assertTrue(row["what"] != "child" or gone(row["figures"]["pid"]), row)
            self.assertFalse(processes_of(self.folder))
            self.report.unlink()


def processes_of(folder, seconds=5):
    """Command lines that name the folder, once those that are dying had time to."""
    end = time.monotonic() + seconds
    while True:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if str(folder).encode() in path.read_bytes():
                    found.append(path)
            except OSError:
                pass
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.05)


if __name__ == "__main__":
    unittest.main()
