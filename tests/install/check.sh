#!/usr/bin/env bash
# Installs gpu-embed in three ways and runs each where nothing else is: in a root of its own, a minimal Debian without torch.
#
#   without   make install
#   with      make install GPU=1
#   venv      make install LIBTORCH=…/site-packages/torch of a Python environment, which is mounted there
#
# Each has to find all its libraries but the driver's, without LD_LIBRARY_PATH; to embed the test proteins on the CPU; and to say what is
# missing for a GPU. Needs root. WAYS names those that are tried, TORCH the torch of the environment.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [[ ${INSIDE_MOUNTS:-} != 1 ]]; then
    # Mounts go when this script ends, however it ends.
    INSIDE_MOUNTS=1 exec unshare --mount "${BASH_SOURCE[0]}" "$@"
fi
fail() {
    echo "install-check: $way: $*" >&2
    exit 1
}

ways=${WAYS:-without with venv}
way=start
work=$PWD/target/install-check
torch=${TORCH:-$(echo "$PWD"/.venv/reference/lib/python3*/site-packages/torch)}
base=$(tests/delivery/base.sh "$(. /etc/os-release && echo "$VERSION_CODENAME")")

# in_root COMMAND…: in the clean root, with no variables.
in_root() {
    chroot "$root" env -i PATH=/opt/plmkit/bin:/usr/bin:/bin "$@"
}

# expect CODE WORDS COMMAND…: the command ends in the clean root with that exit code, and says these words.
expect() {
    local code=$1 words=$2 status=0 said
    said=$(in_root "${@:3}" 2>&1) || status=$?
    [[ $status == "$code" ]] || fail "${*:3}: exit $status, expected $code: $said"
    [[ $said == *"$words"* ]] || fail "${*:3}: expected '$words', found: $said"
    echo "install-check: $way: exit $status: ${said##*$'\n'}"
}

embed() {
    echo env "${@:2}" gpu-embed /data/b.arrow --model /data/model-tiny --out "/data/$way.parquet" --progress none --device "$1"
}

for way in $ways; do
    start=$SECONDS
    root=$work/root
    rm -rf --one-file-system "$root"
    mkdir -p "$root"
    tar -C "$root" -xf "$base" --exclude './dev/*'
    case $way in
    without) make --no-print-directory install GPU= PREFIX=/opt/plmkit DESTDIR="$root" ;;
    with) make --no-print-directory install GPU=1 PREFIX=/opt/plmkit DESTDIR="$root" ;;
    venv)
        # What is linked against another libtorch is built in another folder.
        make --no-print-directory install GPU=1 LIBTORCH="$torch" PREFIX=/opt/plmkit DESTDIR="$root" \
            CARGO_TARGET_DIR="$work/venv"
        site=$(dirname "$torch")
        mkdir -p "$root$site"
        mount -o bind,ro "$site" "$root$site"
        ;;
    esac
    mkdir "$root/data"
    cp -R test-data/model-tiny "$root/data"
    mount -t proc proc "$root/proc"
    mount --bind /dev "$root/dev"
    echo "install-check: $way: $(du -sh --one-file-system "$root/opt/plmkit" | cut -f 1) installed in $((SECONDS - start)) s"

    tests/delivery/pages.sh "$root/opt/plmkit"

    # Every file that the loader could be asked for.
    libraries=$(find "$root/opt/plmkit" -type f -name '*.so*' -printf '/opt/plmkit/%P\n')
    if [[ $way == venv ]]; then
        libraries="$torch/lib/libtorch_cuda.so $torch/lib/libcaffe2_nvrtc.so"
    fi
    # shellcheck disable=SC2046,SC2086
    lacking=$(in_root ldd $(find "$root/opt/plmkit/bin" -type f -printf '/opt/plmkit/bin/%P ') $libraries | awk '/not found/ { print $1 }' | sort -u | paste -sd ' ')
    case $way in
    without) [[ -z $lacking && -z $libraries ]] ;;
    *) [[ $lacking == libcuda.so.1 ]] ;;
    esac || fail "ldd does not find: $lacking"
    echo "install-check: $way: $(wc -w <<<"$libraries") libraries; not found: ${lacking:-none}"

    cp test-data/proteins.fasta "$root/data/in.fasta"
    in_root fasta-shard /data/in.fasta --out /data/shards --shards 1 --quiet
    in_root pack-batches /data/shards/shard-00000.parquet --out /data/b.arrow --quiet
    # shellcheck disable=SC2046
    {
        expect 69 "needs an NVIDIA driver, and this machine has none (cannot load libcuda.so.1: cannot open" $(embed cuda)
        expect 0 "this machine has no NVIDIA driver" $(embed auto)
        rm "$root/data/$way.parquet"
        # A driver that tells of a GPU, and can do nothing with it: libtorch says so when all libraries are loaded.
        cc -shared -fPIC -o "$root/usr/lib/libcuda.so.1" tests/fixtures/fake_cuda.c
        fake="FAKE_GPUS=H100=9.0"
        if [[ $way == without ]]; then
            expect 69 "needs libplmkit_cuda.so, which cannot be loaded: " \
                $(embed auto $fake)
        else
            expect 69 "needs an NVIDIA driver for CUDA 13 or newer; found one for CUDA 12.2" $(embed auto $fake FAKE_CUDA=12020)
            expect 70 "libtorch: CUDA error: " $(embed auto $fake)
            found=$(in_root $(embed auto $fake LD_DEBUG=files) 2>&1 | grep -c 'calling init: .*/nvidia/cu13/lib/libnvrtc') || true
            ((found == 2)) || fail "NVRTC was not loaded from the folder beside CUDA's runtime"
        fi
        rm "$root/usr/lib/libcuda.so.1"
        expect 0 "" $(embed cpu)
    }
    expect 0 "" validate-embeddings "/data/$way.parquet" --shards /data/shards/shard-00000.parquet --rejects /data/shards/rejects.csv \
        --manifest /data/shards/manifest.json
    umount "$root/proc" "$root/dev"
    if [[ $way == venv ]]; then
        umount "$root$site"
    fi
    echo "install-check: $way: $((SECONDS - start)) s"
done
rm -rf --one-file-system "$root"
