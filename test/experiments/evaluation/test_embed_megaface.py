"""From lists, noise lists and images to the file that identification is evaluated on."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from sparse_embed import models
from sparse_embed.datasets import megaface
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.core.run import save as save_run

SHAPE = (16, 16, 3)


def run(*arguments):
    command = [
        sys.executable,
        "-m",
        "sparse_embed.experiments.embed",
        "--source=megaface",
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def config(activation, loss):
    return {
        "config": {
            "model": {"activation": activation},
            "objective": {"loss": loss, "active_bits": 3},
        }
    }


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    """Seven probes of three people and five distractors, of which one each is noise."""
    folder = tmp_path_factory.mktemp("faces")
    rng = np.random.default_rng(0)
    probes = [f"{name}/{name}_{i}.png" for name in "CAB" for i in range(2)] + ["C/C_9.png"]
    distractors = [f"{i}/x.png" for i in range(5)]
    for path in probes + distractors:
        file = folder / "images" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, SHAPE).astype(np.uint8)
        file.write_bytes(tf.io.encode_png(pixels).numpy())
    ids = [path[0] for path in probes]
    (folder / "probes.json").write_text(json.dumps({"path": probes, "id": ids}))
    (folder / "distractors.json").write_text(json.dumps({"path": distractors}))
    (folder / "noises.txt").write_text("# of both\nC_9.png\n3/x.png\n")
    encoder = models.build_encoder("nin", 8, "relu", SHAPE, width=0.1)
    save_run(folder / "run", encoder, config("relu", "arcface"))
    dense = models.build_encoder("nin", 8, "none", SHAPE, width=0.1)
    save_run(folder / "sdh", dense, config("none", "sdh"))
    return folder


def arguments(faces):
    return [
        f"--model_dir={faces / 'run'}",
        f"--probe_list={faces / 'probes.json'}",
        f"--distractor_list={faces / 'distractors.json'}",
        f"--probe_images={faces / 'images'}",
        f"--distractor_images={faces / 'images'}",
        f"--output={faces / 'identification.npz'}",
    ]


def test_noise_is_left_out_and_said_so(faces):
    noises = [f"--{kind}_noises={faces / 'noises.txt'}" for kind in ("probe", "distractor")]
    done = run(*arguments(faces), *noises)
    assert done.returncode == 0, done.stderr
    assert "probes: 6; left out: 1 of noises.txt" in done.stdout
    assert "distractors: 4; left out: 1 of noises.txt" in done.stdout
    found = embedding_files.load(faces / "identification.npz")
    np.testing.assert_array_equal(found.labels, [2, 2, 0, 0, 1, 1, -1, -1, -1, -1])  # C A B
    assert found.provenance["megaface"] == {
        "probe_list": "probes.json",
        "probe_noise_list": "noises.txt",
        "noisy_probes_left_out": 1,
        "distractor_list": "distractors.json",
        "distractor_noise_list": "noises.txt",
        "noisy_distractors_left_out": 1,
    }
    assert 0 < found.provenance["seconds_per_image"] < 300
    encoder = tf.keras.models.load_model(faces / "run" / "encoder.keras")
    images = megaface.read_list(faces / "probes.json")
    pixels = [tf.io.decode_png((faces / "images" / path).read_bytes()) for path in images.paths[:6]]
    expected = encoder(tf.cast(tf.stack(pixels), tf.float32) / 255, training=False)
    np.testing.assert_allclose(found.vectors[:6].toarray(), expected, atol=1e-5)


def test_hash_codes_are_kept_of_sparse_deep_hashing(faces):
    done = run(*arguments(faces), f"--model_dir={faces / 'sdh'}", f"--output={faces / 'codes.npz'}")
    assert done.returncode == 0, done.stderr
    found = embedding_files.load(faces / "codes.npz")
    np.testing.assert_array_equal(found.vectors.data, 1)
    np.testing.assert_array_equal(np.diff(found.vectors.indptr), 3)
    encoder = tf.keras.models.load_model(faces / "sdh" / "encoder.keras")
    images = megaface.read_list(faces / "distractors.json")
    pixels = [tf.io.decode_png((faces / "images" / path).read_bytes()) for path in images.paths]
    vectors = encoder(tf.cast(tf.stack(pixels), tf.float32) / 255, training=False).numpy()
    expected = np.argsort(-vectors, axis=1)[:, :3]
    columns = found.vectors[7:].indices.reshape(5, 3)
    np.testing.assert_array_equal(np.sort(columns, axis=1), np.sort(expected, axis=1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--probe_list="], "--probe_list is not given"),
        (["--distractor_images=/absent"], "--distractor_images=/absent: expected"),
        (["--probe_list={distractors}"], "expected identities (`id`)"),
        (["--output=x.npy"], "--output=x.npy: expected the name of a .npz file"),
    ],
)
def test_mistakes_cost_one_line(faces, change, message):
    texts = [text.format(distractors=faces / "distractors.json") for text in change]
    done = run(*arguments(faces), *texts)
    assert done.returncode == 2
    assert message in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr
