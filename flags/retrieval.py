"""What to search in, and what counts as a result."""

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


__getattr__ = defined_on_import(
    globals(),
    {
        "DATABASE": lambda: flags.DEFINE_string(
            "database", None, "Sparse embeddings to search in (CSR, .npz)."
        ),
        "K": lambda: flags.DEFINE_integer(
            "k", 1000, "Maximum number of results of the sparse search.", lower_bound=1
        ),
        "THRESHOLD": _threshold,
    },
)
