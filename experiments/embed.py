r"""Embeds a part of a data set with a trained encoder.

    python -m sparse_embed.experiments.embed --model_dir=runs/sparse --output=runs/sparse/test.npz

An encoder with a relu or soft_threshold activation gives sparse embeddings (CSR, `.npz`), one
without activation dense ones (`.npy`); both come with labels and provenance, and dense ones can be
trained on (`--dataset=dense_embeddings`). --encoder=litert uses that format of the encoder, which
`export_encoder` wrote, in place of the `.keras` file; --saved_model stands for
--encoder=saved_model. --keep=32 cuts sparse embeddings to the 32 largest values of each row, and
scales them to unit norm again. --features writes what the embedding layer gets, one file per part,
to train other embedding layers on:

    for part in train validation test; do
      python -m sparse_embed.experiments.embed --model_dir=runs/dense --features --split=$part \
          --output=features/$part.npy
    done
    python -m sparse_embed.experiments.train --dataset=dense_embeddings --data_dir=features \
        --model=linear
"""

import dataclasses
import os

import numpy as np
from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.core.run import RECORD, Run
from sparse_embed.experiments.encoders.embedding import embed_part, unit_inputs
from sparse_embed.experiments.encoders.encoder import open_encoder
from sparse_embed.flags import app
from sparse_embed.flags.config import define
from sparse_embed.flags.embedding import COUNT, SPLIT, VIEWS
from sparse_embed.flags.output import ENCODER, MODEL_DIR, OUTPUT, USE_SAVED_MODEL
from sparse_embed.flags.retrieval import KEEP
from sparse_embed.flags.train_config import DataConfig
from sparse_embed.retrieval import hash_codes, keep_largest

define(DataConfig, only=["data_dir"])
_INPUTS_OUTPUT = flags.DEFINE_string(
    "inputs_output",
    None,
    "With --dataset=dense_embeddings, where to write the input vectors (.npy), scaled to unit "
    "norm, to re-rank the sparse ones with.",
)
_FEATURES = flags.DEFINE_bool(
    "features", False, "Write the features before the embedding layer, as .npy."
)
_CODES_OUTPUT = flags.DEFINE_string(
    "codes_output",
    None,
    "With a run of --loss=sdh, where to write the hash codes (.npz) for SDHSearch: ones in the "
    "largest dimensions of each embedding.",
)


def main() -> None:
    """Reads the flags and embeds."""
    kind = _format()
    run = Run.open(app.existing_path("model_dir", MODEL_DIR.value, holding=RECORD))
    sparse = run.is_sparse and not _FEATURES.value
    output = app.writable_file("output", OUTPUT.value, ".npz" if sparse else ".npy")
    keep = _budget(run)
    if _FEATURES.value:
        for flag in (KEEP, USE_SAVED_MODEL, _CODES_OUTPUT, ENCODER):
            if flag.value not in (None, False, "", (), "keras"):
                raise UsageError(f"--features: expected no --{flag.name}, which is of embeddings")
    inputs_output = codes_output = None
    if _INPUTS_OUTPUT.value:
        if run.config.data.dataset != "dense_embeddings":
            raise UsageError(
                f"--inputs_output={_INPUTS_OUTPUT.value}: expected a run with "
                "--dataset=dense_embeddings"
            )
        inputs_output = app.writable_file("inputs_output", _INPUTS_OUTPUT.value, ".npy")
    if _CODES_OUTPUT.value:
        if not run.config.makes_codes:
            raise UsageError(
                f"--codes_output={_CODES_OUTPUT.value}: expected a run with --loss=sdh"
            )
        codes_output = app.writable_file("codes_output", _CODES_OUTPUT.value, ".npz")
    cores = os.cpu_count() or 1
    encoder = run.backbone() if _FEATURES.value else open_encoder(run.folder, kind, cores)
    result, batches = embed_part(
        run, encoder, flags.FLAGS.data_dir, SPLIT.value, VIEWS.value, COUNT.value, sparse=sparse
    )
    if inputs_output:
        embedding_files.save(inputs_output, unit_inputs(batches, result.provenance))
    if keep is not None:
        vectors = keep_largest(result.vectors, keep, unit_norm=True)
        note = {**result.provenance, "keep": keep}
        result = dataclasses.replace(result, vectors=vectors, provenance=note)
    embedding_files.save(output, result)
    if codes_output:
        codes = hash_codes(np.asarray(result.vectors), run.config.objective.active_bits)
        embedding_files.save(codes_output, dataclasses.replace(result, vectors=codes))
    rows, dim = result.vectors.shape
    print(f"{output}: {rows} rows of {dim} dimensions, {len(np.unique(result.labels))} classes")


def _format() -> str:
    """Returns the format of the encoder; UsageError if two flags name different ones."""
    if not USE_SAVED_MODEL.value:
        return ENCODER.value
    if ENCODER.present and ENCODER.value != "saved_model":
        raise UsageError(
            f"--encoder={ENCODER.value}: expected saved_model beside --saved_model, or one of the "
            "two flags"
        )
    return "saved_model"


def _budget(run: Run) -> int | None:
    """Returns how many values of a row --keep leaves; None for all."""
    if not KEEP.value:
        return None
    given = flags.FLAGS["keep"].serialize()
    if not run.is_sparse:
        raise UsageError(f"{given}: expected a run with --activation=relu or soft_threshold")
    rows, queries = KEEP.value[0]
    if len(KEEP.value) > 1 or queries != rows:
        raise UsageError(f"{given}: expected one number, such as 32")
    return rows


if __name__ == "__main__":
    app.run(main)
