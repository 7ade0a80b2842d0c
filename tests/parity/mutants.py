"""Proves that the comparison would notice: builds gpu-embed with one defect at a time and expects it to fail. See tests/mutation.py."""

import json
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from mutation import Verdict, examine

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "target/parity/mutants"
REPORT = FOLDER / "report.json"
# The smallest of each family. The attention heads of the first are the narrowest.
CONFIGURATIONS = ("8M", "1b", "C600M")


def compare(gpu_embed):
    """What the comparisons find past the tolerance, up to the first that finds something."""
    for configuration in CONFIGURATIONS:
        verdict = compare_one(gpu_embed, configuration)
        if verdict.passes is not True:
            return verdict
    return invariance(gpu_embed)


def compare_one(gpu_embed, configuration):
    REPORT.unlink(missing_ok=True)
    command = [sys.executable, HERE, "--configurations", configuration, "--dtypes", "f32", *sys.argv[1:]]
    command += ["--gpu-embed", gpu_embed, "--work", FOLDER / "work", "--report", REPORT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not REPORT.is_file():
        return Verdict(None, done.stderr.strip())
    results = json.loads(REPORT.read_text(encoding="utf-8"))["results"]
    offenders = [offender for result in results for offender in result["offenders"]]
    relative = [offender for offender in offenders if offender["figure"] != "cosine"]
    if done.returncode == 0:
        return Verdict(True, "")
    if not relative:
        return Verdict(None, str(offenders))
    worst = max(relative, key=lambda offender: offender["found"] / offender["limit"])
    outputs = len({offender["output"] for offender in offenders})
    found = f"{worst['output']}: {worst['figure']} {worst['found']:.1e}, limit {worst['limit']:.1e}"
    return Verdict(False, f"{found}; {outputs} outputs past theirs")


def invariance(gpu_embed):
    """What differs by the batch, to the bit: rotations by a shared offset are those of the reference but for their rounding."""
    command = [sys.executable, HERE / "batch_invariance.py", "--dtypes", "f32", "--gpu-embed", gpu_embed]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        return Verdict(None, done.stderr.strip())
    return Verdict(done.returncode == 0, f"by the batch: {done.stdout.strip().splitlines()[-1]}" if done.returncode else "")


if __name__ == "__main__":
    sys.exit(examine(FOLDER, (HERE / "mutants").glob("*.patch"), compare))
