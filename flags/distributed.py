"""Where work on many machines is done."""

from absl import flags

from sparse_embed.flags.shared import defined_on_import

__getattr__ = defined_on_import(
    globals(),
    {
        "RAY_ADDRESS": lambda: flags.DEFINE_string(
            "ray_address",
            None,
            "Address of a Ray cluster to join, such as auto or ray://head:10001; by default Ray is "
            "started on this machine.",
        ),
    },
)
