"""What the benchmark of the pipelines measures on."""

from sparse_embed.datasets import image_folder, recordio
from sparse_embed.experiments.benchmarks import data_speed


def test_data_made_up_are_real_files(tmp_path):
    pictures = list(data_speed.jpegs(3, 112))
    assert len(set(pictures)) == 3
    data_speed.write_records(tmp_path, pictures)
    records = recordio.load(tmp_path)
    assert [records.source.check(row) for row in range(3)] == pictures
    data_speed.write_folders(tmp_path / "photos", pictures)
    photos = image_folder.load(tmp_path / "photos", (112, 112, 3))
    assert [photos.source.check(row) for row in range(3)] == pictures


def test_rate_counts_examples_per_second(monkeypatch):
    """A clock that goes on by 0.5 s in each step: 10 examples per step are 20 a second."""
    clock = [0.0]
    monkeypatch.setattr(data_speed.time, "perf_counter", lambda: clock[0])

    def step():
        clock[0] += 0.5

    assert data_speed.rate(step, 10, seconds=3.0) == 20.0
