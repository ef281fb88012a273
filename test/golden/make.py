"""Writes golden files: one of each kind that this version writes, and what it answers with them.

    python test/golden/make.py 0.3.0

makes the folder `0.3.0` beside this file, and never touches one that is there. Later versions must
open them all, with the same answers (`test_golden.py`). The folders:

    0.2.0     all kinds that version 0.2.0 writes
    index-1   an index in format 1, written by the code of commit d70fabd
    index-2   an index in format 2, written by the code of commit 7ac4fb3

`<name>.answers.npz` has what was asked and answered with the file or folder `<name>`.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import zlib
from typing import Any

import numpy as np

from sparse_embed.common.files import scratch_folder
from sparse_embed.flags.train_config import LoggingConfig
from sparse_embed.retrieval import SparseIndex, keep_largest

HERE = pathlib.Path(__file__).resolve().parent
SUMS = HERE / "sums.txt"  # of all golden files
DIMS = 8
TRAIN = [
    *("--dataset=dense_embeddings", "--data_dir=vectors.npz", "--test=6", "--split_seed=1"),
    *("--model=linear", "--embedding_dim=8", "--initial_probability=0.3", "--batch_size=16"),
    *("--regularizer=df_flops", "--regularizer_weight=3", "--warmup_steps=6", "--steps=12"),
    *("--seed=3", "--summary_every=4", "--checkpoint_every=4"),
]
INTERVALS = LoggingConfig(summary_every=4, checkpoint_every=4)
STOPPED_AT = 6  # within an interval of the curves


def codes(rows: int, nonzeros: int, seed: int, signed: bool) -> np.ndarray:
    """Sparse rows of unit norm, some of them equal."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, DIMS)) if signed else rng.random((rows, DIMS))
    values[rows // 2] = values[rows // 3] = values[0]
    return keep_largest(values.astype(np.float32), nonzeros, unit_norm=True).toarray()


def index_answers(index: Any, queries: np.ndarray) -> dict[str, np.ndarray]:
    """What versions of all formats can be asked."""
    most = index.shape[0] + 3
    found = {"queries": queries, "shape": index.shape, "living": len(index)}
    for name, arguments in {
        "best": {"k": 10},
        "all": {"k": most},
        "above": {"k": most, "threshold": 0.3},
    }.items():
        found[f"{name}_scores"], found[f"{name}_ids"] = index.search(queries, **arguments)
    found["flops"] = index.flops(queries)
    return {name: np.asarray(value) for name, value in found.items()}


def more_index_answers(index: SparseIndex, queries: np.ndarray) -> dict[str, np.ndarray]:
    """What can be asked since ids are the caller's."""
    ids = index.ids
    rows = index.reconstruct(ids)
    offsets, scores, range_ids = index.range_search(queries, 0.3)
    few = index.search(queries, 5, allowed=ids[::3])
    return {
        **index_answers(index, queries),
        **{"ids": ids, "next_id": np.asarray(index.next_id), "rows": rows.toarray()},
        **{"range_offsets": offsets, "range_scores": scores, "range_ids": range_ids},
        **{"allowed_scores": few[0], "allowed_ids": few[1]},
    }


def write_indexes(folder: pathlib.Path) -> None:
    """An index with cells, and one with ids of its own and removed rows in several blocks."""
    queries = codes(5, 4, seed=1, signed=True)
    cells = SparseIndex.build(codes(170, 6, seed=0, signed=False))
    assert cells.nbytes_by_part["cells"]
    own = SparseIndex(DIMS, block_rows=64)
    rows, ids = codes(150, 5, seed=2, signed=True), np.random.default_rng(2).permutation(1000)[:150]
    own.add(rows[:140], ids[:140])
    own.remove(ids[:140:7])
    own.add(rows[140:], np.append(ids[0], ids[141:150]))
    for name, index in {"cells": cells, "ids": own}.items():
        index.save(folder / f"{name}.index")
        np.savez_compressed(folder / f"{name}.answers.npz", **more_index_answers(index, queries))


def write_shards(folder: pathlib.Path) -> None:
    """Two shards, one that was added, and removed rows."""
    from sparse_embed.retrieval import shard_folder

    rows, queries = codes(60, 4, seed=3, signed=True), codes(5, 4, seed=4, signed=True)
    target = folder / "shards"
    shard_folder.create(target, rows[:50], shards=2, ids=np.arange(50) * 3)
    shard_folder.add(target, rows[50:])
    shard_folder.remove(target, np.array([0, 75, 149, 150]))
    for left in target.glob(".*"):  # locks
        left.unlink()
    whole = SparseIndex.build(rows, np.append(np.arange(50) * 3, np.arange(148, 158)))
    whole.remove(np.array([0, 75, 149, 150]))
    scores, ids = whole.search(queries, 60)
    np.savez_compressed(folder / "shards.answers.npz", queries=queries, scores=scores, ids=ids)


def write_vectors(folder: pathlib.Path) -> np.ndarray:
    """Dense embeddings of 20 classes, by which runs and sparsifiers learn."""
    rng = np.random.default_rng(5)
    labels = np.repeat(np.arange(20), 6)
    rows = rng.normal(size=(20, 5))[labels] + 0.3 * rng.normal(size=(120, 5))
    rows = rows.astype(np.float32)
    np.savez_compressed(folder / "vectors.npz", embeddings=rows, labels=labels.astype(np.int32))
    return rows


def write_sparsifier(folder: pathlib.Path, rows: np.ndarray) -> None:
    """A sparsifier, and the codes of the rows."""
    from sparse_embed.sparsify import Sparsifier

    found = Sparsifier(dim=12, nonzeros=3, steps=20, random_state=1).fit(rows)
    found.save(folder / "sparsifier.keras")
    np.savez_compressed(
        folder / "sparsifier.answers.npz", rows=rows, codes=found.transform(rows).toarray()
    )


def layers_answers(model: Any, rows: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """What a model of our layers computes, and what it reports while it trains on."""
    found = {"rows": rows, "labels": labels, "outputs": np.asarray(model(rows))}
    history = model.fit(rows, labels, batch_size=len(rows), epochs=2, shuffle=False, verbose=0)
    return found | {f"log_{name}": np.array(value) for name, value in history.history.items()}


def write_layers(folder: pathlib.Path) -> None:
    """A model with every layer of ours and every schedule, after three steps of training."""
    import keras

    from sparse_embed import losses, models

    keras.utils.set_random_seed(7)
    rng = np.random.default_rng(7)
    rows, labels = rng.normal(size=(12, 4)).astype(np.float32), np.arange(12) % 3
    inputs = keras.Input((4,))
    x = models.SoftThreshold(0.1)(keras.layers.Dense(8)(inputs))
    x = models.KeepLargest(2, anneal_steps=4)(x)
    x = losses.FlopsRegularization(losses.WeightPath([1.0, 2.0], [4], 2))(x)
    x = losses.L1Regularization(losses.QuadraticWarmup(0.5, 9), scope="replica")(x)
    x = losses.DFFlopsRegularization(losses.TargetFlops(2.0, 0.7, 5), df_cutoff=0.2)(x)
    x = losses.MaskedFlopsRegularization(0.3, l0_mask=2)(x)
    x = losses.SparsityMonitor()(x)
    model = keras.Model(inputs, models.ArcFaceHead(3)(x))
    model.compile("sgd", losses.ArcFaceLoss(0.25, 16.0))
    model.fit(rows, labels, batch_size=12, epochs=3, shuffle=False, verbose=0)
    model.save(folder / "layers.keras")
    np.savez_compressed(folder / "layers.answers.npz", **layers_answers(model, rows, labels))


def write_runs(folder: pathlib.Path) -> None:
    """A run that has ended, with embeddings, and the same one stopped in the middle."""
    from sparse_embed.common.signals import Interrupted
    from sparse_embed.experiments.core.run import Run
    from sparse_embed.experiments.encoders.embedding import embed_part
    from sparse_embed.experiments.encoders.encoder import open_encoder
    from sparse_embed.experiments.encoders.export import export
    from sparse_embed.experiments.training import loop, recorder

    script("train", *TRAIN, "--model_dir=run")
    script("embed", "--model_dir=run", "--output=sparse.npz")
    script("embed", "--model_dir=run", "--features", "--output=features.npy")
    run = Run.open(folder / "run")
    export(run, ["litert"])
    found, _ = embed_part(run, open_encoder(run.folder, "litert"), None, "train", sparse=True)
    np.savez_compressed(
        folder / "run.answers.npz", vectors=found.vectors.toarray(), labels=found.labels
    )

    class Stopped(recorder.Recorder):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if self._step == STOPPED_AT:
                signal.raise_signal(signal.SIGTERM)
            super().on_train_batch_end(batch, logs)

    recorder.Recorder = Stopped  # type: ignore[misc]
    with contextlib.suppress(Interrupted):
        loop.train(run.config, folder / "unfinished", INTERVALS)

    shutil.rmtree(run.folder / "checkpoints")  # that of the other run is enough
    for made in (run.folder, folder / "unfinished"):
        shutil.rmtree(made / "tensorboard")  # the files have the machine in their names


def sums(folder: pathlib.Path) -> dict[str, str]:
    """The CRC-32 of each golden file in a folder, by its path from here."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        path.relative_to(HERE).as_posix(): f"{zlib.crc32(path.read_bytes()):08x}" for path in files
    }


def script(name: str, *arguments: str) -> None:
    """Runs a script of this package."""
    subprocess.run(
        [sys.executable, "-m", f"sparse_embed.experiments.{name}", *arguments], check=True
    )


def main() -> None:
    """Makes a folder of golden files."""
    if len(sys.argv) != 2:
        sys.exit("expected the name of the folder, such as 0.3.0")
    target = HERE / sys.argv[1]
    if target.exists():
        sys.exit(f"{target}: golden files are never written again: expected another name")
    with scratch_folder(target) as scratch:
        folder = scratch / "new"
        folder.mkdir()
        os.chdir(folder)  # files keep no other paths than those from here
        here = pathlib.Path()
        write_indexes(here)
        write_shards(here)
        rows = write_vectors(here)
        write_sparsifier(here, rows)
        write_layers(here)
        write_runs(here)
        folder.rename(target)
    with open(SUMS, "a") as file:
        for name, checksum in sums(target).items():
            file.write(f"{name} {checksum}\n")


if __name__ == "__main__":
    main()
