process PLMKIT_REPORT {
    label 'process_single'

    conda "${moduleDir}/environment.yml"
    container 'ghcr.io/plmkit/plmkit-cpu:0.1.0'

    input:
    // summary.tsv of all samples.
    path summary
    // What is there of the samples, and where it stands in the folder of results, as in SAMPLE/shards/manifest.json.
    tuple val(places), path(files, stageAs: 'file?/*')
    // The folder of results, as the page calls it.
    val outdir

    output:
    // None where it cannot be made: the results are what they are without it.
    path 'index.html', emit: page, optional: true
    // Where it is, or why there is none.
    stdout emit: said
    // Not to the topic, since the page is made after all that waits for it.
    tuple val("${task.process}"), val('plmkit'), eval("plmkit --version | sed 's/.* //'"), emit: versions

    script:
    """
    places=(${places.join(' ')})
    for i in \${!places[@]}; do
        mkdir -p \${places[i]%/*}
        ln -s "\$PWD"/file\$((i + 1))/* \${places[i]}
    done
    if plmkit report . --place '${outdir}' 2>messages; then
        echo 'page: ${outdir}/index.html'
    else
        echo "no page: exit code \$?, \$(tail -n 1 messages)"
    fi
    """

    stub:
    """
    touch index.html
    echo 'page: ${outdir}/index.html'
    """
}
