r"""Embeds much data in parts, on several workers; what is there already is not embedded again.

    python -m sparse_embed.experiments.embed_parts --model_dir=runs/sparse --split=distractors \
        --count=1000000 --parts_dir=runs/sparse/distractors --workers=2
    python -m sparse_embed.experiments.embed_parts --model_dir=runs/sparse --image_folder=photos \
        --parts_dir=runs/sparse/photos --workers=8 --ray_address=auto

Each worker is a process of Ray's that loads the encoder once. Parts are files such as
`part-00000.npz` with the rows that `embed` would write. Call it again after an interruption, and it
goes on. Images that cannot be read are listed in `failed.jsonl`. With --scaling one worker embeds a
part alone, before the others join, and the speeds are compared. --workers=0 needs no Ray.
"""

from absl import flags

from sparse_embed.common.failures import UsageError
from sparse_embed.common.progress import progress_bar
from sparse_embed.experiments.evaluation import ray_embedding
from sparse_embed.experiments.evaluation.embedding_parts import FAILED, Parts, Work
from sparse_embed.experiments.evaluation.ray_embedding import Rate
from sparse_embed.flags import app
from sparse_embed.flags.config import define
from sparse_embed.flags.embedding import COUNT, IMAGE_FOLDER, SPLIT, VIEWS
from sparse_embed.flags.output import MODEL_DIR
from sparse_embed.flags.ray import RAY_ADDRESS, RAY_TEMP_FOLDER
from sparse_embed.flags.train_config import DataConfig

define(DataConfig, only=["data_dir"])
_PARTS_DIR = flags.DEFINE_string("parts_dir", None, "Folder of the parts.")
_PART_EXAMPLES = flags.DEFINE_integer(
    "part_examples", 16_384, "Examples per part, a multiple of 256.", lower_bound=256
)
_WORKERS = flags.DEFINE_integer(
    "workers", 1, "How many workers; 0 to embed in this process, without Ray.", lower_bound=0
)
_WORKER_CPUS = flags.DEFINE_integer("worker_cpus", 1, "Cores of each worker.", lower_bound=1)
_SCALING = flags.DEFINE_bool("scaling", False, "Whether to measure the speed of one worker too.")


def work_of_flags() -> Work:
    """Returns what the flags say to embed."""
    if _PART_EXAMPLES.value % 256:
        raise UsageError(f"--part_examples={_PART_EXAMPLES.value}: expected a multiple of 256")
    if IMAGE_FOLDER.value and flags.FLAGS["split"].present:
        raise UsageError("--image_folder: expected no --split, which is of a data set")
    folder = app.existing_path("image_folder", IMAGE_FOLDER.value) if IMAGE_FOLDER.value else None
    return Work(
        app.existing_path("model_dir", MODEL_DIR.value),
        app.writable_folder("parts_dir", _PARTS_DIR.value),
        flags.FLAGS.data_dir,
        SPLIT.value,
        VIEWS.value,
        COUNT.value,
        folder,
        _PART_EXAMPLES.value,
    )


def show(title: str, rate: Rate) -> None:
    """Prints the speed of all workers, and of each."""
    print(f"{title}: {rate.together:,.0f} rows/s")
    for name, (rows, seconds) in sorted(rate.by_worker.items()):
        print(f"  {name}: {rows:,} rows, {rows / max(seconds, 1e-9):,.0f} rows/s")


def main() -> None:
    """Reads the flags, embeds what is missing, prints speed and failures."""
    work = work_of_flags()
    parts = Parts(work)
    parts.open_folder()
    todo = [n for n in range(len(parts.spans)) if parts.outcome(n) is None]
    print(f"{work.output}: {len(parts.spans)} parts, {len(todo)} to embed", flush=True)
    with progress_bar(total=len(todo), desc="embedding", unit="part") as bar:
        if todo and not _WORKERS.value:
            parts.prepare()
            here = (("this process", parts.embed(number)) for number in todo)
            show("this process", ray_embedding.timed(here, lambda _: bar.update()))
        elif todo:
            with ray_embedding.Workers(
                work, _WORKERS.value, _WORKER_CPUS.value, RAY_ADDRESS.value, RAY_TEMP_FOLDER.value
            ) as workers:
                alone = None
                if _SCALING.value and len(todo) > 1:
                    first = workers.embed([todo.pop(0)], workers=1)
                    alone = ray_embedding.timed(first, lambda _: bar.update())
                    show("1 worker alone", alone)
                rate = ray_embedding.timed(workers.embed(todo), lambda _: bar.update())
            show(f"{_WORKERS.value} workers", rate)
            if alone is not None:
                print(f"scaling: {rate.together / alone.together:.2f} times one worker")
    rows, failed = parts.finish()
    print(f"{work.output}: {rows:,} rows, {failed:,} examples failed")
    if failed:
        print(f"{work.output / FAILED} lists them")


if __name__ == "__main__":
    app.run(main)
