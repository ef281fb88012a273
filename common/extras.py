"""Checks for packages beyond the base installation, and names the extra that installs them."""

import importlib.util


def require(package: str, extra: str, *modules: str) -> None:
    """Raises ImportError in one line unless all `modules` are installed; imports none of them.

    Args:
        package: what needs them, as the user knows it; an `__init__.py` gives its `__name__`.
        extra: the extra of sparse-embed that installs them.
        *modules: top-level modules, e.g. "keras".
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            # `python -m` shows an ImportError in one line only if it names the parent package.
            raise ImportError(
                f"{package} needs {module}, which is not installed: "
                f"pip install 'sparse-embed[{extra}]'",
                name=package,
            )
