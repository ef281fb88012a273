"""Qdrant: a server, or the same engine in this process over a folder (Qdrant Edge).

Its index of sparse vectors is exact. A row that shares no dimension with a query is not found, not
even with score 0, and rows of equal scores come in any order.
"""

import itertools
import json
import os
import pathlib
from typing import Any

import numpy as np
import scipy.sparse

from sparse_embed.common.extras import require
from sparse_embed.common.failures import UsageError
from sparse_embed.common.files import atomic_path, scratch_folder
from sparse_embed.common.reading import read_json
from sparse_embed.experiments.exporting.rows import Payload
from sparse_embed.experiments.exporting.transfer import VECTOR, Note, Results

_NOTE = "sparse_embed.json"  # in the folder of Qdrant Edge


def open_qdrant(target: str, collection: str) -> "QdrantServer | QdrantEdge":
    """Opens a server if `target` is an URL, or else the folder `target/collection`."""
    if target.startswith(("http://", "https://")):
        require("--to=qdrant", "export", "qdrant_client")
        from qdrant_client import QdrantClient

        client = QdrantClient(url=target, api_key=os.environ.get("QDRANT_API_KEY"), timeout=60)
        return QdrantServer(client, collection)
    return QdrantEdge(pathlib.Path(target).expanduser() / collection)


class QdrantServer:
    """A collection of a Qdrant server (1.16 or newer); its metadata is the note.

    Args:
        client: a `QdrantClient`.
        collection: its name.
    """

    def __init__(self, client: Any, collection: str):
        from qdrant_client.http.exceptions import ApiException

        self.errors: tuple[type[Exception], ...] = (ApiException,)
        self._client, self._collection = client, collection
        try:
            client.collection_exists(collection)
        except ApiException as error:
            raise UsageError(f"--target: expected a Qdrant server: {error}") from error

    def note(self) -> Note | None:
        """The metadata of the collection."""
        if not self._client.collection_exists(self._collection):
            return None
        return self._client.get_collection(self._collection).config.metadata or {}

    def create(self, note: Note) -> None:
        """Makes the collection, whose only vector is sparse."""
        from qdrant_client import models

        self._client.create_collection(
            self._collection,
            vectors_config={},
            sparse_vectors_config={VECTOR: models.SparseVectorParams()},
            metadata=note,
        )
        if self.note() != note:
            raise UsageError(
                "--target: the server keeps no metadata of a collection, without which an export "
                "cannot go on after a kill: expected Qdrant 1.16 or newer"
            )

    def set_note(self, note: Note) -> None:
        """Replaces the metadata."""
        self._client.update_collection(self._collection, metadata=note)

    def present(self, ids: np.ndarray) -> np.ndarray:
        """Asks for the points without their content."""
        found = self._client.retrieve(
            self._collection, ids.tolist(), with_payload=False, with_vectors=False
        )
        return np.isin(ids, [point.id for point in found])

    def write(self, ids: np.ndarray, rows: scipy.sparse.csr_array, payloads: list[Payload]) -> None:
        """Upserts the points, and waits until they are kept."""
        from qdrant_client import models

        points = [
            models.PointStruct(
                id=id, vector={VECTOR: models.SparseVector(**vector)}, payload=payload
            )
            for id, vector, payload in zip(ids.tolist(), _vectors(rows), payloads, strict=True)
        ]
        self._client.upsert(self._collection, points, wait=True)

    def finish(self) -> None:
        """The server builds its index by itself."""

    def count(self) -> int:
        """Counts the points."""
        points: int = self._client.count(self._collection, exact=True).count
        return points

    def search(self, query: scipy.sparse.csr_array, k: int) -> Results:
        """Searches the inverted index."""
        from qdrant_client import models

        (vector,) = _vectors(query)
        found = self._client.query_points(
            self._collection,
            query=models.SparseVector(**vector),
            using=VECTOR,
            limit=k,
            with_payload=False,
        )
        return _results(found.points)

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()


class QdrantEdge:
    """Qdrant's own engine over a folder; a file in it is the note.

    Args:
        folder: made by `create`.
    """

    def __init__(self, folder: pathlib.Path):
        require("--to=qdrant", "export", "qdrant_edge")
        self.errors: tuple[type[Exception], ...] = ()  # it has no kind of its own
        self._folder = folder
        self._shard: Any = None
        if (folder / _NOTE).exists():
            from qdrant_edge import EdgeShard

            self._shard = EdgeShard.load(str(folder))

    def note(self) -> Note | None:
        """The file."""
        if self._shard is not None:
            return dict(read_json(self._folder / _NOTE, "the note on an export"))
        return {} if self._folder.exists() else None

    def create(self, note: Note) -> None:
        """Makes the folder, whole or not at all."""
        import qdrant_edge

        self._folder.parent.mkdir(parents=True, exist_ok=True)
        config = qdrant_edge.EdgeConfig(
            sparse_vectors={VECTOR: qdrant_edge.EdgeSparseVectorParams()}
        )
        with scratch_folder(self._folder) as scratch:
            qdrant_edge.EdgeShard.create(str(scratch / "new"), config).close()
            (scratch / "new" / _NOTE).write_text(json.dumps(note))
            (scratch / "new").rename(self._folder)
        self._shard = qdrant_edge.EdgeShard.load(str(self._folder))

    def set_note(self, note: Note) -> None:
        """Replaces the file."""
        with atomic_path(self._folder / _NOTE) as temporary:
            temporary.write_text(json.dumps(note))

    def present(self, ids: np.ndarray) -> np.ndarray:
        """Asks for the points without their content."""
        found = self._shard.retrieve(ids.tolist(), with_payload=False, with_vector=False)
        return np.isin(ids, [point.id for point in found])

    def write(self, ids: np.ndarray, rows: scipy.sparse.csr_array, payloads: list[Payload]) -> None:
        """Upserts the points, which are in the engine's log on return."""
        import qdrant_edge

        points = [
            qdrant_edge.Point(id, {VECTOR: qdrant_edge.SparseVector(**vector)}, payload)
            for id, vector, payload in zip(ids.tolist(), _vectors(rows), payloads, strict=True)
        ]
        self._shard.update(qdrant_edge.UpdateOperation.upsert_points(points))

    def finish(self) -> None:
        """Builds the engine's final index."""
        self._shard.optimize()
        self._shard.flush()

    def count(self) -> int:
        """Counts the points."""
        import qdrant_edge

        points: int = self._shard.count(qdrant_edge.CountRequest(exact=True))
        return points

    def search(self, query: scipy.sparse.csr_array, k: int) -> Results:
        """Searches the inverted index."""
        import qdrant_edge

        (vector,) = _vectors(query)
        nearest = qdrant_edge.Query.Nearest(qdrant_edge.SparseVector(**vector), using=VECTOR)
        return _results(self._shard.query(qdrant_edge.QueryRequest(limit=k, query=nearest)))

    def close(self) -> None:
        """Closes the files."""
        if self._shard is not None:
            self._shard.close()


def _vectors(rows: scipy.sparse.csr_array) -> list[dict[str, list[Any]]]:
    """Returns the indices and values of each row; a Python float has every bit of a float32."""
    columns, values, ends = rows.indices.tolist(), rows.data.tolist(), rows.indptr.tolist()
    return [
        {"indices": columns[begin:end], "values": values[begin:end]}
        for begin, end in itertools.pairwise(ends)
    ]


def _results(points: Any) -> Results:
    """Returns the scores and ids of points."""
    scores = np.array([point.score for point in points], np.float32)
    return scores, np.array([point.id for point in points], np.int64)
