#!/usr/bin/env bash
# Builds the images of plmkit, and SIF files for Apptainer from them.
#
#   images.sh build   plmkit-cpu, and with GPU=1 plmkit, as REGISTRY/IMAGE:VERSION, by docker or podman
#   images.sh sif     dist/IMAGE.sif of each, from images that are built
#
# ENGINE: docker or podman [the first of them that is there]. REGISTRY: what the names begin with [ghcr.io/plmkit]. BASE: an image of
# Debian 12 in place of the one that is pinned. PLMKIT_MACHINE=aarch64: for that machine. `make dist`, with the same GPU, has made the
# programs for it before.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck disable=SC2034
what=images
# shellcheck source=scripts/wheels.sh
source scripts/wheels.sh

version=$(scripts/version.sh)
registry=${REGISTRY:-ghcr.io/plmkit}
engine=${ENGINE:-$(command -v docker podman | head -n 1 || true)}
[[ $engine ]] || fail 69 "neither docker nor podman is there"
images=(plmkit-cpu)
[[ ${GPU:-} != 1 ]] || images+=(plmkit)
programs=dist/plmkit-$version-$machine-linux
context=target/images/context

build() {
    local image options=(--build-arg "VERSION=$version" --build-arg "REVISION=$(git describe --always --abbrev=40 --dirty)")
    [[ -d $programs ]] || fail 66 "$programs: no programs there: make dist"
    [[ ! ${PLMKIT_MACHINE:-} ]] || options+=(--platform "linux/${machine/aarch64/arm64}")
    [[ ! ${BASE:-} ]] || options+=(--build-arg "BASE=$BASE")
    rm -rf "$context"
    mkdir -p "$context"
    cp -Rl "$programs" "$context/plmkit"
    if [[ ${GPU:-} == 1 ]]; then
        # libtorch.sh takes the library from release/ of this folder: the portable one, not the one of `make build`.
        mv "$context/plmkit/lib/plmkit" "$context/release" || fail 66 "$programs: no library for GPUs there: make dist GPU=1"
        LIBTORCH='' scripts/libtorch.sh fetch
        CARGO_TARGET_DIR=$context LINK=1 LIBTORCH='' scripts/libtorch.sh install "$PWD/$context/cuda"
    fi
    for image in "${images[@]}"; do
        say "building $registry/$image:$version"
        "$engine" build --file containers/Containerfile --target "$image" "${options[@]}" --tag "$registry/$image:$version" "$context"
    done
    rm -rf "$context"
}

sif() {
    local image archive=target/images/archive.tar
    command -v apptainer >/dev/null || fail 69 "apptainer is missing"
    mkdir -p dist target/images
    for image in "${images[@]}"; do
        "$engine" image inspect "$registry/$image:$version" >/dev/null 2>&1 || fail 66 "no image $registry/$image:$version: make images"
        rm -f "$archive"
        "$engine" save --output "$archive" "$registry/$image:$version"
        apptainer build --force --build-arg "archive=$archive" --build-arg "image=$image" "dist/$image.sif" containers/plmkit.def
        rm "$archive"
    done
}

case ${1-} in
build | sif) "$1" ;;
*) fail 2 "expected build or sif, found '${1-}'" ;;
esac
