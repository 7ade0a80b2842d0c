"""See accept.sh."""

import argparse
import os
import sys
import time
from pathlib import Path

import machine
import parts
from programs import Failed, Programs


def arguments():
    parser = argparse.ArgumentParser(prog="tests/gpu/accept.sh", description="What only a GPU can show.")
    parser.add_argument("--parts", default=",".join(parts.PARTS), help="some of %(default)s")
    parser.add_argument("--quick", action="store_true", help="fewer models and shorter runs")
    parser.add_argument("--out", type=Path, default=Path("target/gpu"), help="folder [default: %(default)s]")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--programs", type=Path, default=Path(os.environ.get("PROGRAMS", "target/release")))
    found = parser.parse_args()
    found.parts = found.parts.split(",")
    unknown = set(found.parts) - set(parts.PARTS)
    if unknown:
        parser.error(f"--parts: expected some of {','.join(parts.PARTS)}, found {','.join(sorted(unknown))}")
    return found


def main():
    options = arguments()
    folder = options.out.absolute()
    (folder / "work").mkdir(parents=True, exist_ok=True)
    about = machine.describe(options.device)
    print(" ".join(f"{name} {value}" for name, value in about.items()))
    programs = Programs(options.programs.absolute(), options.device, folder / "work")
    bench = parts.Bench(programs, folder / "work", options.device, options.quick)
    for name in options.parts:
        start = time.monotonic()
        try:
            parts.PARTS[name](bench)
        except Failed as failure:
            # The others may still have something to say.
            bench.row(name, "", str(failure), False)
        print(f"{name} took {time.monotonic() - start:.0f} s", flush=True)
        parts.write(bench, about, folder / "report.json")
    missed = [row for row in bench.rows if row["met"] is False]
    tried = [row for row in bench.rows if row["met"] is not None]
    print(f"{len(tried) - len(missed)} of {len(tried)} as they should be; {folder / 'report.json'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
