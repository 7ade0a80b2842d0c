#!/usr/bin/env bash
# Everything that only a GPU can show, on any machine with one: correctness, memory that runs out, kills, and speed.
#
#   tests/gpu/accept.sh [--parts correctness,speed,...] [--quick] [--out FOLDER] [--device cuda|cpu]
#
# Needs the programs in target/release (or in PROGRAMS), and a python3 with torch 2.11 for CUDA 13, transformers and
# safetensors, whose libraries gpu-embed takes. No network. Ends with a table, and FOLDER/report.json beside it; 0 if all that
# was tried is as it should be, 1 if not. On the CPU it shows that the script works, and nothing about GPUs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

python=${PYTHON:-python3}
libtorch=$("$python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent / "lib")')
export LD_LIBRARY_PATH="$libtorch${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1
exec "$python" tests/gpu "$@"
