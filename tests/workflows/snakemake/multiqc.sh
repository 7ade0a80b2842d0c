#!/usr/bin/env bash
# MultiQC, strict, as the last step of the Snakemake workflow: it shows what the programs wrote for it.
set -euo pipefail
# shellcheck source=tests/workflows/checks.sh
source "$(dirname "$0")/../checks.sh"
printf 'sample,fasta\ndry_run.v2,%s\nb,%s\n' "$proteins" "$proteins" >samples.csv
cat >config.yaml <<CONF
samples: samples.csv
model: $model
max_shard_tokens: 30000
options: {gpu_embed: --device cpu}
CONF
run() { snakemake --snakefile "$root/workflows/snakemake/workflow/Snakefile" --configfile config.yaml --cores 2 "$@"; }
none() { run --dry-run "$@" >dry.log 2>&1 && ! grep multiqc_files dry.log; }
check "none where MultiQC is not at hand" none
PATH=$PATH:$root/.venv/multiqc/bin
check "none where that is not wanted" none --config multiqc=False
check "a run with MultiQC, which is at hand" run
data=results/multiqc/multiqc_data
names() { tail -n +2 "$data/multiqc_plmkit_$1_table.txt" | cut -f 1 | paste -sd ' '; }
same "a row for each sample" "b dry_run.v2" "$(names validate_embeddings)"
same "and one for its runs, under the same name" "b dry_run.v2" "$(names monitor)"
check "the methods" grep -q 'Lin, Z., Akin, H.' results/multiqc/multiqc_report.html
check "and the versions" grep -q gpu-embed $data/multiqc_software_versions.txt
