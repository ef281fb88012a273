"""Options that several scripts have, with one text each."""

import os
import re
from typing import Any

from absl import flags

from sparse_embed.common.options import option

ENCODERS = ("keras", "saved_model", "litert", "litert_float16", "litert_int8")
Budget = tuple[int, int]  # how many values a row keeps, and how many a query
_BUDGET = re.compile(r"([1-9][0-9]{0,17})(?::([1-9][0-9]{0,17}))?")


class _NumberOrNone(flags.FloatParser):
    """A number, or `none` for no limit: scores of signed embeddings can be below any number."""

    syntactic_help = "a number or none"

    def parse(self, argument: str | float) -> float | None:  # type: ignore[override]
        return None if argument == "none" else super().parse(argument)

    def flag_type(self) -> str:
        return "a number or none"


class _Budgets(flags.ArgumentParser):
    """Reads budgets such as 64,32:8: each is `rows`, or `rows:queries` where the two differ."""

    syntactic_help = "numbers of values, each rows or rows:queries"

    def parse(self, argument: str | tuple[Budget, ...]) -> tuple[Budget, ...]:
        """Returns the budgets in the order given, each once.

        Raises:
            ValueError: a budget is no positive number, nor two of them.
        """
        if not isinstance(argument, str):
            return argument
        budgets = []
        for word in argument.split(",") if argument else []:
            match = _BUDGET.fullmatch(word.strip())
            if match is None:
                raise ValueError(
                    f"{word!r} is no budget: expected integers >= 1, each rows or rows:queries, "
                    "such as 64,32:8"
                )
            budgets.append((int(match[1]), int(match[2] or match[1])))
        return tuple(dict.fromkeys(budgets))

    def flag_type(self) -> str:
        return "budgets"


def budgets_text(budgets: tuple[Budget, ...]) -> str:
    """Returns budgets as `--keep` reads them."""
    return ",".join(
        f"{rows}" if rows == queries else f"{rows}:{queries}" for rows, queries in budgets
    )


def model_dir() -> Any:
    """The run that a script uses."""
    return option(
        None, "Folder of a training run: encoder, record, checkpoints, TensorBoard events."
    )


def data_dir() -> Any:
    """The data of a run, which may have moved since it was trained."""
    return option(
        None,
        "Folder or file of the data set; for glyphs and words, the cache of rendered glyphs "
        "(default: the user's cache folder).",
    )


def output() -> Any:
    """A file that a script writes."""
    return option(None, "File to write.")


def records() -> Any:
    """The folder of records."""
    return option("runs/records", "Folder of evaluation records, one file per method and setting.")


def run_dir() -> Any:
    """The folder of a reproduction."""
    return option("runs/reproduce", "Folder of a reproduction: all that it makes, and its report.")


def encoder() -> Any:
    """The format of an encoder."""
    return option(
        "keras",
        "Which file of the run is the encoder: keras is the one that train writes, export_encoder "
        "writes the others.",
        choices=ENCODERS,
    )


def export() -> Any:
    """Formats to write."""
    return option(
        (),
        f"Formats to write the encoder in, beside {ENCODERS[0]}: {', '.join(ENCODERS[1:])}. Each "
        "is compared with the Keras encoder. LiteRT needs the extra litert.",
        choices=ENCODERS[1:],
    )


def image_folder() -> Any:
    """A folder of a user's images."""
    return option(None, "Folder of images, and all folders in it.")


def split() -> Any:
    """A part of a data set."""
    return option("test", "Part of the data set, such as train, validation or test.")


def views() -> Any:
    """Views of an image."""
    return option(3, "How many warped views of each glyph to embed.", lower=1)


def count() -> Any:
    """How many distractors are made."""
    return option(100_000, "How many distractors to make; only with --split=distractors.", lower=1)


def database() -> Any:
    """Sparse embeddings."""
    return option(None, "Sparse embeddings to search in (CSR, .npz).")


def dense() -> Any:
    """Dense embeddings to re-rank with."""
    return option(None, "Dense embeddings (.npy) of the rows, to re-rank with.")


def index() -> Any:
    """The index of a folder of images."""
    return option(None, "File of the index; default: images.index in the run's folder.")


def k() -> Any:
    """Results of a sparse search."""
    return option(1000, "Maximum number of results of the sparse search.", lower=1)


def threshold() -> Any:
    """The smallest score."""
    return option(
        0.25,
        "Smallest score of a result of the sparse search; none for no limit.",
        parser=_NumberOrNone(),
    )


def keep() -> Any:
    """Budgets that embeddings are cut to."""
    return option(
        (),
        "Cuts sparse embeddings to their largest values, with unit norm again: how many values a "
        "row keeps, or rows:queries where a query keeps another number. None is cut by default.",
        parser=_Budgets(),
    )


def num_threads() -> Any:
    """Threads."""
    return option(
        os.cpu_count() or 1,
        "Threads to build with, and of the methods that search with several.",
        lower=1,
    )


def distractors() -> Any:
    """The size of a search."""
    return option(1_000_000, "How many distractors to search among.", lower=1)


def drawn_from() -> Any:
    """What evaluation sets are drawn from."""
    return option("words", "Data set that the images are drawn from.", choices=("words", "glyphs"))


def probe_classes() -> Any:
    """Probes of an evaluation set."""
    return option(400, "How many test classes to take probes from.", lower=2)


def pair_count() -> Any:
    """Pairs of an evaluation set."""
    return option(6000, "Pairs of images in each verification set, as in LFW.", lower=20)


def only() -> Any:
    """A choice of methods."""
    return option((), "Methods to evaluate; empty for all.")


def train_flags() -> Any:
    """Flags for training runs of a reproduction."""
    return option((), "More flags for every training run.")


def data_name() -> Any:
    """The name of data in records."""
    return option("glyphs", "Name of the data in the records.")


def shards() -> Any:
    """Parts of an index."""
    return option(4, "How many shards.", lower=1)


def index_folder() -> Any:
    """A sharded index."""
    return option(None, "Folder of the sharded index.")


def ray_address() -> Any:
    """A Ray to join."""
    return option(
        None,
        "Ray cluster to join (auto, or host:port); by default that of the variable RAY_ADDRESS, or "
        "else Ray starts on this machine.",
    )


def ray_temp_folder() -> Any:
    """Where a Ray that starts here keeps its files."""
    return option(
        None,
        "Folder of sockets and logs of a Ray that starts here, with a short path; by default that "
        "of the variable RAY_TMPDIR, or else /tmp/ray.",
    )


def code_dim() -> Any:
    """Sparse codes of dense embeddings."""
    return option(512, "Dimension of the sparse codes.", lower=1)


def code_nonzeros() -> Any:
    """The budget of such a code."""
    return option(None, "The most non-zeros of a code.", lower=1)
