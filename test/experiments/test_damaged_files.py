"""The real scripts on damaged files: one line on stderr that names the file, and exit code 2."""

import json
import pathlib
import shutil
import struct
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest
import scipy.sparse
from PIL import Image

from sparse_embed.experiments.core import embedding_files, run
from sparse_embed.experiments.core.embedding_files import Embeddings
from sparse_embed.experiments.training import checkpoints
from sparse_embed.flags.train_config import DataConfig, ModelConfig, TrainConfig
from sparse_embed.models import build_encoder

# Runs a script once per list of flags in one process, since to import TensorFlow takes seconds.
# Each run starts as a command does: with fresh flags, through `app.run`.
DRIVER = """
import importlib, json, os, sys, tempfile, traceback
from absl import flags
(script, *first), cases = sys.argv[1].split(), json.loads(sys.argv[2])
module = importlib.import_module(f"sparse_embed.experiments.{script}")
from sparse_embed.flags import app
known, results = set(flags.FLAGS), []
for arguments in cases:
    for name in set(flags.FLAGS) - known:
        delattr(flags.FLAGS, name)  # kinds of one script have flags of their own
    for name in list(flags.FLAGS):
        flags.FLAGS[name].unparse()
    sys.argv = [f"{script}.py", *first, *arguments]
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)  # what TensorFlow writes from C++ counts too
        try:
            app.run(module.main, getattr(module, "OPTIONS", None) or module.Options)
        except SystemExit as end:
            code = end.code
        except BaseException:
            traceback.print_exc()
            code = "traceback"
        sys.stderr.flush()
        os.dup2(kept, 2)
        file.seek(0)
        results.append([code, file.read().decode()])
print("\\n" + json.dumps(results))
"""


def run_script(script: str, cases: list[list[str]]) -> list[tuple[int, str]]:
    """Returns exit code and stderr of the script for each list of flags."""
    command = [sys.executable, "-c", DRIVER, script, json.dumps(cases)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def cut(path: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
    """Copies half of a file."""
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return to


@pytest.fixture(scope="module")
def files(tmp_path_factory, vectors):
    """Whole files to take from, and damaged ones."""
    return make_files(tmp_path_factory.mktemp("files"), vectors)


def make_files(folder, vectors):
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(30, 8)).astype(np.float32)
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    labels = np.append(np.repeat(np.arange(5), 2), np.full(20, -1)).astype(np.int32)
    rows = scipy.sparse.csr_array(np.where(dense > 0, dense, 0))
    embedding_files.save(folder / "sparse.npz", Embeddings(rows, labels, {}))
    embedding_files.save(folder / "dense.npy", Embeddings(dense, labels, {}))
    cut(folder / "sparse.npz", folder / "cut.npz")
    cut(folder / "dense.npy", folder / "cut.npy")
    shutil.copy(folder / "dense.labels.npy", folder / "cut.labels.npy")
    shutil.copy(folder / "dense.json", folder / "cut.json")
    (folder / "garbage.npz").write_bytes(b"garbage" * 99)
    (folder / "garbage.npy").write_bytes(b"garbage" * 99)
    content = dict(np.load(folder / "sparse.npz"))
    np.savez(folder / "short.npz", **content | {"labels": labels[:-1]})
    np.savez(folder / "nan.npz", **content | {"data": content["data"] * np.nan})
    np.save(folder / "images.npy", rng.integers(0, 256, (30, 8, 8), dtype=np.uint8))
    np.save(folder / "images.labels.npy", labels)
    cut(folder / "images.npy", folder / "cut_images.npy")
    shutil.copy(folder / "images.labels.npy", folder / "cut_images.labels.npy")
    np.save(folder / "unlabelled.npy", np.load(folder / "images.npy"))
    (folder / "unlabelled.labels.npy").write_bytes(b"garbage")
    # A run of each kind of encoder, and copies of it with damage.
    keras.utils.set_random_seed(0)
    data = DataConfig("dense_embeddings", str(vectors), test=10)
    config = TrainConfig(data, ModelConfig("linear", embedding_dim=16))
    record = {"config": config.to_dict(), "curves": [], "seconds": 1.0, "weights_crc32": "0"}
    encoder = build_encoder("linear", 16, "relu", (8,))
    run.save(folder / "run", encoder, record).export_saved_model()
    for name in ("cut_record", "cut_encoder", "cut_saved_model"):
        shutil.copytree(folder / "run", folder / name)
    cut(folder / "run" / "train.json", folder / "cut_record" / "train.json")
    cut(folder / "run" / "encoder.keras", folder / "cut_encoder" / "encoder.keras")
    make_data_sets(folder)
    make_started_runs(folder, config)
    place = "saved_model/saved_model.pb"
    cut(folder / "run" / place, folder / "cut_saved_model" / place)
    return folder


def make_data_sets(folder):
    """Damaged data sets of every kind."""
    rng = np.random.default_rng(1)
    rows, labels = rng.normal(size=(20, 8)), np.repeat(np.arange(4), 5)
    np.savez(folder / "no_rows.npz", embeddings=rows[:0], labels=labels[:0])
    np.savez(folder / "one_class.npz", embeddings=rows, labels=labels * 0)
    np.savez(folder / "nan_labels.npz", embeddings=rows, labels=labels * np.nan)
    with zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("embeddings.npy", bytes(100 << 20))
        archive.writestr("labels.npy", b"")
    (folder / "cifar.tar.gz").write_bytes(b"\x1f\x8b garbage")
    for name in ("packed", "no_images", "absurd"):
        (folder / name).mkdir()
        records = {0: struct.pack("<IfQQ2f", 2, 0.0, 0, 0, 1.0, 1.0)}
        if name == "packed":  # as im2rec does: images only, no property
            records = {0: struct.pack("<IfQQ", 0, 0.0, 0, 0) + b"image"}
        else:
            size = "8,8" if name == "no_images" else "1000000,1000000"
            (folder / name / "property").write_text(f"3,{size}")
        (content,) = records.values()
        data = struct.pack("<II", 0xCED7230A, len(content)) + content + bytes(-len(content) % 4)
        (folder / name / "train.rec").write_bytes(data)
        (folder / name / "train.idx").write_text("0\t0\n")
    (folder / "shards").mkdir()
    (folder / "shards" / "manifest.json").write_text('{"format": 1, "num_examples": 3}')
    (folder / "list.json").write_text('{"path": ["a.jpg"], "id": ["a"]}')
    (folder / "broken_list.json").write_text('{"path": ["a.jpg"')
    for extent in ("quick", "comparison"):
        (folder / extent).mkdir(exist_ok=True)
        (folder / extent / "steps.json").write_text('{"train": ')
    (folder / "results" / "records").mkdir(parents=True)
    (folder / "results" / "records" / "x.json").write_text('{"name": "x"')
    (folder / "study").mkdir()
    (folder / "study" / "records.jsonl").write_text('{"train": {}}\n{"record": {}}\n')
    (folder / "noises.txt").write_bytes(b"\xff\xfe")
    (folder / "pictures").mkdir()
    Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(
        folder / "pictures" / "a.jpg"
    )


def make_started_runs(folder, config):
    """Runs that were stopped, with damage: the flags, the checkpoint, the curves."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
    model.compile("adam", "mse")
    for name in ("cut_config", "cut_checkpoint", "garbage_checkpoint"):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text("{}")
        checkpoints.save(folder / name / "checkpoints" / checkpoints.LAST, model, 1)
    (folder / "cut_config" / "config.json").write_text('{"steps": ')
    for name in ("cut_checkpoint", "garbage_checkpoint"):
        (folder / name / "config.json").unlink()
    last = folder / "cut_checkpoint" / "checkpoints" / checkpoints.LAST
    cut(last, last)
    last = folder / "garbage_checkpoint" / "checkpoints" / checkpoints.LAST
    last.write_bytes(b"garbage" * 999)


SMALL = [
    "--dataset=dense_embeddings",
    "--model=linear",
    "--embedding_dim=16",
    "--steps=2",
    "--warmup_steps=1",
]
GOOD = [*SMALL, "--data_dir={v}"]
FACES = [
    *("--model_dir={f}/run", "--output={t}/x.npz", "--probe_images={f}/pictures"),
    *("--distractor_list={f}/list.json", "--distractor_images={f}/pictures"),
]
PICTURE = ["--image_folder={f}/pictures", "--query={f}/pictures/a.jpg", "--output={t}/x.png"]

CASES = {
    "search": [
        (["--database={f}/cut.npz"], "cut.npz"),
        (["--database={f}/garbage.npz"], "garbage.npz"),
        (["--database={f}/short.npz"], "short.npz: expected 30 labels"),
        (["--database={f}/nan.npz"], "nan.npz: expected an embedding file"),
        (["--database={f}/sparse.npz", "--queries={f}/cut.npz"], "cut.npz"),
        (["--database={f}/sparse.npz", "--dense_database={f}/cut.npy"], "cut.npy"),
        (["--database={f}/sparse.npz", "--dense_database={f}/garbage.npy"], "garbage.npy"),
    ],
    "evaluate_megaface": [
        (["--records={t}/records", "--dense={f}/cut.npy"], "cut.npy"),
        (
            [
                "--records={t}/records",
                "--dense={f}/dense.npy",
                "--sparse={f}/cut.npz",
                "--only=sparse",
            ],
            "cut.npz",
        ),
        (
            [
                "--records={t}/records",
                "--dense={f}/dense.npy",
                "--sdh={f}/garbage.npz",
                "--only=sdh",
            ],
            "garbage.npz",
        ),
    ],
    "evaluate_verification": [
        (["--records={t}/records", "--pairs={f}/cut.npz"], "cut.npz"),
        (["--records={t}/records", "--pairs={f}/garbage.npy"], "garbage.npy"),
        (["--records={t}/records", "--pack={f}/garbage.npy", "--model_dir={f}/run"], "garbage.npy"),
        (
            ["--records={t}/records", "--pack={f}/garbage.npy", "--model_dir={f}/cut_encoder"],
            "cut_encoder/encoder.keras",
        ),
    ],
    "evaluate_megaface --what=gallery": [
        (
            ["--records={t}/records", "--database={f}/cut.npz", "--gallery_images={f}/images.npy"],
            "cut.npz",
        ),
        (
            [
                "--records={t}/records",
                "--database={f}/sparse.npz",
                "--gallery_images={f}/cut_images.npy",
            ],
            "cut_images.npy",
        ),
        (
            [
                "--records={t}/records",
                "--database={f}/sparse.npz",
                "--gallery_images={f}/dense.npy",
            ],
            "dense.npy: expected uint8",
        ),
    ],
    "evaluate_activations": [
        (["--records={t}/records", "--model_dir={f}/cut_encoder"], "cut_encoder/encoder.keras"),
        (["--records={t}/records", "--model_dir={f}/cut_record"], "cut_record/train.json"),
    ],
    "train": [
        ([*SMALL, "--model_dir={t}/a", "--data_dir={f}/cut.npz"], "cut.npz"),
        ([*SMALL, "--model_dir={t}/a", "--data_dir={f}/garbage.npy"], "garbage.npy"),
        ([*SMALL, "--model_dir={t}/a", "--data_dir={f}/no_rows.npz"], "no_rows.npz: expected"),
        (
            [*SMALL, "--model_dir={t}/a", "--data_dir={f}/nan_labels.npz"],
            "nan_labels.npz: expected",
        ),
        ([*SMALL, "--model_dir={t}/a", "--data_dir={f}/one_class.npz"], "one_class.npz: 1 class"),
        ([*SMALL, "--model_dir={t}/a", "--data_dir={f}/bomb.npz"], "bomb.npz: a zip archive"),
        ([*GOOD, "--model_dir={f}/cut_config"], "cut_config/config.json"),
        ([*GOOD, "--model_dir={f}/cut_record"], "cut_record/train.json"),
        ([*GOOD, "--model_dir={f}/cut_checkpoint"], "cut_checkpoint/checkpoints/last.weights.h5"),
        ([*GOOD, "--model_dir={f}/garbage_checkpoint"], "garbage_checkpoint/checkpoints/last.w"),
        ([*GOOD, "--model_dir={t}/b", "--warm_start={f}/cut_encoder"], "cut_encoder/encoder.keras"),
        (
            [*GOOD, "--model_dir={t}/c", "--validation=5", "--rerank_model_dir={f}/cut_encoder"],
            "cut_encoder/encoder.keras",
        ),
        (
            ["--dataset=cifar100", "--model_dir={t}/a", "--data_dir={f}/cifar.tar.gz"],
            "cifar.tar.gz",
        ),
        (["--dataset=recordio", "--model_dir={t}/a", "--data_dir={f}/packed"], "packed/property"),
        (["--dataset=recordio", "--model_dir={t}/a", "--data_dir={f}/absurd"], "absurd/property"),
        (
            ["--dataset=recordio", "--model_dir={t}/a", "--data_dir={f}/no_images"],
            "no_images/train.rec: identities without images",
        ),
        (
            ["--dataset=tfrecords", "--model_dir={t}/a", "--data_dir={f}/shards"],
            "shards/manifest.json",
        ),
    ],
    "prepare_data": [
        (["--dataset=recordio", "--data_dir={f}/packed", "--shards_dir={t}/s"], "packed/property"),
        (
            ["--dataset=recordio", "--data_dir={f}/no_images", "--shards_dir={t}/s"],
            "no_images/train.rec",
        ),
        (["--dataset=recordio", "--data_dir={f}/absurd", "--shards_dir={t}/s"], "absurd/property"),
    ],
    "embed --source=megaface": [
        ([*FACES, "--probe_list={f}/broken_list.json"], "broken_list.json: expected a list"),
        ([*FACES, "--probe_list={f}/list.json", "--probe_noises={f}/noises.txt"], "noises.txt"),
        (
            [*FACES, "--probe_list={f}/list.json", "--model_dir={f}/cut_encoder"],
            "cut_encoder/encoder.keras",
        ),
    ],
    "search --what=images": [
        (
            [*PICTURE, "--model_dir={f}/cut_encoder", "--index={t}/x.index"],
            "cut_encoder/encoder.keras",
        ),
    ],
    "evaluate_cifar100": [
        (["--records={t}/records", "--model_dir={f}/cut_record"], "cut_record/train.json"),
    ],
    "reproduce --extent=comparison": [(["--run_dir={f}"], "comparison/steps.json")],
    "reproduce": [(["--run_dir={f}", "--extent=quick"], "quick/steps.json")],
    "report --table=cifar100": [
        (["--run_dir={f}/results"], "results/records/x.json"),
        (["--run_dir={f}/study"], "study/records.jsonl:2"),
    ],
    "embed --source=sets": [
        (["--model_dir={f}/run", "--sets={f}/cut_images.npy"], "cut_images.npy"),
        (["--model_dir={f}/run", "--sets={f}/unlabelled.npy"], "unlabelled.labels.npy"),
        (["--model_dir={f}/cut_encoder", "--sets={f}/images.npy"], "cut_encoder/encoder.keras"),
    ],
    "embed": [
        (["--model_dir={f}/cut_record", "--output={t}/x.npz"], "cut_record/train.json"),
        (["--model_dir={f}/cut_encoder", "--output={t}/x.npz"], "cut_encoder/encoder.keras"),
        (
            ["--model_dir={f}/cut_saved_model", "--encoder=saved_model", "--output={t}/x.npz"],
            "cut_saved_model/saved_model",
        ),
        (
            ["--model_dir={f}/run", "--data_dir={f}/garbage.npz", "--output={t}/x.npz"],
            "garbage.npz",
        ),
    ],
}


def check(script, cases, paths):
    """Asserts that each case ends with exit code 2 and one line that holds the expected words."""
    given = [[flag.format(**paths) for flag in flags] for flags, _ in cases]
    for (flags, expected), (code, stderr) in zip(cases, run_script(script, given), strict=True):
        told = f"{flags}: exit code {code}: {stderr[-2000:]}"
        assert code == 2, told
        assert len(stderr.splitlines()) == 1, told
        assert stderr.startswith(f"{script.split()[0]}: "), told
        assert expected in stderr, told


@pytest.mark.parametrize("script", CASES)
def test_a_damaged_file_costs_one_line(files, vectors, tmp_path, script):
    check(script, CASES[script], {"f": files, "t": tmp_path, "v": vectors})


@pytest.mark.parametrize(
    ("script", "flags"), [("report", []), ("report", ["--figures=rerank,roc"])]
)
def test_damaged_records_cost_one_line(recorded_run, tmp_path, script, flags):
    damage = {
        "cut": ("verification-glyphs_easy-flops.json", lambda whole: whole[:-50]),
        "metric": ("megaface-flops-10.json", lambda whole: whole.replace(b"recall_at_1", b"x")),
        "arrays": ("verification-glyphs_easy-flops.npz", lambda whole: whole[:-50]),
        "other arrays": (
            "verification-glyphs_hard-l1.npz",
            lambda whole: whole.replace(b"sa", b"sb"),
        ),
    }
    cases = []
    for folder, (name, change) in damage.items():
        shutil.copytree(recorded_run, tmp_path / folder)
        path = tmp_path / folder / "convnet" / "records" / name
        path.write_bytes(change(path.read_bytes()))
        cases.append(([f"--run_dir={tmp_path / folder}", *flags], f"convnet/records/{name}"))
    if script == "report":
        cases = cases[:2]  # the others draw the same figures
        shutil.copytree(recorded_run, tmp_path / "steps")
        (tmp_path / "steps" / "steps.json").write_text("[]")
        cases.append(([f"--run_dir={tmp_path / 'steps'}"], "steps/steps.json"))
    check(script, cases, {})
