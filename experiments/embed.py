r"""Embeds a part of a data set, MegaFace, or stored evaluation sets, with a trained encoder.

    python -m sparse_embed.experiments.embed --model_dir=runs/sparse --output=runs/sparse/test.npz
    python -m sparse_embed.experiments.embed --source=megaface \
        --model_dir=runs/mobilefacenet_flops_300 \
        --probe_list=facescrub_features_list.json --probe_images=facescrub_aligned \
        --probe_noises=facescrub_noises.txt \
        --distractor_list=megaface_features_list.json_1000000_1 \
        --distractor_images=megaface_aligned --distractor_noises=megaface_noises.txt \
        --output=runs/mobilefacenet_flops_300/identification.npz
    python -m sparse_embed.experiments.embed --source=sets --model_dir=runs/flops \
        --sets=runs/images/identification_400_1000000.npy,runs/images/easy_6000.npy

An encoder with a relu or soft_threshold activation gives sparse embeddings (CSR, `.npz`), one
without activation dense ones (`.npy`); both come with labels and provenance, and dense ones can be
trained on (`--dataset=dense_embeddings`). --encoder takes another format of the encoder, which
`export_encoder` wrote. --keep=32 cuts sparse embeddings to the 32 largest values of each row, and
scales them to unit norm again. --features writes what the embedding layer gets, one file per part,
to train other embedding layers on:

    for part in train validation test; do
      python -m sparse_embed.experiments.embed --model_dir=runs/dense --features --split=$part \
          --output=features/$part.npy
    done
    python -m sparse_embed.experiments.train --dataset=dense_embeddings --data_dir=features \
        --model=linear

--source=megaface embeds probes (FaceScrub), then distractors, in one file for `evaluate_megaface`.
Lists and noise lists are those of the development kit and of InsightFace; images in a noise list
are left out, which is printed and noted in the file. --source=sets embeds what `prepare_data` drew
with every encoder of a run, beside the encoder; the start of a file's name is the name of the set.
A run with --loss=sdh gives hash codes in both.
"""

import dataclasses
import os

import numpy as np

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.core.run import RECORD, Run
from sparse_embed.experiments.encoders import megaface
from sparse_embed.experiments.encoders.embedding import embed_part, embed_sets, unit_inputs
from sparse_embed.experiments.encoders.encoder import open_encoder
from sparse_embed.flags import app
from sparse_embed.flags.options import fields
from sparse_embed.flags.options.embed import OPTIONS, Megaface, Sets, Split
from sparse_embed.retrieval import hash_codes, keep_largest


def main(options: Split | Megaface | Sets) -> None:
    """Embeds what the source names."""
    run = Run.open(app.existing_path("model_dir", options.model_dir, holding=RECORD))
    if isinstance(options, Sets):
        files = [app.existing_path("sets", value) for value in options.sets]
        for path in embed_sets(run, files, options.distractors):
            print(path)
    elif isinstance(options, Megaface):
        output = app.writable_file("output", options.output, run.suffix)
        counts = megaface.embed_lists(run, output, *_lists(options))
        print(f"{output}: {counts[0]} probes, {counts[1]} distractors")
    else:
        _embed_split(run, options)


def _lists(options: Megaface) -> list[megaface.ImageList]:
    lists = []
    for kind in ("probe", "distractor"):
        names = [f"{kind}_{what}" for what in ("list", "images", "noises")]
        values = [getattr(options, name) for name in names]
        path, folder = (app.existing_path(names[i], values[i]) for i in (0, 1))
        noises = app.existing_path(names[2], values[2]) if values[2] else None
        lists.append(megaface.ImageList(kind, path, folder, noises))
    return lists


def _embed_split(run: Run, options: Split) -> None:
    sparse = run.is_sparse and not options.features
    output = app.writable_file("output", options.output, ".npz" if sparse else ".npy")
    keep = _budget(run, options)
    if options.features:
        for name in ("keep", "encoder", "codes_output"):
            if getattr(options, name) != getattr(Split, name):
                raise UsageError(f"--features: expected no --{name}, which is of embeddings")
    inputs_output = codes_output = None
    if options.inputs_output:
        if run.config.data.dataset != "dense_embeddings":
            raise UsageError(
                f"--inputs_output={options.inputs_output}: expected a run with "
                "--dataset=dense_embeddings"
            )
        inputs_output = app.writable_file("inputs_output", options.inputs_output, ".npy")
    if options.codes_output:
        if not run.config.makes_codes:
            raise UsageError(
                f"--codes_output={options.codes_output}: expected a run with --loss=sdh"
            )
        codes_output = app.writable_file("codes_output", options.codes_output, ".npz")
    cores = os.cpu_count() or 1
    encoder = (
        run.backbone() if options.features else open_encoder(run.folder, options.encoder, cores)
    )
    part = (options.data_dir, options.split, options.views, options.count)
    embedded, batches = embed_part(run, encoder, *part, sparse=sparse)
    if inputs_output:
        embedding_files.save(inputs_output, unit_inputs(batches, embedded.provenance))
    if keep is not None:
        vectors = keep_largest(embedded.vectors, keep, unit_norm=True)
        note = {**embedded.provenance, "keep": keep}
        embedded = dataclasses.replace(embedded, vectors=vectors, provenance=note)
    embedding_files.save(output, embedded)
    if codes_output:
        codes = hash_codes(np.asarray(embedded.vectors), run.config.objective.active_bits)
        embedding_files.save(codes_output, dataclasses.replace(embedded, vectors=codes))
    rows, dim = embedded.vectors.shape
    print(f"{output}: {rows} rows of {dim} dimensions, {len(np.unique(embedded.labels))} classes")


def _budget(run: Run, options: Split) -> int | None:
    """Returns how many values of a row --keep leaves; None for all."""
    if not options.keep:
        return None
    given = f"--keep={fields.budgets_text(options.keep)}"
    if not run.is_sparse:
        raise UsageError(f"{given}: expected a run with --activation=relu or soft_threshold")
    rows, queries = options.keep[0]
    if len(options.keep) > 1 or queries != rows:
        raise UsageError(f"{given}: expected one number, such as 32")
    return rows


if __name__ == "__main__":
    app.run(main, OPTIONS)
