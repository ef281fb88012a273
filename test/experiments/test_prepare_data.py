"""The script that makes shards."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from helpers import call

from sparse_embed.common.failures import UsageError
from sparse_embed.datasets import tfrecords


@pytest.fixture
def photos(tmp_path):
    for number in range(6):
        file = tmp_path / "photos" / f"class {number % 2}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(tf.io.encode_png(np.full((5, 9, 3), number, np.uint8)).numpy())
    (tmp_path / "photos/class 1/broken.png").write_bytes(b"broken")
    return tmp_path / "photos"


def run(**values):
    given = {"dataset": "image_folder", "num_shards": 2, **values}
    call("prepare_data", *(f"--{name}={value}" for name, value in given.items()))


def test_shards_are_made_and_counted(photos, tmp_path, capsys):
    target = tmp_path / "shards"
    run(data_dir=str(photos), shards_dir=str(target), image_size=8, on_error="skip")
    assert "6 images of 2 classes in 2 shards; 1 broken images skipped" in capsys.readouterr().out
    shards = tfrecords.open_shards(target)
    assert (len(shards), shards.shape) == (6, (8, 8, 3))


def test_a_broken_image_ends_it_in_one_sentence(photos, tmp_path):
    with pytest.raises(UsageError, match=r"broken.png: cannot be decoded"):
        run(data_dir=str(photos), shards_dir=str(tmp_path / "shards"))
    with pytest.raises(UsageError, match=r"--dataset=glyphs: .* <recordio\|image_folder>"):
        run(dataset="glyphs", data_dir=str(photos), shards_dir=str(tmp_path / "shards"))


def test_a_missing_source_costs_one_line(tmp_path):
    result = subprocess.run(
        [
            *(sys.executable, "-m", "sparse_embed.experiments.prepare_data"),
            *("--dataset=recordio", f"--data_dir={tmp_path}", f"--shards_dir={tmp_path}/shards"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    expected = f"prepare_data: --data_dir={tmp_path}: expected a folder that holds train.rec\n"
    assert result.stderr == expected
