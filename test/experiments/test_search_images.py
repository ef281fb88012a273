"""A folder of pictures searched with an encoder, the index built once."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from sparse_embed.experiments.evaluation import image_search


@pytest.fixture(scope="module")
def encoder_file(tmp_path_factory):
    """An untrained encoder: equal pictures still have equal codes."""
    import keras

    from sparse_embed.models import build_encoder

    keras.utils.set_random_seed(0)
    path = tmp_path_factory.mktemp("encoder") / "encoder.keras"
    build_encoder("convnet", 64, "relu", (16, 16, 3), initial_probability=0.3).save(path)
    return path


@pytest.fixture
def photos(tmp_path):
    """Twelve pictures in two folders, one file that is none, and what they are searched with."""
    rng = np.random.default_rng(0)
    for number in range(12):
        folder = tmp_path / "photos" / ("a" if number < 6 else "b")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        if number == 7:
            Image.fromarray(pixels).resize((32, 32), Image.NEAREST).save(tmp_path / "query.png")
    (tmp_path / "photos" / "broken.png").write_bytes(b"no picture")
    return tmp_path / "photos"


def run(encoder_file, photos, *more):
    command = [sys.executable, "-m", "sparse_embed.experiments.search_images"]
    command += [f"--model_dir={encoder_file}", f"--image_folder={photos}", *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_finds_the_same_picture_and_opens_the_index_again(encoder_file, photos):
    base = photos.parent
    flags = [f"--query={base / 'query.png'}", "--nearest=3"]
    flags += [f"--output={base / 'nearest.png'}", f"--index={base / 'photos.index'}"]
    result = run(encoder_file, photos, *flags)
    assert result.returncode == 0, result.stderr
    assert "built, 12 images" in result.stdout
    table = result.stdout[result.stdout.index("rank") :].splitlines()
    assert len(table) == 1 + 3 + 1
    rank, score, path = table[1].split()
    assert rank == "1"
    assert path.endswith("b/7.png")
    assert float(score) > 0.9
    assert Image.open(base / "nearest.png").size[0] > 400


def test_index_is_built_again_only_after_a_change(encoder_file, photos, capsys):
    import keras

    encoder = keras.models.load_model(encoder_file)
    path = photos.parent / "photos.index"

    def count():
        index, paths = image_search.open_index(path, photos, encoder_file, encoder)
        assert index.shape == (len(paths), 64)
        return capsys.readouterr().out.strip().rsplit(" ", 3)[-3]

    assert count() == "built,"
    assert count() == "opened,"
    (photos / "a" / "0.png").unlink()
    assert count() == "built,"
    assert count() == "opened,"


def test_mistakes_cost_one_line(encoder_file, photos):
    result = run(encoder_file, photos, "--query=nowhere.png")
    assert result.returncode == 2
    assert "--query=nowhere.png: expected a file that exists" in result.stderr
