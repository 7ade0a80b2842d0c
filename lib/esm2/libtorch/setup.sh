#!/usr/bin/env bash
# Puts libtorch where the build looks for it: .libtorch/{torch,nvidia} at the root of the repository.
#
# It comes from the wheels named in wheels.sha256, of which only the libraries and headers are kept. Python is needed
# here, for pip, and never again. The libraries find each other through their own RPATH as long as torch/ and nvidia/
# lie side by side.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pins=$here/wheels.sha256
target=$(cd "$here/../../.." && pwd)/.libtorch
# The wheels (0.55 GB), pip's temporary copy of one of them, and what is unpacked (1.1 GB).
need_mib=2300

say() { echo "libtorch: $*" >&2; }
fail() {
    local code=$1
    shift
    say "$*"
    exit "$code"
}

if [[ -n ${LIBTORCH:-} && ! $LIBTORCH -ef $target/torch ]]; then
    [[ -d $LIBTORCH/lib && -d $LIBTORCH/include ]] || fail 66 "LIBTORCH=$LIBTORCH: no lib/ and include/ there"
    say "LIBTORCH is set: using $LIBTORCH, nothing to fetch"
    exit 0
fi
if cmp -s "$pins" "$target/complete"; then
    exit 0
fi

[[ "$(uname -s) $(uname -m)" == "Linux x86_64" ]] ||
    fail 69 "no wheel is pinned for $(uname -sm): set LIBTORCH to the folder of a libtorch 2.11.0 for it"
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
        # /tmp may be small, so pip's temporary files go beside the result. The tags are those of the pinned wheels:
        # the host's own Python version does not matter.
        TMPDIR=$wheels python3 -m pip download -qq --disable-pip-version-check --no-deps --only-binary=:all: \
            --python-version 3.11 --implementation cp --abi cp311 --abi none \
            --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux2014_x86_64 \
            --dest "$wheels" "$name==$version" ||
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
            library = name.startswith(("torch/lib/", "torch/include/")) or (name.startswith("nvidia/") and "/lib/" in name)
            # The interpreter's own binding is never linked. Licences travel with what they cover.
            if (library and "libtorch_python" not in name) or ".dist-info/licenses/" in name:
                archive.extract(name, sys.argv[1])
PYTHON

# The mark goes first and comes back last: with it in place the tree is whole.
rm -f "$target/complete"
rm -rf "$target/torch" "$target/nvidia" "$target"/*.dist-info
mv "$fresh"/* "$target/"
rmdir "$fresh"
cp "$pins" "$target/complete.new"
mv "$target/complete.new" "$target/complete"
rm -rf "$wheels"
say "ready: $(du -sh "$target" | cut -f 1) in $target"
