"""The script: it starts, is killed, starts again, and names mistakes in one line."""

import contextlib
import json
import pathlib
import signal
import socket
import subprocess
import sys
import urllib.request

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.datasets import image_folder
from sparse_embed.experiments.core import run as runs
from sparse_embed.experiments.core.embedding_files import Embeddings, save
from sparse_embed.experiments.encoders.embedding import embed
from sparse_embed.experiments.encoders.export import export
from sparse_embed.experiments.serving import demo, server
from sparse_embed.flags.train_config import TrainConfig
from sparse_embed.retrieval import SparseIndex


@contextlib.contextmanager
def started(*arguments, script="serve"):
    """The process and the address of a service."""
    command = [sys.executable, "-m", f"sparse_embed.experiments.{script}", "--port=0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("http://127.0.0.1:"):
                yield process, line.split(" ")[0].rstrip(":")
                break
        else:
            raise AssertionError("".join(lines) + process.stderr.read())
    finally:
        process.kill()
        process.wait()


def ask(address, path, data=None, **headers):
    request = urllib.request.Request(address + path, data, headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())


def test_killed_and_started_again_it_answers_the_same(folders, photo, tmp_path):
    flags = [f"--model_dir={folders / 'sparse'}", f"--dense_model_dir={folders / 'dense'}"]
    flags += [f"--image_folder={folders / 'photos'}", f"--index={tmp_path / 'p.index'}"]
    asked = [("/search/image?k=7", photo), ("/search/image?k=7&rerank=1", photo)]
    asked += [("/search/id/5?k=3&codes=1", None), ("/dimensions/3", None)]
    answers = []
    for _ in range(2):
        with started(*flags) as (process, address):
            found = [ask(address, *one) for one in asked]
            answers.append([(one["results"], one.get("query")) for one in found])
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
    assert answers[0] == answers[1]
    assert answers[0][0][0][0]["name"] == "b/27.png"


def test_litert_answers_alone(folders, photo, tmp_path):
    """From a run that has no encoder in another format."""
    pytest.importorskip("ai_edge_litert", reason="the extra `litert` is not installed")
    sparse = runs.load_encoder(folders / "sparse" / "encoder.keras")
    run = runs.save(tmp_path / "run", sparse, {"config": TrainConfig().to_dict()})
    export(run, ["litert"])
    run.encoder_file.unlink()
    examples = image_folder.load_flat(folders / "photos", sparse.input_shape[1:])
    rows, _ = embed(sparse, examples.evaluation_batches(40), sparse=True, quiet=True)
    SparseIndex.build(rows).save(tmp_path / "photos.index")
    flags = [f"--model_dir={run.folder}", f"--index={tmp_path / 'photos.index'}"]
    with started(*flags, "--encoder=litert") as (process, address):
        found = ask(address, "/search/image?k=5", photo)["results"]
        if sys.platform == "linux":
            maps = pathlib.Path(f"/proc/{process.pid}/maps").read_text()
            assert "ai_edge_litert" in maps
    scores, ids = SparseIndex.build(rows).search(rows[[27]], k=5)
    assert [one["id"] for one in found] == ids[0].tolist()
    np.testing.assert_allclose([one["score"] for one in found], scores[0], atol=1e-5)


def test_vectors_need_no_tensorflow_and_ctrl_c_ends_it(tmp_path):
    rows = scipy.sparse.random(50, 16, 0.3, "csr", np.float32, random_state=0)
    SparseIndex.build(rows).save(tmp_path / "items.index")
    dense = np.random.default_rng(0).random((50, 4)).astype(np.float32)
    save(tmp_path / "items.npy", Embeddings(dense, np.zeros(50, int), {}))
    flags = [f"--index={tmp_path / 'items.index'}", f"--dense={tmp_path / 'items.npy'}"]
    with started(*flags) as (process, address):
        query = {"indices": [1, 4], "values": [1, 0.5], "rerank": True, "dense": [1, 0, 0, 0]}
        body = json.dumps(query).encode()
        found = ask(address, "/search/vector", body, **{"Content-Type": "application/json"})
        best = np.argsort(-dense[:, 0], kind="stable")[:10]
        assert [one["id"] for one in found["results"]] == best.tolist()
        if sys.platform == "linux":
            assert "tensorflow" not in pathlib.Path(f"/proc/{process.pid}/maps").read_text()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (0, 130)
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--index is not given"),
        (["--index=nowhere.index"], "--index=nowhere.index: expected a file that exists"),
        (["--image_folder=."], "--model_dir is not given"),
        (["--image_folder=.", "--dense=x.npy"], "--dense=x.npy: expected without --image_folder"),
        (["--index=rows.index", "--host=256.0.0.1"], "--host=256.0.0.1 --port=0: expected"),
        (["--index=rows.index", "--max_pixels=0"], "max_pixels"),
    ],
)
def test_mistakes_cost_one_line(arguments, words, tmp_path):
    SparseIndex.build(np.eye(3, dtype=np.float32)).save(tmp_path / "rows.index")
    command = [sys.executable, "-m", "sparse_embed.experiments.serve", "--port=0", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("serve: ")
    assert words in line


def reproduction(folder, folders):
    """The files of a reproduction that the demonstration needs, in its folders."""
    (folder / "images").mkdir(parents=True)
    np.save(folder / "images" / "identification_3_6.npy", np.zeros((6, 16, 16), np.uint8))
    np.save(folder / "images" / "identification_3_6.labels.npy", np.zeros(6, int))
    rng = np.random.default_rng(0)
    for place, name in (("flops/path/lambda_100", "sparse"), ("flops/path/lambda_30", "sparse")):
        run = folder / "convnet" / "seed0" / place
        run.mkdir(parents=True)
        (run / "encoder.keras").write_bytes((folders / name / "encoder.keras").read_bytes())
        rows = scipy.sparse.random(6, 64, 0.3, "csr", np.float32, random_state=0)
        save(
            run / "identification.npz",
            Embeddings(scipy.sparse.csr_array(rows), np.zeros(6, int), {}),
        )
    run = folder / "convnet" / "seed0" / "dense512"
    run.mkdir()
    (run / "encoder.keras").write_bytes((folders / "dense" / "encoder.keras").read_bytes())
    vectors = rng.random((6, 64)).astype(np.float16)
    save(run / "identification.npy", Embeddings(vectors, np.zeros(6, int), {}))
    return folder


def test_the_demonstration_serves_a_reproduction(folders, tmp_path):
    folder = reproduction(tmp_path / "quick", folders)
    assert demo.find(folder).sparse.name == "lambda_30"
    with started(f"--run_dir={folder}") as (_, address):
        assert ask(address, "/info")["rerank_images"]
        assert len(ask(address, "/search/id/2?k=3&rerank=1")["results"]) == 3


def test_heads_and_bodies_of_answers_do_not_wait_for_each_other():
    """asyncio turns Nagle's algorithm off on sockets that name their protocol, and no others."""
    with server._listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_without_a_reproduction_the_demonstration_says_so(tmp_path):
    command = [sys.executable, "-m", "sparse_embed.experiments.serve", "--run_dir=runs/none"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "--run_dir=runs/none: expected what `make reproduce` leaves" in line
