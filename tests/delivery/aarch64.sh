#!/usr/bin/env bash
# Compiles for aarch64 and runs what comes out under qemu's user mode. AARCH64 names what is done:
#
#   kernels   tests of the CPU kernels; the programs are compiled
#   dist      what `make dist wheel` makes for that machine, with the library for GPUs: see check.sh; only if it is named, since it
#             fetches 400 MB of wheels and takes half an hour
#   gpu       the gpu-embed that dist has left, on libtorch for CUDA and the stand-ins of gpu-load, as on a GH200; only if it is named,
#             since it fetches 600 MB more, and needs .venv/reference
#   images    images of what dist has left, in which the chain runs: see aarch64-images.sh; only if it is named, since it needs root
#   chain     tests of the model, layer by layer against the golden files; the demo, whose vectors are compared with this CPU's
#
# Installs Debian's cross compiler and qemu-user where they are missing, which needs root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=aarch64-unknown-linux-gnu
parts=${AARCH64:-kernels chain}
[[ $parts != images ]] || exec tests/delivery/aarch64-images.sh

if [[ ${INSIDE_QEMU:-} != 1 ]]; then
    packages=()
    command -v aarch64-linux-gnu-g++ >/dev/null || packages+=(g++-aarch64-linux-gnu libc6-dev-arm64-cross)
    command -v qemu-aarch64 >/dev/null || packages+=(qemu-user)
    [[ " $parts " != *" dist "* ]] || packages+=(fish man-db zsh)
    [[ ${#packages[@]} == 0 ]] || tests/install/packages.sh "${packages[@]}"
    rustup --quiet target add "$target"
    # In a user namespace of its own, whose programs for aarch64 the kernel gives to qemu; nobody else's are concerned.
    INSIDE_QEMU=1 exec unshare --user --map-root-user --mount "${BASH_SOURCE[0]}"
fi

mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
tests/delivery/binfmt.sh qemu-aarch64 "$(command -v qemu-aarch64)"
export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc

for part in $parts; do
    start=$SECONDS
    case $part in
    kernels)
        cargo test --release --locked --target "$target" -p plmkit-cpu
        # Without optimisation, which takes minutes: they are to compile, link and start.
        cargo build --locked --target "$target" --no-default-features
        "target/$target/debug/fasta-shard" --version
        ;;
    chain)
        cargo test --release --locked --target "$target" -p plmkit-esm2 --test esm2 -- golden:: oracle::
        cargo build --release --locked --target "$target"
        PROGRAMS=$PWD/target/$target/release tests/demo.sh
        target/release/gpu-embed demo/shard-*.arrow --model test-data/model-tiny --device cpu --out demo/here.parquet
        target/release/validate-embeddings demo/embeddings.parquet --reference demo/here.parquet --min-cosine 0.999999 --report demo/aarch64.json
        ;;
    dist)
        LIBTORCH='' PLMKIT_MACHINE=aarch64 make --no-print-directory wheel GPU=library
        LIBTORCH='' PLMKIT_MACHINE=aarch64 tests/delivery/check.sh
        ;;
    gpu)
        export PLMKIT_MACHINE=aarch64 work=target/$target/gpu
        GPU=1 LIBTORCH='' scripts/libtorch.sh fetch
        CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++ INSTALLED=1 tests/gpu-load/tree.sh "$work/tree" .libtorch-aarch64
        rm -rf "$work/shards" "$work/embeddings.parquet"
        target/release/fasta-shard test-data/proteins.fasta --out "$work/shards" --shards 1 --quiet
        target/release/pack-batches "$work/shards/shard-00000.parquet" --out "$work/batches.arrow" --force --quiet
        "$work/tree/run" "dist/plmkit-$(scripts/version.sh)-aarch64-linux/bin/gpu-embed" "$work/batches.arrow" --model test-data/model-tiny --device cuda \
            --out "$work/embeddings.parquet"
        ;;
    *)
        echo "aarch64: expected AARCH64=kernels, chain, dist or gpu, or images alone, found $part" >&2
        exit 2
        ;;
    esac
    echo "aarch64: $part: $((SECONDS - start)) s"
done
