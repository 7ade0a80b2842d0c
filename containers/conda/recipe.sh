#!/usr/bin/env bash
# Writes the Conda recipe of the release that HEAD is, and the source tarball that it names:
#
#   recipe.sh FOLDER    FOLDER/plmkit-VERSION-source.tar.gz, and FOLDER/plmkit-split with meta.yaml and install.sh
#
# The same commit gives the same bytes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mkdir -p "${1:?expected a folder}" && cd "$1" && pwd)
cd "$here/../.."

version=$(scripts/version.sh)
tarball=plmkit-$version-source.tar.gz
git archive --format tar --prefix "plmkit-$version/" HEAD | gzip -9n >"$folder/$tarball"
sum=$(sha256sum "$folder/$tarball" | cut -d ' ' -f 1)

mkdir -p "$folder/plmkit-split"
sed "1d; s/@VERSION@/$version/; s/@SHA256@/$sum/" "$here/meta.yaml.in" >"$folder/plmkit-split/meta.yaml"
install "$here/install.sh" "$folder/plmkit-split"
echo "recipe: $folder/plmkit-split, of $tarball" >&2
