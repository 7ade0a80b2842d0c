# shellcheck shell=bash
# Unpacks the libraries of pinned wheels into a folder at the root of the repository; sourced by the setup scripts.
# Python is needed here, for pip, and never again.

# shellcheck disable=SC2154 # $what is the caller's
say() { echo "$what: $*" >&2; }
fail() {
    local code=$1
    shift
    say "$*"
    exit "$code"
}

# unpack_wheels PINS TARGET NEED_MIB KEPT TAGS…: what the regular expression KEPT finds of the wheels named in PINS, a checksum and a
# file name a line. NEED_MIB covers the wheels, pip's temporary copy of one of them, and what is unpacked. TAGS are pip's options for
# the pinned wheels: the host's own Python version does not matter. Nothing happens where it is done already.
unpack_wheels() {
    local pins=$1 target=$2 need_mib=$3 kept=$4 tags=("${@:5}") free_mib wheels fresh sum wheel name version found
    if cmp -s "$pins" "$target/complete"; then
        return
    fi
    command -v python3 >/dev/null || fail 69 "python3 is missing: install it (Debian: apt-get install python3-pip)"
    python3 -m pip --version >/dev/null 2>&1 || fail 69 "pip is missing: install it (Debian: apt-get install python3-pip)"

    mkdir -p "$target" || fail 73 "cannot create $target"
    exec 9>"$target/lock"
    flock 9
    # Another run may have finished while this one waited for the lock.
    if cmp -s "$pins" "$target/complete"; then
        return
    fi
    free_mib=$(df -Pm "$target" | awk 'NR == 2 { print $4 }')
    ((free_mib >= need_mib)) || fail 74 "$target: too little space; expected $need_mib MiB free, found $free_mib MiB"

    wheels=$target/wheels
    mkdir -p "$wheels"
    while read -r sum wheel; do
        IFS=- read -r name version _ <<<"$wheel"
        if ! [[ -f $wheels/$wheel ]]; then
            say "fetching $name $version"
            # /tmp may be small, so pip's temporary files go beside the result.
            TMPDIR=$wheels python3 -m pip download -qq --disable-pip-version-check --no-deps --only-binary=:all: \
                "${tags[@]}" --dest "$wheels" "$name==$version" ||
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
    python3 - "$fresh" "$kept" "$wheels"/*.whl <<'PYTHON' || fail 74 "$target: could not unpack the wheels"
import re, sys, zipfile

fresh, kept, *wheels = sys.argv[1:]
for wheel in wheels:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            # Licences travel with what they cover.
            if re.search(kept, name) or ".dist-info/licenses/" in name:
                archive.extract(name, fresh)
PYTHON

    # The mark goes first and comes back last: with it in place the tree is whole.
    rm -f "$target/complete"
    rm -rf "$target"/{torch,nvidia,*.dist-info}
    mv "$fresh"/* "$target/"
    rmdir "$fresh"
    cp "$pins" "$target/complete.new"
    mv "$target/complete.new" "$target/complete"
    rm -rf "$wheels"
    say "ready: $(du -sh "$target" | cut -f 1) in $target"
}
