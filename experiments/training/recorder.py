"""The callback that watches a training run: bar, guards, evaluation, curves, checkpoints."""

import dataclasses
import json
import math
import pathlib
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf

from sparse_embed.common.files import atomic_path
from sparse_embed.common.progress import progress_bar
from sparse_embed.common.reading import read_json, reading
from sparse_embed.common.signals import Interrupted, Wish
from sparse_embed.experiments.core.run import EVENTS
from sparse_embed.experiments.encoders.embedding import Encode, embed, examples_at_once
from sparse_embed.experiments.training import checkpoints, guards
from sparse_embed.experiments.training.summaries import Summaries
from sparse_embed.losses import SparsityMonitor
from sparse_embed.losses.regularizers import ActivationRegularization

CURVES = "curves.json"
_LOOK_EVERY = 20  # steps between two checks of the loss: each waits for the device


@dataclasses.dataclass(frozen=True)
class Intervals:
    """Steps between two evaluations, and between two checkpoints."""

    evaluate: int
    checkpoint: int


class Recorder(keras.callbacks.Callback):
    """Watches the run after each "epoch", which is an interval of the curves.

    In this order: guards (so that nothing bad is saved), evaluation, curves, TensorBoard,
    checkpoints. If several processes train together, each has a recorder, since reading totals
    over all replicas and stopping are joint actions, but only the chief's writes.

    Args:
        model_dir: the run's folder.
        encode: the part of the model that returns embeddings, as a graph (see `inference`).
        ends: step at which each stage, and at last the run, ends: always evaluated and saved there.
        start: number of steps trained before.
        batch_size: examples per step over all replicas.
        intervals: how often to evaluate and to save.
        sample: some training examples, for histograms and images.
        evaluate: returns metrics on unseen classes; None if there are none.
        interval: what a run that was stopped within an interval had added up, if it was.
        writes: whether this process writes to the folder.

    Attributes:
        wish: a signal to stop, which is followed after the step under way (see `signals.noted`).
    """

    def __init__(
        self,
        model_dir: pathlib.Path,
        encode: Encode,
        ends: Sequence[int],
        start: int,
        batch_size: int,
        intervals: Intervals,
        sample: np.ndarray,
        evaluate: Callable[[], dict[str, float]] | None,
        interval: checkpoints.Interval | None = None,
        writes: bool = True,
    ):
        super().__init__()
        self._model_dir = model_dir
        self._ends, self._batch_size = ends, batch_size
        self._step = start  # not the bar's count, which the user may have switched off
        self._intervals = intervals
        self._encode = encode
        labelled = sample, np.zeros(len(sample), np.int32)
        size = examples_at_once(sample.shape[1:])
        self._sample = tf.data.Dataset.from_tensor_slices(labelled).batch(size)
        self._evaluate = evaluate
        self._interval = interval
        self.wish = Wish()
        self._summaries = Summaries(model_dir / EVENTS) if writes else None
        self.curves = _read_curves(model_dir / CURVES, start)
        self._bar = progress_bar(total=ends[-1], initial=start, desc=model_dir.name, unit="step")
        if self._summaries and start == 0 and sample.ndim == 4:
            self._summaries.images(0, sample)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Finds the layers that measure sparsity."""
        self._monitor = _only(SparsityMonitor, self.model)
        self._regularization = _only(ActivationRegularization, self.model)
        self._clock = time.perf_counter()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Goes on adding up where an earlier process stopped; Keras starts from nothing."""
        if self._interval is not None:
            for variable, value in zip(
                self.model.metrics_variables, self._interval.totals, strict=True
            ):
                variable.assign(value)
            self._clock -= self._interval.seconds
            self._interval = None

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Advances the bar, checks now and then that the loss is finite, and stops if it must."""
        self._step += 1
        self._bar.update()
        if batch % _LOOK_EVERY == 0 and logs and not math.isfinite(float(logs["loss"])):
            metrics = {name: float(value) for name, value in logs.items()}
            guards.check_finite(self._terms(metrics), self._step)
        if self.wish.received is not None and batch + 1 < self.params["steps"]:
            guards.check_finite({"loss": float((logs or {})["loss"])}, self._step)
            if self._summaries:
                totals = [np.asarray(variable) for variable in self.model.metrics_variables]
                seconds = time.perf_counter() - self._clock
                self._save_last(checkpoints.Interval(totals, seconds))
            self._stop(self.wish.received)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Guards, evaluates, records and saves."""
        step = self._step
        metrics = {name: float(value) for name, value in (logs or {}).items()}
        terms = self._terms(metrics)
        guards.check_finite(terms, step)
        probabilities = np.asarray(self._monitor.probabilities())
        if self._regularization is not None:
            guards.check_alive(metrics, len(probabilities), step)
        metrics.update(terms)
        metrics["learning_rate"] = float(tf.convert_to_tensor(self.model.optimizer.learning_rate))
        elapsed, trained = time.perf_counter() - self._clock, step - self._last_step()
        metrics["seconds"] = elapsed
        metrics["images_per_second"] = trained * self._batch_size / elapsed
        if self._evaluate and self._due(step, self._intervals.evaluate):
            metrics.update(self._evaluate())
        wished = self.wish.received is not None
        due = wished or self._due(step, self._intervals.checkpoint)
        self.curves.append({"step": step, **metrics})
        self._show(metrics)
        if self._summaries:
            embeddings, _ = embed(self._encode, self._sample, sparse=False, quiet=True)
            self._summaries.scalars(step, metrics)
            self._summaries.histograms(step, probabilities, embeddings)
            self._save(metrics, due)
        if self.wish.received is not None and step < self._ends[-1]:
            self._stop(self.wish.received)
        self._clock = time.perf_counter()  # evaluation and saving are not training

    def close(self) -> None:
        """Ends the progress bar; `fit` may have been called several times."""
        self._bar.close()

    def _terms(self, metrics: dict[str, float]) -> dict[str, float]:
        """Splits the loss into its terms."""
        if self._regularization is None:
            return {"metric_loss": metrics["loss"]}
        name = self._regularization.name
        return {
            "metric_loss": metrics["loss"] - metrics[f"{name}_loss"],
            "penalty_loss": metrics[f"{name}_loss"],
            "penalty": metrics[f"{name}_penalty"],
            "regularizer_weight": metrics[f"{name}_weight"],
        }

    def _due(self, step: int, interval: int) -> bool:
        return step in self._ends or step // interval > self._last_step() // interval

    def _last_step(self) -> int:
        return int(self.curves[-1]["step"]) if self.curves else 0

    def _show(self, metrics: dict[str, float]) -> None:
        shown = {"loss": metrics["metric_loss"]}
        if "regularizer_weight" in metrics:
            shown["lambda"] = metrics["regularizer_weight"]
            shown["F"] = metrics["sparsity_flops_per_row"]
            shown["active"] = metrics["sparsity_active_dimensions"]
        recalls = [row["recall_at_1"] for row in self.curves if "recall_at_1" in row]
        if recalls:
            shown["recall@1"] = recalls[-1]
        self._bar.set_postfix({name: f"{value:.4g}" for name, value in shown.items()})

    def _save(self, metrics: dict[str, float], due: bool) -> None:
        """Keeps the best evaluation's checkpoint and, if `due`, the last one."""
        folder, step = self._model_dir / "checkpoints", self._last_step()
        recalls = [row["recall_at_1"] for row in self.curves if "recall_at_1" in row]
        if "recall_at_1" in metrics and metrics["recall_at_1"] >= max(recalls):
            checkpoints.save(folder / checkpoints.BEST, self.model, step)
        if due:
            self._save_last()

    def _save_last(self, interval: checkpoints.Interval | None = None) -> None:
        """Writes the curves and the last checkpoint, which may be within an interval."""
        # The curves come first: rows beyond the last checkpoint are dropped when the run resumes.
        with atomic_path(self._model_dir / CURVES) as temporary:
            temporary.write_text(json.dumps(self.curves))
        path = self._model_dir / "checkpoints" / checkpoints.LAST
        checkpoints.save(path, self.model, self._step, interval)

    def _stop(self, number: signal.Signals) -> NoReturn:
        self.close()
        raise Interrupted(
            number,
            f"stopped by {number.name} at step {self._step} of {self._ends[-1]}, all of it saved "
            f"in {self._model_dir}; start it again with the same flags to go on from there",
        )


def _only(layer_class: type, model: keras.Model) -> Any:
    """Returns the model's layer of that class, or None."""
    return next((layer for layer in model.layers if isinstance(layer, layer_class)), None)


def _read_curves(path: pathlib.Path, start: int) -> list[dict[str, float]]:
    """Returns the curves recorded up to step `start`."""
    if start == 0 or not path.exists():
        return []
    rows = read_json(path, "the curves of a run", list)
    with reading(path, "rows with step and seconds"):
        return [row for row in rows if row["step"] <= start and row["seconds"] >= 0]
