#!/usr/bin/env bash
# MultiQC, strict, as the last step of the Snakemake workflow: it shows what the programs wrote for it.
set -euo pipefail
# shellcheck source=tests/workflows/checks.sh
source "$(dirname "$0")/../checks.sh"
PATH=$PATH:$root/.venv/multiqc/bin
printf 'sample,fasta\na,%s\nb,%s\n' "$proteins" "$proteins" >samples.csv
cat >config.yaml <<CONF
samples: samples.csv
model: $model
max_shard_tokens: 30000
options: {gpu_embed: --device cpu}
multiqc: true
CONF
check "a run" snakemake --snakefile "$root/workflows/snakemake/workflow/Snakefile" --configfile config.yaml --cores 2
data=results/multiqc/multiqc_data
for entry in a_validation b_validation a_shard-00000_run a_shard-00001_run; do
    check "it shows $entry" grep -q "$entry" $data/multiqc_data.json
done
check "and the versions" grep -q gpu-embed $data/multiqc_software_versions.txt
