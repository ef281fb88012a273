r"""Trains an encoder: metric loss plus lambda(t) x sparsity penalty (section 4 of the paper).

    python -m sparse_embed.experiments.train --model_dir=runs/sparse --preset=glyphs_flops
    python -m sparse_embed.experiments.train --model_dir=runs/faces --data_dir=faces_emore \
        --preset=mobilefacenet_flops_300

Writes to --model_dir the encoder (`encoder.keras`, which returns unit-norm embeddings),
`train.json` (every flag, the curves, the time it took, versions and hardware), checkpoints and
TensorBoard events. --export=litert,litert_int8 also writes the encoder in these formats, and
compares them (see `export_encoder`). A run that was killed resumes from its last checkpoint when it
is started again with the same flags; Ctrl-C and SIGTERM save one first. Exit codes: 2 for a mistake
in the flags, 3 for a run that a guard stopped, 4 for one whose machine gave out, or another worker,
130 and 143 for one that a signal stopped.
"""

import math

from sparse_embed.common.extras import require
from sparse_embed.common.memory import keep_freed_memory
from sparse_embed.experiments.encoders.verification import export_and_verify, table
from sparse_embed.experiments.training import devices
from sparse_embed.experiments.training.checks import check
from sparse_embed.experiments.training.loop import train
from sparse_embed.experiments.training.run import snapshot_folder
from sparse_embed.flags import app, training
from sparse_embed.flags.config import from_flags
from sparse_embed.flags.output import EXPORT, MODEL_DIR, USE_SAVED_MODEL
from sparse_embed.flags.train_config import LoggingConfig

training.define()

PATH_METRICS = ["recall_at_1", "evaluation_flops_per_row"]  # --reg_path trades them off


def main() -> None:
    """Reads the flags and trains."""
    keep_freed_memory()  # before TensorFlow starts its threads
    config = training.train_config()
    check(config)
    if any(name.startswith("litert") for name in EXPORT.value):
        require("--export", "litert", "ai_edge_litert")  # now, not after hours of training
    model_dir = app.writable_folder("model_dir", MODEL_DIR.value)
    with devices.losing_workers(config.distribution):
        run = train(config, model_dir, from_flags(LoggingConfig))
    chief = devices.place(config.distribution) == 0
    if config.objective.reg_path is not None:
        rows = {row["step"]: row for row in run.record["curves"]}
        for weight, end in zip(config.objective.weights, config.ends, strict=True):
            metrics = {name: rows[end].get(name, math.nan) for name in PATH_METRICS}
            text = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
            print(f"{snapshot_folder(model_dir, weight)}: {text}")
    if USE_SAVED_MODEL.value and chief:
        print(run.export_saved_model())
    if EXPORT.value and chief:
        print(table(export_and_verify(run, EXPORT.value)))
    seconds, crc = run.record["seconds"], run.record["weights_crc32"]
    print(f"{run.encoder_file}: trained in {seconds:.0f} s, weights {crc}")


if __name__ == "__main__":
    app.run(main)
