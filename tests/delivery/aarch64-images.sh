#!/usr/bin/env bash
# Builds the images for aarch64 of what AARCH64=dist has left, and runs the chain in each, under qemu.
#
# Needs root: the kernel gives programs for aarch64 to Debian's qemu-user-static until this ends. Needs target/release as well, with whose
# vectors those of aarch64 are compared.
set -euo pipefail
# shellcheck source=tests/workflows/checks.sh
source "$(dirname "$0")/../workflows/checks.sh"
export REGISTRY=localhost/plmkit-aarch64 BASE=localhost/debian:12-arm64 PLMKIT_MACHINE=aarch64
# shellcheck source=tests/delivery/podman.sh
source "$root/tests/delivery/podman.sh"
version=$("$root/scripts/version.sh")

command -v qemu-aarch64-static >/dev/null || check "qemu" "$root/tests/install/packages.sh" qemu-user-static
binfmt=/proc/sys/fs/binfmt_misc
mountpoint --quiet "$binfmt" || mount -t binfmt_misc none "$binfmt"
if [[ ! -e $binfmt/qemu-aarch64 ]]; then
    # shellcheck disable=SC2317 # finish calls it
    clean() { echo -1 >"$binfmt/plmkit-aarch64"; }
    # Opened now, since a container has no qemu.
    "$root/tests/delivery/binfmt.sh" plmkit-aarch64 "$(command -v qemu-aarch64-static)" F
fi
debian=$("$root/tests/delivery/base.sh" bookworm arm64)
podman image exists "$BASE" || check "a Debian 12" podman import --quiet --arch arm64 "$debian" "$BASE"

# in_image IMAGE COMMAND…: in /data, which is $work/data.
in_image() {
    podman run --rm --pull=never --platform linux/arm64 --user 12345:12345 --read-only --read-only-tmpfs=false --tmpfs /tmp:size=4m \
        --network none --volume "$work/data:/data" --volume "$work/driver:/driver:ro" --env LD_LIBRARY_PATH --env FAKE_GPUS \
        "$REGISTRY/$1:$version" "${@:2}"
}

chmod 755 "$work"
mkdir data driver
printf 'sample,fasta\nproteins,%s\n' "$proteins" >samples.csv
check "the chain here" plmkit samples.csv --out host --model "$model" --device cpu --max-shard-tokens 15000
aarch64-linux-gnu-gcc -shared -fPIC -o driver/libcuda.so.1 "$root/tests/fixtures/fake_cuda.c"
check "make images" make --no-print-directory -C "$root" images GPU=1 --assume-old dist
for image in plmkit-cpu plmkit; do
    same "$image: is for" arm64 "$(podman image inspect --format '{{.Architecture}}' "$REGISTRY/$image:$version")"
    rm -rf data/*
    cp -R "$proteins" "$model" data
    printf 'sample,fasta\nproteins,proteins.fasta\n' >data/samples.csv
    chown -R 12345:12345 data
    check "$image: the chain" in_image "$image" \
        plmkit samples.csv --out results --model /data/model-tiny --device cpu --max-shard-tokens 15000
    for embeddings in host/proteins/embeddings/*.parquet; do
        check "$image: $(basename "$embeddings"): vectors as here" validate-embeddings "data/results/${embeddings#host/}" \
            --reference "$embeddings" --min-cosine 0.999999 --report "$image-$(basename "$embeddings").json"
    done
done
# A driver that tells of a GPU and can do nothing with it: libtorch says so when all libraries are loaded.
pack-batches host/proteins/shards/shard-00000.parquet --out data/batches.arrow --quiet
LD_LIBRARY_PATH=/driver FAKE_GPUS=H100=9.0 check "plmkit: libtorch is loaded" expect 70 "libtorch: CUDA error: " in_image plmkit \
    gpu-embed batches.arrow --model model-tiny --out no.parquet
