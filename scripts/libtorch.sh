#!/usr/bin/env bash
# libtorch for the build and for an installation.
#
#   libtorch.sh fetch           puts it where the build looks for it: .libtorch/{torch,nvidia} at the root of the repository; with GPU=1
#                               together with the CUDA libraries that it needs for a GPU
#   libtorch.sh driver [FILE]   says whether the NVIDIA driver serves CUDA 13, by the file in which its kernel module tells its release
#   libtorch.sh fetch-nvrtc     puts the compiler of CUDA kernels there, and nothing else
#   libtorch.sh install FOLDER  copies the libraries that were fetched and libplmkit_cuda.so of target/release; by hard links if LINK=1
#
# wheels-libtorch.txt lists what is fetched. The libraries find each other through their own RPATH as long as torch/ and nvidia/ lie side by side.
# A libtorch in LIBTORCH is used where it is. PLMKIT_MACHINE=aarch64 fetches that of another machine, into .libtorch-aarch64.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
target=$root/.libtorch${PLMKIT_MACHINE:+-$PLMKIT_MACHINE}
module=/proc/driver/nvidia/version
# shellcheck disable=SC2034
what=libtorch
# shellcheck source=scripts/wheels.sh
source "$root/scripts/wheels.sh"

# A warning at most: a node for logins can have another driver than those with GPUs, or none.
say_driver() {
    local release
    release=$(grep -oEm 1 '[0-9]+([.][0-9]+)+' "$1" 2>/dev/null || nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null || true)
    release=${release%%$'\n'*}
    if [[ ! $release =~ ^[0-9] ]]; then
        say "no NVIDIA driver here: a node with GPUs needs release 580 or newer"
    elif ((${release%%.*} >= 580)); then
        say "NVIDIA driver $release: new enough for CUDA 13"
    else
        say "warning: NVIDIA driver $release is too old for CUDA 13: expected 580 or newer, or NVIDIA's cuda-compat-13-0 (docs/clusters.md)"
    fi
}

is_elsewhere() {
    [[ -n ${LIBTORCH:-} && ! $LIBTORCH -ef $target/torch ]]
}

# That the library can be built with the libtorch in LIBTORCH and, with GPU=1, that it has its CUDA libraries.
check_elsewhere() {
    local version lacking
    [[ -d $LIBTORCH/lib && -d $LIBTORCH/include ]] || fail 66 "LIBTORCH=$LIBTORCH: no lib/ and include/ there"
    version=$(sed -n "s/^__version__ = '\(.*\)'/\1/p" "$LIBTORCH/version.py" 2>/dev/null || cat "$LIBTORCH/build-version" 2>/dev/null || true)
    [[ -z $version || $version =~ ^2[.]11[.]0 ]] || fail 65 "LIBTORCH=$LIBTORCH: expected libtorch 2.11.0, found $version"
    if [[ ${GPU:-} == 1 ]]; then
        [[ -f $LIBTORCH/lib/libtorch_cuda.so ]] || fail 66 "LIBTORCH=$LIBTORCH: no lib/libtorch_cuda.so there: it is a libtorch for CPUs"
        lacking=$(ldd "$LIBTORCH/lib/libtorch_cuda.so" | awk '/not found/ && $1 != "libcuda.so.1" { print $1 }' | sort -u | paste -sd ' ')
        [[ -z $lacking ]] || fail 66 "LIBTORCH=$LIBTORCH: lib/libtorch_cuda.so does not find $lacking"
    fi
    say "LIBTORCH is set: using $LIBTORCH, nothing to fetch"
}

fetch() {
    if [[ $(uname -s) != Linux || -z $(pins_of "$here/wheels-libtorch.txt" "$@") ]]; then
        fail 69 "no wheel is pinned for $(uname -s) $machine: set LIBTORCH to the folder of a libtorch 2.11.0 for it"
    fi
    unpack_wheels "$here/wheels-libtorch.txt" "$target" "$@"
    if [[ " $* " == *" cuda "* && ! $target/torch/lib/libplmkit_absent.so -nt $target/torch/lib/libtorch_cuda.so ]]; then
        "$here/absent.sh" "$target"
    fi
}

# The files of the wheels of these groups that a program needs when it runs.
installed() {
    local pin
    pins_of "$here/wheels-libtorch.txt" "$@" | while read -r _ _ pin _; do
        tail -n +2 "$target/wheels/$pin.list"
    done | grep -Ev '^torch/(include/|lib/libtorch[.]so)'
}

install_into() {
    local folder=$1 groups=(cpu cuda nvrtc) without='^$'
    # Libraries of an earlier installation would be found first, and be others.
    rm -rf "$folder"
    mkdir -p "$folder"
    install "${CARGO_TARGET_DIR:-$root/target}/release/libplmkit_cuda.so" "$folder"
    if is_elsewhere; then
        say "libplmkit_cuda.so will use the libraries in $LIBTORCH/lib, where they are now"
        return
    fi
    if [[ ${GPU:-} != 1 ]]; then
        groups=(cpu)
        without='^torch/lib/lib(c10_cuda|caffe2_nvrtc|torch_cuda|torch_nvshmem)[.]so'
    fi
    installed "${groups[@]}" | grep -Ev "$without" | (cd "$target" && xargs -d '\n' cp ${LINK:+--link} --parents -t "$folder")
    [[ ${GPU:-} != 1 ]] || "$here/absent.sh" "$folder"
    say "installed: $(du -sh "$folder" | cut -f 1) in $folder"
}

[[ ${GPU:-library} =~ ^(1|library)$ ]] || fail 2 "GPU=$GPU: expected 1 or library"
case ${1-} in
driver) say_driver "${2:-$module}" ;;
fetch)
    [[ ${GPU:-} != 1 ]] || say_driver "$module"
    if is_elsewhere; then
        check_elsewhere
    elif [[ ${GPU:-} == 1 ]]; then
        fetch cpu cuda nvrtc
    else
        fetch cpu
    fi
    ;;
fetch-nvrtc) fetch nvrtc ;;
install) install_into "${2:?}" ;;
*) fail 2 "expected fetch, driver, fetch-nvrtc or install FOLDER" ;;
esac
