"""Options that several scripts have, with one text each: call one to make a field of it."""

import os
import re
from functools import partial

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


class _Budgets(flags.ArgumentParser[tuple[Budget, ...]]):
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


model_dir = partial(
    option, None, "Folder of a training run: encoder, record, checkpoints, TensorBoard events."
)
data_dir = partial(
    option,
    None,
    "Folder or file of the data set; for glyphs and words, the cache of rendered glyphs "
    "(default: the user's cache folder).",
)
output = partial(option, None, "File to write.")
records = partial(
    option, "runs/records", "Folder of evaluation records, one file per method and setting."
)
run_dir = partial(
    option, "runs/reproduce", "Folder of a reproduction: all that it makes, and its report."
)
encoder = partial(
    option,
    "keras",
    "Which file of the run is the encoder: keras is the one that train writes, export_encoder "
    "writes the others.",
    choices=ENCODERS,
)
export = partial(
    option,
    (),
    f"Formats to write the encoder in, beside {ENCODERS[0]}: {', '.join(ENCODERS[1:])}. Each "
    "is compared with the Keras encoder. LiteRT needs the extra litert.",
    choices=ENCODERS[1:],
)
image_folder = partial(option, None, "Folder of images, and all folders in it.")
split = partial(option, "test", "Part of the data set, such as train, validation or test.")
views = partial(option, 3, "How many warped views of each glyph to embed.", lower=1)
count = partial(
    option, 100_000, "How many distractors to make; only with --split=distractors.", lower=1
)
database = partial(option, None, "Sparse embeddings to search in (CSR, .npz).")
dense = partial(option, None, "Dense embeddings (.npy) of the rows, to re-rank with.")
index = partial(option, None, "File of the index; default: images.index in the run's folder.")
k = partial(option, 1000, "Maximum number of results of the sparse search.", lower=1)
threshold = partial(
    option,
    0.25,
    "Smallest score of a result of the sparse search; none for no limit.",
    parser=_NumberOrNone(),
)
keep = partial(
    option,
    (),
    "Cuts sparse embeddings to their largest values, with unit norm again: how many values a "
    "row keeps, or rows:queries where a query keeps another number. None is cut by default.",
    parser=_Budgets(),
)
num_threads = partial(
    option,
    os.cpu_count() or 1,
    "Threads to build with, and of the methods that search with several.",
    lower=1,
)
distractors = partial(option, 1_000_000, "How many distractors to search among.", lower=1)
drawn_from = partial(
    option, "words", "Data set that the images are drawn from.", choices=("words", "glyphs")
)
probe_classes = partial(option, 400, "How many test classes to take probes from.", lower=2)
pair_count = partial(option, 6000, "Pairs of images in each verification set, as in LFW.", lower=20)
only = partial(option, (), "Methods to evaluate; empty for all.")
train_flags = partial(option, (), "More flags for every training run.")
data_name = partial(option, "glyphs", "Name of the data in the records.")
shards = partial(option, 4, "How many shards.", lower=1)
index_folder = partial(option, None, "Folder of the sharded index.")
ray_address = partial(
    option,
    None,
    "Ray cluster to join (auto, or host:port); by default that of the variable RAY_ADDRESS, or "
    "else Ray starts on this machine.",
)
ray_temp_folder = partial(
    option,
    None,
    "Folder of sockets and logs of a Ray that starts here, with a short path; by default that "
    "of the variable RAY_TMPDIR, or else /tmp/ray.",
)
code_dim = partial(option, 512, "Dimension of the sparse codes.", lower=1)
code_nonzeros = partial(option, None, "The most non-zeros of a code.", lower=1)
