"""Memory that is kept stays with the process, and is what the next tensor gets."""

import json
import os
import subprocess
import sys

import pytest

# Fills and frees 100 MB four times: more than what malloc gives back to the system at once (32 MB),
# and more than what an arena of a thread's own can hold (64 MB). Prints the megabytes that the
# process has more than before, each time with the block filled and after it is freed.
RESIDENT = """
import ctypes, json, os, sys, threading
from sparse_embed.common.memory import keep_freed_memory

SIZE, MEGABYTE = 100 * 2**20, 2**20
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]

statm = os.open("/proc/self/statm", os.O_RDONLY)

def resident():  # without a buffer of its own, which malloc might cut off a freed block
    return int(os.pread(statm, 100, 0).split()[1]) * os.sysconf("SC_PAGESIZE")

def fill():
    before = resident()
    for _ in range(4):
        block = libc.malloc(SIZE)
        ctypes.memset(block, 1, SIZE)
        full = resident()
        libc.free(block)
        seen.append([(full - before) / MEGABYTE, (resident() - before) / MEGABYTE])

seen = []
kept = keep_freed_memory() if sys.argv[1] == "keep" else None
if sys.argv[2] == "thread":
    thread = threading.Thread(target=fill)
    thread.start()
    thread.join()
else:
    fill()
print(json.dumps([kept, seen]))
"""


def resident(how, where):
    """Whether memory is kept, and the megabytes with each block filled and freed."""
    command = [sys.executable, "-c", RESIDENT, how, where]
    # Neither huge pages, which would round what is resident, nor settings from outside.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    environment["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=0"
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm")
@pytest.mark.parametrize("where", ["main", "thread"])
def test_freed_memory_stays_and_is_used_again(where):
    kept, seen = resident("keep", where)
    if not kept:
        pytest.skip("malloc is not that of glibc")
    for full, freed in seen:
        assert 98 < freed <= full < 104  # one block, however often it is filled
    _, seen = resident("as it is", where)
    for full, freed in seen:
        assert freed < 2 < 98 < full


def test_other_systems_are_told_apart(monkeypatch):
    """musl has no mallopt, and Windows no C library without a name."""
    from sparse_embed.common import memory

    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    assert memory.keep_freed_memory() is False

    def absent(name):
        raise TypeError(name)

    monkeypatch.setattr(memory.ctypes, "CDLL", absent)
    assert memory.keep_freed_memory() is False


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not hand a peak down")
def test_peak_is_told_in_bytes():
    """A process has the peak of the one that it came from: here a shell, which is small."""
    code = (
        "from sparse_embed.common.memory import peak_bytes; before = peak_bytes(); "
        "block = bytearray(b'x') * (1 << 27); print(peak_bytes() - before)"
    )
    command = ["sh", "-c", '"$0" -c "$1"; exit $?', sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) == pytest.approx(1 << 27, rel=0.01)
