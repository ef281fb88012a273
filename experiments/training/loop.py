"""`train`: makes a run from a config, or resumes one that was killed."""

import dataclasses
import functools
import json
import pathlib
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sparse_embed.common.failures import DataError, UsageError
from sparse_embed.common.files import atomic_path
from sparse_embed.common.provenance import provenance
from sparse_embed.common.reading import read_json
from sparse_embed.common.signals import noted
from sparse_embed.experiments.core import run
from sparse_embed.experiments.core.data import load_data, reading_part
from sparse_embed.experiments.core.run import EVENTS, RECORD, Run, encoder_path, load_encoder
from sparse_embed.experiments.training import checkpoints, devices, projector
from sparse_embed.experiments.training.build import build
from sparse_embed.experiments.training.checks import warn_of_collapse
from sparse_embed.experiments.training.warm_start import copy_weights
from sparse_embed.flags.train_config import DataConfig, LoggingConfig, TrainConfig

if TYPE_CHECKING:
    import keras

    from sparse_embed.datasets.examples import Part, Pick

CONFIG = "config.json"


def train(config: TrainConfig, model_dir: pathlib.Path, log: LoggingConfig) -> Run:
    """Trains an encoder, or resumes its training, and saves it with its record.

    A run that has ended is left as it is.
    """
    chief = devices.place(config.distribution) == 0
    check_same_experiment(model_dir, config)
    if (model_dir / RECORD).exists():
        return Run.open(model_dir)
    rerank = (
        encoder_path("rerank_model_dir", log.rerank_model_dir) if log.rerank_model_dir else None
    )
    model_dir.mkdir(parents=True, exist_ok=True)
    optimization = config.optimization
    strategy = devices.set_up(config.distribution, optimization.seed)
    last = model_dir / "checkpoints" / checkpoints.LAST
    saved = checkpoints.steps_trained(last)
    devices.check_agreement(strategy, config, log.summary_every, saved)
    # Only now: mistakes are reported at once, and nothing uses the devices before they are set up.
    from sparse_embed.experiments.encoders.embedding import inference
    from sparse_embed.experiments.training.recorder import Intervals, Recorder
    from sparse_embed.experiments.training.summaries import Summaries, hyper_parameters

    parts = load_data(config.data)
    part = parts["train"]
    if part.num_classes < 2:
        raise DataError(
            f"--data_dir={config.data.data_dir}: {part.num_classes} class to train on: expected at "
            "least 2"
        )
    check_same_experiment(model_dir, config, part.num_classes)
    warn_of_collapse(config, part.num_classes)
    batch_size = optimization.batch_size * strategy.num_replicas_in_sync
    encoder, model = build(config, part.shape, part.num_classes, strategy)
    with strategy.scope():
        start = checkpoints.restore(last, model)
        if start == 0 and config.model.warm_start is not None:
            earlier = load_encoder(encoder_path("warm_start", config.model.warm_start))
            copy_weights(earlier, encoder, config.model.warm_start_head)
    draw = functools.partial(part.training_batches, batch_size, optimization.seed)
    if optimization.examples_per_class > 1:
        draw = functools.partial(draw, pick=_class_groups(part, config))
    if chief and not (model_dir / CONFIG).exists():
        save_start(model_dir, config, part.num_classes)
    with reading_part(part):
        images = next(iter(draw()))[0][:256].numpy()

    def of_weight(weight: float) -> TrainConfig:
        objective = dataclasses.replace(config.objective, regularizer_weight=weight)
        return dataclasses.replace(config, objective=objective)

    def write_trial(folder: pathlib.Path, weight: float) -> Summaries:
        summaries = Summaries(folder / EVENTS)
        summaries.trial(str(folder), hyper_parameters(of_weight(weight)))
        return summaries

    if chief and start == 0 and config.objective.reg_path is None:
        write_trial(model_dir, config.objective.regularizer_weight)
    encode = inference(encoder)
    recorder = Recorder(
        model_dir,
        encode,
        config.ends,
        start,
        batch_size,
        Intervals(log.evaluate_every, log.checkpoint_every),
        images,
        evaluator(encode, parts, rerank) if chief else None,
        # With several replicas, the first row counts only the steps since the run resumed.
        checkpoints.restore_interval(last) if strategy.num_replicas_in_sync == 1 else None,
        writes=chief,
    )

    def record(weight: float) -> dict[str, Any]:
        return {
            "config": of_weight(weight).to_dict(),
            "num_classes": part.num_classes,
            "replicas": strategy.num_replicas_in_sync,
            "seconds": sum(row["seconds"] for row in recorder.curves),
            "weights_crc32": _checksum(encoder),
            "curves": recorder.curves,
            "provenance": provenance(),
        }

    # Workers cannot stop alone: the others would wait for them.
    with (
        reading_part(part),
        noted(config.distribution.strategy != "multi_worker") as recorder.wish,
    ):
        for weight, begin, end in zip(
            config.objective.weights, [0, *config.ends], config.ends, strict=False
        ):
            if end < start:
                continue
            # An "epoch" of Keras is an interval of the curves here; the last one may be shorter.
            for stop, interval in _intervals(begin, start, end, log.summary_every):
                model.fit(
                    draw(start_step=start),
                    epochs=(stop - start) // interval,
                    steps_per_epoch=interval,
                    shuffle=False,  # the pipeline does; otherwise Keras would warn
                    verbose=0,
                    callbacks=[recorder],
                )
                start = stop
            if config.objective.reg_path is not None and chief:
                folder = run.snapshot_folder(model_dir, weight)
                run.save(folder, encoder, record(weight))
                write_trial(folder, weight).scalars(end, recorder.curves[-1])
    recorder.close()
    result = record(config.objective.weights[-1])
    if chief:
        if unseen := parts.get("validation") or parts.get("test"):
            projector.write(model_dir / EVENTS, encode, unseen)
        return run.save(model_dir, encoder, result)
    return Run(model_dir, config, result)


def evaluator(
    encode: Callable[[Any], Any], parts: dict[str, "Part"], rerank: pathlib.Path | None
) -> Callable[[], dict[str, float]] | None:
    """Returns a function that measures recall and cost on validation classes, or None without any.

    Args:
        encode: the encoder to train, as a graph.
        parts: parts of the data set.
        rerank: file of the encoder whose dense embeddings re-rank, if any.
    """
    from sparse_embed import retrieval
    from sparse_embed.experiments.encoders.embedding import embed, examples_at_once
    from sparse_embed.experiments.methods.leave_one_out import recalls

    if "validation" not in parts:
        return None
    part = parts["validation"]
    batches = part.evaluation_batches(examples_at_once(part.shape))
    dense = None
    if rerank is not None:
        dense, _ = embed(load_encoder(rerank), batches, sparse=False, quiet=True)

    def evaluate() -> dict[str, float]:
        vectors, labels = embed(encode, batches, sparse=True, quiet=True)
        cost = {"evaluation_flops_per_row": float(retrieval.flops_per_row(vectors))}
        return {**recalls(vectors, labels, dense), **cost}

    return evaluate


def check_same_experiment(
    model_dir: pathlib.Path, config: TrainConfig, num_classes: int | None = None
) -> None:
    """Refuses flags that differ from those of the experiment started in `model_dir`.

    Args:
        model_dir: folder of the run; nothing is refused if it holds none.
        config: the flags of this call.
        num_classes: how many training classes the data has, once that is known.
    """
    path = model_dir / CONFIG
    if not path.exists():
        return
    # A flag that did not exist when the run was started acts as if it had its default.
    defaults = TrainConfig(DataConfig(config.data.dataset)).identity
    before = {**defaults, **read_json(path, "the flags of a run")}
    now = config.identity
    changed = [
        f"--{name} was {before.get(name)}, now {now[name]}"
        for name in sorted(now)
        if before.get(name) != now[name]
    ]
    if num_classes is not None and before.get("num_classes", num_classes) != num_classes:
        changed.append(
            f"--data_dir={config.data.data_dir} has {num_classes} training classes, before it "
            f"had {before['num_classes']}"
        )
    if changed:
        raise UsageError(
            f"--model_dir={model_dir} holds another experiment: {'; '.join(changed)}. Give another "
            "folder, or the same flags to resume"
        )


def save_start(model_dir: pathlib.Path, config: TrainConfig, num_classes: int) -> None:
    """Writes the flags at the start, so that runs that never reach their record have them too."""
    start = {**config.identity, "num_classes": num_classes, "provenance": provenance()}
    with atomic_path(model_dir / CONFIG) as temporary:
        temporary.write_text(json.dumps(start, indent=1))


def _class_groups(part: "Part", config: TrainConfig) -> "Pick":
    """Returns the order of examples that --examples_per_class asks for."""
    from sparse_embed.datasets.class_groups import class_groups

    wanted = config.optimization.examples_per_class
    if part.labels is None:
        raise UsageError(
            f"--dataset={config.data.dataset} is read in the order of its files: it needs "
            "--examples_per_class=1"
        )
    largest = int(np.bincount(part.labels).max())
    if wanted > largest:
        raise UsageError(
            f"--examples_per_class={wanted}: expected at most {largest}, the size of the "
            "largest class"
        )
    return class_groups(part.labels, wanted)


def _checksum(encoder: "keras.Model") -> str:
    """Returns a fingerprint of the weights, to compare workers and repeated runs."""
    crc = 0
    for weight in encoder.get_weights():
        crc = zlib.crc32(weight.tobytes(), crc)
    return f"{crc:08x}"


def _intervals(begin: int, start: int, end: int, every: int) -> list[tuple[int, int]]:
    """Returns (end, length) of the intervals that are left of a stage, those of one length as one.

    Args:
        begin: step at which the stage begins.
        start: step trained so far, which may be within an interval.
        end: step at which the stage ends.
        every: steps in an interval; the last one may be shorter.
    """
    whole = begin + (end - begin) // every * every
    next_end = min(begin - (begin - start) // every * every, end)
    ends = [(next_end, next_end - start), (whole, every), (end, end - whole)]
    found = []
    for stop, length in ends:
        if stop > start:
            found.append((stop, length))
            start = stop
    return found
