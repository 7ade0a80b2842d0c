#!/usr/bin/env bash
# Puts NVRTC where `make kernels` looks for it: .cuda/nvidia at the root of the repository.
#
# Of the wheel in wheels.sha256 only the libraries are kept: the kernels need no header. No GPU and no driver are needed
# either. A program that runs finds the NVRTC of its own libtorch, and not this one.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
# shellcheck disable=SC2034
what=cuda
# shellcheck source=lib/wheels.sh
source "$root/lib/wheels.sh"

[[ "$(uname -s) $(uname -m)" == "Linux x86_64" ]] || fail 69 "no wheel is pinned for $(uname -sm)"

# 90 MB to fetch, 220 MB unpacked. .alt is the same again for another allocator.
unpack_wheels "$here/wheels.sha256" "$root/.cuda" 400 '/lib/(?!.*[.]alt[.])' --platform manylinux2010_x86_64
