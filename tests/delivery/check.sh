#!/usr/bin/env bash
# Tries what `make dist` and `make wheel` left in dist/, where nothing else is.
#
#   files     the tarball, its checksums and its bill of materials; man pages render and completions load
#   symbols   programs and library need glibc 2.28 and no newer libstdc++ than libtorch does, and name no folder of the build
#   older     the chain in a root of its own, a Debian 11 with glibc 2.31
#   plain     the Python package plmkit in a virtual environment of its own
#   wheels    with plmkit-cuda: in virtual environments with torch for CUDA, torch for CPUs and another torch, and by --target
#   again     a build from a copy of the sources, elsewhere, has the same bytes (all is compiled again)
#
# DIST: another folder than dist. PLMKIT_MACHINE: what is for another machine, whose programs qemu-user runs: files, symbols and plain.
# Needs root, but for plain. PARTS names those that are tried: all but `again`, which takes as long as the first build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [[ ${INSIDE_MOUNTS:-} != 1 && ${PARTS:-} != plain ]]; then
    # Mounts go when this script ends, however it ends.
    INSIDE_MOUNTS=1 exec unshare --mount "${BASH_SOURCE[0]}" "$@"
fi
say() { echo "dist-check: $part: $*"; }
fail() {
    say "$*" >&2
    exit 1
}

part=start
work=$PWD/target/delivery
machine=${PLMKIT_MACHINE:-$(uname -m)} here=$(uname -m)
name=plmkit-$(scripts/version.sh)-$machine-linux
dist=${DIST:-dist}
staged=$PWD/$dist/$name
libtorch=$(dirname "${LIBTORCH:-$PWD/.libtorch${PLMKIT_MACHINE:+-$PLMKIT_MACHINE}/torch}")
reference=$(echo "$PWD"/.venv/reference/lib/python3*/site-packages)
programs=(plmkit fasta-shard pack-batches gpu-embed validate-embeddings query-embeddings monitor-log)
rm -rf --one-file-system "$work/run"
mkdir -p "$work/run"

# chain FOLDER COMMAND…: what the README does, with programs that COMMAND… starts. FOLDER is at /data where the programs are.
chain() {
    local at=$1 run=("${@:2}")
    "${run[@]}" fasta-shard "$at/in.fasta" --out "$at/shards" --shards 1 --quiet
    "${run[@]}" pack-batches "$at/shards/shard-00000.parquet" --out "$at/b.arrow" --quiet
    "${run[@]}" monitor-log record --quiet --out "$at/samples.csv" -- \
        gpu-embed "$at/b.arrow" --model "$at/model-tiny" --device cpu --out "$at/e.parquet" --quiet
    "${run[@]}" validate-embeddings "$at/e.parquet" --shards "$at/shards/shard-00000.parquet" --rejects "$at/shards/rejects.csv" \
        --manifest "$at/shards/manifest.json" --quiet
}

# same A B: two embeddings files are equal; those of two machines but for the last bits.
same() {
    if [[ $machine == "$here" ]]; then
        cmp "$1" "$2"
    else
        target/release/validate-embeddings "$1" --reference "$2" --min-cosine 0.999999 --quiet
    fi
}

inputs() {
    mkdir -p "$1"
    cp -R test-data/model-tiny "$1"
    cp test-data/proteins.fasta "$1/in.fasta"
}

# expect CODE WORDS COMMAND…: the command ends with that exit code, and says these words.
expect() {
    local code=$1 words=$2 status=0 said
    said=$("${@:3}" 2>&1) || status=$?
    [[ $status == "$code" ]] || fail "${*:3}: exit $status, expected $code: $said"
    [[ $said == *"$words"* ]] || fail "${*:3}: expected '$words', found: $said"
    say "exit $status: ${said##*$'\n'}"
}

part_files() {
    local prefix=$work/run/prefix crate components
    (cd "$dist" && sha256sum --quiet -c SHA256SUMS)
    .venv/packaging/bin/cffconvert --validate -i CITATION.cff >/dev/null
    mkdir "$prefix"
    tar -C "$prefix" --strip-components=1 -xf "$staged.tar.gz"
    diff -r "$staged" "$prefix"
    tests/delivery/pages.sh "$prefix"
    components=$(python3 -c '
import json, sys
bill = json.load(open(sys.argv[1]))
assert bill["bomFormat"] == "CycloneDX" and bill["metadata"]["component"]["name"] == "plmkit", bill["metadata"]
names = {part["name"] for part in bill["components"]}
assert {"arrow-array", "clap", "zstd-sys"} <= names, names
print(len(names))' "$prefix/share/doc/plmkit/sbom.cdx.json")
    for crate in arrow-array clap zstd-sys webpki-roots; do
        grep -q "^    $crate [0-9]" "$prefix/share/doc/plmkit/THIRD-PARTY-LICENSES.txt" || fail "no licence of $crate"
    done
    ! grep -r "$PWD" "$prefix/share" || fail "a path of this machine is in the text above"
    say "$components components in the bill of materials, $(du -h "$staged.tar.gz" | cut -f 1)"
}

# newest FILE PREFIX: the newest version of a library's symbols that a program needs.
newest() {
    "$([[ $machine == "$here" ]] || echo "$machine-linux-gnu-")objdump" -T "$1" | grep -oE "\($2_[0-9.]+\)" | tr -d '()' | sort -Vu | tail -n 1 || true
}

part_symbols() {
    local program path limit found
    for program in "${programs[@]/#/bin/}" lib/plmkit/libplmkit_cuda.so; do
        path=$staged/$program
        for limit in GLIBC_2.28 GLIBCXX_3.4.22 CXXABI_1.3.11 GCC_4.3.0; do
            found=$(newest "$path" "${limit%_*}")
            [[ $(printf '%s\n' "$found" "$limit" | sort -V | tail -n 1) == "$limit" ]] || fail "$program needs $found; expected $limit at most"
        done
        found=$(readelf -d "$path" | sed -n 's/.*(R.*PATH).*\[\(.*\)\]/\1/p' | tr : '\n' | grep -v '^[$]ORIGIN/' || true)
        [[ -z $found ]] || fail "$program looks for libraries in $found"
        for found in "$PWD" "$HOME" "$libtorch"; do
            ! grep -qaF "$found/" "$path" || fail "$program names $found"
        done
        say "$program: $(newest "$path" GLIBC) $(newest "$path" GLIBCXX), $(du -h "$path" | cut -f 1)"
    done
    for wheel in "$dist"/*"_$machine.whl"; do
        # libtorch is not of the system, so that plmkit-cuda is "linux_$machine" by its libraries and this by their symbols.
        found=$(.venv/packaging/bin/auditwheel show "$wheel" 2>&1 | tr '\n' ' ')
        grep -qE '(following platform tag:|constrains the platform tag to) "manylinux_2_28_'"$machine"'"' <<<"$found" || fail "auditwheel: $found"
        .venv/packaging/bin/twine check --strict "$wheel" >/dev/null
    done
}

part_older() {
    local root=$work/run/root start=$SECONDS
    [[ -f $work/older.tar ]] || {
        command -v mmdebstrap >/dev/null || tests/install/packages.sh mmdebstrap
        mmdebstrap --quiet --variant=minbase bullseye "$work/older.new.tar" || fail "Debian 11 could not be fetched"
        mv "$work/older.new.tar" "$work/older.tar"
    }
    mkdir "$root"
    tar -C "$root" -xf "$work/older.tar" --exclude './dev/*'
    tar -C "$root/usr/local" --strip-components=1 -xf "$staged.tar.gz"
    mount -t proc proc "$root/proc"
    mount --bind /dev "$root/dev"
    inputs "$root/data"
    chain /data chroot "$root" env -i PATH=/usr/local/bin:/usr/bin:/bin
    cmp "$root/data/e.parquet" "$work/run/expected/e.parquet"
    umount "$root/proc" "$root/dev"
    say "the chain on glibc $(chroot "$root" ldd --version | sed -n '1s/.* //p'), $((SECONDS - start)) s"
}

# environment NAME WHEEL…: a virtual environment with nothing but what these bring, in $venv and $site.
environment() {
    venv=$work/run/$1
    if [[ $machine != "$here" ]]; then
        site=$venv
        python3 -m pip install --quiet --disable-pip-version-check --no-deps --no-index --only-binary :all: \
            --platform "manylinux_2_28_$machine" --target "$venv" "${@:2}"
        return
    fi
    python3 -m venv --without-pip "$venv"
    site=$(echo "$venv"/lib/python3*/site-packages)
    python3 -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check --no-deps --no-index "${@:2}"
}

in_environment() {
    env -i PATH="$venv/bin:/usr/bin:/bin" ${QEMU_LD_PREFIX:+QEMU_LD_PREFIX="$QEMU_LD_PREFIX"} "$@"
}

# link_torch WITHOUT: torch as pip installs it, but for the libraries that match the pattern.
link_torch() {
    local library
    mkdir -p "$site/torch/lib"
    for library in "$reference"/torch/lib/*; do
        # shellcheck disable=SC2053 # a pattern
        [[ ${library##*/} == $1 ]] || ln -s "$library" "$site/torch/lib"
    done
    ln -s "$reference/nvidia" "$site"
}

part_plain() {
    local data=$work/run/plain start=$SECONDS
    environment plmkit "$dist"/plmkit-*"_$machine.whl"
    say "installed in $((SECONDS - start)) s: $(du -sh "$venv/bin" | cut -f 1) of programs, a wheel of $(du -h "$dist"/plmkit-*"_$machine.whl" | cut -f 1)"
    inputs "$data"
    chain "$data" in_environment
    same "$data/e.parquet" "$work/run/expected/e.parquet"
    for program in "${programs[@]}"; do
        [[ -f $venv/share/man/man1/$program.1 ]] || fail "$program has no man page"
        expect 0 "$program $(scripts/version.sh)" in_environment "$program" --version
    done
    ! grep -q 'Requires-Dist: [^;]*$' "$site"/plmkit-*.dist-info/METADATA || fail "it has a dependency"
}

part_wheels() {
    local both=("$dist"/plmkit-*"_$machine.whl" "$dist"/plmkit_cuda-*"_$machine.whl") data fake=(FAKE_GPUS=H100=9.0 LD_LIBRARY_PATH="$work/run/driver") embed found program
    mkdir -p "$work/run/driver"
    cc -shared -fPIC -o "$work/run/driver/libcuda.so.1" tests/fixtures/fake_cuda.c

    environment cuda "${both[@]}"
    ln -s "$reference/torch" "$reference/nvidia" "$site"
    data=$work/run/data
    inputs "$data"
    chain "$data" in_environment
    cmp "$data/e.parquet" "$work/run/expected/e.parquet"
    embed=(gpu-embed "$data/b.arrow" --model "$data/model-tiny" --out "$data/gpu.parquet" --progress none --device cuda)
    expect 69 "needs an NVIDIA driver, and this machine has none (cannot load libcuda.so.1: cannot open" in_environment "${embed[@]}"
    expect 69 "needs an NVIDIA driver for CUDA 13 or newer; found one for CUDA 12.2" in_environment "${fake[@]}" FAKE_CUDA=12020 "${embed[@]}"
    # A driver that tells of a GPU, and can do nothing with it: libtorch says so when all libraries are loaded.
    expect 70 "libtorch: CUDA error: " in_environment "${fake[@]}" "${embed[@]}"
    found=$(in_environment "${fake[@]}" LD_DEBUG=files "${embed[@]}" 2>&1 | grep -c 'calling init: .*/nvidia/cu13/lib/libnvrtc') || true
    ((found == 2)) || fail "NVRTC was not loaded from the folder beside CUDA's runtime"

    environment cpu "${both[@]}"
    link_torch 'lib*_cuda*'
    expect 0 "" in_environment "${embed[@]/%cuda/cpu}"
    cmp "$data/gpu.parquet" "$work/run/expected/e.parquet"
    rm "$data/gpu.parquet"
    expect 69 "libtorch_cuda.so: cannot open shared object file: No such file or directory; expected torch 2.11.0 with its CUDA libraries in $site" \
        in_environment "${fake[@]}" "${embed[@]}"

    # As clusters have it where there are no environments: pip install --target.
    venv=$work/run/target
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --no-index --target "$venv" "${both[@]}"
    ln -s "$reference/torch" "$reference/nvidia" "$venv"
    expect 70 "libtorch: CUDA error: " in_environment "${fake[@]}" "${embed[@]}"

    environment other "${both[@]}"
    link_torch libtorch_cpu.so
    # The same but for the number that it says it is, and for a function that has gone.
    python3 - "$reference/torch/lib/libtorch_cpu.so" "$site/torch/lib/libtorch_cpu.so" <<'PYTHON'
import sys

library = open(sys.argv[1], "rb").read()
number = bytes([0x48, 0xB8, 0, 0, 0, 0, 0, 0, 11, 2])
assert library.count(number) == 1
open(sys.argv[2], "wb").write(library.replace(number, number[:-2] + bytes([12, 2])).replace(b"24_flash_attention_forward4call", b"24_flash_attention_forwarx4call"))
PYTHON
    expect 69 "expected libtorch 2.11; found 2.12.0 in $site/torch/lib" in_environment "${fake[@]}" "${embed[@]}"
}

part_again() {
    local copy=$work/again file count=0
    mkdir -p "$copy"
    git ls-files -co --exclude-standard | tar -c -T - | tar -C "$copy" -x
    ln -sfn "$PWD/.cargo-tools" "$copy/.cargo-tools"
    mkdir -p "$copy/.venv"
    ln -sfn "$PWD/.venv/packaging" "$copy/.venv/packaging"
    (
        cd "$copy"
        export LIBTORCH=$libtorch/torch SOURCE_DATE_EPOCH
        SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
        scripts/dist.sh
        scripts/wheel/wheel.sh
    )
    for file in "$dist"/*"-$machine-linux.tar.gz" "$dist"/*"_$machine.whl"; do
        cmp "$file" "$copy/$file"
        count=$((count + 1))
    done
    say "$count files, the same bytes"
}

inputs "$work/run/expected"
PATH=$PWD/target/release:$PATH chain "$work/run/expected"
parts="files symbols plain"
[[ $machine != "$here" ]] || parts="files symbols older plain wheels"
for part in ${PARTS:-$parts}; do
    "part_$part"
done
rm -rf --one-file-system "$work/run"
