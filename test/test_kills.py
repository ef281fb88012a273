"""A few of the kills of `make kill`, in a new process: forked ones must find no threads."""

import pathlib
import subprocess
import sys

import pytest

VICTIMS = [
    "save=10 train=2",
    "embed=2 prepare_data=4",
    "embed_parts=4",
    "build_shards=6 sparsify=2",
]


@pytest.mark.parametrize("victims", VICTIMS)
def test_that_nothing_is_lost(victims):
    script = pathlib.Path(__file__).with_name("kills.py")
    done = subprocess.run(
        [sys.executable, script, *victims.split()], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("nothing lost") == len(victims.split())
