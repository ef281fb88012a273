"""Keeps other libraries' start-up messages off the terminal, where our one-line errors go."""

import importlib.abc
import importlib.machinery
import logging
import os
import sys
import tempfile
from typing import Any

# Python's warnings stay. In workers that train together TensorFlow's C++ code would tell many times
# of the end of another worker; that comes as an exception, too.
_LEVEL = "3" if "TF_CONFIG" in os.environ else "2"


def quiet_tensorflow() -> None:
    """Makes the first import of TensorFlow silent, if it works.

    With TensorFlow 2.21, TF_CPP_MIN_LOG_LEVEL does not silence messages logged while the libraries
    load and look for GPUs. Users who set it want to see messages, and get all of them.
    """
    # A process that one of our scripts started has our level, too.
    is_ours = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", _LEVEL) == _LEVEL
    if is_ours and "tensorflow" not in sys.modules:
        sys.meta_path.insert(0, _Finder())


def quiet_matplotlib() -> None:
    """Leaves out the note that fonts were found, which comes once on every new machine."""
    logging.getLogger("matplotlib.font_manager").setLevel(logging.WARNING)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds TensorFlow in the usual way, but has `_Loader` load it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "tensorflow":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any):
        self._loader = loader

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        """Loads the module and looks for devices; stderr goes to a file, shown only on failure."""
        sys.stderr.flush()
        kept = os.dup(2)
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), 2)
            try:
                self._loader.exec_module(module)
                module.config.list_physical_devices()
            except BaseException:
                file.seek(0)
                os.write(kept, file.read())
                raise
            finally:
                os.dup2(kept, 2)
                os.close(kept)
