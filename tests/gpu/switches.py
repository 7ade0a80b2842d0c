"""Builds the library for GPUs once for each patch of switches/, into target/switches: changes that only a GPU can judge.

`accept.sh --stage c` measures each in turns with the library as it is. One that is faster there, and right, is applied for good; one
that is not goes. The first line of a patch says what it changes.
"""

import shutil
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from mutation import ROOT, Tree

HERE = Path(__file__).parent
BUILT = ROOT / "target/switches"


def main():
    tree = Tree(ROOT / "target/gpu/switches")
    tree.copy()
    tree.copy_dependencies()
    shutil.rmtree(BUILT, ignore_errors=True)
    BUILT.mkdir(parents=True)
    for patch in sorted((HERE / "switches").glob("*.patch")):
        tree.copy()
        if not tree.apply(patch):
            print(f"switches.py: {patch}: does not apply", file=sys.stderr)
            return 1
        if not tree.build(["--package", "plmkit", "--package", "plmkit-cuda", "--lib"]):
            return 1
        shutil.copyfile(tree.target / "release/libplmkit_cuda.so", BUILT / f"{patch.stem}.so")
        print(BUILT / f"{patch.stem}.so")
    return 0


if __name__ == "__main__":
    sys.exit(main())
