"""Parts of one's own, registered from outside the package: each comes through to a record.

One process registers a regularizer, a metric loss, an architecture, a data set and a baseline, a
row each; the scripts do the rest: flags, training, embedding, identification, figures.
"""

import json
import pathlib
import subprocess
import sys

import pytest

PLUGIN = '''
import dataclasses
import sys

import keras
import numpy as np
import tensorflow as tf

from sparse_embed import losses, models, retrieval
from sparse_embed.common.looks import Look
from sparse_embed.common.options import option
from sparse_embed.datasets.catalogue import DATASETS, DataSet
from sparse_embed.datasets.examples import ArraySource, Examples, split_by_class


@keras.saving.register_keras_serializable("toy")
class ToyRegularization(losses.ActivationRegularization):
    """The largest mean activation."""

    def penalty(self, mean_activations):
        return tf.reduce_max(mean_activations)


losses.REGULARIZERS["toy_penalty"] = losses.Regularizer(
    ToyRegularization, Look("toy penalty", "#123456", "<")
)


@keras.saving.register_keras_serializable("toy")
class ToyLoss(keras.losses.Loss):
    """(1 - cosine with the own class), times the flag --scale."""

    def __init__(self, scale=1.0, name="toy"):
        super().__init__(name=name)
        self.scale = scale

    def call(self, y_true, y_pred):
        own = tf.gather(y_pred, tf.cast(tf.reshape(y_true, (-1,)), tf.int32), batch_dims=1)
        return self.scale * (1 - own)


losses.LOSSES["toy_loss"] = losses.MetricLoss(ToyLoss, takes="cosines")


def toy_backbone(vectors, width):
    return keras.layers.Dense(int(64 * width), activation="relu")(vectors)


models.ARCHITECTURES["toy_net"] = models.Architecture(toy_backbone, (1,))


@dataclasses.dataclass(frozen=True)
class ToyOptions:
    toy_noise: float = option(0.1, "Noise of the toy data.", lower=0.0)


def load_toy(data_dir, options, validation, test, seed):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40, dtype=np.int32), 12)
    rows = rng.normal(size=(40, 8))[labels] + options.toy_noise * rng.normal(size=(480, 8))
    examples = Examples(
        "toy", (8,), ArraySource(rows.astype(np.float32)), np.arange(480), labels,
        tuple(map(str, range(40))),
    )
    return split_by_class(examples, validation, test, seed)._asdict()


DATASETS["toy_data"] = DataSet(load_toy, ToyOptions, needs_data_dir=False, help="made up")


class ToySearch(retrieval.DenseSearch):
    """Exhaustive search over the first dimensions; `offset` does nothing."""

    def __init__(self, rows, kept, num_threads=1):
        super().__init__(np.ascontiguousarray(rows[:, :kept]))
        self.kept, self.offset = kept, 0

    def search(self, queries, k=1000, threshold=None, num_threads=1):
        return super().search(queries[:, : self.kept], k, threshold, num_threads)


retrieval.BASELINES["toy_search"] = retrieval.Baseline(
    ToySearch,
    Look("toy search", "#654321", ">"),
    builds=lambda rows, dims: [{"kept": dims // 2}, {"kept": dims // 4}],
    queries=lambda build: [{"offset": 0}, {"offset": 1}],
)


def run(script, *arguments):
    """Runs a script of the package in this process, with its flags parsed afresh."""
    import importlib

    from sparse_embed.flags import app

    module = importlib.import_module(f"sparse_embed.experiments.{script}")
    options = getattr(module, "OPTIONS", None) or module.Options
    module.main(app.parse(options, arguments))
'''

DRIVER = """
import pathlib
folder = pathlib.Path(sys.argv[1])
toy = ["--dataset=toy_data", "--toy_noise=0.3", "--test=12", "--model=toy_net", "--loss=toy_loss"]
toy += ["--scale=16", "--steps=30", "--batch_size=64", "--summary_every=10"]
sparse = ["--regularizer=toy_penalty", "--regularizer_weight=0.5", "--embedding_dim=24"]
dense = ["--regularizer=none", "--activation=none", "--embedding_dim=16"]
net = folder / "net"
run("train", *toy, *sparse, "--warmup_steps=5", f"--model_dir={net / 'sparse'}")
run("train", *toy, *dense, f"--model_dir={net / 'dense'}")
run("embed", f"--model_dir={net / 'sparse'}", f"--output={net / 'sparse' / 'test.npz'}")
run("embed", f"--model_dir={net / 'dense'}", f"--output={net / 'dense' / 'test.npy'}")

# The last two classes become the distractors.
from sparse_embed.experiments.core import embedding_files
for path in (net / "sparse" / "test.npz", net / "dense" / "test.npy"):
    found = embedding_files.load(path)
    vectors = found.vectors if found.is_sparse else np.array(found.vectors)
    labels = np.where(found.labels < 10, found.labels, -1)
    target = path.with_name("identification" + path.suffix)
    embedding_files.save(target, embedding_files.Embeddings(vectors, labels, found.provenance))

records = f"--records={net / 'records'}"
run(
    "evaluate_megaface", records, f"--dense={net / 'dense' / 'identification.npy'}",
    f"--sparse={net / 'sparse' / 'identification.npz'}", "--only=sparse,dense,toy_search",
    "--timed_queries=5", "--data_name=toys", "--threshold=none",
)
# Pairs of one class, and of two, in turns: a class is 12 rows.
found = embedding_files.load(net / "sparse" / "test.npz")
rows = [(i, i + 1, i + 2, (i + 15) % 144) for i in range(0, 144, 4)]
order = np.ravel(rows)
pairs = embedding_files.Embeddings(found.vectors[order], found.labels[order], found.provenance)
embedding_files.save(net / "sparse" / "pairs.npz", pairs)
run("evaluate_verification", records, "--data_name=toys", f"--pairs={net / 'sparse' / 'pairs.npz'}")
model = f"--model_dir={net / 'sparse'}"
run("evaluate_activations", records, model, "--dimensions=8", "--images=144")
run("report", f"--run_dir={folder}", "--figures=tradeoff,suboptimality,rerank,roc,cdf")
run("report", f"--run_dir={folder}")
"""


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toys")
    script = folder / "toys.py"
    script.write_text(PLUGIN + DRIVER)
    done = subprocess.run(
        [sys.executable, script, folder], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return folder


def records(folder: pathlib.Path, experiment: str) -> list[dict]:
    found = [json.loads(path.read_text()) for path in (folder / "net/records").glob("*.json")]
    return [record for record in found if record["experiment"] == experiment]


def test_training_used_the_toys(reproduction):
    record = json.loads((reproduction / "net/sparse/train.json").read_text())
    config = record["config"]
    assert config["data"] | {"dataset": "toy_data", "toy_noise": 0.3} == config["data"]
    assert config["model"]["model"] == "toy_net"
    assert config["objective"]["loss"] == "toy_loss"
    first, last = record["curves"][0], record["curves"][-1]
    assert 0 < last["metric_loss"] < first["metric_loss"] <= 16 * 2  # --scale x at most 2
    assert last["penalty"] <= 1  # the largest mean of unit-norm rows


def test_regularizer_and_baseline_have_records(reproduction):
    found = records(reproduction, "megaface")
    methods = {record["method"] for record in found}
    assert methods == {"toy_penalty", "dense", "toy_search"}
    toys = [record for record in found if record["method"] == "toy_search"]
    settings = {(record["setting"]["kept"], record["setting"]["offset"]) for record in toys}
    assert settings == {(8, 0), (8, 1), (4, 0), (4, 1)}
    assert {record["reranked"] for record in toys} == {False, True}
    (sparse,) = [r for r in found if r["method"] == "toy_penalty" and not r["reranked"]]
    assert sparse["setting"] == {"weight": 0.5, "run": "sparse"}
    assert sparse["suboptimality_ratio"] >= 1
    assert {r["method"] for r in records(reproduction, "verification")} == {"toy_penalty"}
    assert {r["data"] for r in records(reproduction, "activations")} == {"toy_data"}


def test_figures_and_report_show_them_by_their_looks(reproduction):
    tradeoff = (reproduction / "figures/tradeoff.svg").read_text()
    for text in ("toy penalty", "toy search", "#123456", "#654321"):
        assert text in tradeoff
    for name in ("suboptimality", "rerank", "roc"):
        assert "toy penalty" in (reproduction / f"figures/{name}.svg").read_text()
    page = (reproduction / "report.html").read_text()
    assert "<td>toy search</td>" in page
    assert "<td>toy penalty</td>" in page


def test_flags_know_the_toys(tmp_path):
    script = tmp_path / "train_toys.py"
    script.write_text(
        PLUGIN
        + "\nfrom sparse_embed.experiments import train\n"
        + "from sparse_embed.flags import app\n"
        + "app.run(train.main, train.Options)\n"
    )
    done = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = "".join(done.stdout.split())  # long lists of choices are broken anywhere
    for word in ("|toy_penalty>", "|toy_loss>", "|toy_net>", "|toy_data>", "Noiseofthetoydata"):
        assert word in text
