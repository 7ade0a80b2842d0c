#!/usr/bin/env bash
# Stands in for CUDA libraries of which gpu-embed calls no function, and without which libtorch for CUDA does not load: 1.2 GB.
#
#   absent.sh FOLDER    makes a small library in FOLDER/torch/lib, and links to it by the names of all that are absent
#
# It has the functions that libtorch imports from them. Each ends the process with one line and 70, as a bug. libtorch looks into its own
# folder last, so a library that is there is taken. `make gpu-load` runs on it, and so shows that no function is called.
set -euo pipefail

lib=${1:?folder of torch/}/torch/lib
machine=${PLMKIT_MACHINE:-$(uname -m)}
[[ $machine == "$(uname -m)" ]] || CC=${CC:-$machine-linux-gnu-gcc}
names=(libcudnn.so.9 libcufft.so.12 libcufile.so.0 libcurand.so.10 libcusparse.so.12 libcusparseLt.so.0 libnccl.so.2 libnvshmem_host.so.3)
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# NAME or NAME@VERSION, where a version has the name of its library.
nm -D --undefined-only "$lib"/libtorch_{cuda,nvshmem}.so | awk '$2 ~ /^(cudnn|cufft|cuFile|curand|cusparse|nccl|nvshmem)/ { print $2 }' |
    sort -u >"$work/imported"
{
    cat <<'C'
#include <stdio.h>
#include <unistd.h>
static void absent(const char *name)
{
    dprintf(STDERR_FILENO, "gpu-embed: libtorch calls %s, whose library is not installed; please report it\n", name);
    _exit(70);
}
C
    sed 's/@.*//; s/.*/void &(void) { absent("&"); }/' "$work/imported"
} >"$work/absent.c"
awk -F @ 'NF == 2 { of[$2] = of[$2] " " $1 ";" } END { for (version in of) print version " {" of[version] " };" }' "$work/imported" |
    sort >"$work/versions"
${CC:-cc} -shared -fPIC -O1 -s -o "$lib/libplmkit_absent.so" -Wl,--version-script="$work/versions" "$work/absent.c"
for name in "${names[@]}"; do
    ln -sf libplmkit_absent.so "$lib/$name"
done
