"""Flags that the evaluations share."""

from absl import flags

from sparse_embed.flags.shared import defined_on_import

__getattr__ = defined_on_import(
    globals(),
    {
        "DISTRACTORS": lambda: flags.DEFINE_integer(
            "distractors", 1_000_000, "How many distractors to search among.", lower_bound=1
        ),
        "DRAWN": lambda: flags.DEFINE_enum(
            "drawn_from", "words", ["words", "glyphs"], "Data set that the images are drawn from."
        ),
        "PROBE_CLASSES": lambda: flags.DEFINE_integer(
            "probe_classes", 400, "How many test classes to take probes from.", lower_bound=2
        ),
        "PAIR_COUNT": lambda: flags.DEFINE_integer(
            "pair_count",
            6000,
            "Pairs of images in each verification set, as in LFW.",
            lower_bound=20,
        ),
        "ONLY": lambda: flags.DEFINE_list("only", [], "Methods to evaluate; empty for all."),
        "TRAIN_FLAGS": lambda: flags.DEFINE_list(
            "train_flags", [], "More flags for every training run."
        ),
        "TIMED_QUERIES": lambda: flags.DEFINE_integer(
            "timed_queries",
            200,
            "How many queries are timed, one at a time, all methods in turns; 0 for none.",
            lower_bound=0,
        ),
        "DATA_NAME": lambda: flags.DEFINE_string(
            "data_name", "glyphs", "Name of the data in the records."
        ),
    },
)
