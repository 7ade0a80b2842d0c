"""Plants faults in honest embeddings, under digests that fit, and counts which of them validate-embeddings finds.

Only a judgement of values finds these faults. Honest sets show false alarms. Sets are kept in --work for the next run, with the
binaries that made them. The exit code is 0 whatever is found.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import time
import zlib
from pathlib import Path

import numpy as np

from faults import Bench, all_faults, honest_numpy
from honest import honest_sets
from models import seeded
from sets import ROOT, Programs, read_fasta

FRACTIONS = ["one", "1 %", "10 %", "shard", "all"]


def parse():
    parser = argparse.ArgumentParser(prog="tests/faults", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    release = ROOT / "target/release"
    parser.add_argument("--binary", type=Path, default=release / "validate-embeddings", help="the validate-embeddings to judge")
    parser.add_argument("--options", default="--max-rejected 100%", help="its options beside --dataset; {model} is the model's path")
    parser.add_argument("--programs", type=Path, default=release, help="folder of the programs that make the sets")
    parser.add_argument("--reseal", type=Path, default=release / "examples/reseal", help="the example reseal")
    parser.add_argument("--models", default="tiny,8M", help="tiny, and 8M: seeded weights in that shape")
    parser.add_argument("--fasta", type=Path, default=ROOT / "test-data/proteins.fasta", help="proteins, uncompressed")
    parser.add_argument("--work", type=Path, default=ROOT / "target/faults", help="folder of the sets; remove it when gpu-embed has changed")
    parser.add_argument("--only", default="", help="faults and honest sets whose `class: name` matches this pattern")
    parser.add_argument("--fractions", default=",".join(FRACTIONS), help="shares of the rows")
    parser.add_argument("--honest", type=int, default=2000, help="proteins of the largest honest sets; 0: no honest sets")
    parser.add_argument("--threads", type=int, default=2, help="threads of gpu-embed when sets are made")
    parser.add_argument("--json", type=Path, help="writes all results")
    return parser.parse_args()


class Judge:
    """The validate-embeddings to judge, beside a gpu-embed that computes the same sample once."""

    def __init__(self, options, model):
        folder = (options.work / "judge").absolute()
        folder.mkdir(parents=True, exist_ok=True)
        self.binary = folder / f"validate-embeddings-{os.getpid()}"
        for program, name in [(options.binary, self.binary.name), (options.programs / "pack-batches", "pack-batches")]:
            shutil.copy2(program, folder / name)
        shutil.copy2(Path(__file__).with_name("gpu-embed.sh"), folder / "gpu-embed")
        self.environment = os.environ | {"PROGRAM": str(options.programs.absolute() / "gpu-embed"), "REMEMBERED": str(folder)}
        self.options = shlex.split(options.options.replace("{model}", shlex.quote(str(model))))

    def verdict(self, folder):
        """The exit code, and the failed checks or the error."""
        report, begin = folder / "dataset.json", time.monotonic()
        report.unlink(missing_ok=True)
        done = subprocess.run([self.binary, "--dataset", folder, *self.options], capture_output=True, text=True, env=self.environment)
        seconds = round(time.monotonic() - begin, 3)
        if done.returncode not in (0, 1):
            return {"code": done.returncode, "checks": done.stderr.strip().splitlines()[-1:], "seconds": seconds}
        checks = json.loads(report.read_text(encoding="utf-8"))["checks"]
        return {"code": done.returncode, "checks": [check["name"] for check in checks if check["outcome"] == "fail"], "seconds": seconds}


def differs(old, new):
    return np.asarray(old, np.float32).tobytes() != np.asarray(new, np.float32).tobytes()


def changes(fault, rows):
    """The new values of those rows that differ from the old ones."""
    with np.errstate(all="ignore"):
        new = fault.change(fault.set, list(rows), np.random.default_rng(1))
    return {row: values for row, values in new.items() if any(differs(fault.set.values[name][row], value) for name, value in values.items())}


def chosen(fault, fraction, eligible):
    count = {"one": 1, "1 %": 0.01 * len(fault.set), "10 %": 0.1 * len(fault.set)}.get(fraction)
    if count is None:
        return [row for row in eligible if fraction == "all" or fault.set.files[row] == fault.set.files.max() // 2]
    count = min(max(fault.least, round(count)), len(eligible))
    # Each kind has rows of its own: a sample that holds one of them must not find all kinds.
    seed = zlib.crc32(f"{fault.group}: {fault.name}".encode())
    return sorted(np.random.default_rng(seed).choice(eligible, count, replace=False).tolist())


def size(fault, changed):
    """The median size of a difference beside its vector."""
    pairs = [(fault.set.values[name][row], value) for row, values in changed.items() for name, value in values.items()]
    with np.errstate(all="ignore"):
        sizes = [np.linalg.norm(np.float64(new) - old) / np.linalg.norm(np.float64(old)) for old, new in pairs if differs(old, new)]
    return float(np.median(np.nan_to_num(sizes, nan=np.inf)))


def plant(options, name, bench, judge, other):
    results, planted = [], bench.folder / f"planted-{os.getpid()}"
    for fault in all_faults(bench, other, options.only):
        try:
            eligible = sorted(changes(fault, range(len(fault.set))))
        except RuntimeError as error:
            print(f"not planted: {fault.name}: {error}", flush=True)
            continue
        counts = set()
        for fraction in options.fractions.split(","):
            changed = changes(fault, chosen(fault, fraction, eligible)) if eligible else {}
            # In a small set two fractions are the same number of rows.
            if not changed or len(changed) in counts:
                continue
            counts.add(len(changed))
            fault.set.plant(bench.programs, planted, changed)
            result = {"model": name, "class": fault.group, "fault": fault.name, "fraction": fraction, "rows": len(changed)}
            result |= {"change": size(fault, changed)} | judge.verdict(planted)
            results.append(result)
            print(*result.values(), sep=" | ", flush=True)
    shutil.rmtree(planted, ignore_errors=True)
    return results


def honest(options, name, bench, judge):
    results = []
    for kind, proteins, shard, embed in honest_sets(bench.records, options.honest) if options.honest else []:
        if not re.search(options.only, f"honest: {kind}"):
            continue
        result = {"model": name, "set": kind, "proteins": len(proteins)}
        try:
            result |= judge.verdict(bench.programs.chain(bench.folder / f"honest {options.honest}, {kind}", proteins, shard, embed, bench.model))
        except RuntimeError as error:
            result |= {"code": None, "checks": [f"not made: {error}"]}
        results.append(result)
        print(*result.values(), sep=" | ", flush=True)
    return results


def table(results):
    """Found of planted faults by class and fraction, and those that were not found."""
    fractions = [fraction for fraction in FRACTIONS if any(result["fraction"] == fraction for result in results)]
    lines = ["| class | " + " | ".join(fractions) + " | all fractions |", "|---|" + "---|" * (len(fractions) + 1)]
    for group in [*dict.fromkeys(result["class"] for result in results), None]:
        of_group = [result for result in results if group in (None, result["class"])]
        cells = [[result for result in of_group if fraction in (None, result["fraction"])] for fraction in [*fractions, None]]
        counts = [f"{sum(result['code'] != 0 for result in cell)}/{len(cell)}" if cell else "–" for cell in cells]
        lines.append(" | ".join([f"| {group or 'all'}", *counts]) + " |")
    lines += ["", "| not found | fractions | median change |", "|---|---|---|"]
    missed = {}
    for result in results:
        if result["code"] == 0:
            missed.setdefault(f"{result['class']}: {result['fault']}", []).append(result)
    lines += [f"| {name} | {', '.join(result['fraction'] for result in of)} | {of[-1]['change']:.1e} |" for name, of in missed.items()]
    return "\n".join(lines)


def main():
    options = parse()
    programs = Programs(options.programs, options.reseal, options.threads)
    records, planted, honests, numpys = read_fasta(options.fasta), [], [], {}
    for name in options.models.split(","):
        folder = options.work / name
        layers, width, heads = {"tiny": (4, 64, 4), "8M": (6, 320, 20)}[name]
        model = ROOT / "test-data/model-tiny" if name == "tiny" else seeded(folder / "model", layers, width, heads, 8)
        bench, judge = Bench(programs, records, model, folder), Judge(options, model)
        planted += plant(options, name, bench, judge, seeded(folder / "other-model", layers, width, heads, 9))
        honests += honest(options, name, bench, judge)
        numpys[name] = honest_numpy(bench)
        judge.binary.unlink()
    print(f"\n{options.binary} {options.options}")
    for name in numpys:
        print(f"\n{name}; numpy's right model differs by {numpys[name]:.1e} of the norm\n")
        print(table([result for result in planted if result["model"] == name]))
    alarms = [result for result in honests if result["code"] != 0]
    print(f"\nhonest sets: {len(alarms)} alarms of {len(honests)}")
    for result in alarms:
        print("-", *result.values(), sep=" | ")
    if options.json:
        results = {"binary": str(options.binary), "options": options.options, "faults": planted, "honest": honests}
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
