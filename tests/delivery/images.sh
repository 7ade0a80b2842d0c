#!/usr/bin/env bash
# Builds the images and their SIF files, as `make images` and `make sif` do, on a Debian that is made here, and runs the chain from each:
# as a user without a name, with a root that cannot be written to and a small /tmp, without network. Then the workflows run from them, by
# Nextflow with podman, docker and Apptainer and by Snakemake with Apptainer.
#
# Needs root; podman and Apptainer are fetched where they are missing. What cannot be had is told of at the end.
set -euo pipefail
# shellcheck source=tests/workflows/checks.sh
source "$(dirname "$0")/../workflows/checks.sh"
export REGISTRY=localhost/plmkit BASE=localhost/debian:12
# shellcheck source=tests/delivery/podman.sh
source "$root/tests/delivery/podman.sh"
version=$("$root/scripts/version.sh")
skipped=()

podman image exists "$BASE" || check "a Debian 12" podman import --quiet "$("$root/tests/delivery/base.sh" bookworm)" "$BASE"

# make_them TARGET: both images or SIF files, with the time that it takes.
make_them() {
    local start=$SECONDS
    check "make $1" make --no-print-directory -C "$root" "$1" GPU=1
    echo "        $((SECONDS - start)) s"
}

# Each of them runs a command in /data, which is $work/$image/data.
by_podman() {
    podman run --rm --pull=never --user 12345:12345 --read-only --read-only-tmpfs=false --tmpfs /tmp:size=4m --network none \
        --volume "$work/$image/data:/data" --volume "$root/workflows:/workflows:ro" --volume "$work/driver:/driver:ro" \
        --env LD_LIBRARY_PATH --env FAKE_GPUS "$REGISTRY/$image:$version" "$@"
}
by_apptainer() {
    env HOME=/ setpriv --reuid=65534 --regid=65534 --clear-groups "$(command -v apptainer)" --silent exec --contain --pwd /data \
        --net --network none --bind "$work/$image/data:/data,$root/workflows:/workflows:ro,$work/driver:/driver:ro" "$root/dist/$image.sif" "$@"
}

# new_data USER: inputs, and a folder for the results.
new_data() {
    rm -rf "${work:?}/$image"
    mkdir -p "$work/$image/data"
    cp -R "$proteins" "$model" batches.arrow "$work/$image/data"
    printf 'sample,fasta\nproteins,proteins.fasta\n' >"$work/$image/data/samples.csv"
    chown -R "$1" "$work/$image/data"
}

label() { podman image inspect --format "{{index .Labels \"org.opencontainers.image.$1\"}}" "$REGISTRY/$image:$version"; }

# The libraries that a program or another library names and that are not there.
lacks() {
    # shellcheck disable=SC2016
    by_podman bash -c 'find /usr/bin /usr/sbin /usr/lib /usr/local -type f \( -perm -1 -o -name "*.so*" \) |
        while read -r file; do ldd "$file" 2>/dev/null; done | awk "/not found/ { print \$1 }" | sort -u | paste -sd " "'
}

# chain RUN USER: the whole chain of an image, by podman or Apptainer.
chain() {
    new_data "$2"
    check "$image: the chain" "$1" plmkit samples.csv --out results --model /data/model-tiny --device cpu --max-shard-tokens 15000
    check "$image: gives what it gives here" equal host "$work/$image/data/results"
    check "$image: no driver: 69, in the words of the loader" expect 69 "(cannot load libcuda.so.1: cannot open" "$1" \
        gpu-embed batches.arrow --model model-tiny --out no.parquet --device cuda
}

# For a user that is not this one.
chmod 755 "$work"
printf 'sample,fasta\nproteins,%s\n' "$proteins" >samples.csv
check "the chain here" plmkit samples.csv --out host --model "$model" --device cpu --max-shard-tokens 15000
pack-batches host/proteins/shards/shard-00000.parquet --out batches.arrow --quiet
mkdir driver
cc -shared -fPIC -o driver/libcuda.so.1 "$root/tests/fixtures/fake_cuda.c"

echo "images"
make_them images
for image in plmkit-cpu plmkit; do
    echo "        $image: $(podman image inspect --format '{{.Size}}' "$REGISTRY/$image:$version" | awk '{ printf "%.1f MB", $1 / 1e6 }')," \
        "$(podman save "$REGISTRY/$image:$version" 2>/dev/null | gzip -1 | wc -c | awk '{ printf "%.1f MB", $1 / 1e6 }') compressed"
    new_data 12345:12345
    check "$image: says what to do" grep -F 'fasta-shard --help' <(by_podman 2>&1)
    same "$image: labels" "$image $version $(git -C "$root" describe --always --abbrev=40 --dirty) MIT OR Apache-2.0" \
        "$(label title) $(label version) $(label revision) $(label licenses)"
    driver=
    [[ $image != plmkit ]] || driver=libcuda.so.1
    same "$image: all libraries are there, but the driver's" "$driver" "$(lacks)"
    chain by_podman 12345:12345
    case $image in
    plmkit-cpu) code=69 words="needs libplmkit_cuda.so" ;;
    plmkit) code=70 words="libtorch: CUDA error: " ;;
    esac
    # One that tells of a GPU and can do nothing with it: libtorch says so when all libraries are loaded.
    LD_LIBRARY_PATH=/driver FAKE_GPUS=H100=9.0 check "$image: a driver: $words" expect "$code" "$words" by_podman \
        gpu-embed batches.arrow --model model-tiny --out no.parquet
done

export NXF_SYNTAX_PARSER=v1 NXF_ANSI_LOG=false
nextflow=$root/tests/workflows/nextflow/engine/nextflow
check "Nextflow" "$nextflow" -version
# Neither the programs that are built here nor a folder of models.
without_programs() { env HOME="$work" PATH="${PATH#"$root/target/release:"}" "$@"; }
# by_nextflow PROFILE IMAGES
by_nextflow() {
    check "Nextflow -profile $1 --images $2" without_programs "$nextflow" run "$root/workflows/nextflow" -profile "test,$1" --images "$2" \
        --outdir "nextflow-$1" -work-dir "work-$1" -with-trace
    check "gives what the chain gives here" equal host "nextflow-$1"
}
echo "workflows"
by_nextflow podman "$REGISTRY"
if command -v docker >/dev/null; then
    podman system service --time=0 "unix://$work/podman.sock" >service.log 2>&1 &
    check "podman serves docker" until_true 20 env DOCKER_HOST="unix://$work/podman.sock" docker version
    DOCKER_HOST=unix://$work/podman.sock by_nextflow docker "$REGISTRY"
else
    skipped+=("Nextflow -profile docker: there is no docker")
fi

echo "SIF files"
code=0
"$root/tests/delivery/apptainer.sh" || code=$?
if ((code == 0)); then
    PATH=$root/.apptainer/usr/bin:$PATH
    make_them sif
    for image in plmkit-cpu plmkit; do
        echo "        $image.sif: $(stat -c %s "$root/dist/$image.sif" | awk '{ printf "%.1f MB", $1 / 1e6 }')"
        chain by_apptainer 65534:65534
    done
    by_nextflow apptainer "$root/dist"
    cat >config.yaml <<CONF
samples: samples.csv
model: $model
max_shard_tokens: 15000
images: $root/dist
options: {gpu_embed: --device cpu}
CONF
    check "Snakemake --sdm apptainer" without_programs snakemake --snakefile "$root/workflows/snakemake/workflow/Snakefile" \
        --configfile config.yaml --cores 2 --sdm apptainer --apptainer-args "--bind $root/test-data"
    check "gives what the chain gives here" equal host results
elif ((code == 77)); then
    skipped+=("SIF files, Nextflow -profile apptainer, Snakemake --sdm apptainer: there is no Apptainer")
else
    exit "$code"
fi
for part in "${skipped[@]}"; do
    echo "*** SKIPPED: $part" >&2
done
echo "images: ${#skipped[@]} parts skipped"
