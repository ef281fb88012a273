"""The cost model: fits against known parameters, queues against theory, stages at a small size."""

import dataclasses
import json
import math
import pathlib
import subprocess
import sys

import cost_measure
import cost_model
import cost_plan
import numpy as np
import pytest
import workload
from cost_formula import (
    FIT_ROWS,
    BytesModel,
    Fit,
    TimeModel,
    errors,
    fit_relative,
    terms,
)
from cost_rivals import IVFPQ, Dense
from shard_queue import Spread, latencies

TRUE = np.array([0.05, 0.3, 0.5, 0.03, 2e-4])  # of rows of 32 non-zeros; others in proportion
CACHED = 24.0

HERE = pathlib.Path(__file__).parent


def measurements(noise=0.0, rows=FIT_ROWS):
    """Records as --stage=index writes them, of times that `TRUE` gives."""
    rng = np.random.default_rng(0)
    found = []
    for count in rows:
        for nnz in (16, 32, 64):
            for kind in ("near", "far"):
                for k in (10, 100, 1000):
                    flops = nnz**2 / 1024
                    taken = terms(count, nnz, k, CACHED) @ TRUE * nnz / 32
                    taken *= (2 if kind == "far" else 1) * math.exp(noise * rng.normal())
                    found.append(
                        {
                            **{"rows": count, "nnz": nnz, "kind": kind, "k": k, "p50": taken},
                            **{"flops_per_row": flops, "nonzeros": nnz, "row_nonzeros": nnz},
                            **{"bytes_per_row": 12 + 13 * nnz, "p99": 3 * taken},
                        }
                    )
    return found


def test_fit_recovers_what_made_the_times():
    fit = Fit.of(measurements())
    for kind in ("near", "far"):
        assert fit.times[kind].cached == CACHED
        for record in measurements(rows=[2_000_000, 50_000_000]):
            if record["kind"] == kind:
                found = fit.predict(record, record["rows"])
                assert found["p50"] == pytest.approx(record["p50"], rel=1e-6)
    assert fit.size == BytesModel(pytest.approx(12), pytest.approx(13))
    assert Fit.from_json(json.loads(json.dumps(dataclasses.asdict(fit)))) == fit


def test_terms_are_those_of_the_formula():
    """5 million rows, z = 16, k = 20: 24 / 16 million rows are in the cache."""
    np.testing.assert_allclose(terms(5_000_000, 16, 20, 24.0), [1, 5, 3.5, 10, 20])
    assert terms(1_000_000, 16, 20, 24.0)[2] == 0


def test_between_sparsities_times_are_powers_of_the_cost():
    """Coefficients in proportion to sqrt(F) give times in proportion to it between them, too."""
    flat = [r for r in measurements() if r["kind"] == "near"]
    for record in flat:  # without the cache, whose share differs
        record["p50"] = record["rows"] / 1e6 * record["nonzeros"]
    model = TimeModel.fit(flat)
    assert model.milliseconds(2_000_000, 20**2 / 1024, 10) == pytest.approx(40, rel=1e-6)


def test_noise_of_five_percent_moves_a_prediction_by_less():
    base = measurements(noise=0.05)
    fit = Fit.of(base)
    truth = measurements(rows=[20_000_000])
    found = errors([fit.predict(record, record["rows"]) for record in truth], truth)
    assert len(found) == len(truth)
    assert max(abs(record["time_error"]) for record in found) < 0.08
    assert max(abs(record["bytes_error"]) for record in found) < 1e-9


def test_short_times_count_as_much_as_long_ones():
    """One wants a coefficient of 1, a thousand times as large the other 2."""
    features = np.array([[1.0], [1000.0]])
    (found,) = fit_relative(features, np.array([1.0, 2000.0]))
    # min (c - 1)^2 + (c / 2 - 1)^2: c = 1.5 / 1.25
    assert found == pytest.approx(1.2)


def test_errors_are_relative_to_what_was_measured():
    (record,) = measurements(rows=[1_000_000])[:1]
    (found,) = errors([record | {"p50": 1.1 * record["p50"]}], [record])
    assert found["time_error"] == pytest.approx(0.1)
    assert found["bytes_error"] == 0
    with pytest.raises(ValueError, match="2000000 rows, nnz=16, near, k=10: not measured"):
        errors([record | {"rows": 2_000_000}], [record])


def model():
    return Fit.of(measurements()).times["near"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TimeModel.fit(measurements()[:4]), "4 measurements: expected at least 5"),
        (lambda: TimeModel.fit([]), "0 measurements: expected those of an index"),
        (lambda: fit_relative(np.ones((2, 1)), np.array([1.0, 0.0])), "expected positive numbers"),
        (lambda: fit_relative(np.ones((2, 1)), np.ones(3)), r"shape \(3,\): expected"),
        (lambda: model().milliseconds(0, 1, 1), "rows=0: expected"),
        (lambda: model().milliseconds(1, 1, 0), "k=0: expected"),
        (lambda: model().milliseconds(1, 5, 1), r"flops_per_row=5: expected .* <= 4.04"),
        (lambda: model().milliseconds(1, 0.2, 1), r"flops_per_row=0.2: expected .* >= 0.247"),
        (lambda: Spread(np.ones((3, 1))), r"times of shape \(3, 1\)"),
        (lambda: Spread(np.zeros((3, 2))), "times: expected positive numbers"),
        (lambda: latencies(np.ones((5, 2)), 1.5, 1, None), "rate=1.5 keeps 1 workers busy 150%"),
        (lambda: latencies(np.ones((5, 2)), 0, 1, None), "rate=0: expected"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_spread_draws_times_like_those_measured():
    """Queries vary by a factor that all shards share, shards by less: the slowest shows it."""
    rng = np.random.default_rng(0)

    def made(queries, shards):
        own = np.exp(0.5 * rng.normal(size=(queries, 1)))
        return 3.0 * own * np.exp(0.1 * rng.normal(size=(queries, shards)))

    spread = Spread(made(2000, 4))
    drawn, truth = spread.draw(20_000, 50, rng), made(20_000, 50) / 3.0
    assert np.median(drawn) == pytest.approx(1, rel=0.05)
    for q in (0.5, 0.99):
        assert np.quantile(drawn.max(axis=1), q) == pytest.approx(
            np.quantile(truth.max(axis=1), q), rel=0.06
        )
    # Shards that vary on their own would make the typical query much slower.
    alone = truth[:, 0][rng.integers(len(truth), size=(20_000, 50))]
    assert np.median(alone.max(axis=1)) > 1.7 * np.median(drawn.max(axis=1))


def test_queue_of_one_shard_against_theory():
    """M/M/1: the mean time in the system is 1 / (service rate - arrival rate)."""
    rng = np.random.default_rng(1)
    service = rng.exponential(0.01, (30_000, 1))
    found = latencies(service, 50.0, 1, rng)
    assert found.mean() == pytest.approx(1 / (100 - 50), rel=0.08)
    twice = latencies(service, 50.0, 2, np.random.default_rng(2))
    # M/M/2: 1 / (mu (1 - rho^2)) with rho = 50 / 200
    assert twice.mean() == pytest.approx(0.01 / (1 - 0.25**2), rel=0.05)


def test_queue_of_many_shards_waits_for_the_slowest():
    service = np.array([[1.0, 2.0], [3.0, 1.0]])
    found = latencies(service, 1e-6, 1, np.random.default_rng(0))
    np.testing.assert_allclose(found, [2, 3], rtol=1e-6)


def site(workers=2):
    caller = cost_plan.Caller(1.0, 0.1, 10.0, cost_plan.MergeModel(0.05, 1e-4))
    return cost_plan.Site(workers, caller)


def test_plan_by_hand():
    """No spread: the slowest shard takes what each does."""
    fit, spread = Fit.of(measurements()), Spread(np.ones((10, 4)))
    setting = cost_plan.Setting(1.0, 32, 32, 10)
    found = cost_plan.plan(fit, setting, 100_000_000, 10_000_000, 1.0, spread, site())
    shard = fit.times["far"].milliseconds(10_000_000, 1.0, 10)
    assert found["shards"] == 10
    assert found["gigabytes"] == pytest.approx(1e8 * (12 + 13 * 32) / 1e9)
    # Round trip, ten calls, 100 results of 12 bytes at 1.25 GB/s, merging 100 results.
    added = 1.0 + 10 * 0.1 + 1e3 * 1200 / 1.25e9 + 0.05 + 100 * 1e-4
    assert found["caller"] == pytest.approx(added)
    assert found["idle_p50"] == found["idle_p99"] == pytest.approx(shard + added)
    assert found["core_seconds_per_query"] == pytest.approx(10 * shard / 1e3)
    assert found["replicas"] == 1
    rate = 1e4 / shard  # ten workers of one shard busy
    busy = cost_plan.plan(fit, setting, 100_000_000, 10_000_000, rate, spread, site())
    assert busy["replicas"] == math.ceil(10 / (2 * cost_plan.MOST_BUSY))
    assert busy["cores"] == 10 * 2 * busy["replicas"]
    assert busy["p99"] > found["p99"]
    assert busy["gigabytes"] == pytest.approx(busy["replicas"] * found["gigabytes"])


def test_one_shard_needs_no_network_and_has_its_neighbours():
    fit, spread = Fit.of(measurements()), Spread(np.ones((10, 4)))
    setting = cost_plan.Setting(1.0, 32, 32, 10)
    found = cost_plan.plan(fit, setting, 5_000_000, 10_000_000, 1.0, spread, site())
    near = fit.times["near"].milliseconds(5_000_000, 1.0, 10)
    assert found["idle_p50"] == pytest.approx(near)


def rival_records():
    found = [
        {"method": "dense", "milliseconds": ms, "rows": 1000, "bytes_per_row": 2048.0}
        for ms in (4.0, 1.0)
    ]
    for nlist in (16, 64):
        for nprobe, recall in ((4, 0.5), (8, 0.695), (16, 0.7)):
            taken = 0.1 + 0.01 * nlist + 0.02 * nprobe + 0.001 * 1000 * nprobe / nlist
            found.append(
                {
                    **{"method": "ivfpq", "milliseconds": taken, "rows": 1000, "nlist": nlist},
                    **{"nprobe": nprobe, "recall": recall, "bits": 8, "dense_dims": 4},
                    "bytes_per_row": 72 + 4 * 4 * (nlist + 256) / 1000,
                }
            )
    return found


def test_rivals_are_scaled():
    dense, ivfpq = Dense.of(rival_records()), IVFPQ.of(rival_records())
    assert dense.milliseconds(10_000) == pytest.approx(40)
    assert dense.milliseconds(10_000, batch=True) == pytest.approx(10)
    assert (ivfpq.nlist, ivfpq.nprobe, ivfpq.recall) == (64, 8, 0.695)
    assert ivfpq.bytes_per_row == pytest.approx(72)
    assert ivfpq.milliseconds(50_000) == pytest.approx(0.1 + 0.64 + 0.16 + 50 * 8 / 64)


def run(*arguments):
    command = [sys.executable, HERE / "cost_model.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def options(tmp_path, **changed):
    values = {
        **{"shard_dir": tmp_path, "rows": 3000, "dims": 64, "nnz": 32, "queries": 12, "rounds": 2},
        **{"num_threads": 1, "round_trip_ms": 1.2, "call_ms": 0.1},
        **{"gigabits": 10.0, "replica_cores": 4, "page": tmp_path / "page.md"},
        "picture": tmp_path / "cost_model.png",
    }
    return cost_model.Settings(**(values | changed))


def test_all_stages(tmp_path, monkeypatch):
    """Real indexes, of a size of seconds; made-up times where millions of rows are needed."""
    folder = tmp_path / "records"
    folder.mkdir()
    for name in ("build", "index", "spread"):
        cost_model.STAGES[name](folder, options(tmp_path))
    assert not list(tmp_path.glob("*.index"))
    measured = json.loads((folder / "index_3000_32.json").read_text())["records"]
    assert {(r["kind"], r["k"]) for r in measured} == {
        (kind, k) for kind in ("near", "far") for k in (10, 100, 1000)
    }
    for record in measured:
        assert 0 < record["p50"] <= record["p99"]
        assert 10 < record["flops_per_row"] < 32  # 64 dimensions of which 32 are used
        assert record["bytes_per_row"] > 32 * 6
    (folder / "index_3000_32.json").unlink()
    for rows in (*FIT_ROWS, 20_000_000):
        content = {"records": measurements(rows=[rows])}
        (folder / f"index_{rows}_32.json").write_text(json.dumps(content))
    merging = cost_measure.measure_merge([2, 50], [10, 100], repeats=3)
    (folder / "others.json").write_text(json.dumps({"records": rival_records(), "merge": merging}))
    monkeypatch.setattr(cost_model, "SHARD_ROWS", (20_000_000, 50_000_000))
    monkeypatch.setattr(cost_model, "RATES", (100.0,))
    monkeypatch.setattr(cost_plan, "SIMULATED", 1000)
    (tmp_path / "page.md").write_text("Before\n<!-- costs -->\nold\n<!-- end of costs -->\nafter\n")
    cost_model.STAGES["fit"](folder, options(tmp_path))
    # The cost of rows of 32 non-zeros among 1,024 dimensions, from one batch of them.
    cost_model.STAGES["predict"](folder, options(tmp_path, rows=20_000_000, dims=1024))
    path = folder / "predicted_20000000_32.json"
    predicted = json.loads(path.read_text())["records"]
    assert len(predicted) == 6
    assert {0.9 < record["flops_per_row"] < 1.4 for record in predicted} == {True}
    fitted = Fit.of(measurements())
    exact = [fitted.predict(r, r["rows"]) for r in measurements(rows=[20_000_000])]
    path.write_text(json.dumps({"records": exact}))
    for name in ("check", "plan"):
        cost_model.STAGES[name](folder, options(tmp_path))
    checked = json.loads((folder / "check.json").read_text())["records"]
    assert len(checked) == 18
    assert max(abs(record["time_error"]) for record in checked) < 1e-6
    planned = json.loads((folder / "plan.json").read_text())["records"]
    assert {record["shards"] for record in planned} == {2, 5, 20, 50}
    assert all(record["p50"] <= record["p99"] for record in planned)
    assert (tmp_path / "cost_model.png").stat().st_size > 1000
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("Before")
    assert "### 1,000,000,000 rows" in page
    assert "(cost_model.png)" in page
    assert "old" not in page


def test_other_parts_are_of_one_distribution():
    (one, near), (two, _) = (
        next(workload.batches(30_000, 64, 8, 10, part=part)) for part in (0, 1)
    )
    shares = [np.bincount(part.indices, minlength=64) / part.nnz for part in (one, two)]
    assert np.corrcoef(*shares)[0, 1] > 0.9
    assert (one != two).nnz > 0
    far = cost_measure.far_queries(64, 8, 10)
    best = [(queries @ one.T).toarray().max(axis=1) for queries in (near, far)]
    assert np.median(best[0]) > np.median(best[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--stage is not given: expected one of build, index"),
        (["--stage=draw"], "stage"),
        (["--stage=fit"], "expected records of --stage=index"),
        (["--stage=index"], "999000_32_0.facts.json"),
        (["--stage=plan", "--output=page.txt"], "--output=page.txt: expected the name of a .md"),
        (["--stage=plan", "--replica_cores=0"], "replica_cores"),
    ],
)
def test_mistakes_cost_one_line(tmp_path, arguments, message):
    done = run(f"--cost_dir={tmp_path}", f"--shard_dir={tmp_path}", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
