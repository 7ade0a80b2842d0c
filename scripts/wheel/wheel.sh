#!/usr/bin/env bash
# Makes the Python packages of what `make dist` has staged: dist/plmkit-VERSION-….whl and dist/plmkit_tools-VERSION-….whl.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

PLMKIT_VERSION=$(scripts/version.sh)
PLMKIT_STAGED=$PWD/dist/plmkit-$PLMKIT_VERSION-x86_64-linux
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export PLMKIT_VERSION PLMKIT_STAGED SOURCE_DATE_EPOCH
dist=$PWD/dist
tools=$PWD/.venv/packaging/bin

rm -f "$dist"/*.whl
for package in plmkit plmkit-tools; do
    # Together in one folder, as a package's licences have to be.
    folder=target/dist/wheel/$package
    rm -rf "$folder"
    mkdir -p "$folder"
    cp scripts/wheel/staged.py scripts/wheel/$package/* "$PLMKIT_STAGED"/share/doc/plmkit/{LICENSE-*,THIRD-PARTY-LICENSES.txt} "$folder"
    (cd "$folder" && "$tools/hatchling" build --target wheel --directory "$dist")
done
(cd "$dist" && sha256sum -- *.tar.gz *.whl >SHA256SUMS)
