"""Embeds in parts: each a file of its own, so that work can be divided, interrupted and resumed.

A folder of parts holds

    setting.json            what is embedded, by which encoder; another setting is refused
    part-00000.npz          the embeddings of the first examples, as `embedding_files` writes them
    part-00000.failed.json  those of its examples that could not be read, if any, and why
    failed.jsonl            all that could not be read, one per line; written in the end
    inputs.txt              with a folder of images, their paths: line i is example i

Part p has the examples from p n up to (p + 1) n, in the order of `embed`. Rows are as `embed` gives
them. The note in a part has the `first` of its examples, how many there are, and which `failed`.
"""

import dataclasses
import functools
import json
import pathlib
import time
import zlib
from typing import Any

import numpy as np

from sparse_embed.common.failures import DataError, Failure, UsageError
from sparse_embed.common.files import atomic_path, remove_abandoned
from sparse_embed.common.reading import read_json
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.core.embedding_files import Embeddings
from sparse_embed.experiments.core.part_files import FAILED, SETTING, divide
from sparse_embed.experiments.core.records import fingerprint
from sparse_embed.experiments.core.run import Run
from sparse_embed.experiments.encoders.embedding import (
    embed,
    inference,
    load_split,
    note,
    split_batches,
    split_size,
)

INPUTS = "inputs.txt"
_FOLDER = "image folder"  # the name of the part that a folder of images is


@dataclasses.dataclass(frozen=True)
class Work:
    """What is embedded; a worker gets this and loads the rest by itself.

    Attributes:
        model_dir: folder of the run.
        output: folder of the parts.
        data_dir: where the run's data set is now; None for where it was.
        split: the part of it to embed.
        views: see `embedding.embed_part`.
        count: see `embedding.embed_part`.
        image_folder: a folder of images to embed in place of the data set.
        part_examples: examples per part.
    """

    model_dir: pathlib.Path
    output: pathlib.Path
    data_dir: str | None = None
    split: str = "test"
    views: int = 1
    count: int = 0
    image_folder: pathlib.Path | None = None
    part_examples: int = 16384


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a part: its rows, how many examples failed, and the seconds that it took."""

    number: int
    rows: int
    failed: int
    seconds: float


class Parts:
    """The parts of some work: what they are, which are done, and how one is made.

    The examples are loaded when this is made, the encoder when the first part is embedded.
    """

    def __init__(self, work: Work):
        self.work = work
        self.run = Run.open(work.model_dir)
        self._split = _FOLDER if work.image_folder else work.split
        self._examples = self._load()
        self.total = split_size(self._examples, self._split, work.views, work.count)
        self.spans = list(divide(self.total, work.part_examples))
        self.setting = self._setting()
        self._mark = fingerprint(self.setting, [])

    def _load(self) -> Any:
        """Returns the examples; broken images are left out, not raised."""
        if self.work.image_folder:
            from sparse_embed.datasets import image_folder

            shape = self.run.encoder().input_shape[1:]
            try:
                return image_folder.load_flat(self.work.image_folder, shape, on_error="skip")
            except ValueError as error:
                raise UsageError(f"--image_folder: {error}") from error
        config = self.run.config.data
        if "on_error" in (field.name for field in dataclasses.fields(config.options)):
            options = dataclasses.replace(config.options, on_error="skip")
            config = dataclasses.replace(config, options=options)
        data_dir = self.work.data_dir or config.data_dir
        return load_split(dataclasses.replace(config, data_dir=data_dir), self.work.split)

    def _setting(self) -> dict[str, Any]:
        """Returns all that decides the rows."""
        examples, work = self._examples, self.work
        names = b"\n".join(str(path).encode() for path in self.inputs)
        content = examples.fingerprint()
        return {
            "run": self.run.config.identity,
            "encoder": fingerprint({}, [self.run.encoder_file]),
            "split": self._split,
            "views": work.views,
            "examples": self.total,
            "content": zlib.crc32(names + content),
            "part_examples": work.part_examples,
        }

    @property
    def inputs(self) -> list[pathlib.Path]:
        """The images of a folder, by their path in it; empty for a data set."""
        if self.work.image_folder is None:
            return []
        paths = self._examples.source.paths
        return [path.relative_to(self.work.image_folder) for path in paths]

    def open_folder(self) -> None:
        """Makes the folder; UsageError if it holds parts of another run or setting."""
        path = self.work.output / SETTING
        setting = json.loads(json.dumps(self.setting))
        if path.exists():
            held = dict(read_json(path, "the setting of a folder of parts"))
            unlike = [key for key in setting if held.get(key) != setting[key]]
            if unlike:
                raise UsageError(
                    f"--parts_dir={self.work.output}: expected an empty folder, or one of the same "
                    f"run and setting: it holds parts of another {', '.join(unlike)}"
                )
            # Before it is asked which parts are there: some files of one may be among them.
            remove_abandoned(self.work.output)
            return
        self.work.output.mkdir(parents=True, exist_ok=True)
        if self.inputs:
            with atomic_path(self.work.output / INPUTS) as temporary:
                temporary.write_text("".join(f"{name}\n" for name in self.inputs))
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(setting, indent=1))

    def path(self, number: int) -> pathlib.Path:
        """Returns the file of a part."""
        suffix = ".npz" if self.run.is_sparse else ".npy"
        return self.work.output / f"part-{number:05}{suffix}"

    def _failed_path(self, number: int) -> pathlib.Path:
        return self.work.output / f"part-{number:05}.failed.json"

    def outcome(self, number: int) -> Outcome | None:
        """Returns what is in a part's file; None if it is absent, damaged or of another setting."""
        failed = len(self.failed(number))
        if failed == len(self.spans[number]):
            return Outcome(number, 0, failed, 0.0)
        try:
            found = embedding_files.load(self.path(number))
        except (DataError, FileNotFoundError):  # any other error of the system will go away
            return None
        if (found.provenance.get("part"), found.provenance.get("work")) != (number, self._mark):
            return None
        rows = found.vectors.shape[0]
        if rows + failed != len(self.spans[number]):
            return None
        return Outcome(number, rows, failed, 0.0)

    def failed(self, number: int) -> list[dict[str, Any]]:
        """Returns the examples of a part that could not be read."""
        path = self._failed_path(number)
        return read_json(path, "examples that failed", list) if path.exists() else []

    @functools.cached_property
    def _encode(self) -> Any:
        encoder = self.run.encoder()
        graph = inference(encoder)
        graph(np.zeros((1, *encoder.input_shape[1:]), np.float32))  # traced before it is timed
        return graph

    def prepare(self) -> None:
        """Loads the encoder."""
        _ = self._encode

    def embed(self, number: int) -> Outcome:
        """Embeds a part and writes it."""
        begin, span = time.perf_counter(), self.spans[number]
        encode = self._encode
        batches = split_batches(self._examples, self._split, self.work.views, span)
        found = None
        try:
            found = embed(encode, batches, self.run.is_sparse, quiet=True)
        except DataError:
            if len(self._broken(span)) < len(span):
                raise
        broken = self._broken(span)
        if broken:  # before the part, which is done when it is there
            with atomic_path(self._failed_path(number)) as temporary:
                temporary.write_text(json.dumps(broken, indent=1))
        else:
            self._failed_path(number).unlink(missing_ok=True)
        if found is None or not len(found[1]):
            return Outcome(number, 0, len(broken), time.perf_counter() - begin)
        about = {
            "split": self._split,
            "part": number,
            "first": span.start,
            "examples": len(span),
            "failed": [example["example"] for example in broken],
            "work": self._mark,
        }
        embedding_files.save(self.path(number), Embeddings(*found, note(self.run, **about)))
        return Outcome(number, len(found[1]), len(broken), time.perf_counter() - begin)

    def _broken(self, span: range) -> list[dict[str, Any]]:
        """Returns which examples could not be read so far, and why."""
        failures = self._examples.failures(span.start, span.stop)
        return [{"example": number, **broken._asdict()} for number, broken in failures.items()]

    def finish(self) -> tuple[int, int]:
        """Lists all failures in one file; returns how many rows and failures there are.

        Raises:
            Failure: no example could be embedded.
        """
        outcomes = [self.outcome(number) for number in range(len(self.spans))]
        absent = [number for number, outcome in enumerate(outcomes) if outcome is None]
        if absent:
            raise Failure(f"{self.path(absent[0])}: expected a part that was just written")
        examples = [example for number in range(len(self.spans)) for example in self.failed(number)]
        # Those whose header was broken were left out when the examples were loaded.
        listed = {example["input"] for example in examples}
        others = [broken for broken in self._examples.left_out() if broken.input not in listed]
        examples += [{"example": None, **broken._asdict()} for broken in others]
        with atomic_path(self.work.output / FAILED) as temporary:
            temporary.write_text("".join(json.dumps(example) + "\n" for example in examples))
        rows = sum(outcome.rows for outcome in outcomes if outcome is not None)
        if not rows:
            raise Failure(
                f"all {len(examples)} examples failed, such as {examples[0]['input']}: "
                f"{examples[0]['reason']}; {self.work.output / FAILED} lists them"
            )
        return rows, len(examples)
