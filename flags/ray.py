"""Where Ray runs."""

from absl import flags

from sparse_embed.flags.shared import defined_on_import

__getattr__ = defined_on_import(
    globals(),
    {
        "RAY_ADDRESS": lambda: flags.DEFINE_string(
            "ray_address",
            None,
            "Ray cluster to join (auto, or host:port); by default that of the variable "
            "RAY_ADDRESS, or else Ray starts on this machine.",
        ),
        "RAY_TEMP_FOLDER": lambda: flags.DEFINE_string(
            "ray_temp_folder",
            None,
            "Folder of sockets and logs of a Ray that starts here, with a short path; by default "
            "that of the variable RAY_TMPDIR, or else /tmp/ray.",
        ),
    },
)
