"""What the benchmark of the pipelines measures on."""

from absl import flags
from absl.testing import flagsaver

from sparse_embed.datasets import image_folder, recordio
from sparse_embed.experiments import benchmark_data

flags.FLAGS.mark_as_parsed()


def test_data_made_up_are_real_files(tmp_path):
    pictures = list(benchmark_data.jpegs(3, 112))
    assert len(set(pictures)) == 3
    benchmark_data.write_records(tmp_path, pictures)
    records = recordio.load(tmp_path)
    assert [records.source.check(row) for row in range(3)] == pictures
    benchmark_data.write_folders(tmp_path / "photos", pictures)
    photos = image_folder.load(tmp_path / "photos", (112, 112, 3))
    assert [photos.source.check(row) for row in range(3)] == pictures


def test_rate_counts_examples_per_second(monkeypatch):
    """A clock that goes on by 0.5 s in each step: 10 examples per step are 20 a second."""
    clock = [0.0]
    monkeypatch.setattr(benchmark_data.time, "perf_counter", lambda: clock[0])

    def step():
        clock[0] += 0.5

    with flagsaver.flagsaver(measure_seconds=3.0):
        assert benchmark_data.rate(step, 10) == 20.0
