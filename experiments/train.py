r"""Trains an encoder: metric loss plus lambda(t) x sparsity penalty (section 4 of the paper).

    python -m sparse_embed.experiments.train --model_dir=runs/sparse --preset=glyphs_flops
    python -m sparse_embed.experiments.train --model_dir=runs/faces --data_dir=faces_emore \
        --preset=mobilefacenet_flops_300

Writes to --model_dir the encoder (`encoder.keras`, which returns unit-norm embeddings),
`train.json` (every flag, the curves, the time it took, versions and hardware), checkpoints and
TensorBoard events. --export=saved_model,litert also writes the encoder in these formats, and
compares them (see `export_encoder`). A run that was killed resumes from its last checkpoint when it
is started again with the same flags; Ctrl-C and SIGTERM save one first. Exit codes: 2 for a mistake
in the flags, 3 for a run that a guard stopped, 4 for one whose machine gave out, or another worker,
130 and 143 for one that a signal stopped.
"""

import math

from sparse_embed.common.extras import require
from sparse_embed.common.memory import keep_freed_memory
from sparse_embed.experiments.core.run import snapshot_folder
from sparse_embed.experiments.evaluation.formats import export_and_verify, table
from sparse_embed.experiments.training import devices
from sparse_embed.experiments.training.checks import check
from sparse_embed.experiments.training.loop import train
from sparse_embed.flags import app
from sparse_embed.flags.options.train import Options

PATH_METRICS = ["recall_at_1", "evaluation_flops_per_row"]  # --reg_path trades them off


def main(options: Options) -> None:
    """Trains, and writes the formats that are asked for."""
    keep_freed_memory()  # before TensorFlow starts its threads
    config = options.config
    check(config)
    if any(name.startswith("litert") for name in options.export):
        require("--export", "litert", "ai_edge_litert")  # now, not after hours of training
    model_dir = app.writable_folder("model_dir", options.model_dir)
    with devices.losing_workers(config.distribution):
        run = train(config, model_dir, options.logging)
    if config.objective.reg_path is not None:
        rows = {row["step"]: row for row in run.record["curves"]}
        for weight, end in zip(config.objective.weights, config.ends, strict=True):
            metrics = {name: rows[end].get(name, math.nan) for name in PATH_METRICS}
            text = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
            print(f"{snapshot_folder(model_dir, weight)}: {text}")
    if options.export and devices.place(config.distribution) == 0:
        print(table(export_and_verify(run, list(options.export))))
    seconds, crc = run.record["seconds"], run.record["weights_crc32"]
    print(f"{run.encoder_file}: trained in {seconds:.0f} s, weights {crc}")


if __name__ == "__main__":
    app.run(main, Options)
