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

from sparse_embed.common.failures import UsageError
from sparse_embed.common.progress import progress_bar
from sparse_embed.experiments.core.part_files import FAILED
from sparse_embed.experiments.evaluation import ray_embedding
from sparse_embed.experiments.evaluation.embedding_parts import Parts, Work
from sparse_embed.experiments.evaluation.ray_embedding import Rate
from sparse_embed.flags import app
from sparse_embed.flags.options.embed import Parts as Options


def work_of(options: Options) -> Work:
    """Returns what there is to embed."""
    if options.part_examples % 256:
        raise UsageError(f"--part_examples={options.part_examples}: expected a multiple of 256")
    folder = None
    if options.image_folder:
        if options.split is not None:
            raise UsageError("--image_folder: expected no --split, which is of a data set")
        folder = app.existing_path("image_folder", options.image_folder)
    return Work(
        app.existing_path("model_dir", options.model_dir),
        app.writable_folder("parts_dir", options.parts_dir),
        options.data_dir,
        options.split or "test",
        options.views,
        options.count,
        folder,
        options.part_examples,
    )


def show(title: str, rate: Rate) -> None:
    """Prints the speed of all workers, and of each."""
    print(f"{title}: {rate.together:,.0f} rows/s")
    for name, (rows, seconds) in sorted(rate.by_worker.items()):
        print(f"  {name}: {rows:,} rows, {rows / max(seconds, 1e-9):,.0f} rows/s")


def main(options: Options) -> None:
    """Embeds what is missing, prints speed and failures."""
    work = work_of(options)
    parts = Parts(work)
    parts.open_folder()
    todo = [n for n in range(len(parts.spans)) if parts.outcome(n) is None]
    print(f"{work.output}: {len(parts.spans)} parts, {len(todo)} to embed", flush=True)
    with progress_bar(total=len(todo), desc="embedding", unit="part") as bar:
        if todo and not options.workers:
            parts.prepare()
            here = (("this process", parts.embed(number)) for number in todo)
            show("this process", ray_embedding.timed(here, lambda _: bar.update()))
        elif todo:
            ray = (options.worker_cpus, options.ray_address, options.ray_temp_folder)
            with ray_embedding.Workers(work, options.workers, *ray) as workers:
                alone = None
                if options.scaling and len(todo) > 1:
                    first = workers.embed([todo.pop(0)], workers=1)
                    alone = ray_embedding.timed(first, lambda _: bar.update())
                    show("1 worker alone", alone)
                rate = ray_embedding.timed(workers.embed(todo), lambda _: bar.update())
            show(f"{options.workers} workers", rate)
            if alone is not None:
                print(f"scaling: {rate.together / alone.together:.2f} times one worker")
    rows, failed = parts.finish()
    print(f"{work.output}: {rows:,} rows, {failed:,} examples failed")
    if failed:
        print(f"{work.output / FAILED} lists them")


if __name__ == "__main__":
    app.run(main, Options)
