"""The estimate of a rehearsal against numbers computed by hand."""

import json

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.common.failures import DataError
from sparse_embed.experiments.core import embedding_files, notes
from sparse_embed.experiments.core.embedding_files import Embeddings
from sparse_embed.experiments.orchestration import estimate, paper_plan, paper_size

PER_STEP = {"mobilefacenet": 0.32, "resnet101": 1.6, "cifar100": 0.256}  # seconds
BATCH = {"mobilefacenet": 16, "resnet101": 8, "cifar100": 64}


def save_training(path, batch, seconds, replicas=1):
    """A record of `train` with a curve of these seconds, an interval for each step."""
    curves = [{"step": step + 1, "seconds": value} for step, value in enumerate(seconds)]
    record = {"config": {"optimization": {"batch_size": batch}}, "replicas": replicas}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**record, "curves": curves}))


@pytest.fixture
def rows(tmp_path):
    """All that a rehearsal leaves behind; embedding takes 5 ms per image, 50 with ResNet-101."""
    data, _ = paper_plan.find_data(tmp_path)
    rehearsed = paper_plan.paper(tmp_path, data, paper_size.REHEARSAL)
    for step in rehearsed:
        kind, network, *_ = step.name.split()
        if kind == "train":
            taken = PER_STEP[network]
            save_training(step.outputs[0], BATCH[network], [99.0, taken, taken, 3 * taken])
        elif kind == "embed":
            note = {"seconds_per_image": 0.05 if network == "resnet101" else 0.005}
            vectors = np.eye(3, dtype=np.float16)
            if step.outputs[0].suffix == ".npz":
                vectors = scipy.sparse.csr_array(vectors.astype(np.float32))
            embedding_files.save(step.outputs[0], Embeddings(vectors, np.arange(3), note))
    found = estimate.estimate(rehearsed, paper_plan.paper(tmp_path, data))
    return {row.name: row for row in found}


@pytest.mark.parametrize(
    ("name", "runs", "images", "seconds"),
    [
        # The paper: 230,000 steps of 4 x 256 and 4 x 64 images; SDH 150,000 and 200,000 on one GPU.
        ("train mobilefacenet dense512", 1, 235_520_000, 0.02),
        ("train mobilefacenet flops", 4, 235_520_000, 0.02),
        ("train mobilefacenet sdh", 1, 38_400_000, 0.02),
        ("train resnet101 l1", 4, 58_880_000, 0.2),
        ("train resnet101 sdh", 1, 12_800_000, 0.2),
        # The authors' script: 50,000 steps of 512; Jeong & Song's batches have 128.
        ("train cifar100 flops", 1, 25_600_000, 0.004),
        ("train cifar100 sdh_k2", 1, 6_400_000, 0.004),
        ("embed resnet101 flops", 4, 1_003_530, 0.05),
        ("embed mobilefacenet sdh", 1, 1_003_530, 0.005),
        ("verify mobilefacenet l1", 8, 12_000, 0.005),  # two packs
        ("verify resnet101 dense128", 2, 12_000, 0.05),
    ],
)
def test_rows_by_hand(rows, name, runs, images, seconds):
    row = rows[name]
    assert (row.runs, row.images) == (runs, images)
    assert row.seconds == pytest.approx(seconds)
    assert row.days == pytest.approx(runs * images * seconds / 86_400)


def test_total_by_hand(rows):
    """Faces: 10 whole trainings with each network, one of hashing; 11 encoders embed, 10 verify."""
    mobilefacenet = 0.02 * (10 * 235_520_000 + 38_400_000) + 0.005 * 11 * 1_003_530
    resnet101 = 0.2 * (10 * 58_880_000 + 12_800_000) + 0.05 * 11 * 1_003_530
    verification = (0.005 + 0.05) * 10 * 2 * 12_000
    cifar100 = 0.004 * (3 * 25_600_000 + 3 * 6_400_000)
    days = (mobilefacenet + resnet101 + verification + cifar100) / 86_400
    found = list(rows.values())
    assert notes.total_days(found) == pytest.approx(days)
    told = estimate.told(found)
    assert f"PRESET=paper on this machine: about {days:,.1f} days." in told
    assert "235,520,000" in told
    assert "Assumed: " in told


def test_the_first_interval_does_not_count_and_replicas_share_a_step(tmp_path):
    path = tmp_path / "train.json"
    save_training(path, 8, [50.0, 1.0, 3.0, 2.0], replicas=4)
    assert estimate.training_seconds(path) == pytest.approx(2.0 / 32)
    save_training(path, 8, [50.0])
    assert estimate.training_seconds(path) is None
    row = notes.Row("train resnet101 flops", 4, 1000, None)
    assert row.days == 0
    assert "-" in estimate.told([row]).splitlines()[1]


def test_a_damaged_record_is_named(tmp_path):
    path = tmp_path / "train.json"
    for text in ("{}", "[]", "[" * 100_000, '{"config": 1, "replicas": 1, "curves": []}'):
        path.write_text(text)
        with pytest.raises(DataError, match=r"train\.json: "):
            estimate.training_seconds(path)


def test_a_longer_interval_counts_its_steps(tmp_path):
    path = tmp_path / "train.json"
    rows = [{"step": 10, "seconds": 99.0}, {"step": 30, "seconds": 40.0}]
    record = {"config": {"optimization": {"batch_size": 5}}, "replicas": 1, "curves": rows}
    path.write_text(json.dumps(record))
    assert estimate.training_seconds(path) == pytest.approx(40 / (20 * 5))


def test_the_mark_is_there_from_the_start_and_an_estimate_stays(tmp_path):
    assert notes.read_estimate(tmp_path) is None
    notes.write_estimate(tmp_path, [])
    assert notes.read_estimate(tmp_path) == []
    found = [notes.Row("train resnet101 flops", 4, 1000, 0.5)]
    notes.write_estimate(tmp_path, found)
    assert notes.read_estimate(tmp_path) == found
    notes.write_estimate(tmp_path, [])  # called again
    assert notes.read_estimate(tmp_path) == found


@pytest.mark.parametrize("content", ["", "{}", "[3]", '[{"name": "x"}]'])
def test_a_damaged_estimate_is_refused_by_name(tmp_path, content):
    (tmp_path / notes.MARK).write_text(content)
    with pytest.raises(DataError, match=r"rehearsal\.json: expected the estimate of a rehearsal"):
        notes.read_estimate(tmp_path)
