"""Sharded indexes."""

from absl import flags

from sparse_embed.flags.shared import defined_on_import

__getattr__ = defined_on_import(
    globals(),
    {
        "INDEX_FOLDER": lambda: flags.DEFINE_string(
            "index_folder", None, "Folder of the sharded index."
        ),
        "SHARDS": lambda: flags.DEFINE_integer("shards", 4, "How many shards.", lower_bound=1),
    },
)
