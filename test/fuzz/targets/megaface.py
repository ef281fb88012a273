"""MegaFace's lists of images, noise lists and feature files."""

import json
import pathlib

import numpy as np
from fuzz.mutations import Parts

from sparse_embed.datasets import megaface

TOKENS = [b"path", b"id", b"..", b"/", b'"', b"\\u0000", b"\\ud800", b"#", b"\n", b"\xff", b"NaN"]


def seeds() -> list[Parts]:
    """A list of probes, one of distractors, with noise lists and features."""
    paths = ["Ada/1.png", "Ada/2.png", "Bob/1.png"]
    features = np.array([3, 1, 4, 5], "<i4").tobytes() + np.arange(3, dtype="<f4").tobytes()
    noises = b"# noise\n2.png\nBob/1.png\n"
    probes = json.dumps({"path": paths, "id": ["Ada", "Ada", "Bob"]}).encode()
    return [
        {"list.json": probes, "noises.txt": noises, "features.bin": features},
        {
            "list.json": json.dumps({"path": paths}).encode(),
            "noises.txt": b"",
            "features.bin": features,
        },
    ]


def attempt(parts: Parts, folder: pathlib.Path) -> None:
    """Each reader has its turn, also where another one refuses its file."""
    for name, content in parts.items():
        (folder / name).write_bytes(content)
    refused = []
    for reader in (_lists, _features):
        try:
            reader(folder)
        except (ValueError, OSError) as error:
            refused.append(error)
    if refused:
        raise refused[0]


def _lists(folder: pathlib.Path) -> None:
    images = megaface.read_list(folder / "list.json")
    noises = megaface.read_noises(folder / "noises.txt")
    assert images.ids is None or len(images.ids) == len(images.paths)
    assert megaface.noisy_images(images, noises).shape == (len(images.paths),)
    (folder / "images").mkdir()
    found = megaface.load(images, folder / "images", noises, on_missing="skip")
    assert len(found.examples) == 0, "an image that is not there"
    megaface.read_feature_tree(folder / "images", images.paths, "_x.bin")
    for path in images.paths:
        inside = (folder / "images" / path).resolve().is_relative_to((folder / "images").resolve())
        assert inside, f"{path!r} leaves the folder"


def _features(folder: pathlib.Path) -> None:
    found = megaface.read_features(folder / "features.bin")
    assert found.dtype == np.float32
    megaface.write_features(folder / "again.bin", found)
    assert (folder / "again.bin").read_bytes() == (folder / "features.bin").read_bytes()
