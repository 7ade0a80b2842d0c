#!/usr/bin/env bash
# Makes one archive of what the acceptance needs on a machine that has a GPU, a Python with torch, and nothing else of plmkit:
#
#   tests/gpu/pack.sh FILE.tar.gz
#
# It holds the programs of target/release, libplmkit_cuda.so and target/switches, stripped, tests/gpu with what it imports, and test-data. There:
#
#   tar xzf FILE.tar.gz && plmkit-gpu/tests/gpu/accept.sh --stage a --work WORK --out OUT
set -euo pipefail

archive=$(realpath -m "${1:?archive to make, FILE.tar.gz}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
most=$((64 << 20))
programs=(plmkit fasta-shard pack-batches gpu-embed validate-embeddings query-embeddings monitor-log libplmkit_cuda.so)

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
to=$folder/plmkit-gpu
mkdir -p "$to"/target/{release,switches}
for program in "${programs[@]}"; do
    strip -o "$to/target/release/$program" "target/release/$program"
done
for library in target/switches/*.so; do
    [[ ! -f $library ]] || strip -o "$to/$library" "$library"
done
cp -R --parents tests/gpu tests/parity/checkpoint.py tests/parity/configurations.py \
    tests/parity/families.py test-data/proteins.fasta test-data/golden test-data/model-tiny test-data/model-tiny-esmc \
    LICENSE-APACHE LICENSE-MIT "$to"
rm -rf "$to/tests/gpu/results" "$to"/tests/*/__pycache__
git describe --always --dirty >"$to/revision" 2>/dev/null || echo unknown >"$to/revision"
tar -C "$folder" -cf - plmkit-gpu | gzip -9 >"$archive"

size=$(stat -c %s "$archive")
printf '%s: %d.%d MiB, %d files\n' "$archive" $((size >> 20)) $(((size & 1048575) * 10 >> 20)) "$(find "$to" -type f | wc -l)"
((size <= most)) || {
    echo "pack.sh: $archive: expected at most $most bytes, found $size" >&2
    exit 1
}
