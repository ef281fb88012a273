r"""Makes workloads for `search.py` out of trained embeddings and of text.

    python benchmarks/make_workloads.py --workload_dir=runs/workloads \
        --run_dir=runs/reproduce/full
    python benchmarks/search.py --sweep --output=runs/text.json \
        --database=runs/workloads/text.npz --query_file=runs/workloads/text.queries.npz

Trained embeddings are those of `make reproduce PRESET=full` in `--run_dir`; text is TF-IDF of the
Python sources of this environment, for which scikit-learn must be installed. Each workload is a
file of rows and one of queries, which are not among the rows.
"""

import dataclasses
import pathlib
import sysconfig
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse

from sparse_embed.common.failures import UsageError
from sparse_embed.common.files import atomic_path
from sparse_embed.common.options import option
from sparse_embed.experiments.core.embedding_files import read_csr
from sparse_embed.flags import app
from sparse_embed.flags.options import fields
from sparse_embed.retrieval import sparsity_metrics

# Embeddings that `make reproduce PRESET=full` leaves, a million of words each: `resnet8` has the
# soft threshold and thus signed values, `mobilefacenet` ReLU; lambda weighs relaxed FLOPs.
_FILE = "{}/seed0/flops/path/lambda_{}/identification.npz"
TRAINED = {
    f"words_{network}_flops{weight}": _FILE.format(network, weight)
    for network in ("resnet8", "mobilefacenet")
    for weight in (40, 120)
}


class Split(NamedTuple):
    """A database, and queries that are no rows of it."""

    database: scipy.sparse.csr_array
    queries: scipy.sparse.csr_array


def split(rows: scipy.sparse.csr_array, queries: int, seed: int = 0) -> Split:
    """Takes `queries` random rows out; the others keep their order.

    Raises:
        ValueError: there are not more rows than queries.
    """
    if rows.shape[0] <= queries:
        raise ValueError(f"queries={queries}: expected fewer than the {rows.shape[0]} rows")
    chosen = np.zeros(rows.shape[0], bool)
    chosen[np.random.default_rng(seed).choice(rows.shape[0], queries, replace=False)] = True
    return Split(rows[~chosen], rows[chosen])


def trained(run_dir: pathlib.Path, name: str, queries: int) -> Split:
    """Splits the embeddings of one encoder of a reproduction; `name` is one of TRAINED."""
    path = run_dir / TRAINED[name]
    if not path.exists():
        raise UsageError(f"--run_dir={run_dir}: expected {TRAINED[name]} in it")
    return split(read_csr(path)[0].astype(np.float32), queries)


def passages(folder: pathlib.Path, lines: int) -> Iterator[str]:
    """Yields every `lines` lines of the Python sources below a folder, file after file by name."""
    for path in sorted(folder.rglob("*.py")):
        try:
            content = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            continue  # a link to nowhere, or a test of encodings
        for begin in range(0, len(content), lines):
            yield "\n".join(content[begin : begin + lines])


def text(
    rows: int, dims: int, queries: int, folders: list[str] | None = None, lines: int = 20
) -> Split:
    """TF-IDF of passages of the Python sources in this environment: skewed lists, unit rows.

    Which sources these are depends on what is installed. Passages without a known word are left
    out.

    Args:
        rows: passages of the database, chosen at random if there are more.
        dims: the most frequent words.
        queries: passages that are queries.
        folders: where the sources are; by default those of Python and all that is installed.
        lines: lines of a passage.
    """
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError as error:
        raise UsageError(
            "text: expected scikit-learn (pip install 'sparse-embed[benchmark]')"
        ) from error
    folders = folders or [sysconfig.get_path(kind) for kind in ("stdlib", "purelib")]
    found = [one for folder in folders for one in passages(pathlib.Path(folder), lines)]
    if len(found) < rows + queries:
        raise UsageError(
            f"--text_rows={rows}: {len(found)} passages of Python are installed, expected at least "
            f"{rows + queries}"
        )
    chosen = np.random.default_rng(0).permutation(len(found))[: rows + queries]
    vectorizer = TfidfVectorizer(max_features=dims, sublinear_tf=True, dtype=np.float32)
    matrix = scipy.sparse.csr_array(vectorizer.fit_transform([found[i] for i in chosen]))
    return split(matrix[np.flatnonzero(np.diff(matrix.indptr))], queries)


def save(folder: pathlib.Path, name: str, made: Split) -> None:
    """Writes `<name>.npz` and `<name>.queries.npz`, for `search.py`."""
    for suffix, matrix in ((".npz", made.database), (".queries.npz", made.queries)):
        with atomic_path(folder / f"{name}{suffix}") as temporary, open(temporary, "wb") as file:
            scipy.sparse.save_npz(file, matrix, compressed=False)


_KNOWN = [*TRAINED, "text"]


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured, and how."""

    run_dir: str = fields.run_dir()
    workload_dir: str | None = option(None, "Folder that the workloads go to.")
    workloads: tuple[str, ...] = option(tuple(_KNOWN), "Which to make.")
    held_out: int = option(1000, "Rows that become queries.", lower=1)
    text_rows: int = option(100_000, "Passages of text.", lower=1)
    text_dims: int = option(50_000, "Words of the text.", lower=1)


def main(options: Options) -> None:
    """Makes the workloads that the options name."""
    folder = app.writable_folder("workload_dir", options.workload_dir)
    for name in options.workloads:
        if name not in _KNOWN:
            raise UsageError(f"--workloads={name}: expected some of {', '.join(_KNOWN)}")
    for name in options.workloads:
        if name == "text":
            made = text(options.text_rows, options.text_dims, options.held_out)
        else:
            run_dir = app.existing_path("run_dir", options.run_dir)
            made = trained(run_dir, name, options.held_out)
        save(folder, name, made)
        rows, dims = made.database.shape
        ratio = sparsity_metrics(made.database)["suboptimality_ratio"]
        print(
            f"{folder / name}.npz: {rows} rows, {dims} dimensions, "
            f"{made.database.nnz / rows:.1f} non-zeros per row, sub-optimality {ratio:.2f}"
        )


if __name__ == "__main__":
    app.run(main, Options)
