"""Proves that the comparison would notice: builds gpu-embed with one defect at a time and expects it to fail.

Each mutants/*.patch says in its first line what is wrong, then what to change in lib/esm2. A patch that no longer
applies, a mutant that is not built or does not run, and above all one that passes, are failures. So is the program as
it is, if it does not pass. Works on a copy of the tree, in target/parity/mutants.
"""

import filecmp
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDER = ROOT / "target/parity/mutants"
TREE, BUILD, REPORT = FOLDER / "tree", FOLDER / "target", FOLDER / "report.json"
# Small, and its attention heads are the narrowest.
CONFIGURATION = "8M"


def copy_tree():
    """Makes the copy equal to the working tree; files that are equal keep their time, for cargo's sake."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    wanted = {TREE / name: ROOT / name for name in names if name and (ROOT / name).is_file()}
    for path in [path for path in TREE.rglob("*") if path.is_file() and path not in wanted]:
        path.unlink()
    for copy, original in wanted.items():
        if not copy.is_file() or not filecmp.cmp(original, copy, shallow=False):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(original, copy)


def copy_dependencies():
    """Spares the build of libtorch's bindings and of everything else that is not of this workspace."""
    source, target = ROOT / "target/release", BUILD / "release"
    if target.is_dir() or not source.is_dir():
        return

    def ours(_folder, names):
        libraries = (".rlib", ".rmeta", ".so", ".d")
        return [n for n in names if "plmkit" in n or (_folder.endswith("/deps") and not n.endswith(libraries))]

    for folder in ("deps", "build", ".fingerprint"):
        shutil.copytree(source / folder, target / folder, ignore=ours, symlinks=True)


def build():
    environment = os.environ | {"CARGO_TARGET_DIR": str(BUILD), "CARGO_PROFILE_RELEASE_DEBUG": "false"}
    environment.setdefault("LIBTORCH", str(ROOT / ".libtorch/torch"))
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--bin", "gpu-embed"]
    done = subprocess.run(command, cwd=TREE, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
    return done.returncode == 0


def compare(arguments):
    """The exit code of the comparison, and what it found past the tolerance."""
    REPORT.unlink(missing_ok=True)
    command = [sys.executable, HERE, "--configurations", CONFIGURATION, "--dtypes", "f32", *arguments]
    command += ["--gpu-embed", BUILD / "release/gpu-embed", "--work", FOLDER / "work", "--report", REPORT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not REPORT.is_file():
        return done.returncode, [], done.stderr.strip()
    results = json.loads(REPORT.read_text(encoding="utf-8"))["results"]
    return done.returncode, [offender for result in results for offender in result["offenders"]], ""


def verdict(patch, arguments):
    """Whether a mutant was caught, and by what."""
    copy_tree()
    # Outside of any repository, as far as git can see: inside one it would pass over files that it ignores.
    apart = os.environ | {"GIT_CEILING_DIRECTORIES": str(FOLDER)}
    if subprocess.run(["git", "apply", "-C1", patch], cwd=TREE, env=apart, check=False).returncode != 0:
        return False, "the patch does not apply"
    if not build():
        return False, "is not built"
    code, offenders, error = compare(arguments)
    if code == 0:
        return False, "NOT CAUGHT"
    relative = [offender for offender in offenders if offender["figure"] != "cosine"]
    if code != 1 or not relative:
        return False, f"did not run: {error}"
    worst = max(relative, key=lambda offender: offender["found"] / offender["limit"])
    outputs = len({offender["output"] for offender in offenders})
    found = f"{worst['output']}: {worst['figure']} {worst['found']:.1e}, limit {worst['limit']:.1e}"
    return True, f"{found}; {outputs} outputs past theirs"


def main():
    arguments = sys.argv[1:]  # for the comparison, such as --outputs pooled
    copy_tree()
    copy_dependencies()
    if not build():
        return 2
    code, offenders, error = compare(arguments)
    good = code == 0
    patches = sorted((HERE / "mutants").glob("*.patch"))
    width = max(len(patch.stem) for patch in patches)
    print(f"{'unchanged':{width}}  {'passes' if good else f'FAILS: {error or offenders[0]}'}", flush=True)
    for patch in patches:
        caught, text = verdict(patch, arguments)
        good &= caught
        print(f"{patch.stem:{width}}  {text}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
