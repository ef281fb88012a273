"""The service, asked over HTTP: answers, refusals, limits."""

import concurrent.futures
import contextlib
import dataclasses
import importlib.util
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import tempfile
import threading

import numpy as np
import pytest
import scipy.sparse
from PIL import Image

from sparse_embed.common.failures import MachineError, UsageError
from sparse_embed.experiments.serving.collection import Collection
from sparse_embed.experiments.serving.limits import Limits
from sparse_embed.retrieval import Reranker, ShardedIndex, SparseIndex, TwoStage


def found(response):
    """The (id, score) of each result."""
    assert response.status_code == 200, response.text
    return [(result["id"], result["score"]) for result in response.json()["results"]]


def pairs(scores, ids):
    return [
        (number, score)
        for score, number in zip(scores[0].tolist(), ids[0].tolist(), strict=True)
        if number >= 0
    ]


def error(response, status):
    """The one sentence of a refusal."""
    assert response.status_code == status, response.text
    content = response.json()
    assert content.keys() == {"error"}
    sentence = content["error"]
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert len(sentence) < 200
    return sentence


def test_an_image_finds_itself_and_what_the_index_finds(client, collection, photo):
    answer = client.post("/search/image", params={"k": 5, "codes": True}, content=photo)
    code = collection.index.reconstruct([27])
    results = answer.json()["results"]
    assert results[0]["name"] == "b/27.png"
    assert [number for number, _ in found(answer)] == collection.index.search(code, 5)[1][
        0
    ].tolist()
    assert answer.json()["query"]["indices"] == code.indices.tolist()
    np.testing.assert_allclose(answer.json()["query"]["values"], code.data, atol=1e-6)
    assert results[0]["code"]["values"] == code.data.tolist()
    assert client.get(f"/{results[0]['picture']}").content == photo
    assert answer.json()["milliseconds"].keys() == {"decode", "wait", "encode", "search", "total"}


def test_a_row_finds_others(client, collection):
    scores, ids = collection.index.search(collection.index.reconstruct([3]), 7)
    assert found(client.get("/search/id/3", params={"k": 6})) == [
        pair for pair in pairs(scores, ids) if pair[0] != 3
    ]


def test_a_vector_finds_what_the_index_finds(client, collection):
    query = {"indices": [40, 3, 9], "values": [0.5, -1, 0.25], "k": 9}
    row = scipy.sparse.csr_array(([0.5, -1, 0.25], ([0, 0, 0], [40, 3, 9])), shape=(1, 64))
    assert found(client.post("/search/vector", json=query)) == pairs(
        *collection.index.search(row, 9)
    )
    query["threshold"] = 0.1
    assert found(client.post("/search/vector", json=query)) == pairs(
        *collection.index.search(row, 9, threshold=0.1)
    )
    for name in ("allowed", "forbidden"):
        ids = [30, 2, 2, 11, 10**12]
        expected = collection.index.search(row, 9, threshold=0.1, **{name: np.array(ids)})
        assert found(client.post("/search/vector", json={**query, name: ids})) == pairs(*expected)


def test_results_are_re_ranked(client, collection, photo):
    two_stage = TwoStage(collection.index, Reranker(collection.dense))
    code, dense = collection.index.reconstruct([27]), np.asarray(collection.dense[[27]])
    expected = pairs(*two_stage.search(code, dense, k=4, shortlist=12))
    options = {"k": 4, "rerank": True, "shortlist": 12}
    query = {"indices": code.indices.tolist(), "values": code.data.tolist()}
    answer = client.post("/search/vector", json={**query, **options, "dense": dense[0].tolist()})
    assert found(answer) == expected
    assert "rerank" in answer.json()["milliseconds"]
    by_image = found(client.post("/search/image", params=options, content=photo))
    assert [number for number, _ in by_image] == [number for number, _ in expected]
    assert expected[0][0] == 27
    by_id = found(client.get("/search/id/27", params={**options, "shortlist": 11}))
    assert by_id[:3] == expected[1:]


def test_a_dimension_shows_the_rows_that_activate_it_most(client, collection):
    column = collection.index.reconstruct(np.arange(40)).toarray()[:, 9]
    assert found(client.get("/dimensions/9", params={"k": 5})) == [
        (number, column[number])
        for number in np.argsort(-column, kind="stable")[:5]
        if column[number] > 0
    ]
    assert found(client.get("/dimensions/9", params={"sign": -1})) == []
    assert "0 to 63" in error(client.get("/dimensions/64"), 404)


def test_signed_rows_have_both_ends_of_a_dimension(serve):
    rows = np.array([[0.5, 0], [-0.75, 0], [0, 1], [-0.25, 1]], np.float32)
    with serve(Collection(SparseIndex.build(rows))) as client:
        assert found(client.get("/dimensions/0")) == [(0, 0.5)]
        assert found(client.get("/dimensions/0", params={"sign": -1})) == [(1, -0.75), (3, -0.25)]


def test_a_row_and_its_picture(client, collection, photo):
    row = client.get("/rows/27").json()
    code = collection.index.reconstruct([27])
    assert row["code"] == {"indices": code.indices.tolist(), "values": code.data.tolist()}
    picture = client.get(f"/{row['picture']}")
    assert picture.content == photo
    assert picture.headers["content-type"] == "image/png"
    assert picture.headers["x-content-type-options"] == "nosniff"
    for path in ("/rows/40", "/rows/40/picture", "/search/id/40", "/search/id/9000000000000000000"):
        assert "expected the id of a row" in error(client.get(path), 404)


def test_bad_images_are_refused_and_the_service_goes_on(client, photo):
    before = found(client.post("/search/image", content=photo))
    bomb = bytearray(photo)
    bomb[16:24] = (50_000).to_bytes(4, "big") * 2

    def refused(status, content, **params):
        return error(client.post("/search/image", params=params, content=content), status)

    assert "no image" in refused(422, b"")
    assert "no image" in refused(422, b"hello, this is text")
    assert "no image" in refused(422, photo[:20])
    assert "damaged" in refused(422, photo[:200])
    assert "50,000 x 50,000 pixels is too large" in refused(413, bytes(bomb))
    assert "expected at most 8,388,608 bytes" in refused(413, bytes(100 << 20))
    assert "at most 8,388,608 bytes" in refused(413, (bytes(1 << 20) for _ in range(10)))
    for k in (0, -1, 1001, "many", 1.5):
        assert refused(422, photo, k=k).startswith("k: ")
    assert refused(422, photo, threshold="nan").startswith("threshold: ")
    assert refused(422, photo, kk=3).startswith("kk: ")
    assert "both given" in refused(422, photo, allowed=1, forbidden=2)
    assert found(client.post("/search/image", content=photo)) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"indices": [64]}, "64 is out of range: expected below 64"),
        ({"indices": [10**30]}, "out of range"),
        ({"indices": [-1]}, "indices.0: "),
        ({"indices": [1, 2]}, "2 indices and 1 values"),
        ({"indices": [1, 1], "values": [1, 1]}, "each dimension once"),
        ({"values": [1e39]}, "float32"),
        ({"values": [float("nan")]}, "values.0: input should be a finite number"),
        ({"values": [float("inf")]}, "finite"),
        ({"values": ["x"]}, "values.0: "),
        ({"k": 0}, "k: "),
        ({"allowed": [-3]}, "allowed.0: "),
        ({"allowed": [2**64]}, "allowed.0: "),
        ({"rerank": True}, "dense: none given: expected 64"),
        ({"rerank": True, "dense": [1]}, "dense: 1 given: expected 64"),
        ({"rerank": True, "dense": [1e300] * 64}, "float32"),
        ({"more": 1}, "more: "),
    ],
)
def test_bad_vectors_are_refused(client, change, words):
    content = json.dumps({"indices": [1], "values": [1.0], **change})
    headers = {"content-type": "application/json"}
    assert words in error(client.post("/search/vector", content=content, headers=headers), 422)
    assert client.get("/ready").json() == {"status": "ready"}


def test_what_is_no_request_is_refused(client):
    headers = {"content-type": "application/json"}
    for content in (b"{", b"\xff\xfe", b"[1, 2]", b"null"):
        error(client.post("/search/vector", content=content, headers=headers), 422)
    assert "/docs" in error(client.get("/nowhere"), 404)
    assert "/docs" in error(client.delete("/rows/3"), 405)
    assert client.get("/info", headers={"host": "elsewhere.example"}).status_code == 400
    assert error(client.get("/search/id/three"), 422).startswith("number: ")


def test_vectors_alone_need_no_encoder(serve, photo):
    rows = scipy.sparse.random(30, 8, 0.5, "csr", np.float32, random_state=0)
    with serve(Collection(SparseIndex.build(rows, ids=np.arange(30) * 10))) as client:
        assert found(client.get("/search/id/50", params={"k": 2, "codes": True}))
        assert "no encoder" in error(client.post("/search/image", content=photo), 422)
        assert "no dense" in error(client.get("/search/id/50", params={"rerank": True}), 422)
        assert "no pictures" in error(client.get("/rows/50/picture"), 404)
        error(client.get("/search/id/51"), 404)
        info = client.get("/info").json()
        assert (info["rows"], info["images"], info["pictures"]) == (30, False, False)


class Plain:
    """What a search must have and no more."""

    shape = (5, 3)

    def search(self, queries, k=10, threshold=None, num_threads=1):
        if queries.sum() > 8:
            raise MachineError("shard 3 does not answer")
        return np.full((queries.shape[0], 1), 0.5), np.full((queries.shape[0], 1), 4)


def test_any_search_is_served(serve):
    query = {"indices": [0], "values": [1]}
    with serve(Collection(Plain())) as client:
        assert found(client.post("/search/vector", json=query)) == [(4, 0.5)]
        assert "no filters" in error(
            client.post("/search/vector", json={**query, "allowed": [1]}), 422
        )
        assert "give its rows back" in error(client.get("/search/id/3"), 422)
        heavy = {"indices": [0], "values": [9]}
        assert error(client.post("/search/vector", json=heavy), 503) == "shard 3 does not answer."


def test_parts_that_do_not_fit_are_named(collection):
    index = SparseIndex.build(np.eye(3, dtype=np.float32))
    with pytest.raises(UsageError, match=r"--dense: 40 rows: expected 3"):
        Collection(index, dense=collection.dense)
    with pytest.raises(UsageError, match=r"--model_dir=.*64 dimensions: expected 3"):
        Collection(index, collection.encoder)


class Slow:
    """A search that waits until it may go on."""

    shape = (5, 3)

    def __init__(self):
        self.may_go_on = threading.Event()

    def search(self, queries, k=10, threshold=None, num_threads=1):
        assert self.may_go_on.wait(30)
        return np.full((queries.shape[0], 1), 0.5), np.full((queries.shape[0], 1), 4)


def test_a_full_queue_and_a_slow_answer_are_told(serve):
    slow = Slow()
    slow.may_go_on.set()  # for the first query, by which the service warms up
    query = {"indices": [0], "values": [1]}
    with (
        serve(Collection(slow), Limits(queue=3, seconds=2)) as client,
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        slow.may_go_on.clear()
        asked = [pool.submit(client.post, "/search/vector", json=query) for _ in range(5)]
        answers = [one.result() for one in asked]
        slow.may_go_on.set()
        told = sorted(answer.status_code for answer in answers)
        assert told == [503, 503, 504, 504, 504]
        for answer in answers:
            sentence = error(answer, answer.status_code)
            assert sentence.startswith(
                ("3 requests are being", "The answer took longer than 2 sec")
            )
            assert (answer.headers.get("retry-after") == "1") == (answer.status_code == 503)
        assert client.get("/health").status_code == 200
        assert found(client.post("/search/vector", json=query)) == [(4, 0.5)]


class Unreachable:
    """An index with a shard that does not answer until it may; it counts who asks for it."""

    def __init__(self, index):
        self._index = index
        self.may_answer = threading.Event()
        self.all_have_asked = threading.Event()
        self._asked = 0

    def __getattr__(self, name):
        return getattr(self._index, name)

    @property
    def health(self):
        self._asked += 1
        if self._asked >= 40:
            self.all_have_asked.set()
        return self._health

    def _health(self, timeout):
        assert self.may_answer.wait(120)
        return []


def test_no_query_waits_for_a_shard_that_readiness_waits_for(serve, collection, photo):
    index = Unreachable(collection.index)
    with (
        serve(dataclasses.replace(collection, index=index), Limits(seconds=60)) as client,
        concurrent.futures.ThreadPoolExecutor(40) as pool,
    ):
        asked = [pool.submit(client.get, "/ready") for _ in range(40)]
        assert index.all_have_asked.wait(60)
        try:
            answer = client.post("/search/image", params={"k": 1}, content=photo)
            assert not any(one.done() for one in asked)
        finally:
            index.may_answer.set()
        assert [number for number, _ in found(answer)] == [27]
        assert {one.result().status_code for one in asked} == {200}


def test_metrics_count_requests_stages_and_batches(client, photo):
    client.post("/search/image", content=photo)
    client.get("/rows/99")
    lines = client.get("/metrics").text.splitlines()
    counts = {line.split(" ")[0]: float(line.split(" ")[1]) for line in lines if line[0] != "#"}
    assert counts['sparse_embed_requests_total{route="/search/image",status="200"}'] >= 1
    assert counts['sparse_embed_requests_total{route="/rows/{number}",status="404"}'] >= 1
    assert counts['sparse_embed_stage_seconds_count{stage="encode"}'] >= 1
    assert counts["sparse_embed_batch_queries_count"] >= 1
    assert counts["sparse_embed_rows"] == 40
    assert counts["sparse_embed_in_flight"] == 0
    assert counts["process_resident_memory_bytes"] > 1e6


def test_pages_load_nothing_from_elsewhere(client):
    for path in ("/", "/docs"):
        page = client.get(path)
        assert "default-src 'none'" in page.headers["content-security-policy"]
        for word in ("http://", "https://", "//cdn", "@import"):
            assert word not in page.text.replace("http://www.w3.org/2000/svg", "")
    described = client.get("/openapi.json").json()
    assert {"/search/image", "/search/id/{number}", "/search/vector"} <= described["paths"].keys()
    assert set(described["paths"]["/search/image"]) == {"post"}


def test_pictures_that_are_gone(serve, folders, collection, tmp_path):
    from sparse_embed.experiments.serving.pictures import FolderPictures

    (tmp_path / "a.png").write_bytes(b"no image any more")
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    index = SparseIndex.build(np.eye(2, dtype=np.float32))
    with serve(Collection(index, pictures=FolderPictures(tmp_path, paths))) as client:
        for number in (0, 1):
            assert "no longer" in error(client.get(f"/rows/{number}/picture"), 404)


def test_stored_pictures_are_shown_as_encoders_see_them(serve, tmp_path):
    from sparse_embed.experiments.serving.pictures import StoredPictures

    stored = np.full((2, 24, 48), 64, np.uint8)
    stored[1, :, 24:] = 192  # the right half is ink
    index = SparseIndex.build(np.eye(2, dtype=np.float32))
    with serve(Collection(index, pictures=StoredPictures(stored))) as client:
        assert client.get("/info").json()["dark_paper"]
        (tmp_path / "1.png").write_bytes(client.get("/rows/1/picture").content)
        pixels = np.asarray(Image.open(tmp_path / "1.png"))
    assert pixels.shape == (24, 48)
    assert (pixels[:, :24] == 0).all()
    assert (pixels[:, 24:] == 255).all()


def test_a_long_thin_image_takes_no_more_than_another(client):
    """Scaled as a whole until it is 16 pixels high it would have a billion pixels."""
    file = io.BytesIO()
    Image.new("RGB", (60_000, 1), (255, 0, 0)).save(file, format="png")
    answer = client.post("/search/image?k=1", content=file.getvalue())
    assert answer.status_code == 200
    short = io.BytesIO()
    Image.new("RGB", (16, 1), (255, 0, 0)).save(short, format="png")
    assert (
        answer.json()["query"]
        == client.post("/search/image?k=1", content=short.getvalue()).json()["query"]
    )


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ('{"values": [], "indices": [' + "-1," * 500_000 + "-1]}", "indices.0: input should be"),
        ('{"values": [1], "indices": [' + "0," * 100_000 + "0]}", "indices: list should have at"),
        ("{" + ",".join(f'"key{n}": 1' for n in range(1000)) + "}", "1000 keys: expected those"),
        ('{"values": "\xff"}'.encode("latin-1"), "The body is no JSON."),
        ("{" * 100_000, "The body is no JSON."),
    ],
)
def test_bodies_that_are_made_to_cost_much(client, body, sentence):
    headers = {"content-type": "application/json"}
    assert sentence in error(client.post("/search/vector", content=body, headers=headers), 422)


def test_the_sentence_about_a_long_key_is_short(client):
    body = json.dumps({"indices": [1], "values": [1], "k" * 100_000: 1})
    headers = {"content-type": "application/json"}
    assert "kkk" in error(client.post("/search/vector", content=body, headers=headers), 422)


def test_an_endless_head_is_refused(client):
    with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
        connection.settimeout(30)
        connection.sendall(b"GET / HTTP/1.1\r\nx-long: ")
        with contextlib.suppress(OSError):  # it may be closed before all is sent
            for _ in range(64):
                connection.sendall(b"x" * 65536)
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
    assert client.get("/health").status_code == 200


def test_names_that_are_not_utf8(serve, tmp_path):
    from sparse_embed.experiments.serving.pictures import FolderPictures

    path = pathlib.Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xe9.png"))
    pictures = FolderPictures(tmp_path, [path, path])
    with serve(Collection(SparseIndex.build(np.eye(2)), pictures=pictures)) as client:
        assert client.get("/search/id/0").json()["results"][0]["name"] == "\ufffd.png"


def test_dense_rows_are_numbered_by_id(serve):
    index = SparseIndex.build(np.eye(3, dtype=np.float32), ids=np.array([5, 1, 3]))
    with pytest.raises(UsageError, match=r"--dense: 3 rows: expected 6, one for each id"):
        Collection(index, dense=np.eye(3, dtype=np.float32))
    dense = np.eye(6, dtype=np.float32)
    with serve(Collection(index, dense=dense)) as client:
        assert client.get("/info").json()["ids"] == 6
        query = {"indices": [0, 1], "values": [1, 0.5], "rerank": True, "dense": [0, 9, 0, 0, 0, 7]}
        found = client.post("/search/vector", json=query | {"k": 2}).json()["results"]
    assert [(one["id"], one["score"]) for one in found] == [(1, 9.0), (5, 7.0)]


@pytest.mark.engines
def test_shards(serve, tmp_path):
    """The answers of one index; when a shard is lost, one sentence in time that names it."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'sparse-embed[distributed]'")
    rows = scipy.sparse.random(200, 32, 0.2, "csr", np.float32, random_state=0)
    temporary = tempfile.mkdtemp(prefix="ray")  # its sockets need a short path
    query = {"indices": [1, 4, 7], "values": [1, 0.5, 2], "k": 5}
    with serve(Collection(SparseIndex.build(rows))) as client:
        wanted = client.post("/search/vector", json=query).json()["results"]
    index = ShardedIndex.build(rows, tmp_path / "shards", 2, temp_folder=temporary)
    index.health(60)
    with serve(Collection(index), Limits(seconds=5)) as client:
        assert client.get("/ready").status_code == 200
        assert client.post("/search/vector", json=query).json()["results"] == wanted
        assert "does not give its rows back" in error(client.get("/search/id/3"), 422)
        (tmp_path / "shards" / "shard-00001.index").rename(tmp_path / "away")
        os.kill(index.health()[1].pid, signal.SIGKILL)
        assert "shard-00001" in error(client.post("/search/vector", json=query), 503)
        assert "shard-00001 does not answer" in error(client.get("/ready"), 503)
        assert client.get("/health").status_code == 200
    shutil.rmtree(temporary, ignore_errors=True)
