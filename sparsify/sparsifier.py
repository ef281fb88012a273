"""`Sparsifier`: one call from dense embeddings to sparse codes with a chosen cost of search."""

import inspect
import math
import os
import pathlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from sparse_embed.common.checks import check_number
from sparse_embed.common.files import atomic_path
from sparse_embed.retrieval import activation_probability, keep_largest
from sparse_embed.sparsify.encoder import build_encoder, encode, read_encoder
from sparse_embed.sparsify.labels import chosen_contrast
from sparse_embed.sparsify.learning import learn

_FLOPS = 2.0  # where no budget is given
_MOST_LEARNED = 200_000  # rows: more change nothing but the time
_MOST_HELD_OUT = 10_000
MOST_ROWS = _MOST_LEARNED + _MOST_HELD_OUT  # that `fit` uses
_FEWEST_MEASURED = 1000  # rows that F is measured on, if there are so many
_VALUES_AT_ONCE = 1 << 24  # of dense rows that are float32 together: 64 MB


class Sparsifier:
    """Sparse codes for dense embeddings, in the manner of scikit-learn's transformers.

        index = SparseIndex.build(Sparsifier(dim=512, flops=2.0).fit(x).transform(x))

    The codes of similar rows are similar, whatever the length of the rows. With labels the codes
    may also learn which rows belong together, if that helps to find rows of classes that were held
    out. How they are learned: `sparsify.learning`; what was measured: docs/sparsify.md.

    Args:
        dim: dimension of the codes.
        flops: the most multiply-adds that a search may cost per row, F = sum over j of p_j^2; 2 if
            neither budget is given. A warning tells where even one non-zero per row costs more.
        nonzeros: the most non-zeros of a code.
        steps: training steps.
        random_state: an integer seed, or None for seed 0: the same call gives the same codes.
        progress: whether to draw progress bars.

    Attributes:
        encoder_: the Keras model, made of Keras' own layers.
        nonzeros_: how many non-zeros a code has at most.
        flops_: F between different rows that were not learned from (where these are fewer than
            1,000, others make up the number). Not after `load`.
        contrast_: the weight of the labels that was chosen; 0 without labels. Not after `load`.
        n_features_in_: dimension of the dense rows.
    """

    def __init__(
        self,
        dim: int = 512,
        flops: float | None = None,
        nonzeros: int | None = None,
        steps: int = 1000,
        random_state: int | None = None,
        progress: bool = False,
    ):
        self.dim = dim
        self.flops = flops
        self.nonzeros = nonzeros
        self.steps = steps
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any = None) -> "Sparsifier":  # noqa: N803 - scikit-learn's name
        """Learns the codes.

        Args:
            X: (rows, d) dense embeddings, an array or a memory map. Their length does not matter.
            y: (rows,) labels, or None.

        Raises:
            ValueError: an argument cannot be used; nothing has changed.
        """
        check_number("dim", self.dim, integer=True, minimum=1)
        check_number("steps", self.steps, integer=True, minimum=1)
        most = self._most_nonzeros()
        seed = 0 if self.random_state is None else self.random_state
        check_number("random_state", seed, integer=True, minimum=0, maximum=2**32 - 1)
        x = _dense(X)
        if len(x) < 2:
            raise ValueError(f"X has 1 sample (shape {x.shape}): expected at least 2 rows")
        alive = [part.any(axis=1) for part in _float_parts(x)]
        if sum(map(np.count_nonzero, alive)) < 2:
            raise ValueError("X has fewer than 2 rows that are not all zeros: expected at least 2")
        labels = None if y is None else _class_numbers(y, len(x))

        # Rows of zeros, whose codes are zeros, teach nothing.
        order = np.random.default_rng(seed).permutation(np.flatnonzero(np.concatenate(alive)))
        order = order[:MOST_ROWS]
        held_out = min(len(order) // 10, _MOST_HELD_OUT)
        measured = np.sort(order[: max(held_out, _FEWEST_MEASURED)])
        learned = np.sort(order[held_out:])
        rows = unit_rows(x[learned])
        classes = None if labels is None else labels[learned]
        contrast = 0.0
        if classes is not None:
            contrast = chosen_contrast(
                rows, classes, self.dim, most, self.steps, seed, self.progress
            )
        atoms = learn(
            rows,
            self.dim,
            most,
            self.steps,
            seed,
            classes,
            contrast=contrast,
            progress=self.progress,
        )
        # Codes of fewer non-zeros are the largest values of those with more.
        codes = encode(build_encoder(atoms, most), unit_rows(x[measured]))
        self.nonzeros_, self.flops_ = self._within_budget(codes, most)
        self.encoder_ = build_encoder(atoms, self.nonzeros_)
        self.contrast_ = contrast
        self.n_features_in_ = x.shape[1]
        return self

    def transform(self, X: Any) -> scipy.sparse.csr_array:  # noqa: N803
        """Returns the codes of (rows, d) dense embeddings: float32 CSR, rows of unit norm.

        A row of zeros has a code of zeros. Rows may be a memory map: they are read in batches.
        """
        if not hasattr(self, "encoder_"):
            raise NotFittedError(
                "This Sparsifier is not fitted yet: call fit(X), or Sparsifier.load(path)"
            )
        x = _dense(X)
        if x.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {x.shape[1]} features, but Sparsifier is expecting "
                f"{self.n_features_in_} features as input"
            )
        parts = [encode(self.encoder_, part) for part in _float_parts(x)]
        return scipy.sparse.csr_array(scipy.sparse.vstack(parts, "csr"))

    def fit_transform(self, X: Any, y: Any = None) -> scipy.sparse.csr_array:  # noqa: N803
        """Returns `fit(X, y).transform(X)`."""
        return self.fit(X, y).transform(X)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the encoder to a `.keras` file, which Keras reads without this package."""
        path = pathlib.Path(path)
        if path.suffix != ".keras":
            raise ValueError(f"path={str(path)!r}: expected a file that ends in .keras")
        if not hasattr(self, "encoder_"):
            raise NotFittedError("This Sparsifier is not fitted yet: there is nothing to save")
        with atomic_path(path) as unfinished:
            self.encoder_.save(unfinished)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Sparsifier":
        """Returns the sparsifier that `save` wrote, ready to transform."""
        encoder, nonzeros = read_encoder(path)
        found = cls(dim=encoder.output_shape[-1], nonzeros=nonzeros)
        found.encoder_, found.nonzeros_ = encoder, nonzeros
        found.n_features_in_ = encoder.input_shape[-1]
        return found

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the arguments of the constructor, as scikit-learn asks for them."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> "Sparsifier":
        """Sets arguments of the constructor."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"{name}={value!r}: expected one of {', '.join(known)}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        return f"Sparsifier({', '.join(f'{k}={v!r}' for k, v in self.get_params().items())})"

    def __sklearn_tags__(self) -> Any:
        utils: Any = sys.modules["sklearn.utils"]  # only scikit-learn calls this
        return utils.Tags(
            estimator_type="transformer",
            target_tags=utils.TargetTags(required=False),
            transformer_tags=utils.TransformerTags(preserves_dtype=[]),
            input_tags=utils.InputTags(),
        )

    def _most_nonzeros(self) -> int:
        """Returns k: with even dimensions, p_j = k / dim, the cost is F = k^2 / dim."""
        most = self.dim
        if self.nonzeros is not None:
            most = min(most, check_number("nonzeros", self.nonzeros, integer=True, minimum=1))
        flops = self._flops_budget()
        if flops is not None:
            check_number("flops", flops, above=0)
            even = math.isqrt(int(min(flops * self.dim * (1 + 1e-12), self.dim**2)))
            if even < 1:
                raise ValueError(
                    f"flops={flops!r}: expected at least 1 / dim = {1 / self.dim:.3g}, one "
                    "non-zero per row"
                )
            most = min(most, even)
        return most

    def _flops_budget(self) -> float | None:
        return _FLOPS if self.flops is None and self.nonzeros is None else self.flops

    def _within_budget(self, codes: scipy.sparse.csr_array, most: int) -> tuple[int, float]:
        """Returns the largest k up to `most` whose F on the codes is at most `flops`, and F."""
        flops = self._flops_budget()
        for k in range(most, 0, -1):
            cost = _flops_of_pairs(keep_largest(codes, k))
            if flops is None or cost <= flops:
                return k, cost
        warnings.warn(f"flops={flops!r}: codes of one non-zero cost {cost:.3g}", stacklevel=3)
        return 1, cost


class NotFittedError(ValueError, AttributeError):
    """`transform` or `save` before `fit`."""


def _flops_of_pairs(codes: scipy.sparse.csr_array) -> float:
    """Mean multiply-adds of two different rows: the unbiased estimate of sum_j p_j^2.

    Squared shares of few rows would count each row with itself, too.
    """
    rows = codes.shape[0]
    counts = rows * activation_probability(codes)
    return float((counts * (counts - 1)).sum() / (rows * (rows - 1)))


def _dense(x: Any) -> np.ndarray:
    """Returns X, (rows, d) real numbers, as an array; one that is an array is not copied."""
    if scipy.sparse.issparse(x):
        raise TypeError("X is a sparse matrix: expected dense data; sparse rows need no Sparsifier")
    x = x if isinstance(x, np.ndarray) else np.asarray(x)
    if x.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: X of {x.dtype}, expected real numbers")
    if x.ndim != 2 or x.dtype.kind not in "fiuO":
        raise ValueError(
            f"X of shape {x.shape}, {x.dtype}: expected 2-D numbers, (rows, dimensions). "
            "Reshape your data"
        )
    if 0 in x.shape:
        raise ValueError(
            f"X has {x.shape[0]} sample(s) and {x.shape[1]} feature(s) (shape={x.shape}) "
            "while a minimum of 1 is required."
        )
    rows: np.ndarray = x
    return rows


def _float_parts(x: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the rows of X as float32, in parts; ValueError naming the first that is not finite."""
    size = max(1, _VALUES_AT_ONCE // x.shape[1])
    for begin in range(0, len(x), size):
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(x[begin : begin + size], np.float32)
        broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if broken.size:
            raise ValueError(
                "X contains NaN, infinity or a value too large for float32 in row "
                f"{begin + broken[0]}: expected finite numbers"
            )
        yield rows


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Returns finite rows divided by their length, in float32; rows of zeros stay."""
    rows = np.asarray(rows, np.float32)
    # Squares of very long or very short rows would leave float32.
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows = rows / np.where(largest > 0, largest, 1)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1)


def _class_numbers(y: Any, rows: int) -> np.ndarray:
    """Returns the labels as class numbers; ValueError unless there is one label for each row."""
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (rows,):
        raise ValueError(f"y of shape {labels.shape}: expected {rows} labels, one for each row")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("y contains NaN or infinity: expected a label for each row")
    # NaN is no label either, and differs from itself.
    if labels.dtype.kind == "O" and any(label is None or label != label for label in labels):
        raise ValueError("y contains None or NaN: expected a label for each row")
    try:
        classes, numbers = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"y holds labels that cannot be compared: {error}") from error
    if len(classes) < 2:
        raise ValueError(f"y has one class, {classes[0]!r}: expected at least 2 classes")
    return numbers
