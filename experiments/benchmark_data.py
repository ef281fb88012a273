r"""Prints how many examples per second each pipeline delivers, and how many training consumes.

    python -m sparse_embed.experiments.benchmark_data
    python -m sparse_embed.experiments.benchmark_data --records_dir=faces_emore --measure_seconds=20

Without --records_dir the pipelines run on made-up data in a temporary folder, in the formats of the
real files: JPEGs of 112 x 112 in a record file and in shards, photographs of 250 x 250 in a folder
per class, CIFAR's 50,000 images in memory, glyphs, and dense embeddings. Training uses a narrow
network for each kind of data, on batches that are already in memory.
"""

from absl import flags

from sparse_embed.experiments.benchmarks.data_speed import measure
from sparse_embed.flags import app

_RECORDS_DIR = flags.DEFINE_string(
    "records_dir", None, "Folder of InsightFace's train.rec, train.idx and property."
)
_NUM_IMAGES = flags.DEFINE_integer(
    "num_images", 3000, "How many images to make up.", lower_bound=256
)
_MEASURE_SECONDS = flags.DEFINE_float(
    "measure_seconds", 5.0, "How long to time each pipeline and network.", lower_bound=0.1
)


def main() -> None:
    """Measures and prints a table."""
    records_dir = None
    if _RECORDS_DIR.value:
        records_dir = app.existing_path("records_dir", _RECORDS_DIR.value, "train.rec")
    print(f"{'pipeline':20}{'examples/s':>12}   times the rate of training")
    found = measure(records_dir, _NUM_IMAGES.value, _MEASURE_SECONDS.value)
    for name, given, taken, description in found:
        ratio = f"{given / taken:.1f} x {taken:,.0f} ({description})"
        print(f"{name:20}{given:12,.0f}   {ratio}", flush=True)


if __name__ == "__main__":
    app.run(main)
