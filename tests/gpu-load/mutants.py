"""Proves that the suite would notice: builds gpu-embed with one defect at a time and expects it to fail. See tests/mutation.py."""

import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from mutation import Verdict, examine

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "target/gpu-load/mutants"
CASES = "kernels auto"


def load(gpu_embed):
    """What the suite finds in the cases that the defects are for."""
    command = [sys.executable, HERE, "--gpu-embed", gpu_embed, "--work", FOLDER / "work", "--tree", FOLDER.parent / "tree"]
    done = subprocess.run([*command, "--cases", CASES], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode not in (0, 1) or not lines:
        return Verdict(None, done.stderr.strip())
    failed = [i for i, line in enumerate(lines) if line.endswith("FAILED")]
    if not failed:
        return Verdict(True, "")
    cases = lines[-1].split()[2]
    why = lines[failed[0] + 1].strip()
    return Verdict(False, f"{lines[failed[0]].removesuffix('FAILED').strip()}: {why}; {len(failed)} of {cases} cases failed")


if __name__ == "__main__":
    sys.exit(examine(FOLDER, (HERE / "mutants").glob("*.patch"), load, ["--package", "plmkit", "--package", "plmkit-cuda", "--lib"]))
