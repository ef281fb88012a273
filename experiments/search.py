r"""Searches: embedded queries in an embedded database, or one image in a folder of images.

    python -m sparse_embed.experiments.search --database=runs/sparse/test.npz \
        --dense_database=runs/dense/test.npy --output=runs/search.json
    python -m sparse_embed.experiments.search --model_dir=runs/sparse --image_folder=photos \
        --query=photo.jpg --output=nearest.png

Among embeddings there are three searches for the best row of each query, the last two with
--dense_database alone: `sparse`, the highest sparse score; `sparse, re-ranked`, the paper's
Algorithm 1, which re-ranks a shortlist of rows scoring at least --threshold, at most --k of them,
with the dense embeddings; `exhaustive dense`, the highest dense score. It prints recall and speed.
Without --queries each row of the database is searched among all the others. Queries of a class that
has no other row cannot be answered: they are searched, but do not count towards recall.

--image_folder embeds a folder with the encoder in --model_dir (a run's folder or a `.keras` file;
--encoder takes another format of a run) and keeps the index in --index; the next call opens it,
unless encoder or folder have changed. It prints the nearest images as a table and writes a figure
of them. If the query is in the folder it is left out; --noleave_out_query keeps it.
"""

import os

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.core import records
from sparse_embed.experiments.core.embedding_files import Embeddings, load_flag
from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.core.run import encoder_path
from sparse_embed.experiments.core.text_table import text_table
from sparse_embed.experiments.encoders import image_search
from sparse_embed.experiments.encoders.encoder import open_encoder
from sparse_embed.experiments.methods import leave_one_out
from sparse_embed.flags import app
from sparse_embed.flags.options.search import OPTIONS, Images, Rows


def main(options: Rows | Images) -> None:
    """Searches, and shows the results."""
    if isinstance(options, Rows):
        _search_rows(options)
    else:
        _search_images(options)


def _search_rows(options: Rows) -> None:
    if not options.dense_database:
        for name in ("k", "threshold"):
            if (value := getattr(options, name)) != getattr(Rows, name):
                raise UsageError(
                    f"--{name}={value} limits the shortlist that is re-ranked: "
                    "it needs --dense_database"
                )
    output = app.writable_file("output", options.output, ".json") if options.output else None
    database = _load("database", options.database, sparse=True)
    rows, dims = database.vectors.shape
    queries = dense = dense_queries = None
    if options.queries:
        queries = _load("queries", options.queries, sparse=True)
        if queries.vectors.shape[1] != dims:
            raise UsageError(
                f"--queries={options.queries}: {queries.vectors.shape[1]} dimensions: expected "
                f"{dims}, as in --database"
            )
    if options.dense_database:
        dense = _load("dense_database", options.dense_database, False, rows)
        if queries is not None:
            count = queries.vectors.shape[0]
            dense_queries = _load("dense_queries", options.dense_queries, False, count)
    limits = (options.k, options.threshold)
    measured = leave_one_out.evaluate(database, queries, dense, dense_queries, *limits)
    print(table(measured))
    if dense is not None:
        limit = "" if options.threshold is None else f" scoring at least {options.threshold:g}"
        print(f"re-ranked: at most {options.k} rows{limit}")
    if output:
        settings = {"k": options.k, "threshold": options.threshold}
        records.save_all(output, measured, settings=settings)


def _load(flag: str, value: str | None, sparse: bool, rows: int | None = None) -> Embeddings:
    """Reads the embeddings that a flag names; UsageError if they are of another kind or size."""
    embeddings = load_flag(flag, app.existing_path(flag, value), sparse)
    if rows is not None and embeddings.vectors.shape[0] != rows:
        raise UsageError(
            f"--{flag}={value}: expected {rows} rows, as in the sparse file, "
            f"not {embeddings.vectors.shape[0]}"
        )
    return embeddings


def table(measured: list[Record]) -> str:
    """Returns the records as a text table."""
    head = ["method", "d", "recall@1", "mult-adds/row", "sub-optimality", "ms/query"]
    lines = [
        [
            record["method"],
            record["dim"],
            f"{record['recall_at_1']:.4f}",
            f"{record['flops_per_row']:.2f}",
            f"{record['suboptimality_ratio']:.2f}" if "suboptimality_ratio" in record else "-",
            f"{record['milliseconds_per_query']:.3f}",
        ]
        for record in measured
    ]
    return text_table(head, lines)


def _search_images(options: Images) -> None:
    model = app.existing_path("model_dir", options.model_dir)
    if options.encoder == "keras":
        encoder_path("model_dir", str(model))
    folder = app.existing_path("image_folder", options.image_folder)
    query = app.existing_path("query", options.query)
    output = app.writable_file("output", options.output, ".png")
    default = str((model if model.is_dir() else model.parent) / "images.index")
    index_path = app.writable_file("index", options.index or default, ".index")
    encoder = open_encoder(model, options.encoder, os.cpu_count() or 1)
    code = image_search.embed_image(encoder, query)
    index, paths = image_search.open_index(index_path, folder, encoder)
    count = options.nearest + options.leave_out_query
    images, scores = image_search.nearest(index, paths, code, count)
    if options.leave_out_query:
        others = [place for place, path in enumerate(images) if path.resolve() != query.resolve()]
        others = others[: options.nearest]
        images, scores = [images[place] for place in others], scores[others]
    if not images:
        print("no image shares an active dimension with the query")
        return
    ranked = enumerate(zip(scores, images, strict=True), start=1)
    lines = [[rank, f"{score:.4f}", path] for rank, (score, path) in ranked]
    print(text_table(["rank", "score", "image"], lines))
    image_search.draw(query, images, scores, folder, output)
    print(output)


if __name__ == "__main__":
    app.run(main, OPTIONS)
