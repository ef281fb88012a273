"""What to search in, what counts as a result, and what a search may cost."""

import os
import re

from absl import flags

from sparse_embed.flags.shared import defined_on_import


class _NumberOrNone(flags.FloatParser):
    """A number, or `none` for no limit: scores of signed embeddings can be below any number."""

    syntactic_help = "a number or none"

    def parse(self, argument: str | float) -> float | None:  # type: ignore[override]
        return None if argument == "none" else super().parse(argument)

    def flag_type(self) -> str:
        return "a number or none"


def _threshold() -> flags.FlagHolder:
    text = "Smallest score of a result of the sparse search; none for no limit."
    flags.DEFINE(_NumberOrNone(), "threshold", 0.25, text)
    # The holder that this returns refuses None, since the default is a number.
    return flags.FlagHolder(flags.FLAGS, flags.FLAGS["threshold"], ensure_non_none_value=False)


Budget = tuple[int, int]  # how many values a row keeps, and how many a query

_BUDGET = re.compile(r"([1-9][0-9]{0,17})(?::([1-9][0-9]{0,17}))?")


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
        found = []
        for word in argument.split(",") if argument else []:
            match = _BUDGET.fullmatch(word.strip())
            if match is None:
                raise ValueError(
                    f"{word!r} is no budget: expected integers >= 1, each rows or rows:queries, "
                    "such as 64,32:8"
                )
            found.append((int(match[1]), int(match[2] or match[1])))
        return tuple(dict.fromkeys(found))

    def flag_type(self) -> str:
        return "budgets"


class _BudgetTexts(flags.ArgumentSerializer):
    """Writes budgets as `_Budgets` reads them."""

    def serialize(self, value: tuple[Budget, ...]) -> str:
        return ",".join(
            f"{rows}" if rows == queries else f"{rows}:{queries}" for rows, queries in value
        )


def _keep() -> flags.FlagHolder:
    text = (
        "Cuts sparse embeddings to their largest values, with unit norm again: how many values a "
        "row keeps, or rows:queries where a query keeps another number. None is cut by default."
    )
    return flags.DEFINE(_Budgets(), "keep", (), text, serializer=_BudgetTexts())


__getattr__ = defined_on_import(
    globals(),
    {
        "DATABASE": lambda: flags.DEFINE_string(
            "database", None, "Sparse embeddings to search in (CSR, .npz)."
        ),
        "DENSE": lambda: flags.DEFINE_string(
            "dense", None, "Dense embeddings (.npy) of the rows, to re-rank with."
        ),
        "INDEX": lambda: flags.DEFINE_string(
            "index", None, "File of the index; default: images.index in the run's folder."
        ),
        "K": lambda: flags.DEFINE_integer(
            "k", 1000, "Maximum number of results of the sparse search.", lower_bound=1
        ),
        "KEEP": _keep,
        "NUM_THREADS": lambda: flags.DEFINE_integer(
            "num_threads",
            os.cpu_count() or 1,
            "Threads to build with, and of the methods that search with several.",
            lower_bound=1,
        ),
        "THRESHOLD": _threshold,
    },
)
