#!/usr/bin/env bash
# In other workflows: the whole one as a module, and the rules of workflows/modules as they stand there.
set -euo pipefail
# shellcheck source=tests/workflows/checks.sh
source "$(dirname "$0")/../checks.sh"
rows() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["rows"])' "$1"; }

mkdir module rules
cd module
printf 'sample,fasta\na,%s\n' "$proteins" >samples.csv
cat >config.yaml <<CONF
embedding:
  samples: samples.csv
  outdir: em bedded
  model: $model
  max_shard_tokens: 30000
  options: {gpu_embed: --device cpu}
CONF
cat >Snakefile <<SMK
configfile: "config.yaml"


module plmkit:
    snakefile:
        "$root/workflows/snakemake/workflow/Snakefile"
    config:
        config["embedding"]


use rule * from plmkit as plmkit_*


rule mine:
    default_target: True
    input:
        rules.plmkit_all.input,
    output:
        "sizes.txt",
    shell:
        "du -b em*bedded/*/embeddings/*.parquet > {output}"
SMK
check "a module of another workflow" snakemake --cores 2
same "with two shards of 100 proteins" "2 100" "$(wc -l <sizes.txt) $(rows "em bedded/a/dataset.json")"
check "a second run does nothing" grep -q 'Nothing to be done' <(snakemake --cores 2 2>&1)

# As from GitHub: files of a repository, which Snakemake fetches one by one.
mkdir ../fetched ../repository
cd ../repository
cp -r "$root/workflows" .
git init -q -b main
git add .
git -c user.name=a -c user.email=a@b commit -q -m a
git tag v1
cd ../fetched
cp ../module/{samples.csv,config.yaml} .
sed "s#\"$root/workflows/snakemake/workflow/Snakefile\"#\"git+file://$work/repository/workflows/snakemake/workflow/Snakefile@v1\"#" ../module/Snakefile >Snakefile
check "it names the repository" grep -q 'git+file' Snakefile
check "a module of a repository" snakemake --cores 2
same "with two shards of 100 proteins" "2 100" "$(wc -l <sizes.txt) $(rows "em bedded/a/dataset.json")"

cd ../rules
cp "$proteins" proteins.fasta
{
    printf 'rule all:\n    default_target: True\n    input: "dataset.json", "run.json"\n\n'
    cat "$root/workflows/modules/plmkit.smk"
} >Snakefile
check "the rules of workflows/modules" snakemake --cores 2 --resources gpu=1 --config model="$model"
same "100 proteins" 100 "$(rows dataset.json)"
