"""Memory that is kept is not paid for again."""

import subprocess
import sys

import pytest

# Page faults of filling 64 MB that have been filled and freed before.
FAULTS = """
import resource, sys, threading
import numpy as np
from sparse_embed.common.memory import keep_freed_memory
if sys.argv[1] == "keep" and not keep_freed_memory():
    sys.exit("malloc is not that of glibc")
def fill():
    global faults
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        np.full(2**26, 1, np.uint8)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
if sys.argv[2] == "thread":
    thread = threading.Thread(target=fill)
    thread.start()
    thread.join()
else:
    fill()
print(faults)
"""


def faults(*how):
    command = [sys.executable, "-c", FAULTS, *how]
    environment = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0", "NUMPY_MADVISE_HUGEPAGE": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if "not that of glibc" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("where", ["main", "thread"])
def test_freed_memory_is_used_again_without_page_faults(where):
    assert faults("keep", where) < faults("as it is", where) / 10
