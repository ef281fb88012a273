"""Options of `search`: among embeddings, or in a folder of images."""

import dataclasses

from sparse_embed.common.options import option
from sparse_embed.flags.config import Kinds
from sparse_embed.flags.options import fields


@dataclasses.dataclass(frozen=True)
class Rows:
    """Embedded queries in an embedded database."""

    database: str | None = fields.database()
    queries: str | None = option(
        None,
        "Sparse embeddings of the queries (.npz); default: each row of the database among the "
        "others.",
    )
    dense_database: str | None = option(
        None, "Dense embeddings (.npy) of the same rows, to re-rank with."
    )
    dense_queries: str | None = option(
        None, "Dense embeddings (.npy) of the same queries; goes with --queries."
    )
    k: int = fields.k()
    threshold: float | None = fields.threshold()
    output: str | None = fields.output()


@dataclasses.dataclass(frozen=True)
class Images:
    """The images in a folder that are most like a given one."""

    model_dir: str | None = fields.model_dir()
    image_folder: str | None = fields.image_folder()
    query: str | None = option(None, "Image to search for.")
    nearest: int = option(10, "How many images to show.", lower=1)
    leave_out_query: bool = option(
        True,
        "Leaves the query itself out of the results if it is in the folder; copies of it stay.",
    )
    encoder: str = fields.encoder()
    index: str | None = fields.index()
    output: str = option("nearest.png", "File to write.")


OPTIONS = Kinds(
    "what",
    "What to search in: rows of --database, or images of --image_folder, which implies it.",
    {"rows": Rows, "images": Images},
    {"image_folder": "images"},
)
