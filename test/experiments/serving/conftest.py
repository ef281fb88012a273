"""A folder of pictures, its encoders, and services on real sockets."""

import contextlib
import io
import socket
import threading
import time

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")
import uvicorn  # noqa: E402
from PIL import Image  # noqa: E402

from sparse_embed.experiments.encoders.encoder import open_encoder  # noqa: E402
from sparse_embed.experiments.serving.app import create_app  # noqa: E402
from sparse_embed.experiments.serving.collection import open_folder  # noqa: E402
from sparse_embed.experiments.serving.limits import Limits  # noqa: E402
from sparse_embed.experiments.serving.server import Protocol  # noqa: E402

SHAPE = (16, 16, 3)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Pictures in two folders, and two untrained encoders: sparse and dense."""
    import keras

    from sparse_embed.models import build_encoder

    base = tmp_path_factory.mktemp("service")
    rng = np.random.default_rng(0)
    for number in range(40):
        folder = base / "photos" / ("a" if number < 20 else "b")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:02}.png")
    keras.utils.set_random_seed(0)
    for name, activation in (("sparse", "relu"), ("dense", "none")):
        (base / name).mkdir()
        options = {"initial_probability": 0.3} if name == "sparse" else {}
        encoder = build_encoder("convnet", 64, activation, SHAPE, **options)
        encoder.save(base / name / "encoder.keras")
    return base


@pytest.fixture(scope="session")
def collection(folders):
    encoders = [open_encoder(folders / name) for name in ("sparse", "dense")]
    return open_folder(folders / "photos", folders / "photos.index", *encoders)


@contextlib.contextmanager
def running(collection, limits=None):
    """A client of the service, which listens on a port of its own."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        app = create_app(collection, limits)
        config = uvicorn.Config(app, log_level="error", http=Protocol)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the service did not start"
                time.sleep(0.01)
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            with httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="session")
def client(collection):
    with running(collection, Limits(seconds=60)) as found:  # on machines with other work to do
        yield found


@pytest.fixture(scope="session")
def photo(folders):
    """The bytes of row 27."""
    return (folders / "photos" / "b" / "27.png").read_bytes()


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="png")
    return file.getvalue()


@pytest.fixture
def serve():
    return running
