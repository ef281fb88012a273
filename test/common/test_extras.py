import subprocess
import sys

import pytest

from sparse_embed.common.extras import require


def test_installed_modules_are_not_imported():
    """`require` is called whenever a package is imported: it must not cost TensorFlow's start."""
    code = """
import sys
from sparse_embed.common.extras import require
require("somebody", "train", "tensorflow", "keras", "this")
print(sorted({"tensorflow", "keras", "this"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_first_absent_module_and_its_extra_are_named():
    with pytest.raises(ImportError) as caught:
        require("sparse_embed.models", "train", "json", "no_such_keras", "no_such_tensorflow")
    assert str(caught.value) == (
        "sparse_embed.models needs no_such_keras, which is not installed: "
        "pip install 'sparse-embed[train]'"
    )
    assert caught.value.name == "sparse_embed.models"
