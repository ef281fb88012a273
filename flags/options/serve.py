"""Options of `serve`."""

import dataclasses

from sparse_embed.common.options import option
from sparse_embed.flags.options import fields


@dataclasses.dataclass(frozen=True)
class Options:
    """What to serve, where, and how much a client may ask for."""

    run_dir: str | None = option(None, "Folder of a reproduction, to serve its words.")
    image_folder: str | None = fields.image_folder()
    index: str | None = fields.index()
    dense: str | None = fields.dense()
    stored_images: str | None = option(
        None, "Pictures (.npy) of the rows of --index, as prepare_data draws them."
    )
    model_dir: str | None = fields.model_dir()
    dense_model_dir: str | None = option(
        None, "Folder of the run of a dense encoder, to re-rank with."
    )
    encoder: str = fields.encoder()
    num_threads: int = fields.num_threads()
    host: str = option(
        "127.0.0.1",
        "Address to listen at; 0.0.0.0 lets all machines in that reach this one.",
    )
    port: int = option(8000, "Port to listen at; 0 for any that is free.", lower=0, upper=65535)
    open_page: bool = option(False, "Opens the page in a browser, too.")
    max_body: int = option(8 << 20, "Bytes of a request, at most.", lower=1)
    max_pixels: int = option(
        16_000_000, "Pixels of an uploaded image, at most.", lower=1, upper=10**8
    )
    max_queue: int = option(64, "Requests that are answered at a time, at most.", lower=1)
    max_seconds: float = option(10.0, "Seconds that an answer may take.", lower=0.01)
