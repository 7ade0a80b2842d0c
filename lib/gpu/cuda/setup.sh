#!/usr/bin/env bash
# Puts NVRTC where `make kernels` looks for it: .cuda/nvidia at the root of the repository.
#
# It comes from the wheel named in wheels.sha256, of which only the libraries are kept: the kernels need no header. No
# GPU and no driver are needed either. A program that runs finds the NVRTC of its own libtorch, and not this one.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pins=$here/wheels.sha256
target=$(cd "$here/../../.." && pwd)/.cuda
# The wheel (90 MB) and what is unpacked (220 MB).
need_mib=400

say() { echo "cuda: $*" >&2; }
fail() {
    local code=$1
    shift
    say "$*"
    exit "$code"
}

if cmp -s "$pins" "$target/complete"; then
    exit 0
fi

[[ "$(uname -s) $(uname -m)" == "Linux x86_64" ]] || fail 69 "no wheel is pinned for $(uname -sm)"
command -v python3 >/dev/null || fail 69 "python3 is missing: install it (Debian: apt-get install python3-pip)"
python3 -m pip --version >/dev/null 2>&1 || fail 69 "pip is missing: install it (Debian: apt-get install python3-pip)"

mkdir -p "$target" || fail 73 "cannot create $target"
exec 9>"$target/lock"
flock 9
# Another run may have finished while this one waited for the lock.
if cmp -s "$pins" "$target/complete"; then
    exit 0
fi
free_mib=$(df -Pm "$target" | awk 'NR == 2 { print $4 }')
((free_mib >= need_mib)) || fail 74 "$target: too little space; expected $need_mib MiB free, found $free_mib MiB"

wheels=$target/wheels
mkdir -p "$wheels"
while read -r sum wheel; do
    IFS=- read -r name version _ <<<"$wheel"
    if ! [[ -f $wheels/$wheel ]]; then
        say "fetching $name $version"
        # pip's temporary files go beside the result: where they would go otherwise may be small.
        TMPDIR=$wheels python3 -m pip download -qq --disable-pip-version-check --no-deps --only-binary=:all: \
            --platform manylinux2010_x86_64 --dest "$wheels" "$name==$version" ||
            fail 69 "pip could not fetch $name $version: is the network or the package index out of reach?"
    fi
    found=$(sha256sum "$wheels/$wheel" | cut -d ' ' -f 1) || fail 65 "$wheel: the index has no such wheel any more"
    if [[ $found != "$sum" ]]; then
        rm -f "$wheels/$wheel"
        fail 65 "$wheel: wrong checksum; expected $sum, found $found"
    fi
done <"$pins"

say "unpacking to $target"
fresh=$target/fresh
rm -rf "$fresh"
mkdir "$fresh"
python3 - "$fresh" "$wheels"/*.whl <<'PYTHON' || fail 74 "$target: could not unpack the wheels"
import sys, zipfile

for wheel in sys.argv[2:]:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            # .alt is the same again for another allocator. Licences travel with what they cover.
            if ("/lib/" in name and ".alt." not in name) or ".dist-info/licenses/" in name:
                archive.extract(name, sys.argv[1])
PYTHON

# The mark goes first and comes back last: with it in place the tree is whole.
rm -f "$target/complete"
rm -rf "$target/nvidia" "$target"/*.dist-info
mv "$fresh"/* "$target/"
rmdir "$fresh"
cp "$pins" "$target/complete.new"
mv "$target/complete.new" "$target/complete"
rm -rf "$wheels"
say "ready: $(du -sh "$target" | cut -f 1) in $target"
