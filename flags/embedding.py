"""What to embed."""

from absl import flags

from sparse_embed.flags.shared import defined_on_import

__getattr__ = defined_on_import(
    globals(),
    {
        "COUNT": lambda: flags.DEFINE_integer(
            "count",
            100_000,
            "How many distractors to make; only with --split=distractors.",
            lower_bound=1,
        ),
        "IMAGE_FOLDER": lambda: flags.DEFINE_string(
            "image_folder",
            None,
            "Folder of images, and all folders in it: what search_images and serve search, what "
            "embed_parts embeds in place of a part of the run's data set.",
        ),
        "SPLIT": lambda: flags.DEFINE_string(
            "split", "test", "Part of the data set, such as train, validation or test."
        ),
        "VIEWS": lambda: flags.DEFINE_integer(
            "views", 3, "How many warped views of each glyph to embed.", lower_bound=1
        ),
    },
)
