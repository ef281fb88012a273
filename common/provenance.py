"""How a result was made: versions, hardware, revision. Saved beside every result."""

import contextlib
import importlib.metadata
import os
import pathlib
import platform
import subprocess
import time
from typing import Any

PACKAGES = ["sparse-embed", "tensorflow", "keras", "numpy", "scipy", "faiss-cpu", "matplotlib"]


def provenance() -> dict[str, Any]:
    """Returns versions, hardware, git revision and the time, ready for JSON."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "versions": _versions(),
        "revision": _git_revision(),
        "hardware": {
            "machine": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
        },
    }


def _versions() -> dict[str, str]:
    """Returns the versions of the packages that are installed."""
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _git_revision() -> str | None:
    """Returns the commit of the checkout that this runs from, or None outside a checkout."""
    folder = pathlib.Path(__file__).resolve().parent
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _processor() -> str:
    """Returns the processor's own name if the system reports it."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor()
