#!/usr/bin/env bash
# Puts libtorch where the build looks for it: .libtorch/{torch,nvidia} at the root of the repository.
#
# Of the wheels in wheels.sha256 only the libraries and headers are kept. The libraries find each other through their own
# RPATH as long as torch/ and nvidia/ lie side by side.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
# shellcheck disable=SC2034
what=libtorch
# shellcheck source=lib/wheels.sh
source "$root/lib/wheels.sh"

if [[ -n ${LIBTORCH:-} && ! $LIBTORCH -ef $root/.libtorch/torch ]]; then
    [[ -d $LIBTORCH/lib && -d $LIBTORCH/include ]] || fail 66 "LIBTORCH=$LIBTORCH: no lib/ and include/ there"
    say "LIBTORCH is set: using $LIBTORCH, nothing to fetch"
    exit 0
fi
[[ "$(uname -s) $(uname -m)" == "Linux x86_64" ]] ||
    fail 69 "no wheel is pinned for $(uname -sm): set LIBTORCH to the folder of a libtorch 2.11.0 for it"

# 0.55 GB to fetch, 1.1 GB unpacked. The interpreter's own binding is never linked.
unpack_wheels "$here/wheels.sha256" "$root/.libtorch" 2300 '^torch/(lib|include)/(?!.*libtorch_python)|^nvidia/.*/lib/' \
    --python-version 3.11 --implementation cp --abi cp311 --abi none \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux2014_x86_64
