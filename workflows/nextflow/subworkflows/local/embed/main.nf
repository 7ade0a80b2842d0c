include { FASTA_SHARD         } from '../../../modules/local/fasta-shard/main'
include { GPU_EMBED_PROBE     } from '../../../modules/local/gpu-embed/probe/main'
include { PACK_BATCHES        } from '../../../modules/local/pack-batches/main'
include { GPU_EMBED           } from '../../../modules/local/gpu-embed/main'
include { MONITOR_LOG_REPORT  } from '../../../modules/local/monitor-log/report/main'
include { RECOMPUTE           } from '../../../modules/local/validate-embeddings/recompute/main'
include { VALIDATE_EMBEDDINGS } from '../../../modules/local/validate-embeddings/main'

// FASTA to validated embeddings: scattered over the shards of each sample, gathered again for the validation.
workflow EMBED {
    take:
    samples // channel: [ val(meta), [ path(fasta), … ] ], meta.id is the sample
    model   // value: [ path(folder), name ], or [ [], id ] of a model of the Hugging Face Hub
    tokens  // value: most tokens in a shard
    probe   // value: whether to measure the batch size on a GPU; otherwise the options of pack-batches say it
    recompute // value: whether a sample of each shard is computed again

    main:
    FASTA_SHARD(samples, tokens)

    shards = FASTA_SHARD.out.shards.flatMap { meta, files ->
        files.collect { file -> [[id: "${meta.id}_${file.baseName}", sample: meta.id, shards: files.size()], file] }
    }
    batch_size = channel.value([])
    if (probe) {
        batch_size = GPU_EMBED_PROBE(model).batch_size
    }
    PACK_BATCHES(shards, batch_size)
    GPU_EMBED(PACK_BATCHES.out.batches, model)

    runs = GPU_EMBED.out.logs
        .map { meta, recorded, events -> [groupKey(meta.sample, meta.shards), recorded, events] }
        .groupTuple()
        .map { id, recorded, events -> [[id: id.toString()], recorded.sort { file -> file.name }, events.sort { file -> file.name }] }
    MONITOR_LOG_REPORT(runs)

    // Each shard as soon as it is embedded, beside the others.
    again = channel.empty()
    if (recompute) {
        beside = FASTA_SHARD.out.manifest
            .join(FASTA_SHARD.out.lists)
            .map { meta, json, files -> [meta.id, [json] + files] }
        RECOMPUTE(
            GPU_EMBED.out.embeddings
                .map { meta, rows, _rejects -> [meta, rows] }
                .join(shards)
                .map { meta, rows, shard -> [meta.sample, meta, rows, shard] }
                .combine(beside, by: 0)
                .map { _sample, meta, rows, shard, files -> [meta, rows, shard, files] },
            model,
        )
        again = RECOMPUTE.out.recomputed
    }
    recomputed = recompute
        ? again
            .map { meta, rows -> [groupKey(meta.sample, meta.shards), rows] }
            .groupTuple()
            .map { id, rows -> [id.toString(), rows.sort { file -> file.name }] }
        : FASTA_SHARD.out.manifest.map { meta, _json -> [meta.id, []] }

    // With the number of its shards a sample is validated as soon as its last one is embedded. In the order of their names, since
    // the order of arrival would make another task of it after each -resume.
    embedded = GPU_EMBED.out.embeddings
        .map { meta, rows, rejects -> [groupKey(meta.sample, meta.shards), rows, rejects] }
        .groupTuple()
        .map { id, rows, rejects -> [id.toString(), rows.sort { file -> file.name }, rejects.flatten().sort { file -> file.name }] }
    cut = FASTA_SHARD.out.shards
        .join(FASTA_SHARD.out.lists)
        .join(FASTA_SHARD.out.rejects)
        .join(FASTA_SHARD.out.manifest)
        .map { meta, files, lists, rejects, json -> [meta.id, meta, files + lists + [rejects, json]] }
    VALIDATE_EMBEDDINGS(embedded.join(cut).join(recomputed).map { _id, rows, rejects, meta, files, computed -> [meta, rows, files, rejects, computed] })

    // What the samples have, named as it is published.
    files = FASTA_SHARD.out.manifest
        .mix(FASTA_SHARD.out.rejects)
        .map { meta, file -> ["${meta.id}/shards/${file.name}", file] }
        .mix(
            FASTA_SHARD.out.shards.mix(FASTA_SHARD.out.lists).flatMap { meta, parts -> parts.collect { file -> ["${meta.id}/shards/${file.name}", file] } },
            GPU_EMBED.out.embeddings.flatMap { meta, rows, rejects -> ([rows] + rejects).collect { file -> [placeOf(meta, file), file] } },
            GPU_EMBED.out.logs.flatMap { meta, recorded, events -> [recorded, events].collect { file -> [placeOf(meta, file), file] } },
            VALIDATE_EMBEDDINGS.out.report.map { meta, json -> ["${meta.id}/dataset.json", json] },
        )

    embeddings = GPU_EMBED.out.embeddings
    manifest = FASTA_SHARD.out.manifest
    shard = FASTA_SHARD.out.shards
    failed = FASTA_SHARD.out.failed
    report = VALIDATE_EMBEDDINGS.out.report
    verdict = VALIDATE_EMBEDDINGS.out.verdict
    mqc = VALIDATE_EMBEDDINGS.out.mqc.mix(MONITOR_LOG_REPORT.out.mqc)

    emit:
    embeddings // channel: [ val(meta), path(parquet), [ path(rejects) ] ], one for each shard
    manifest // channel: [ val(meta), path(json) ]
    shard // channel: [ val(meta), [ path(parquet), … ] ]
    failed // channel: [ val(meta), path(messages) ] of each sample whose data cannot be cut
    report // channel: [ val(meta), path(json) ]
    verdict // channel: [ val(meta), 'pass' or 'fail' ]
    mqc // channel: [ val(meta), path(json) ]
    files // channel: [ 'SAMPLE/embeddings/shard-00000.parquet' or the like, path(file) ] of all that the samples have
}

// Where a file of GPU_EMBED stands among the results, SAMPLE_shard-00000.rejects.csv for example.
def placeOf(meta, file) {
    def name = file.name - "${meta.sample}_"
    def folder = name.endsWith('.parquet') ? 'embeddings' : name.endsWith('.rejects.csv') ? 'rejects' : 'logs'
    return "${meta.sample}/${folder}/${name.replace('.rejects.csv', '.csv')}"
}
