"""A folder of pictures searched with an encoder, the index built once."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from sparse_embed.common.failures import DataError, UsageError
from sparse_embed.experiments.encoders import image_search
from sparse_embed.experiments.encoders.encoder import Encoder, open_encoder


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
    command = [sys.executable, "-m", "sparse_embed.experiments.search", "--what=images"]
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
    encoder = open_encoder(encoder_file)
    path = photos.parent / "photos.index"

    def count():
        index, paths = image_search.open_index(path, photos, encoder)
        assert index.shape == (len(paths), 64)
        return capsys.readouterr().out.strip().rsplit(" ", 3)[-3]

    assert count() == "built,"
    assert count() == "opened,"
    (photos / "a" / "0.png").unlink()
    assert count() == "built,"
    assert count() == "opened,"


def test_a_query_too_large_to_decode_is_refused(photos):
    query = photos.parent / "query.png"
    data = bytearray(query.read_bytes())
    data[16:24] = (50_000).to_bytes(4, "big") * 2
    query.write_bytes(data)
    encoder = Encoder("keras", query, (8, 8, 3), 3, True, lambda images: images[:, 0, 0])
    with pytest.raises(UsageError, match=r"query.png: .* 50,000 x 50,000 pixels: expected at most"):
        image_search.embed_image(encoder, query)


def test_query_in_the_folder_is_left_out_and_its_copy_is_not(encoder_file, photos):
    shutil.copy(photos / "b" / "7.png", photos / "a" / "copy of 7.png")
    flags = ["--nearest=3", f"--output={photos.parent / 'nearest.png'}"]

    def found(query, *more):
        result = run(encoder_file, photos, f"--query={query}", *flags, *more)
        assert result.returncode == 0, result.stderr
        table = result.stdout[result.stdout.index("rank") :].splitlines()
        return [line.split(maxsplit=2)[2] for line in table[1:-1]]

    query = photos / "a" / ".." / "b" / "7.png"  # the same file, named otherwise
    others, everything = found(query), found(query, "--noleave_out_query")
    assert len(others) == len(everything) == 3
    assert others[0] == str(photos / "a" / "copy of 7.png")
    assert str(photos / "b" / "7.png") not in others
    assert set(everything[:2]) == {str(photos / "b" / "7.png"), others[0]}
    assert everything[2] == others[1]


def test_figure_shows_scores_and_paths_whole(photos, monkeypatch):
    """Twelve results in three rows, of folders with long names: no text is cut or hidden."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, *_, **__: seen(figure))
    paths = sorted(photos.glob("*/*.png"))
    folder = photos / ("a folder of a class with a long name, " * 3)
    folder.mkdir()
    moved = [path.rename(folder / f"{place}-{'x' * place}.png") for place, path in enumerate(paths)]
    texts = []

    def seen(figure):
        figure.set_dpi(120)
        figure.draw_without_rendering()
        whole = figure.bbox
        boxes = []
        for axis in figure.axes:
            if axis.get_title():
                texts.append(axis.get_title())
                boxes.append(axis.title.get_window_extent())
                assert whole.x0 <= boxes[-1].x0 <= boxes[-1].x1 <= whole.x1
                assert whole.y0 <= boxes[-1].y0 <= boxes[-1].y1 <= whole.y1
        for place, box in enumerate(boxes):
            for other in boxes[place + 1 :]:
                assert not box.overlaps(other)
        pictures = [axis.get_window_extent() for axis in figure.axes if axis.images]
        assert not any(box.overlaps(picture) for box in boxes for picture in pictures)

    query = photos.parent / "query.png"
    image_search.draw(query, moved, np.linspace(1, 0.5, 12), photos, photos.parent / "x.png")
    assert texts[0] == "query\nquery.png"
    assert texts[1].startswith("1.000\n")
    assert texts[1].replace("\n", "").endswith("long name, /0-.png")
    assert len(texts) == 13


def test_caption_is_the_path_in_the_folder(photos, monkeypatch):
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig",
        lambda figure, *_, **__: titles.extend(axis.get_title() for axis in figure.axes),
    )
    titles = []
    found = [photos / "b" / "7.png", photos / "a" / "0.png"]
    image_search.draw(
        photos.parent / "query.png", found, np.array([1, 0.25]), photos, photos.parent / "x.png"
    )
    assert titles == ["query\nquery.png", "1.000\nb/7.png", "0.250\na/0.png"]


def test_mistakes_cost_one_line(encoder_file, photos):
    result = run(encoder_file, photos, "--query=nowhere.png")
    assert result.returncode == 2
    assert "--query=nowhere.png: expected a file that exists" in result.stderr


def test_a_damaged_index_or_note_is_refused_by_name(encoder_file, photos, tmp_path):
    encoder = open_encoder(encoder_file)
    path, note = tmp_path / "photos.index", tmp_path / "photos.json"

    def open_index():
        return image_search.open_index(path, photos, encoder)

    open_index()
    whole, kept = path.read_bytes(), json.loads(note.read_text())
    for content in (b"", b"{", b"[]", b"\xff"):
        note.write_bytes(content)
        with pytest.raises(DataError, match=r"photos\.json: expected the note on an index"):
            open_index()
    for content in ({}, {**kept, "paths": 3}, {**kept, "paths": kept["paths"][1:]}):
        note.write_text(json.dumps(content))
        with pytest.raises(DataError, match=r"photos\.json: "):
            open_index()
    note.write_text(json.dumps(kept))
    path.write_bytes(whole[:-9])
    with pytest.raises(DataError, match=r"photos\.index: "):
        open_index()
