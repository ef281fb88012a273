r"""Kills with SIGKILL at random moments, and checks that nothing that was finished is lost.

    make kill                                   # 100 kills of `save`, 25 of each script
    python test/kills.py --seed=1 train=100     # only these

The victims are the real ones: `SparseIndex.save` and the scripts embed, embed_parts (without Ray),
prepare_data, build_shards, sparsify, train and reproduce (quick). Each is killed at a random moment
after its first write, and called again. After each kill what was finished before is still there,
whole; after the next call that ends, results are those of a call that was never disturbed, and no
temporary file is left.
"""

import argparse
import contextlib
import hashlib
import io
import itertools
import json
import os
import pathlib
import random
import runpy
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable

import numpy as np
import scipy.sparse

from sparse_embed.common.progress import progress_bar
from sparse_embed.retrieval import SparseIndex

OUTPUT = tempfile.TemporaryFile()  # noqa: SIM115 - of all processes, open as long as we live


def start(work: Callable[[], object]) -> int:
    """Runs `work` in a forked process, which spares it the start of Python; returns its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream in (1, 2):
            os.dup2(OUTPUT.fileno(), stream)
        work()
        code = 0
    except SystemExit as ending:
        code = int(ending.code or 0)
    finally:
        os._exit(code)


def script(name: str, *arguments: object) -> Callable[[], object]:
    """Returns a function that runs a script of this package as `python -m` does."""

    def work() -> None:
        sys.argv = [name, *map(str, arguments)]
        runpy.run_module(f"sparse_embed.experiments.{name}", run_name="__main__", alter_sys=True)

    return work


def check_ending(status: int) -> None:
    """Fails, with the last that the process said, unless it ended well."""
    if status:
        OUTPUT.seek(max(0, OUTPUT.seek(0, os.SEEK_END) - 3000))
        said = OUTPUT.read().decode(errors="replace").replace("\r", "\n")
        raise AssertionError(f"it ended with status {status}, after\n{said}")


def listing(folder: pathlib.Path) -> dict[str, tuple[int, int]]:
    """Returns size and time of all that is in a folder."""
    found = {}
    # os.walk passes over folders that vanish while it reads, where rglob raises.
    for parent, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(parent, name)
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(path)
                found[path] = status.st_mtime_ns, status.st_size
    return found


def is_alive(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def finish(work: Callable[[], object]) -> None:
    """Runs `work` to its end, which must be a good one."""
    _, status = os.waitpid(start(work), 0)
    check_ending(status)


def refuse(work: Callable[[], object]) -> None:
    """Runs `work` to its end, which must be that of a script whose output is there already."""
    _, status = os.waitpid(start(work), 0)
    assert os.waitstatus_to_exitcode(status) == 2


def writing_seconds(work: Callable[[], object], folder: pathlib.Path) -> float:
    """Runs `work` to its end; returns the time from its first write to its last."""
    changes, now, child = [], listing(folder), start(work)
    while is_alive(child):
        before, now = now, listing(folder)
        if now != before:
            changes.append(time.monotonic())
        time.sleep(0.001)
    os.waitpid(child, 0)
    return changes[-1] - changes[0]


class Killer:
    """Kills as often as told, at random moments; after that, calls run to their end.

    Attributes:
        left: kills that are still to come.
        ended: calls that ended by themselves.
    """

    def __init__(self, kills: int, seed: int, name: str = ""):
        self.left, self.ended = kills, 0
        self._random = random.Random(seed)
        self._bar = progress_bar(total=kills, desc=name, unit=" kills")

    def strike(self, work: Callable[[], object], folder: pathlib.Path, longest: float) -> bool:
        """Kills `work` within `longest` seconds after its first write; returns whether it did."""
        before = listing(folder)
        child = start(work)
        while is_alive(child) and listing(folder) == before:
            time.sleep(0.001)
        deadline = time.monotonic() + self._random.uniform(0, longest)
        while is_alive(child) and (time.monotonic() < deadline or not self.left):
            time.sleep(0.001)
        if self.left:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            self.left -= 1
            self._bar.update()
            return True
        check_ending(status)
        self.ended += 1
        return False


def check_tidy(folder: pathlib.Path) -> None:
    left = [path for path in folder.rglob("*") if ".writing" in path.name]
    assert not left, f"temporary files are left: {left}"


def digest(*arrays: np.ndarray) -> str:
    hashed = hashlib.blake2b(digest_size=16)
    for array in arrays:
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()


def kill_save(folder: pathlib.Path, killer: Killer) -> None:
    """Two indexes are saved to one file, in turns."""
    path = folder / "rows.index"
    random_state = np.random.default_rng(0)
    rows = [
        scipy.sparse.random_array(
            (size, 512), density=0.04, format="csr", dtype=np.float32, rng=random_state
        )
        for size in (20_000, 30_000)
    ]
    indexes = [SparseIndex.build(one) for one in rows]
    expected = {digest(*index.search(rows[0][:5], k=10)) for index in indexes}

    def work() -> None:
        while True:
            for index in indexes:
                index.save(path)

    while killer.left:
        killer.strike(work, folder, 0.2)
        loaded = SparseIndex.load(path, mmap=False, verify=True) if path.exists() else indexes[0]
        assert digest(*loaded.search(rows[0][:5], k=10)) in expected
        indexes[0].save(path)
        check_tidy(folder)


def train_flags(folder: pathlib.Path, classes: int, rows: int) -> list[str]:
    """Makes vectors to train on; returns the flags of a deterministic run on them."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), rows // classes)
    vectors = rng.normal(size=(classes, 8))[labels] + 0.3 * rng.normal(size=(len(labels), 8))
    np.savez(folder / "vectors.npz", embeddings=vectors.astype(np.float32), labels=labels)
    return [
        *("--dataset=dense_embeddings", "--model=linear", "--deterministic", "--warmup_steps=5"),
        f"--data_dir={folder / 'vectors.npz'}",
    ]


def kill_embed(folder: pathlib.Path, killer: Killer) -> None:
    """Two parts of equal size are embedded to one file, in turns: sparse, then dense."""
    from sparse_embed.experiments.core import embedding_files

    flags = [*train_flags(folder, 40, 40_000), "--test=20", "--steps=2", "--embedding_dim=256"]
    for suffix, more in (
        (".npz", []),
        (".npy", ["--activation=none", "--regularizer=none"]),
    ):
        run = folder / f"run{suffix}"
        finish(script("train", *flags, *more, f"--model_dir={run}"))
        output = folder / suffix / f"rows{suffix}"
        output.parent.mkdir()

        def content(output: pathlib.Path = output) -> str:
            found = embedding_files.load(output)
            return digest(found.vectors.data if found.is_sparse else found.vectors, found.labels)

        works = [
            script("embed", f"--model_dir={run}", f"--split={split}", f"--output={output}")
            for split in ("train", "test")
        ]
        expected = []
        for work in works:
            finish(work)
            expected.append(content())
        longest = writing_seconds(works[0], output.parent)
        wanted = killer.left // 2 if suffix == ".npz" else 0
        while killer.left > wanted:
            for work, result in zip(works, expected, strict=True):
                killer.strike(work, output.parent, longest)
                assert content() in expected
                finish(work)
                assert content() == result
                check_tidy(folder)


def kill_embed_parts(folder: pathlib.Path, killer: Killer) -> None:
    """Each folder of parts, sparse or dense, is killed again and again until it is whole."""
    from sparse_embed.experiments.core import embedding_files

    flags = [*train_flags(folder, 40, 40_000), "--test=20", "--steps=2", "--embedding_dim=256"]
    dense = ["--activation=none", "--regularizer=none"]
    for suffix, more in ((".npz", []), (".npy", dense)):
        run = folder / f"run{suffix}"
        finish(script("train", *flags, *more, f"--model_dir={run}"))

        def work(target: pathlib.Path, run: pathlib.Path = run) -> Callable[[], object]:
            parts = [f"--parts_dir={target}", "--part_examples=512", "--workers=0"]  # without Ray
            return script("embed_parts", f"--model_dir={run}", "--split=test", *parts)

        def content(target: pathlib.Path, suffix: str = suffix) -> dict[str, str]:
            found = {}
            last = suffix if suffix == ".npz" else ".json"  # of a part's files to get its name
            for path in target.glob(f"part-?????{last}"):
                part = embedding_files.load(path.with_suffix(suffix))
                vectors = part.vectors.data if part.is_sparse else part.vectors
                found[path.name] = digest(vectors, part.labels)
            return found

        whole = folder / f"whole{suffix}"
        whole.mkdir()
        longest = writing_seconds(work(whole), whole)
        expected = content(whole)
        assert len(expected) == 40
        names = {path.name for path in whole.iterdir()}
        wanted = killer.left // 2 if suffix == ".npz" else 0
        while killer.left > wanted:
            target = folder / f"parts{killer.ended}{suffix}"
            target.mkdir()
            finished: dict[str, str] = {}
            killed = True
            while killed:
                killed = killer.strike(work(target), target, longest / 2)
                now = content(target)
                assert finished.items() <= now.items() <= expected.items()
                finished = now
            assert finished == expected
            check_tidy(target)
            assert {path.name for path in target.iterdir()} == names


def kill_build_shards(folder: pathlib.Path, killer: Killer) -> None:
    """Each folder of shards is killed again and again until it is whole."""
    from sparse_embed.experiments.core import embedding_files
    from sparse_embed.retrieval import shard_folder

    parts = folder / "parts"
    parts.mkdir()
    random_state = np.random.default_rng(0)
    for number in range(8):
        rows = scipy.sparse.random_array(
            (6_000, 512), density=0.04, format="csr", dtype=np.float32, rng=random_state
        )
        part = embedding_files.Embeddings(rows, np.zeros(6_000, np.int32), {})
        embedding_files.save(parts / f"part-{number:05}.npz", part)

    def work(target: pathlib.Path) -> Callable[[], object]:
        flags = ["--to=shards", f"--source={parts}", f"--index_folder={target}", "--shards=6"]
        return script("export_index", *flags)

    def content(target: pathlib.Path) -> dict[str, str]:
        return {
            path.name: digest(np.fromfile(path, np.uint8))
            for path in target.iterdir()
            if path.suffix in (".index", ".json")
        }

    whole = folder / "whole"
    whole.mkdir()
    longest = writing_seconds(work(whole), whole)
    expected = content(whole)
    assert len(expected) == 7
    for number in itertools.count():
        if not killer.left:
            break
        target = folder / f"shards{number}"
        target.mkdir()
        while not (target / shard_folder.MANIFEST).exists():
            killer.strike(work(target), target, longest)
            assert content(target).items() <= expected.items()
        refuse(work(target))
        assert content(target) == expected
        check_tidy(target)


def kill_sparsify(folder: pathlib.Path, killer: Killer) -> None:
    """Each folder of an index is killed again and again until it is there, which it is whole."""
    import h5py

    random_state = np.random.default_rng(0)
    np.save(folder / "rows.npy", random_state.normal(size=(2_000, 24)).astype(np.float32))

    def work(output: pathlib.Path) -> Callable[[], object]:
        sizes = ["--code_dim=64", "--learning_steps=20", "--compared_rows=500"]
        return script(
            "sparsify", f"--embeddings={folder / 'rows.npy'}", f"--output={output}", *sizes
        )

    def content(output: pathlib.Path) -> dict[str, str]:
        record = json.loads((output / "record.json").read_text())
        found = {name: str(record[name]) for name in ("rows", "nonzeros", "flops_per_row")}
        found["index"] = digest(np.fromfile(output / "codes.index", np.uint8))
        with (
            zipfile.ZipFile(output / "sparsifier.keras") as file,
            h5py.File(io.BytesIO(file.read("model.weights.h5"))) as weights,
        ):
            arrays: list[np.ndarray] = []
            weights.visititems(
                lambda _, item: arrays.append(item[()]) if isinstance(item, h5py.Dataset) else None
            )
            found["encoder"] = digest(*arrays)
        return found

    whole = folder / "whole" / "index"
    whole.parent.mkdir()
    longest = writing_seconds(work(whole), whole.parent)
    expected, names = content(whole), {path.name for path in whole.iterdir()}
    for number in itertools.count():
        if not killer.left:
            break
        output = folder / f"made{number}" / "index"
        output.parent.mkdir()
        while not output.exists():
            killer.strike(work(output), output.parent, longest)
        assert content(output) == expected
        refuse(work(output))
        assert content(output) == expected
        assert {path.name for path in output.iterdir()} == names
        check_tidy(output.parent)


def kill_prepare_data(folder: pathlib.Path, killer: Killer) -> None:
    """Each conversion is killed again and again until it ends."""
    import PIL.Image

    random_state = np.random.default_rng(0)
    for number in range(400):
        pixels = random_state.integers(0, 256, (24, 24, 3), dtype=np.uint8)
        path = folder / "photos" / f"{number % 10}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(pixels).save(path)

    def work(target: pathlib.Path) -> Callable[[], object]:
        return script(
            "prepare_data",
            "--dataset=image_folder",
            f"--data_dir={folder / 'photos'}",
            f"--shards_dir={target}",
            *("--image_size=24", "--num_shards=40"),
        )

    def content(target: pathlib.Path) -> dict[str, str]:
        return {
            path.name: digest(np.fromfile(path, np.uint8)) for path in target.glob("0*.tfrecord")
        }

    finish(work(folder / "whole"))
    expected = content(folder / "whole")
    assert len(expected) == 40
    while killer.left:
        target = folder / f"shards{killer.ended}"
        target.mkdir()
        finished: dict[str, str] = {}
        killed = True
        while killed:
            killed = killer.strike(work(target), target, 0.3)
            now = content(target)
            assert finished.items() <= now.items() <= expected.items()
            finished = now
        assert finished == expected
        check_tidy(target)


def kill_train(folder: pathlib.Path, killer: Killer) -> None:
    """Each training run is killed again and again until it ends."""
    import h5py

    flags = [*train_flags(folder, 40, 480), "--steps=300", "--embedding_dim=64"]
    flags += [f"--{what}_every=5" for what in ("summary", "evaluate", "checkpoint")]

    def work(target: pathlib.Path) -> Callable[[], object]:
        return script("train", *flags, f"--model_dir={target}")

    def record(target: pathlib.Path) -> dict:
        return json.loads((target / "train.json").read_text())

    finish(work(folder / "whole"))
    expected = record(folder / "whole")
    while killer.left:
        target = folder / f"run{killer.ended}"
        target.mkdir()
        steps, killed = 0, True
        while killed:
            killed = killer.strike(work(target), target, 3.0)
            checkpoint = target / "checkpoints" / "last.weights.h5"
            if checkpoint.exists():
                with h5py.File(checkpoint) as file:
                    now = int(file.attrs["steps_trained"])
                assert now >= steps, f"a checkpoint of step {steps} was lost"
                steps = now
            if (target / "curves.json").exists():
                json.loads((target / "curves.json").read_text())
        assert record(target)["weights_crc32"] == expected["weights_crc32"]
        check_tidy(target)


def kill_reproduce(folder: pathlib.Path, killer: Killer) -> None:
    """Each quick reproduction, with all its steps, is killed again and again until it ends."""
    while killer.left:
        run = folder / f"{killer.ended}" / "quick"
        run.mkdir(parents=True)
        done: dict[str, dict] = {}
        killed = True
        while killed:
            killed = killer.strike(script("reproduce", f"--run_dir={run.parent}"), run, 60.0)
            path = run / "steps.json"
            now = json.loads(path.read_text()) if path.exists() else {}
            assert done.items() <= now.items(), "a step that had ended was run again"
            done = now
        assert (run / "report.html").exists()
        check_tidy(run)


VICTIMS = {
    "save": (100, kill_save),
    "embed": (25, kill_embed),
    "embed_parts": (25, kill_embed_parts),
    "prepare_data": (25, kill_prepare_data),
    "build_shards": (25, kill_build_shards),
    "sparsify": (25, kill_sparsify),
    "train": (25, kill_train),
    "reproduce": (25, kill_reproduce),
}


def main() -> None:
    """Kills all victims, or those named, and prints the counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("victims", nargs="*", help="such as train=100; all if none is named")
    given = parser.parse_args()
    wanted = dict(word.split("=") for word in given.victims)
    if unknown := set(wanted) - set(VICTIMS):
        parser.error(f"{min(unknown)}: expected one of {', '.join(VICTIMS)}")
    from sparse_embed.common.quiet import quiet_tensorflow

    quiet_tensorflow()
    import keras  # noqa: F401 - once, for all forked processes

    for name in wanted or VICTIMS:
        with tempfile.TemporaryDirectory() as folder:
            kills, victim = VICTIMS[name]
            kills = int(wanted.get(name, kills))
            killer = Killer(kills, given.seed, name)
            victim(pathlib.Path(folder), killer)
        print(f"{name}: {kills} kills, {killer.ended} calls ended, nothing lost", flush=True)


if __name__ == "__main__":
    main()
