"""From nothing to a searched sparse index: what `make reproduce` runs.

Trains a dense and a sparse encoder on glyphs with the presets, embeds the test classes, which
neither has seen, searches them, and leaves a table, `search.json` and two pictures in --run_dir.
Each step is one of the other scripts; steps that have ended are not run again.
"""

import json
import pathlib
import shlex
import subprocess
import sys
from typing import Any

from sparse_embed.experiments import search
from sparse_embed.experiments.runs import RECORD
from sparse_embed.flags import app
from sparse_embed.flags.output import RUN_DIR

EMBEDDINGS = {"glyphs_dense": "test.npy", "glyphs_flops": "test.npz"}  # preset: its test classes


def run_step(
    product: pathlib.Path, inputs: list[pathlib.Path], script: str, *arguments: str
) -> None:
    """Runs a script of this package, unless what it makes is there and newer than its inputs."""
    if not is_done(product, inputs):
        run_script(script, *arguments)


def is_done(product: pathlib.Path, inputs: list[pathlib.Path]) -> bool:
    """Whether a file is there and newer than what it is made of; says so if it is."""
    if not product.exists():
        return False
    done = all(path.stat().st_mtime <= product.stat().st_mtime for path in inputs)
    if done:
        print(f"{product}: done before")
    return done


def run_script(script: str, *arguments: str) -> None:
    """Runs a script of this package in a process of its own; Failure if it fails."""
    command = [sys.executable, "-m", f"sparse_embed.experiments.{script}", *arguments]
    print(f"$ python {shlex.join(command[1:])}", flush=True)
    status = subprocess.run(command).returncode
    if status:
        raise app.Failure(
            f"step '{script}' ended with exit code {status}; call again to go on from there"
        )


def main() -> None:
    """Runs the steps, then draws what they gave."""
    run_dir = app.writable_folder("run_dir", RUN_DIR.value)
    products = {}
    for preset, name in EMBEDDINGS.items():
        folder = run_dir / preset
        flagfile = app.preset_path(preset)
        record = folder / RECORD
        run_step(record, [flagfile], "train", f"--preset={preset}", f"--model_dir={folder}")
        products[preset] = folder / name
        run_step(
            folder / name, [record], "embed", f"--model_dir={folder}", f"--output={folder / name}"
        )
    result = run_dir / "search.json"
    run_step(
        result,
        list(products.values()),
        "search",
        f"--database={products['glyphs_flops']}",
        f"--dense_database={products['glyphs_dense']}",
        f"--output={result}",
    )
    draw(run_dir, json.loads(result.read_text())["records"])


def draw(run_dir: pathlib.Path, records: list[dict[str, Any]]) -> None:
    """Prints the table and leaves the pictures in `run_dir`."""
    from sparse_embed.datasets import glyphs
    from sparse_embed.experiments import figures

    glyphs.contact_sheet(glyphs.load(), run_dir / "glyphs.png")
    figures.search_summary(records, run_dir / "search.png")
    print(f"\n{search.table(records)}\n")
    for name in ("search.png", "glyphs.png", "search.json"):
        print(run_dir / name)


if __name__ == "__main__":
    app.run(main)
