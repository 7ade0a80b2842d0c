#!/usr/bin/env bash
# base.sh SUITE [ARCHITECTURE]: a minimal Debian of that suite as a tar archive, made once, whose path is printed. Needs root, and qemu
# for another architecture.
set -euo pipefail
file=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")/target/debian-$1${2:+-$2}.tar
if [[ ! -f $file ]]; then
    for tool in mmdebstrap ${2:+arch-test}; do
        command -v "$tool" >/dev/null || "$(dirname "$0")/../install/packages.sh" "$tool"
    done
    mkdir -p "$(dirname "$file")"
    mmdebstrap --quiet --variant=minbase ${2:+--architectures="$2"} "$1" "$file.new.tar" >&2
    mv "$file.new.tar" "$file"
fi
echo "$file"
