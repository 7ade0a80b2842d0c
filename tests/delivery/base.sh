#!/usr/bin/env bash
# base.sh SUITE [ARCHITECTURE]: a minimal Debian of that suite as a tar archive, made once, whose path is printed. Needs root, and qemu
# for another architecture.
set -euo pipefail
file=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")/target/debian-$1${2:+-$2}.tar
if [[ ! -f $file ]]; then
    command -v mmdebstrap ${2:+arch-test} >/dev/null || "$(dirname "$0")/../install/packages.sh" mmdebstrap ${2:+arch-test}
    mkdir -p "$(dirname "$file")"
    mmdebstrap --quiet --variant=minbase ${2:+--architectures="$2"} "$1" "$file.new.tar" >&2
    mv "$file.new.tar" "$file"
fi
echo "$file"
