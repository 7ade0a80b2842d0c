#!/usr/bin/env bash
# What only a GPU can show, in three stages of a few minutes each, on any machine with one. README.md says how to use it.
#
#   tests/gpu/accept.sh --stage a|b|c --work DIR --out DIR [--deadline SECONDS] [--device cuda|cpu] [--quick]
#
# Needs the programs and libplmkit_cuda.so in target/release (or in PROGRAMS), and a python3 (or PYTHON) with torch 2.11 for CUDA 13, transformers,
# numpy and safetensors, whose libtorch that takes. No network. Exit code 0: every row is as it should be; 1: not.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

python=${PYTHON:-python3}
# Found without importing it: an import that hangs or fails is for the rows of the report to tell.
find='import importlib.util; found = importlib.util.find_spec("torch"); print(found.submodule_search_locations[0] if found else "")'
torch=$("$python" -c "$find")
[[ $torch ]] || {
    echo "accept.sh: $python has no torch: name one that has in PYTHON" >&2
    exit 69
}
# Before the RUNPATH of the library; libtorch_cuda finds the nvidia-* packages by its own.
export LD_LIBRARY_PATH="$torch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 PROGRAMS="${PROGRAMS:-$root/target/release}"
exec "$python" "$root/tests/gpu" "$@"
