"""Requests of HTTP, given to the service in this process: paths, JSON and images."""

import asyncio
import functools
import json
import pathlib
import string
import tempfile
import urllib.parse
from typing import Any

import keras
import numpy as np
import scipy.sparse
from fuzz import pictures
from fuzz.mutations import Parts

from sparse_embed.experiments.encoders.encoder import open_encoder
from sparse_embed.experiments.serving.app import create_app
from sparse_embed.experiments.serving.collection import Collection
from sparse_embed.experiments.serving.limits import Limits
from sparse_embed.models import build_encoder
from sparse_embed.retrieval import SparseIndex

TOKENS = [b"k=", b"&", b"threshold=", b"allowed=1", b"forbidden=2", b"rerank=true", b"codes=true"]
TOKENS += [b"%00", b"%ff", b"%ed%a0%80", b"..", b"//", b"nan", b"-1", b"1e400", *pictures.TOKENS]
_SHAPE = (pictures.SIZE, pictures.SIZE, 3)
_LOOP = asyncio.new_event_loop()


class RefusedError(ValueError):
    """The service answered 4xx, with a sentence."""


ALLOWED = (RefusedError,)


@functools.cache
def _app() -> Any:
    """The application, running."""
    rng = np.random.default_rng(0)
    rows = scipy.sparse.random_array((40, 16), density=0.3, format="csr", dtype="f4", rng=rng)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        keras.utils.set_random_seed(0)
        build_encoder("convnet", 16, "relu", _SHAPE).save(folder / "encoder.keras")
        encoder = open_encoder(folder)
    dense = rng.normal(size=(40, 4)).astype(np.float32)
    # A picture in memory takes 15 bytes per pixel.
    limits = Limits(seconds=60, pixels=10**6)
    app = create_app(Collection(SparseIndex.build(rows), encoder, dense), limits)
    app.state.running = app.router.lifespan_context(app)
    _LOOP.run_until_complete(app.state.running.__aenter__())
    return app


def seeds() -> list[Parts]:
    """Searches of each kind, and rows."""
    vector = {"indices": [1, 5], "values": [0.5, 1.0], "k": 3, "threshold": 0.1, "codes": True}
    more = {"indices": [0], "values": [1], "rerank": True, "dense": [1, 0, 0, 0], "shortlist": 9}
    bodies = [vector, more, {**vector, "allowed": [1, 2, 3]}, {**vector, "forbidden": [0]}]
    made = [
        {"POST": b"/search/vector", "json": json.dumps(body).encode()} for body in [*bodies, more]
    ]
    images = [pictures.encoded(kind) for kind in ("PNG", "JPEG", "GIF", "BMP")]
    made += [{"POST": b"/search/image?k=3&codes=true", "image": image} for image in images]
    made.append({"POST": b"/search/image?k=3", **pictures.png_pieces()})
    paths = ("/search/id/3?k=5&rerank=true", "/dimensions/4?k=3&sign=-1", "/rows/7", "/info")
    return made + [{"GET": path.encode()} for path in paths]


def attempt(parts: Parts, folder: pathlib.Path) -> None:
    """The answer is 2xx (3xx at a path that ends in a slash), or 4xx with one sentence."""
    del folder
    app, body = _app(), parts.get("json")
    if body is None and "GET" not in parts:
        body = pictures.joined(parts)
    method = "GET" if "GET" in parts else "POST"
    # Servers refuse what is no ASCII before the application sees it.
    target = urllib.parse.quote(parts[method], safe=string.punctuation).encode()
    path, _, query = target.partition(b"?")
    scope = {
        **{"type": "http", "http_version": "1.1", "method": method, "scheme": "http"},
        **{"path": urllib.parse.unquote(path.decode()), "raw_path": path},
        **{"query_string": query, "root_path": "", "server": ("localhost", 80)},
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
    }
    said: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body or b"", "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    _LOOP.run_until_complete(app(scope, receive, send))
    status = said[0]["status"]
    content = b"".join(message.get("body", b"") for message in said)
    assert status < 500, f"{status}: {content[:300]!r}"
    if status >= 400:
        sentence = json.loads(content)["error"]
        assert isinstance(sentence, str)
        assert sentence
        raise RefusedError(sentence)
    if status < 300 and content[:1] == b"{":
        for result in json.loads(content).get("results", []):
            assert 0 <= result["id"] < 40
