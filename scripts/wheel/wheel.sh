#!/usr/bin/env bash
# Makes the Python packages of what `make dist` has staged: dist/plmkit-VERSION-….whl, and dist/plmkit_cuda-VERSION-….whl if the library
# for GPUs is there. DIST: another folder than dist. PLMKIT_MACHINE: of another machine. PLATFORM: the tag of what is not built for every
# Linux.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

PLMKIT_VERSION=$(scripts/version.sh)
dist=$(realpath "${DIST:-dist}") machine=${PLMKIT_MACHINE:-$(uname -m)}
PLMKIT_STAGED=$dist/plmkit-$PLMKIT_VERSION-$machine-linux
PLATFORM=${PLATFORM:-manylinux_2_28_$machine}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export PLMKIT_VERSION PLMKIT_STAGED PLATFORM SOURCE_DATE_EPOCH
tools=$PWD/.venv/packaging/bin

packages=(plmkit)
[[ ! -e $PLMKIT_STAGED/lib/plmkit/libplmkit_cuda.so ]] || packages+=(plmkit-cuda)
rm -f "$dist"/*"_$machine.whl"
for package in "${packages[@]}"; do
    # Together in one folder, as a package's licences have to be.
    folder=target/dist/wheel/$package
    rm -rf "$folder"
    mkdir -p "$folder"
    cp -R scripts/wheel/staged.py scripts/wheel/$package/* "$PLMKIT_STAGED"/share/doc/plmkit/*LICENSE* "$folder"
    (cd "$folder" && "$tools/hatchling" build --target wheel --directory "$dist")
done
(cd "$dist" && shopt -s nullglob && sha256sum -- *.tar.gz *.whl >SHA256SUMS)
