"""The report: a row for each thing that was tried, replaced as a whole after every row."""

import json
import os
import time
from pathlib import Path

# What becomes of a row. The first three are of what was measured, the others of what could not be.
MET, MISSED, NOT_JUDGED = "met", "missed", "not judged"
ABSENT, FAILED, TIMED_OUT, NOT_RUN = "not there", "failed", "timed out", "not run"
# With one of these the stage is not as it should be.
WRONG = {MISSED, FAILED, TIMED_OUT, NOT_RUN}


class Report:
    def __init__(self, path, about):
        self.path, self.start = Path(path), time.monotonic()
        self.content = {**about, "finished": False, "seconds": 0.0, "rows": []}
        self.write()

    @property
    def rows(self):
        return self.content["rows"]

    def add(self, row):
        self.rows.append(row)
        self.write()
        print(f"{row['case']:18} {row['what']:24} {row['verdict']:10} {row['seconds']:6.1f} s  {row['text']}", flush=True)

    def finish(self):
        self.content["finished"] = True
        self.write()

    def write(self):
        """The old file or the new one, whatever happens in between."""
        self.content["seconds"] = round(time.monotonic() - self.start, 1)
        beside = self.path.with_name(self.path.name + ".new")
        with beside.open("w", encoding="utf-8") as file:
            json.dump(self.content, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def earlier(path, case, what):
    """The figures of a row that an earlier case wrote, or none."""
    rows = json.loads(Path(path).read_text(encoding="utf-8"))["rows"]
    return next((row["figures"] for row in rows if (row["case"], row["what"]) == (case, what)), None)
