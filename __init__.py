"""Evenly sparse embeddings, and the exact index that searches them.

Each folder beside this file that has an `__init__.py` is installed as `sparse_embed.<folder>`.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("sparse-embed")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
