"""See accept.sh."""

import argparse
import faulthandler
import importlib
import os
import shutil
import signal
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import cases
from bench import FILE_BYTES, Bench
from report import WRONG, Report

LOG = "log.txt"


def arguments():
    parser = argparse.ArgumentParser(prog="tests/gpu/accept.sh", description="What only a GPU can show.")
    parser.add_argument("--stage", required=True, help="a: correctness; b: speed; c: memory, kills, monitoring")
    parser.add_argument("--work", required=True, type=Path, help="folder for models and outputs; a later stage finds them there")
    parser.add_argument("--out", required=True, type=Path, help="folder for report.json, log.txt and up to six more files")
    parser.add_argument("--deadline", type=float, default=540, help="seconds after which nothing runs [default: %(default)s]")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--quick", action="store_true", help="small models and few proteins: it runs, and figures mean nothing")
    parser.add_argument("--values-unchecked", action="store_true", help="judge no values and no speed: for a device that computes nothing")
    parser.add_argument("--only", default="", help="some cases, by name, separated by commas")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.work, options.out = options.work.absolute(), options.out.absolute()
    return options


def main():
    options = arguments()
    stage = importlib.import_module(f"stage_{options.stage}")
    if options.case:
        return in_case(options, next(case for case in stage.CASES if case.name == options.case))
    wanted = set(filter(None, options.only.split(",")))
    unknown = wanted - {case.name for case in stage.CASES}
    if unknown:
        sys.exit(f"--only: expected some of {','.join(case.name for case in stage.CASES)}, found {','.join(sorted(unknown))}")
    for folder in options.work, options.out:
        folder.mkdir(parents=True, exist_ok=True)
    about = {
        "stage": options.stage, "device": options.device, "quick": options.quick, "deadline_s": options.deadline,
        "begun": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip
    report = Report(options.out / "report.json", about)
    log = options.out / LOG
    log.unlink(missing_ok=True)

    def command(case, rows):
        return [sys.executable, __file__, *sys.argv[1:], "--case", case.name, "--rows", str(rows)]

    if options.device == "cpu" or options.quick:
        # Threads that wait for each other by spinning take minutes where CPUs are shared.
        os.environ |= {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    chosen = [case for case in stage.CASES if not wanted or case.name in wanted]
    if options.quick:
        chosen = [replace(case, least=min(case.least, 5)) for case in chosen]
    cases.run_all(chosen, command, log, report, options.deadline)
    if log.is_file() and log.stat().st_size > FILE_BYTES:
        log.write_bytes(log.read_bytes()[-FILE_BYTES:])
    report.finish()
    wrong = [row for row in report.rows if row["verdict"] in WRONG]
    print(f"{len(report.rows) - len(wrong)} of {len(report.rows)} rows are as they should be; {report.path}")
    return 1 if wrong else 0


def in_case(options, case):
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    cases.end_with_parent()
    os.set_inheritable(options.rows, False)
    print(f"== {case.name}", file=sys.stderr, flush=True)
    bench = Bench(options, case.name, options.rows)
    try:
        case.run(bench)
    except Exception as error:
        bench.failure("", error)
        return 1
    finally:
        # Outputs of millions of vectors; models are elsewhere.
        shutil.rmtree(bench.folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
