#!/usr/bin/env bash
# base.sh SUITE FILE: a minimal Debian of that suite as FILE, a tar archive, unless it is there. Needs root.
set -euo pipefail
suite=$1 file=$2
[[ ! -f $file ]] || exit 0
command -v mmdebstrap >/dev/null || apt-get install -qq -y --no-install-recommends mmdebstrap >/dev/null
mkdir -p "$(dirname "$file")"
mmdebstrap --quiet --variant=minbase "$suite" "$file.new.tar"
mv "$file.new.tar" "$file"
