#!/usr/bin/env bash
# Makes DIR a copy of torch and its CUDA libraries by links, with the stand-ins of this folder in the place of the four that need a
# driver, and DIR/run, which runs a program on it:
#
#   tests/gpu-load/tree.sh DIR [SITE_PACKAGES]
#   INSTALLED=1 tests/gpu-load/tree.sh …    without the libraries that an installation lacks, and so without torch in Python
#   STAND_IN_LOG=FOLDER DIR/run target/release/gpu-embed --device cuda ...
#   DIR/run .venv/reference/bin/python -c 'import torch; print(torch.cuda.get_device_name())'
#
# Every library of the wheels finds the others beside itself (DT_RPATH), so that LD_LIBRARY_PATH alone would not do. Nothing is
# computed: results have the right shapes, and values that mean nothing. What a run did is in FOLDER/PID.log, a line a call.
# CC and CXX name the compilers of another machine than this, whose folder of wheels needs no headers.
# STAND_IN_GPUS: how many GPUs there are (1). STAND_IN_MIB: the memory of each (81559). STAND_IN_CAPABILITY: what they can (90). For
# attention of torch in Python it has to be 80: on Hopper that is by cuDNN, which needs more of a driver than there is here.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=${1:?folder to make}
reference=$(echo "$here"/../../.venv/reference/lib/python3*/site-packages)
site=${2:-$reference}
site=$(cd "$site" && pwd -P)
cuda=$site/nvidia/cu13

rm -rf "$tree"
mkdir -p "$tree"
tree=$(cd "$tree" && pwd -P)
build=$tree/build
mkdir "$build"
for package in torch $(cd "$site" && echo nvidia/*); do
    mkdir -p "$tree/$package"
    ln -s "$site/$package"/* "$tree/$package"
    if [ -d "$site/$package/lib" ]; then
        rm "$tree/$package/lib"
        cp -rs "$site/$package/lib" "$tree/$package"
    fi
done

if [[ ${INSTALLED:-} ]]; then
    find "$tree/nvidia" -regextype posix-extended -name '*.so*' ! -regex '.*/lib(cublas(Lt)?|cudart|cupti|nvrtc(-builtins)?)[.]so.*' -delete
    "$here/../../scripts/absent.sh" "$tree"
fi

# The toolkit's headers in the wheels lack a few, which come with Triton.
headers=(-isystem "$cuda/include" -isystem "$reference/nvidia/cu13/include")
headers+=(-idirafter "$site/triton/backends/nvidia/include" -idirafter "$reference/triton/backends/nvidia/include")
for part in stand_in cudart cuda cublas; do
    ${CXX:-g++} -std=c++17 -O1 -Wall -Wextra -Werror -fPIC "${headers[@]}" -c "$here/$part.cpp" -o "$build/$part.o"
done

# Functions of a library that nobody has written: each says so and ends the program.
declared() {
    case $1 in
    # No wheel has the driver: the functions of its header, as the preprocessor names them, and those that are written here.
    libcuda.so.1)
        printf '#include <cuda.h>\n' | ${CXX:-g++} -E -P "${headers[@]}" -x c++ - | grep -oP 'CUresult\s+\Kcu[A-Z]\w+(?=\s*\()'
        grep '^cu[A-Z]' "$build/written"
        ;;
    *) nm -D --defined-only "$cuda/lib/$1" | awk '$2 == "T" {print $3}' | sed 's/@.*//' ;;
    esac
}
nm --defined-only "$build"/*.o | awk '$2 == "T" {print $3}' | sort -u >"$build/written"
for library in libcudart.so.13 libcublas.so.13 libcublasLt.so.13 libcuda.so.1; do
    declared "$library" | sort -u >"$build/$library"
    comm -23 "$build/$library" "$build/written" | sed 's/.*/MISSING(&)/'
    # Their users ask for functions of a version, named as the library.
    { printf '%s {\nglobal:\n' "$library"; sed 's/.*/  &;/' "$build/$library"; printf '};\n'; } >>"$build/versions"
done >"$build/missing"
{
    printf '#define MISSING(name) void name(void) { stand_in_unimplemented(#name); }\nvoid stand_in_unimplemented(const char *);\n'
    cat "$build/missing"
} >"$build/missing.c"
${CC:-gcc} -O1 -fPIC -w -fno-builtin -c "$build/missing.c" -o "$build/missing.o"

# One library by four names, which share what they know.
lib=$tree/nvidia/cu13/lib
rm "$lib"/libcudart.so.13 "$lib"/libcublas.so.13 "$lib"/libcublasLt.so.13
printf 'local_only { local: *; };\n' >>"$build/versions"
${CXX:-g++} -shared -o "$lib/libcudart.so.13" -Wl,--version-script="$build/versions" -Wl,-soname,libcudart.so.13 "$build"/*.o
for name in libcublas.so.13 libcublasLt.so.13 libcuda.so.1 libcuda.so; do
    ln -s libcudart.so.13 "$lib/$name"
done

cat >"$tree/run" <<RUN
#!/bin/sh
export LD_LIBRARY_PATH="$lib:$tree/torch/lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
export PYTHONPATH="$tree\${PYTHONPATH:+:\$PYTHONPATH}"
exec "\$@"
RUN
chmod +x "$tree/run"
