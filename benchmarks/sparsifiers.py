r"""Compares ways to sparse codes of dense embeddings, on classes that none of them has seen.

    python benchmarks/sparsifiers.py --labelled=lfw_dlib128.npz \
        --held_out_classes=2875 --code_nonzeros=32 --output=runs/lfw.json

Random directions, a linear head, autoencoders and `Sparsifier`, with labels and without, at the
same dimension and number of non-zeros; beside them PCA of the same bytes, IVF-PQ and HNSW on the
dense rows. The table has means and standard deviations over the splits by class.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from sparse_embed.common.arrays import read_npz
from sparse_embed.common.failures import UsageError
from sparse_embed.common.options import option
from sparse_embed.common.progress import progress_bar
from sparse_embed.experiments.core import records
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.core.text_table import text_table
from sparse_embed.flags import app
from sparse_embed.flags.options import fields
from sparse_embed.retrieval import (
    DenseSearch,
    HNSWSearch,
    IVFPQSearch,
    PCASearch,
    Reranker,
    SparseIndex,
    TwoStage,
    flops_per_row,
    keep_largest,
)
from sparse_embed.retrieval.faiss_search import ROWS_PER_CENTROID
from sparse_embed.retrieval.metrics import drop_self, has_mate, recall_at_k

PENALTY = 0.3  # of the relaxed FLOPs, where they keep the lists even; chosen as `learning`'s rest


class Split(NamedTuple):
    """Rows of unit norm to learn from, and those of other classes to search among."""

    rows: np.ndarray
    labels: np.ndarray
    held_out: np.ndarray
    held_out_labels: np.ndarray


def draw(rows: np.ndarray, labels: np.ndarray, held_out: int, seed: int) -> Split:
    """Holds out so many classes, drawn at random."""
    classes = np.random.default_rng(seed).permutation(np.unique(labels))
    unseen = np.isin(labels, classes[:held_out])
    return Split(rows[~unseen], labels[~unseen], rows[unseen], labels[unseen])


def measure(
    rows: np.ndarray,
    labels: np.ndarray,
    held_out: int,
    seeds: list[int],
    dim: int,
    nonzeros: int,
    num_threads: int,
    chosen: list[str] | None = None,
) -> list[Record]:
    """Returns a record for each method and split.

    Records have `method`, `split` (the seed), `recall_at_1`, `bytes_per_row`, and for sparse codes
    `recall_at_1_reranked` (1% of the rows, by dense cosines), `flops_per_row` and `nonzeros`.

    Args:
        rows: (n, d) of unit norm.
        labels: (n,) classes.
        held_out: how many classes are held out.
        seeds: of the
        dim: dimension of the codes.
        nonzeros: the most non-zeros of a code.
        num_threads: threads of searching and building.
        chosen: names of some `ways`; all if empty.
    """
    found = []
    for seed in progress_bar(seeds, desc="splits", unit="split"):
        split = draw(rows, labels, held_out, seed)
        for name, make in ways(dim, nonzeros, seed).items():
            if chosen and name not in chosen:
                continue
            record = {"method": name, "split": seed, **_of_codes(split, make(split), num_threads)}
            found.append(record)
            _show(record)
        size, is_first = found[-1]["bytes_per_row"], seed == seeds[0]
        for name, search in _rivals(split, num_threads, size, quantized=is_first):
            record = {"method": name, "split": seed, **_of_search(split, search, num_threads)}
            found.append(record)
            _show(record)
    return found


def summary(records: list[Record]) -> str:
    """Means over the splits, with their standard deviations, as a text table."""
    names = list(dict.fromkeys(record["method"] for record in records))
    keys = {"recall_at_1": 3, "recall_at_1_reranked": 3, "flops_per_row": 2, "nonzeros": 1}
    keys["bytes_per_row"] = 0
    lines = [
        [
            name,
            *(
                _mean([r[key] for r in records if r["method"] == name and key in r], digits)
                for key, digits in keys.items()
            ),
        ]
        for name in names
    ]
    return text_table(["method", "recall@1", "re-ranked", "F", "non-zeros", "bytes/row"], lines)


def _mean(values: list[float], digits: int) -> str:
    """The mean, with the standard deviation where it has decimals to show."""
    if not values:
        return "-"
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 and digits > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def _show(record: Record) -> None:
    cost = f", F {record['flops_per_row']:.2f}" if "flops_per_row" in record else ""
    print(f"{record['split']} {record['method']}: {record['recall_at_1']:.4f}{cost}", flush=True)


def ways(
    dim: int, nonzeros: int, seed: int
) -> dict[str, Callable[[Split], scipy.sparse.csr_array]]:
    """Every way to sparse codes: the split -> codes of its held-out rows."""
    from sparse_embed.sparsify import Sparsifier
    from sparse_embed.sparsify.encoder import build_encoder, encode
    from sparse_embed.sparsify.learning import Atoms, learn, untrained

    def random(split: Split) -> Atoms:
        """Independent directions, centred: what one does without any cleverness."""
        shape = (split.rows.shape[1], dim)
        kernel = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
        kernel /= np.linalg.norm(kernel, axis=0)
        return Atoms(kernel, -split.rows.mean(axis=0) @ kernel)

    def top(atoms: Callable[[Split], Atoms], split: Split) -> scipy.sparse.csr_array:
        return encode(build_encoder(atoms(split), nonzeros), split.held_out)

    def thresholded(split: Split) -> scipy.sparse.csr_array:
        """The same directions, cut at one value, which leaves as many non-zeros on the average."""
        atoms = random(split)
        learned = split.rows @ atoms.kernel + atoms.bias
        threshold = np.quantile(learned, 1 - nonzeros / dim)
        codes = np.maximum(split.held_out @ atoms.kernel + atoms.bias, 0)
        codes[codes < threshold] = 0
        norms = np.linalg.norm(codes, axis=1, keepdims=True)
        return scipy.sparse.csr_array(
            np.divide(codes, norms, out=np.zeros_like(codes), where=norms > 0)
        )

    def learned(split: Split, **options: Any) -> Atoms:
        return learn(split.rows, dim, nonzeros, steps=1000, seed=seed, **options)

    def sparsified(split: Split, labels: bool) -> scipy.sparse.csr_array:
        sparsifier = Sparsifier(dim=dim, nonzeros=nonzeros, random_state=seed)
        return sparsifier.fit(split.rows, split.labels if labels else None).transform(
            split.held_out
        )

    return {
        "random with a threshold": thresholded,
        "random": functools.partial(top, random),
        "orthogonal frames": functools.partial(top, lambda split: untrained(split.rows, dim, seed)),
        "linear head": functools.partial(_linear_head, dim, nonzeros, seed),
        "plain autoencoder": functools.partial(top, functools.partial(learned, balance=0.0)),
        "FLOPs penalty": functools.partial(
            top, functools.partial(learned, balance=0.0, penalty=PENALTY)
        ),
        "Sparsifier with labels": functools.partial(sparsified, labels=True),
        "Sparsifier": functools.partial(sparsified, labels=False),
    }


def _linear_head(dim: int, nonzeros: int, seed: int, split: Split) -> scipy.sparse.csr_array:
    """The head that `train` learns: ArcFace and relaxed FLOPs on the labels, then cut.

    Some small steps from a sparse start, to the cost of the others; a longer run memorises the
    training classes.
    """
    import keras

    from sparse_embed.losses import ArcFaceLoss, FlopsRegularization, TargetFlops
    from sparse_embed.models import ArcFaceHead, build_encoder

    keras.utils.set_random_seed(seed)
    classes, numbers = np.unique(split.labels, return_inverse=True)
    shape = split.rows.shape[1:]
    start = {"initial_probability": nonzeros / dim}
    encoder = build_encoder("linear", dim, "relu", shape, **start)
    budget = TargetFlops(nonzeros**2 / dim)
    codes = FlopsRegularization(budget)(encoder.output)
    model = keras.Model(encoder.input, ArcFaceHead(len(classes))(codes))
    epochs = -(-120 * 128 // len(split.rows))
    schedule = keras.optimizers.schedules.CosineDecay(3e-4, epochs * len(split.rows) // 128)
    model.compile(keras.optimizers.Adam(schedule), ArcFaceLoss(margin=0.3, scale=32.0))
    model.fit(split.rows, numbers, batch_size=128, epochs=epochs, verbose=0)
    made = scipy.sparse.csr_array(encoder.predict(split.held_out, verbose=0))
    return keep_largest(made, nonzeros, unit_norm=True)


def _of_codes(split: Split, codes: scipy.sparse.csr_array, num_threads: int) -> Record:
    index = SparseIndex.build(codes)
    shortlist = max(2, round(0.01 * codes.shape[0]))
    two_stage = TwoStage(index, Reranker(split.held_out))
    reranked = two_stage.search(
        codes, split.held_out, k=2, shortlist=shortlist + 1, num_threads=num_threads
    )
    return {
        "recall_at_1": _recall(split, *index.search(codes, 2, num_threads=num_threads)),
        "recall_at_1_reranked": _recall(split, *reranked),
        "flops_per_row": flops_per_row(codes),
        "nonzeros": codes.nnz / codes.shape[0],
        "bytes_per_row": index.nbytes / codes.shape[0],
    }


def _rivals(
    split: Split, num_threads: int, size: float, quantized: bool
) -> Iterator[tuple[str, Any]]:
    """Searches of the dense rows: all of them, PCA of `size` bytes per row, HNSW, IVF-PQ.

    IVF-PQ takes minutes where the rows are too few for 8 bits, so only where it is asked for.
    """
    dense = split.held_out
    rows, dims = dense.shape
    yield "exhaustive dense", DenseSearch(dense)
    if (kept := int(size) // 4) < dims:
        yield "PCA, equal bytes", PCASearch(dense, kept)
    for links in (8, 16):
        graph = HNSWSearch(dense, m=links, ef_construction=100, ef_search=64)
        yield f"HNSW, {links} links, ef 64", graph
    lists = max(1, min(256, rows // ROWS_PER_CENTROID))
    for m in (codes for codes in (64, 128) if quantized and dims % codes == 0):
        search = IVFPQSearch(dense, nlist=lists, m=m, nprobe=lists // 4, num_threads=num_threads)
        yield f"IVF-PQ, {m} codes, a quarter of {lists} lists", search


def _of_search(split: Split, search: Any, num_threads: int) -> Record:
    found = search.search(split.held_out, 2, num_threads=num_threads)
    return {
        "recall_at_1": _recall(split, *found),
        "bytes_per_row": search.nbytes / len(split.held_out),
    }


def _recall(split: Split, scores: np.ndarray, ids: np.ndarray) -> float:
    _, ids = drop_self(scores, ids)
    labels = split.held_out_labels
    answerable = has_mate(labels)
    return recall_at_k(ids[answerable], labels[answerable], labels)


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured, and how."""

    output: str | None = fields.output()
    num_threads: int = fields.num_threads()
    code_dim: int = fields.code_dim()
    code_nonzeros: int | None = fields.code_nonzeros()
    labelled: str | None = option(
        None, "Dense embeddings with labels: the arrays of these names in an .npz."
    )
    held_out_classes: int | None = option(
        None, "Classes to hold out; half of them if None.", lower=1
    )
    ways: tuple[str, ...] = option(
        (), "Which ways to sparse codes, by their names in the table; empty for all."
    )
    splits: tuple[str, ...] = option(
        (
            "1",
            "2",
            "3",
            "4",
            "5",
        ),
        "Seeds of the splits.",
    )


def main(options: Options) -> None:
    """Compares what the options describe."""
    output = app.writable_file("output", options.output, ".json")
    arrays = read_npz(app.existing_path("labelled", options.labelled), ("embeddings", "labels"))
    rows, labels = arrays["embeddings"], arrays["labels"]
    if rows.ndim != 2 or labels.shape != rows.shape[:1] or rows.dtype.kind not in "fiu":
        raise UsageError(
            f"--labelled={options.labelled}: expected embeddings (n, d) and labels (n,), got "
            f"{rows.shape} of {rows.dtype} and {labels.shape}"
        )
    rows = rows.astype(np.float32)
    if not np.isfinite(rows).all():
        raise UsageError(f"--labelled={options.labelled}: expected finite embeddings")
    classes = len(np.unique(labels))
    held_out = options.held_out_classes or classes // 2
    if not 0 < held_out < classes:
        raise UsageError(
            f"--held_out_classes={held_out}: expected 1 to {classes - 1} of the {classes} classes"
        )
    if not all(seed.isdigit() for seed in options.splits):
        raise UsageError(f"--splits={','.join(options.splits)}: expected integers, such as 1,2,3")
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    unknown = set(options.ways) - set(ways(1, 1, 0))
    if unknown:
        known = "; ".join(ways(1, 1, 0))
        raise UsageError(f"--ways={','.join(options.ways)}: expected some of {known}")
    sizes = (options.code_dim, options.code_nonzeros or 32)
    if sizes[1] > sizes[0]:
        raise UsageError(f"--code_nonzeros={sizes[1]}: expected at most --code_dim={sizes[0]}")
    found = measure(
        rows,
        labels,
        held_out,
        [int(seed) for seed in options.splits],
        *sizes,
        options.num_threads,
        [*options.ways],
    )
    print(summary(found))
    records.save_all(output, found, dim=sizes[0], nonzeros=sizes[1], held_out=held_out)


if __name__ == "__main__":
    app.run(main, Options)
