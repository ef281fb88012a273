"""Folders of sharded indexes: a manifest with the right checksum, index files, removed ids."""

import json
import pathlib
import tempfile
import zlib

import numpy as np
import scipy.sparse
from fuzz import arrays
from fuzz.mutations import Parts

from sparse_embed.common.failures import DataError
from sparse_embed.retrieval import shard_folder
from sparse_embed.retrieval.shard_server import Request, ShardServer

ALLOWED = (DataError, OSError)
_ROWS = scipy.sparse.csr_array(np.eye(20, 6, dtype=np.float32) + np.eye(20, 6, -6, np.float32))


def seeds() -> list[Parts]:
    """Two shards, as they were made and after rows were removed and added."""
    made = []
    for changed in (False, True):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            shard_folder.create(folder, _ROWS, shards=2)
            if changed:
                shard_folder.remove(folder, np.array([3, 15]))
                shard_folder.add(folder, _ROWS[:2], np.array([2**40, 30]))
            parts = {path.name: path.read_bytes() for path in folder.glob("shard-*")}
            index = json.loads((folder / shard_folder.MANIFEST).read_text())["index"]
            made += [{**parts, "index.json": json.dumps(index).encode()}] * (1 + 3 * changed)
    return made


def attempt(parts: Parts, folder: pathlib.Path) -> None:
    """What opens is searched as its processes do, and changed."""
    parts = dict(parts)
    index = parts.pop("index.json")
    try:
        checksum = zlib.crc32(json.dumps(json.loads(index), sort_keys=True).encode())
    except (ValueError, RecursionError):
        checksum = 0
    manifest = b'{"format": "sparse_embed shards", "version": 1, "checksum": %d, "index": %b}'
    arrays.write({**parts, shard_folder.MANIFEST: manifest % (checksum, index)}, folder)
    opened = shard_folder.read(folder)
    known, dims = [], opened.dims
    queries = np.zeros((2, dims), np.float32)
    queries[0, :1] = queries[1, -1:] = 1.0
    csr = scipy.sparse.csr_array(queries)
    request = Request(csr.shape, (csr.indptr.astype(np.int64), csr.indices, csr.data), 5, {})
    for shard in opened.shards:
        for file in (shard.file, shard.removed.file if shard.removed else "a"):
            path = pathlib.PurePosixPath(file)
            assert path.name == file or (file == shard.file and path.is_absolute()), file
        ids = shard_folder.open_shard(folder, shard, dims).ids
        assert len(ids) == len(shard)
        found = ShardServer(folder, dims).search(shard, request)[1]
        assert np.isin(found, [-1, *ids]).all(), "an id that no row has"
        known.append(ids)
    try:
        _, added = shard_folder.add(folder, queries)
        assert shard_folder.remove(folder, added)[1] == 2
        if known and len(known[0]):
            shard_folder.remove(folder, known[0][:1])
    except ValueError as error:
        assert isinstance(error, DataError) or str(error).startswith("ids holds "), error
    else:
        shard_folder.read(folder)
