rule run_report:
    input:
        of_each_shard("embeddings/{shard}.parquet"),
    output:
        json=report(
            f"{OUTDIR}/{{sample}}/reports/run.json",
            caption="../report/run.rst",
            category="Runs",
            labels={"sample": "{sample}"},
        ),
        mqc=f"{OUTDIR}/{{sample}}/reports/{{sample}}_run_mqc.json",
    log:
        "logs/{sample}/report.log",
    benchmark:
        "benchmarks/{sample}/report.tsv"
    localrule: True
    conda:
        "../envs/plmkit.yaml"
    params:
        # No inputs: a log that was deleted is no reason to embed again.
        logs=lambda wildcards: f"{OUTDIR}/{wildcards.sample}/logs",
    shell:
        "monitor-log report --gpu {params.logs:q} --events {params.logs:q}"
        " --out {output.json:q} --mqc {output.mqc:q} 2> {log:q}"


# Of all samples, once the table of them is made.
rule page:
    input:
        f"{OUTDIR}/summary.tsv",
    output:
        report(
            PAGE,
            caption="../report/page.rst",
            category="Summary",
        ),
    log:
        "logs/page.log",
    benchmark:
        "benchmarks/page.tsv"
    localrule: True
    conda:
        "../envs/plmkit.yaml"
    params:
        folder=subpath(output[0], parent=True),
    shell:
        "plmkit report -- {params.folder:q} 2> {log:q}"


rule parameters:
    output:
        f"{OUTDIR}/pipeline_info/params.json",
    log:
        "logs/parameters.log",
    benchmark:
        "benchmarks/parameters.tsv"
    localrule: True
    params:
        config=config,
    run:
        Path(output[0]).write_text(json.dumps(params.config, indent=2) + "\n")


# The commit of a model of the Hub is what the validations tell of it. `ancient`: another one, of the same model, tells nothing new.
rule versions:
    input:
        lambda wildcards: ancient(
            of_samples(f"{OUTDIR}/{{sample}}/reports/{{sample}}_validation_mqc.json")(
                wildcards
            )
        ),
    output:
        f"{OUTDIR}/versions.yml",
    log:
        "logs/versions.log",
    benchmark:
        "benchmarks/versions.tsv"
    localrule: True
    conda:
        "../envs/plmkit.yaml"
    params:
        snakemake=snakemake.__version__,
        model=config["model"],
        datasets=lambda wildcards: expand(
            f"{OUTDIR}/{{sample}}/dataset.json", sample=samples()
        ),
    shell:
        "(echo plmkit: && for tool in fasta-shard pack-batches gpu-embed validate-embeddings monitor-log; do"
        ' printf "  %s: %s\\n" $($tool --version) || exit; done &&'
        r""" revision=$(sed -n 's/^  "model_revision": "\(.*\)",$/\1/p' {params.datasets:q} | sort -u | head -n 1) &&"""
        ' (test -z "$revision" || printf "Model:\\n  %s: %s\\n" {params.model:q} "$revision") &&'
        ' printf "Workflow:\\n  snakemake: %s\\n" {params.snakemake}) > {output:q} 2> {log:q}'


# Where the container of MultiQC sees them.
rule multiqc_files:
    input:
        f"{OUTDIR}/versions.yml",
    output:
        config=f"{OUTDIR}/multiqc/multiqc_config.yml",
        methods=f"{OUTDIR}/multiqc/plmkit_methods_mqc.yml",
        versions=f"{OUTDIR}/multiqc/plmkit_mqc_versions.yml",
    log:
        "logs/multiqc_files.log",
    benchmark:
        "benchmarks/multiqc_files.tsv"
    localrule: True
    params:
        sources=[
            workflow.source_path("../../../nextflow/assets/multiqc_config.yml"),
            workflow.source_path("../../../nextflow/assets/plmkit_methods_mqc.yml"),
        ],
    run:
        for source, copy in zip([*params.sources, input[0]], output):
            shutil.copyfile(source, copy)


rule multiqc:
    input:
        tables=of_samples(
            f"{OUTDIR}/{{sample}}/reports/{{sample}}_run_mqc.json",
            f"{OUTDIR}/{{sample}}/reports/{{sample}}_validation_mqc.json",
        ),
        config=rules.multiqc_files.output.config,
        methods=rules.multiqc_files.output.methods,
        versions=rules.multiqc_files.output.versions,
    output:
        report(
            f"{OUTDIR}/multiqc/multiqc_report.html",
            caption="../report/multiqc.rst",
            category="MultiQC",
        ),
    log:
        "logs/multiqc.log",
    benchmark:
        "benchmarks/multiqc.tsv"
    conda:
        "../envs/multiqc.yaml"
    container:
        "docker://quay.io/biocontainers/multiqc:1.35--pyhdfd78af_0"
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        folders=lambda wildcards, input: sorted(
            {Path(table).parent for table in input.tables}
        ),
        out=subpath(output[0], parent=True),
    shell:
        "multiqc --strict --force --config {input.config:q} --outdir {params.out:q}"
        " {input.methods:q} {input.versions:q} {params.folders:q} > {log:q} 2>&1"
