#!/usr/bin/env bash
# Builds the programs for every Linux with glibc 2.28 or newer, and packs them: dist/plmkit-VERSION-MACHINE-linux.tar.gz. With GPU=1 or
# GPU=library the library for GPUs as well. PLMKIT_MACHINE=aarch64: for that machine, by Debian's cross compilers and qemu-user.
#
# Compiled by this machine's compilers and linked against stand-ins for the libraries of glibc 2.28, which zig makes; lib/cuda/shim/older.cpp
# has what is left. No path of this machine is in the programs, and the same sources, compilers and libtorch give the same bytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck disable=SC2034
what=dist
# shellcheck source=scripts/wheels.sh
source scripts/wheels.sh

glibc=2.28
triple=$machine-unknown-linux-gnu
build=target/dist
stand_ins=$build/glibc-$glibc-$machine
version=$(scripts/version.sh)
name=plmkit-$version-$machine-linux
export LIBTORCH=${LIBTORCH:-$PWD/.libtorch${PLMKIT_MACHINE:+-$PLMKIT_MACHINE}/torch}
library=
[[ ! ${GPU:-} =~ ^(1|library)$ ]] || library=yes

# What the compiler links instead of this machine's glibc: start files, libraries that have symbols and no code, and the part of glibc
# that is linked into a program.
make_stand_ins() {
    local fresh=$build/fresh zig=$PWD/$build/tools/ziglang/zig library
    machine=$(uname -m) unpack_wheels scripts/wheels-zig.txt "$build/tools" zig
    [[ ! -d $stand_ins ]] || return 0
    rm -rf "$fresh"
    mkdir -p "$fresh/lib"
    chmod +x "$zig"
    echo 'int main(void) { return 0; }' >"$fresh/empty.c"
    (cd "$fresh" && ZIG_GLOBAL_CACHE_DIR=$PWD/cache ZIG_LOCAL_CACHE_DIR=$PWD/cache \
        "$zig" cc -target "$machine-linux-gnu.$glibc" -fPIE -pie -o empty empty.c)
    find "$fresh/cache/o" \( -name Scrt1.o -o -name libc_nonshared.a -o -name 'lib*.so.*' \) -exec mv -t "$fresh/lib" {} +
    for library in "$fresh"/lib/lib*.so.*; do
        ln -s "${library##*/}" "${library%.so.*}.so"
    done
    rm "$fresh/lib/libc.so"
    echo "GROUP ( libc.so.6 libc_nonshared.a AS_NEEDED ( $(cd "$fresh/lib" && echo libld.so.*) ) )" >"$fresh/lib/libc.so"
    mv "$fresh/lib" "$stand_ins"
    rm -rf "$fresh"
}

# Paths of this machine are written as these in what a panic says. Linker arguments are relative: the names of symbols depend on them. The
# date is a constant: the compilers of C would run again for another.
compile() {
    local cargo=${CARGO_HOME:-$HOME/.cargo} maps flags packages=(--package plmkit)
    [[ ! $library ]] || packages+=(--package plmkit-cuda)
    maps="-ffile-prefix-map=$PWD=/plmkit -ffile-prefix-map=$cargo=/cargo -ffile-prefix-map=$LIBTORCH=/torch"
    flags=(
        "--remap-path-prefix=$PWD=/plmkit" "--remap-path-prefix=$cargo=/cargo"
        "-Clink-arg=-B$stand_ins" "-Clink-arg=-Wl,--allow-shlib-undefined"
    )
    SOURCE_DATE_EPOCH=0 PLMKIT_PORTABLE=1 CFLAGS="${CFLAGS:-} $maps" CXXFLAGS="${CXXFLAGS:-} $maps" \
        CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${flags[*]}") \
        cargo build --locked --profile dist --no-default-features "${packages[@]}" --target "$triple" --target-dir "$build"
}

# The texts that the licences of what is compiled in ask to be kept, and the list of that, as CycloneDX.
describe() {
    local folder=$1 licences=$build/$triple/THIRD-PARTY-LICENSES.txt
    # It compares every file of every crate with every licence, for a minute.
    if [[ ! $licences -nt Cargo.lock || ! $licences -nt scripts/about.toml || ! $licences -nt scripts/about.hbs ]]; then
        # It asks for the crates of all platforms, of which a build fetches those of one.
        cargo fetch --quiet --locked
        .cargo-tools/bin/cargo-about generate --offline --locked --fail --config scripts/about.toml --target "$triple" \
            --output-file "$licences.new" scripts/about.hbs
        mv "$licences.new" "$licences"
    fi
    install -m 644 "$licences" scripts/INSTALL.md "$folder"
    # One for each crate of the workspace, into its folder; that of the programs has all of theirs.
    .cargo-tools/bin/cargo-cyclonedx cyclonedx --quiet --format json --spec-version 1.5 --target "$triple" --no-build-deps \
        --override-filename plmkit.cdx
    sed "s#file://$PWD#file:///plmkit#g" plmkit.cdx.json >"$folder/sbom.cdx.json"
    rm plmkit.cdx.json lib/*/plmkit.cdx.json tests/reference/plmkit.cdx.json
}

pack() {
    local staged=dist/$name
    rm -rf "$staged"
    scripts/stage.sh "$build/$triple/dist" "$staged"
    [[ ! $library ]] || install -D -t "$staged/lib/plmkit" "$build/$triple/dist/libplmkit_cuda.so"
    describe "$staged/share/doc/plmkit"
    tar -C dist --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u+w,go=rX -c "$name" |
        gzip -n9 >"$staged.tar.gz"
    (cd dist && sha256sum -- *.tar.gz >SHA256SUMS)
    say "$(du -h "$staged.tar.gz" | cut -f 1) in $staged.tar.gz"
}

if [[ $machine != "$(uname -m)" ]]; then
    linker=CARGO_TARGET_${triple//-/_}_LINKER
    export "${linker^^}=$machine-linux-gnu-gcc" PLMKIT_RUNNER="qemu-$machine -L /usr/$machine-linux-gnu"
    rustup --quiet target add "$triple"
fi
# What is made of the same commit is dated the same.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
make_stand_ins
compile
pack
