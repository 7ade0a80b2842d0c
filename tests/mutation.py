"""Builds gpu-embed with one known defect at a time, and expects a check to find each.

A patch says in its first line what is wrong, then what to change. One that no longer applies, a mutant that is not built or with
which the check does not run, and above all one that passes, are failures. So is the program as it is, if it does not pass. Works on
a copy of the tree.
"""

import filecmp
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]

# A defect is built in seconds: the kernels are optimised, as in a release, and little else.
OPTIMISED = ("profile.release.opt-level=1", 'profile.release.package."*".opt-level=3', "profile.release.package.plmkit-cpu.opt-level=3")


@dataclass
class Verdict:
    """Of a check: whether the program passes, or None where that could not be told; and why."""

    passes: bool | None
    text: str


class Tree:
    """A copy of the working tree, and what is built of it."""

    def __init__(self, folder):
        self.folder, self.tree, self.target = folder, folder / "tree", folder / "target"
        self.gpu_embed = self.target / "release/gpu-embed"

    def copy(self):
        """Makes the copy equal to the working tree; files that are equal keep their time, for cargo's sake."""
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
        wanted = {self.tree / name: ROOT / name for name in names if name and (ROOT / name).is_file()}
        for path in [path for path in self.tree.rglob("*") if path.is_file() and path not in wanted]:
            path.unlink()
        for copy, original in wanted.items():
            if not copy.is_file() or not filecmp.cmp(original, copy, shallow=False):
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(original, copy)

    def copy_dependencies(self):
        """Spares the build of libtorch's bindings and of everything else that is not of this workspace."""
        source, target = ROOT / "target/release", self.target / "release"
        if target.is_dir() or not source.is_dir():
            return

        def ours(folder, names):
            libraries = (".rlib", ".rmeta", ".so", ".d")
            return [n for n in names if "plmkit" in n or (folder.endswith("/deps") and not n.endswith(libraries))]

        for folder in ("deps", "build", ".fingerprint"):
            shutil.copytree(source / folder, target / folder, ignore=ours, symlinks=True)

    def apply(self, patch):
        # Outside of any repository, as far as git can see: inside one it would pass over files that it ignores.
        apart = os.environ | {"GIT_CEILING_DIRECTORIES": str(self.folder)}
        return subprocess.run(["git", "apply", "-C1", patch], cwd=self.tree, env=apart, check=False).returncode == 0

    def build(self, packages):
        environment = os.environ | {"CARGO_TARGET_DIR": str(self.target), "CARGO_INCREMENTAL": "1"}
        environment.setdefault("LIBTORCH", str(ROOT / ".libtorch/torch"))
        command = ["cargo", "build", "--release", "--locked", "--quiet", "--bin", "gpu-embed", *packages]
        command += [word for option in OPTIMISED for word in ("--config", option)]
        done = subprocess.run(command, cwd=self.tree, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(done.stderr, file=sys.stderr)
        return done.returncode == 0


def examine(folder, patches, check, packages=()):
    """The exit code. `check` takes the path of a gpu-embed and returns a verdict. `packages` are options of cargo."""
    tree = Tree(folder)
    tree.copy()
    tree.copy_dependencies()
    if not tree.build(packages):
        return 2
    patches = sorted(patches)
    width = max(len(patch.stem) for patch in patches)
    unchanged = check(tree.gpu_embed)
    good = unchanged.passes is True
    print(f"{'unchanged':{width}}  {'passes' if good else f'FAILS: {unchanged.text}'}", flush=True)
    for patch in patches:
        tree.copy()
        if not tree.apply(patch):
            caught, text = False, "the patch does not apply"
        elif not tree.build(packages):
            caught, text = False, "is not built"
        else:
            verdict = check(tree.gpu_embed)
            caught = verdict.passes is False
            text = verdict.text if caught else "NOT CAUGHT" if verdict.passes else f"did not run: {verdict.text}"
        good &= caught
        print(f"{patch.stem:{width}}  {text}", flush=True)
    return 0 if good else 1
