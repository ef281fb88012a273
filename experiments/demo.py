"""Opens the page of the service on what `make reproduce` has trained and embedded.

    make demo
    python -m sparse_embed.experiments.demo --run_dir=runs/reproduce/full --port=8001

Searches the words of --run_dir, sparse embeddings first, re-ranked by dense ones if one likes.
"""

import pathlib

from sparse_embed.common.failures import UsageError
from sparse_embed.flags import app
from sparse_embed.flags.output import RUN_DIR
from sparse_embed.flags.retrieval import NUM_THREADS
from sparse_embed.flags.serving import HOST, OPEN_PAGE, PORT


def main() -> None:
    """Finds the runs of a reproduction and serves them."""
    from sparse_embed.experiments.serving import demo, server
    from sparse_embed.experiments.serving.limits import Limits

    folder = (
        pathlib.Path(RUN_DIR.value) if RUN_DIR.present else pathlib.Path(RUN_DIR.value, "quick")
    )
    found = demo.find(folder)
    if found is None:
        raise UsageError(
            f"--run_dir={folder}: expected what `make reproduce` leaves: run it first "
            "(12 minutes on 2 cores)"
        )
    show = OPEN_PAGE.value or not OPEN_PAGE.present
    server.run(demo.open_all(found, NUM_THREADS.value), Limits(), HOST.value, PORT.value, show)


if __name__ == "__main__":
    app.run(main)
