"""What the evaluations have in common."""

from absl import flags

DISTRACTORS = flags.DEFINE_integer(
    "distractors", 1_000_000, "How many distractors to search among.", lower_bound=1
)
ONLY = flags.DEFINE_list("only", [], "Methods to evaluate; empty for all.")
TIMED_QUERIES = flags.DEFINE_integer(
    "timed_queries", 200, "How many queries are timed, one at a time.", lower_bound=1
)
DATA_NAME = flags.DEFINE_string("data_name", "glyphs", "Name of the data in the records.")
