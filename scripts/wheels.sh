# shellcheck shell=bash
# Unpacks libraries of pinned wheels into a folder; sourced by the setup scripts. Python is needed here, for pip, and never again.
#
# Each wheel that is unpacked has a list of its files, TARGET/wheels/WHEEL.list, whose first line is its pin: a wheel whose list begins
# with the pin is not fetched again.

# The machine that wheels are fetched for.
machine=${PLMKIT_MACHINE:-$(uname -m)}

# shellcheck disable=SC2154 # $what is the caller's
say() { echo "$what: $*" >&2; }
fail() {
    local code=$1
    shift
    say "$*"
    exit "$code"
}

# pins_of PINS GROUP…: the lines of the file PINS that are of these groups and for this machine, without the group: "MIB SHA256 WHEEL KEPT".
pins_of() {
    local pins=$1 groups=" ${*:2} " group pin
    while read -r group pin; do
        if [[ $groups == *" $group "* && $pin =~ [_-]($machine|any)[.]whl\  ]]; then
            echo "$pin"
        fi
    done <"$pins"
}

# missing_wheels TARGET: of the pins on stdin those whose wheel is not unpacked.
missing_wheels() {
    local target=$1 pin mib sum wheel kept
    while read -r pin; do
        read -r mib sum wheel kept <<<"$pin"
        if [[ $(head -n 1 "$target/wheels/$wheel.list" 2>/dev/null) != "$pin" ]]; then
            echo "$pin"
        fi
    done
}

# unpack_wheels PINS TARGET GROUP…: the kept files of all wheels of these groups, and their licences, into TARGET. A line of the file
# PINS is "GROUP MIB SHA256 WHEEL KEPT"; KEPT is a regular expression. Nothing happens where all is there already.
unpack_wheels() {
    local pins=$1 target=$2 groups=("${@:3}") missing mib sum wheel kept need=0 most=0 free name pin
    missing=$(pins_of "$pins" "${groups[@]}" | missing_wheels "$target")
    if [[ -z $missing ]]; then
        return
    fi
    command -v python3 >/dev/null || fail 69 "python3 is missing: install it (Debian: apt-get install python3-pip)"
    python3 -m pip --version >/dev/null 2>&1 || fail 69 "pip is missing: install it (Debian: apt-get install python3-pip)"

    mkdir -p "$target/wheels" || fail 73 "cannot create $target/wheels"
    exec 9>"$target/lock"
    flock 9
    # Another run may have unpacked some while this one waited for the lock.
    missing=$(pins_of "$pins" "${groups[@]}" | missing_wheels "$target")
    # Unpacked, a wheel is at most twice as large; and pip keeps a copy of the one that it fetches.
    while read -r mib _; do
        need=$((need + 2 * mib))
        most=$((mib > most ? mib : most))
    done <<<"$missing"
    need=$((need + 2 * most))
    free=$(df -Pm "$target" | awk 'NR == 2 { print $4 }')
    ((free >= need)) || fail 74 "$target: too little space; expected $need MiB free, found $free MiB"

    # Of earlier pins.
    for list in "$target"/wheels/*.list; do
        name=${list##*/}
        pin=$(head -n 1 "$list" 2>/dev/null) || continue
        if ! grep -qxF -- "$pin" <<<"$(cut -d ' ' -f 2- "$pins")"; then
            say "removing ${name%%.whl.list}"
            (cd "$target" && tail -n +2 "$list" | xargs -d '\n' rm -f)
            rm "$list"
        fi
    done
    while read -r pin; do
        if [[ -n $pin ]]; then
            unpack_wheel "$target" "$pin"
        fi
    done <<<"$missing"
    exec 9>&-
}

# unpack_wheel TARGET PIN: fetches one wheel, checks it and unpacks it.
unpack_wheel() {
    local target=$1 pin=$2 fresh=$1/fresh mib sum wheel kept name version python abi platforms found
    read -r mib sum wheel kept <<<"$pin"
    IFS=- read -r name version python abi platforms <<<"${wheel%.whl}"
    say "fetching $name $version ($mib MiB)"
    rm -rf "$fresh"
    mkdir "$fresh"
    # The host's own Python version does not matter; 3 is 3.0 to pip, for which some wheels are not. /tmp may be small, so pip's
    # temporary files go beside the result.
    # shellcheck disable=SC2046,SC2086 # one option for each platform
    TMPDIR=$fresh python3 -m pip download -qq --disable-pip-version-check --no-deps --only-binary=:all: --dest "$fresh" \
        --python-version "$(sed 's/[^0-9]//g; s/^3$/311/' <<<"$python")" --implementation "${python//[0-9]/}" --abi "$abi" \
        $(printf -- '--platform %s ' ${platforms//./ }) "$name==$version" ||
        fail 69 "pip could not fetch $name $version: is the network or the package index out of reach?"
    [[ -f $fresh/$wheel ]] || fail 65 "$wheel: the index has no such wheel any more"
    found=$(sha256sum "$fresh/$wheel" | cut -d ' ' -f 1)
    [[ $found == "$sum" ]] || fail 65 "$wheel: wrong checksum; expected $sum, found $found"
    # Each file comes into place whole, and the list last: with it in place they are all there.
    {
        echo "$pin"
        python3 - "$fresh" "$wheel" "$kept" "$target" <<'PYTHON'
import os, re, sys, zipfile

fresh, wheel, kept, target = sys.argv[1:]
with zipfile.ZipFile(f"{fresh}/{wheel}") as archive:
    for name in archive.namelist():
        # Licences travel with what they cover.
        if name.endswith("/") or not re.search(f"{kept}|[.]dist-info/licenses/|/LICEN[CS]E[^/]*$", name):
            continue
        path = archive.extract(name, fresh)
        os.makedirs(os.path.dirname(f"{target}/{name}"), exist_ok=True)
        os.replace(path, f"{target}/{name}")
        print(name)
PYTHON
    } >"$fresh/list" || fail 74 "$target: could not unpack $wheel"
    mv "$fresh/list" "$target/wheels/$wheel.list"
    rm -rf "$fresh"
}
