"""The figures from recorded results, and Figure 2b from first principles."""

import re
import shutil

import numpy as np
import pytest
from helpers import call
from matplotlib.collections import LineCollection, PolyCollection
from PIL import Image
from scipy import integrate, special

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.reporting import drawing, measures, selection, tables
from sparse_embed.experiments.reporting.figures import (
    FIGURES,
    cdf,
    cifar100,
    regularizers,
    rerank,
    roc,
    suboptimality,
    tradeoff,
    trajectory,
    truncation,
)
from sparse_embed.losses import REGULARIZERS


@pytest.fixture(scope="module")
def run(recorded_run):
    return selection.load(recorded_run)


def lines(figure, panel=0):
    """label -> (x, y) of a panel."""
    drawn = figure.axes[panel].get_lines()
    return {line.get_label(): line.get_data() for line in drawn if line.get_label()[0] != "_"}


def bars(figure):
    """(x, low, high) of the bars of the first panel."""
    found = [c for c in figure.axes[0].collections if isinstance(c, LineCollection)]
    segments = [segment for collection in found for segment in collection.get_segments()]
    return [(x, low, high) for (x, low), (_, high) in filter(len, segments)]


def test_trajectory_by_integration_of_the_definitions():
    """The paths again, from the definitions alone: P(Y > 0) and E[max(Y, 0)] by quadrature of the
    normal density, their gradients by central differences, the descent by Runge-Kutta."""
    nodes, weights = np.polynomial.legendre.leggauss(40)

    def moments(mu, sigma):
        low = (-mu / sigma)[:, None]
        z = low + (nodes + 1) * (12 - low) / 2
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * weights * (12 - low) / 2
        return density.sum(axis=1), ((mu[:, None] + sigma[:, None] * z) * density).sum(axis=1)

    penalties = {
        "flops": lambda p, m: p**2,
        "relaxed_flops": lambda p, m: m**2,
        "l1": lambda p, m: m,
    }
    step = 1e-4
    # For each of mu_1, mu_2, sigma_1, sigma_2: its own dimension, moved up and down.
    by_mu = step * np.array([1, 1, 0, 0, -1, -1, 0, 0])
    by_sigma = step * np.array([0, 0, 1, 1, 0, 0, -1, -1])
    for name, penalty in penalties.items():

        def velocity(_time, state, penalty=penalty):
            mu, sigma = np.tile(state[:2], 4) + by_mu, np.tile(state[2:], 4) + by_sigma
            up, down = np.split(penalty(*moments(mu, sigma)), 2)
            return -(up - down) / (2 * step)

        solution = integrate.solve_ivp(velocity, (0, 3), [-0.25, -1.3, 1, 1], rtol=1e-6, atol=1e-8)
        path = special.ndtr(solution.y[:2] / solution.y[2:])
        assert path[:, 0] == pytest.approx([0.4, 0.1], abs=0.01)
        assert path[0, -1] < 0.3
        for first, second in path.T[1:]:
            assert trajectory.second_probability(name, first) == pytest.approx(second, abs=2e-5)


def test_trajectory_draws_those_paths(run):
    drawn = lines(trajectory.draw(run))
    np.testing.assert_array_equal(drawn["relaxed F"], trajectory.paths()["relaxed_flops"].T)


def test_tradeoff_shows_what_is_reranked_or_needs_none(run):
    drawn = lines(tradeoff.draw(run))
    np.testing.assert_allclose(drawn["relaxed FLOPs (ours)"], [[1.0, 1.5], [0.945, 0.950]])
    np.testing.assert_allclose(drawn["exhaustive dense"], [[100.0], [0.951]])
    np.testing.assert_allclose(drawn["HNSW"], [[0.5], [0.949]])
    np.testing.assert_allclose(
        drawn["relaxed FLOPs, largest values only"], [[1.1, 1.3], [0.940, 0.949]]
    )
    assert set(drawn) == {drawing.look(record["method"]).label for record in run}
    assert [axis.get_title() for axis in tradeoff.draw(run).axes] == [
        "convnet",
        "mobilefacenet",
    ]
    caption = tradeoff.caption(run)
    assert "200 probes of unseen classes among 1,000,000 distractors, 1 seed." in caption
    assert "bars 95% intervals" in caption
    assert "2026-01-02 on Abacus, 2 cores, revision 0123456789ab" in caption


def test_rerank_shows_both(run):
    drawn = lines(rerank.draw(run))
    np.testing.assert_allclose(drawn["l1, alone"], [[1.1, 1.8], [0.85, 0.91]])
    np.testing.assert_allclose(drawn["l1, re-ranked"], [[1.4, 2.0], [0.92, 0.946]])


def test_suboptimality_against_probability(run):
    drawn = lines(suboptimality.draw(run))
    np.testing.assert_allclose(drawn["l1"], [[0.02, 0.04], [2.0, 1.3]])
    assert set(drawn) == {"relaxed FLOPs (ours)", "l1", "evenly spread"}
    assert "100,000 distractors, 3 seeds." in suboptimality.caption(run)


def test_bars_are_the_intervals(run, writers, tmp_path):
    drawn = bars(tradeoff.draw(run))
    shown = selection.select(tradeoff.points(run), architecture="convnet")
    expected = {group["milliseconds_per_query"]: measures.recall(group) for group in shown}
    assert len(drawn) == len(expected) == len(writers.rows)
    for x, low, high in drawn:
        np.testing.assert_allclose([low, high], expected[x][1:3])
        assert 0.002 < high - low < 0.02

    rows = [row._replace(drift=(-0.1, 0.0, 0.1)) for row in writers.rows]
    writers.identification(tmp_path / "convnet" / "records", rows)
    drawn = bars(suboptimality.draw(selection.load(tmp_path)))
    # Three seeds, s = 0.1: Student's t with 2 degrees of freedom is 4.302653 at 97.5%.
    (sparsest,) = [(low, high) for x, low, high in drawn if x == 0.02 and high > 1.5]
    np.testing.assert_allclose(
        sparsest, 2 + np.array([-0.1, 0.1]) * 4.302653 / np.sqrt(3), rtol=1e-6
    )


def test_points_without_raw_results_have_no_bars(writers, tmp_path):
    writers.identification(tmp_path / "convnet" / "records")
    for path in tmp_path.rglob("*.npz"):
        path.unlink()
    figure = tradeoff.draw(selection.load(tmp_path))
    np.testing.assert_allclose(lines(figure)["HNSW"], [[0.5], [0.949]])
    assert bars(figure) == []


def test_truncation_shows_each_budget_of_an_encoder(run):
    """F = ratio * 512 p^2; the dashed curve ends at the encoder that was cut."""
    figure = truncation.draw(run)
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == [
        "convnet, sparse alone",
        "mobilefacenet, sparse alone",
        "convnet, re-ranked",
        "mobilefacenet, re-ranked",
    ]
    costs = np.array([1.2 * 0.015**2, 1.1 * 0.03**2, 1.05 * 0.04**2]) * 512
    label = "relaxed FLOPs (ours), largest values of weight 10"
    for panel, recall in ((0, [0.88, 0.92, 0.93]), (2, [0.94, 0.949, 0.95])):
        drawn = lines(figure, panel)
        np.testing.assert_allclose(drawn[label], [costs, recall])
        assert set(drawn) == {label, "relaxed FLOPs (ours)", "l1"}
    other = [
        {**r, "setting": {**r["setting"], "keep_queries": 4}, "flops_per_row": 0.1}
        for r in selection.select(run, method="flops_cut", distractors=100_000)
    ]
    drawn = lines(truncation.draw(run + other))
    np.testing.assert_allclose(drawn[label], [costs, [0.88, 0.92, 0.93]])
    assert len(drawn[f"{label}, queries cut apart"][0]) == 3
    bands = [c for c in figure.axes[0].collections if isinstance(c, PolyCollection)]
    assert len(bands) == 3
    assert "3 seeds" in truncation.caption(run)
    assert "bands 95% intervals" in truncation.caption(run)


def renamed(run, method, **setting):
    """The rows that were cut, as if another encoder had made them."""

    def other(record):
        own = {key: value for key, value in record["setting"].items() if key != "weight"}
        return {**record, "method": method, "setting": {**(setting or record["setting"]), **own}}

    return [other(r) if "keep" in r["setting"] else r for r in run]


def test_encoders_of_any_regularizer_are_shown_cut(run):
    """Dashed, a curve per encoder, and not among those that were trained sparse."""
    found = renamed(run, "df_flops_cut")
    df_flops = REGULARIZERS["df_flops"].look.label
    drawn = {line.get_label(): line for line in tradeoff.draw(found).axes[0].get_lines()}
    assert drawn[f"{df_flops}, largest values only"].get_linestyle() == "--"
    assert drawn["l1"].get_linestyle() == "-"
    assert not [label for label in lines(suboptimality.draw(found)) if "largest" in label]
    label = f"{df_flops}, largest values of weight 10"
    whole = [
        {**r, "method": "df_flops", "flops_per_row": 2.0}
        for r in selection.select(run, experiment="megaface", method="flops")
    ]
    drawn = lines(truncation.draw(found + whole))
    assert set(drawn) == {label, df_flops, "relaxed FLOPs (ours)", "l1"}
    np.testing.assert_allclose(drawn[label][1], [0.88, 0.92, 0.93])


def test_encoders_without_a_known_regularizer_are_shown_cut(run):
    found = renamed(run, "sparse_cut", dims=64)
    assert "sparse, largest values only" in lines(tradeoff.draw(found))
    assert len(lines(truncation.draw(found))["sparse, largest values of dims 64"][0]) == 2
    own = lines(tradeoff.draw(renamed(run, "of_a_user_cut")))
    assert "of_a_user_cut" in own


def with_targets(run):
    """The sparse encoders of a run as if they had been trained for given FLOPs per row."""
    targets = {10.0: 2.0, 30.0: 0.5, 0.3: 2.0, 0.6: 0.5}
    return [
        {**r, "setting": {"target_flops": targets[r["setting"]["weight"]]}}
        for r in selection.select(run, experiment="megaface", method=("flops", "l1"))
    ]


def test_regularizers_shows_recall_and_evenness_at_equal_cost(run):
    """F = ratio * 512 p^2, as written into the records."""
    figure = regularizers.draw(run + with_targets(run))
    assert [axis.get_title() for axis in figure.axes[:2]] == ["convnet", "mobilefacenet"]
    costs = np.array([2.0 * 0.02**2, 1.3 * 0.04**2]) * 512
    for panel, found in ((0, [0.85, 0.91]), (2, [0.92, 0.946]), (4, [2.0, 1.3])):
        drawn = lines(figure, panel)
        assert set(drawn) == {"relaxed FLOPs (ours)", "l1"}
        np.testing.assert_allclose(drawn["l1"], [costs, found])
    assert "3 seeds" in regularizers.caption(with_targets(run))
    with pytest.raises(selection.NotMeasured, match="given FLOPs per row"):
        regularizers.draw(run)


def test_regularizers_are_judged_at_each_cost(run):
    """At F = 0.225 and 0.860 FLOPs have 0.9 and 0.93 alone; l1 has 0.85 at 0.410 and 0.91 at
    1.065, so 0.85 and, on a line in log F, 0.85 + 0.06 log(0.860 / 0.410) / log(1.065 / 0.410)."""
    assert tables.regularizers(run) == ""
    text = tables.regularizers(with_targets(run))
    rows = [re.sub(r"<[^>]*>", "|", row) for row in text.split("<tr>")[2:]]
    rows = [[cell for cell in row.split("|") if cell] for row in rows]
    assert len(rows) == 2 * 2 * 2  # architectures, targets, re-ranked or not
    f = [512 * 1.10 * 0.02**2, 512 * 1.05 * 0.04**2]
    theirs = [512 * 2.0 * 0.02**2, 512 * 1.3 * 0.04**2]
    way = np.log(f[1] / theirs[0]) / np.log(theirs[1] / theirs[0])
    expected = [0.90 - 0.85, 0.93 - (0.85 + 0.06 * way)]
    alone = [row for row in rows if row[0] == "convnet" and row[2] == "no"]
    for row, difference in zip(alone, expected, strict=True):
        assert float(row[9].split()[0]) == pytest.approx(difference, abs=1e-4)
        assert row[10] == "FLOPs"


def test_roc_ends_at_one_and_counts_pairs(run):
    drawn = lines(roc.draw(run))
    assert set(drawn) == {
        "exhaustive dense",
        "relaxed FLOPs (ours), p=0.020",
        "l1, p=0.015",
        "l1, p=0.030",
    }
    for fpr, tpr in drawn.values():
        assert (fpr[-1], tpr[-1]) == (1, 1)
        assert (np.diff(fpr) >= 0).all()
        assert (np.diff(tpr) >= 0).all()
    assert "2,000 pairs each" in roc.caption(run)


def test_cdf_shows_the_sample_and_a_fit_near_it(run):
    figure = cdf.draw(run)
    assert len(figure.axes) == 2 * 3
    drawn = lines(figure)
    _, empirical = drawn["activations"]
    _, fitted = drawn["rectified Gaussian"]
    # P(N(-1.2, 1) <= 0) = 0.885; a sample of 1000 is within 4 standard deviations, 0.04, of that.
    assert empirical[0] == pytest.approx(0.885, abs=0.04)
    assert np.abs(empirical - fitted).max() < 0.02


def test_cifar100_shows_every_weight_the_chosen_one_and_the_paper(cifar100_results):
    run = selection.load(cifar100_results.parent)
    figure = cifar100.draw(run)
    drawn = lines(figure)
    np.testing.assert_allclose(drawn["l1, haarnet"], [[0.235, 0.47], [30.25, 60.50]])
    np.testing.assert_allclose(drawn["relaxed FLOPs, paper"], [[0.40], [61.05]])
    large = [line.get_data() for line in figure.axes[1].get_lines() if line.get_markersize() > 9]
    np.testing.assert_allclose(large[0], [[0.40], [55.23]])  # chosen, and the paper's is the same
    assert "2026-01-02 on Abacus" in cifar100.caption(run)


def test_cifar100_keeps_the_networks_apart(cifar100_results):
    run = selection.load(cifar100_results.parent)
    own = [
        {**record, "model": "l1", "flops_per_row": 9.0, "precision_at_4_train": 0.5}
        for record in selection.select(run, model="fast_l1", setting={"weight": 2.0})
    ]
    figure = cifar100.draw(run + own)
    drawn = lines(figure)
    # Single points, without a line, can be told apart too.
    large = [line for line in figure.axes[0].get_lines() if line.get_markersize() > 9]
    looks = {
        (line.get_color(), line.get_marker(), line.get_fillstyle(), line.get_mfc())
        for line in large
    }
    assert len(looks) == len(large) == 5
    np.testing.assert_allclose(drawn["l1, haarnet"], [[0.235, 0.47], [30.25, 60.50]])
    np.testing.assert_allclose(drawn["l1, network in network"], [[9.0], [50.0]])
    assert set(lines(cifar100.draw(own))) >= {"l1, network in network", "l1, paper"}
    assert "l1, haarnet" not in lines(cifar100.draw(own))


def test_files_are_vector_and_pixels(run, tmp_path):
    svg, pdf, png = drawing.save(roc.draw(run), tmp_path / "new" / "roc")
    assert svg.read_text().rstrip().endswith("</svg>")
    assert "<text" in svg.read_text()
    assert pdf.read_bytes().startswith(b"%PDF")
    assert min(Image.open(png).size) > 300


def test_nothing_measured_is_said():
    for name, (_, module) in FIGURES.items():
        if name != "trajectory":
            with pytest.raises(selection.NotMeasured, match="no record of"):
                module.draw([])


def test_the_script_draws_what_there_are_records_of(
    recorded_run, cifar100_results, tmp_path, capsys
):
    def shown(*arguments):
        call("report", *arguments)
        return capsys.readouterr().out

    folder = tmp_path / "run"
    shutil.copytree(recorded_run, folder, ignore=shutil.ignore_patterns("figures"))
    output = shown(f"--run_dir={folder}", "--figures=all")
    drawn = {path.stem for path in (folder / "figures").glob("*.svg")}
    assert drawn == set(FIGURES) - {"cifar100", "regularizers"}
    assert "cifar100: not drawn, this run has no record of CIFAR-100" in output
    shown(f"--run_dir={cifar100_results}", "--figures=cifar100")
    assert (cifar100_results / "figures" / "cifar100.png").exists()
    for name, message in (("tradeoff", "no record of timed"), ("pie", "expected some of")):
        with pytest.raises(UsageError, match=f"--figures={name}.*{message}"):
            shown(f"--run_dir={cifar100_results}", f"--figures={name}")
