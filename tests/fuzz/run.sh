#!/usr/bin/env bash
# Runs every fuzz target for so many seconds, as many at once as there are processors, and says what came of it.
# Fails where one found something; the inputs that it found are in tests/fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")"
seconds=$1

cargo "+${FUZZ_TOOLCHAIN:-nightly}" fuzz build --release --fuzz-dir .

fuzz() {
    mkdir -p "artifacts/$1" "corpus/$1"
    # 1 GiB is more than any of these files may cost; an input of a few KiB that takes 10 s is a hang.
    "target/x86_64-unknown-linux-gnu/release/$1" "corpus/$1" -artifact_prefix="artifacts/$1/" \
        -max_total_time="$seconds" -max_len=8192 -rss_limit_mb=1024 -timeout=10 -print_final_stats=1 \
        > "artifacts/$1.log" 2>&1 || true
}
export -f fuzz
export seconds ASAN_OPTIONS=detect_odr_violation=0
targets=$(basename -s .rs targets/*.rs)
rm -rf artifacts
xargs -P "$(nproc)" -I{} bash -c 'fuzz {}' <<< "$targets"

findings=0
printf '%-12s %12s %8s %9s\n' target executions seconds findings
for target in $targets; do
    executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "artifacts/$target.log")
    took=$(sed -n 's/^Done .* runs in \([0-9]*\) second.*/\1/p' "artifacts/$target.log")
    found=$(find "artifacts/$target" -type f | wc -l)
    # A target that ended before its time found something, also where there is no input to show.
    [ -n "$took" ] || found=$((found > 0 ? found : 1))
    printf '%-12s %12s %8s %9s\n' "$target" "${executed:--}" "${took:--}" "$found"
    findings=$((findings + found))
done
[ "$findings" = 0 ]
