"""Verdicts on recorded results whose numbers stand in conftest.py."""

import pytest

from sparse_embed.experiments.reporting import claims, selection
from sparse_embed.experiments.reporting.cifar100_table import METRICS, PAPER


@pytest.fixture
def run(recorded_run):
    return selection.load(recorded_run)


def verdict(run, judge):
    (claim,) = [claim for claim in claims.CLAIMS if claim.judge is judge]
    (found,) = [found for found in claims.verdicts(run) if found.claim == claim.text]
    return found


def change(run, key, value, **wanted):
    for record in selection.select(run, **wanted):
        record[key] = value


def test_every_claim_is_judged_and_those_without_records_are_not_measured(run):
    found = claims.verdicts(run)
    assert len(found) == len(claims.CLAIMS)
    missing = {v.claim for v in found if v.held is None}
    assert missing == {c.text for c in claims.CLAIMS if c.figure == "cifar100"}
    empty = claims.verdicts([])
    assert {v.figure for v in empty if v.held is not None} == {"trajectory"}


def test_speedup_is_that_of_the_fastest_setting_within_the_loss(run):
    """100 ms / 1.0 ms = 100 at 0.945, which is within 0.01 of 0.951; at 0.930 neither is."""
    found = verdict(run, claims.speedup)
    assert found.held
    assert "convnet: 100 times" in found.numbers
    assert "mobilefacenet: 100 times" in found.numbers
    change(run, "recall_at_1", 0.93, method="flops", architecture="convnet")
    found = verdict(run, claims.speedup)
    assert found.held is False
    assert "no setting within 0.01" in found.numbers


def test_speedup_below_fifty_is_not_held(run):
    change(run, "milliseconds_per_query", 49.0, method="dense")
    assert verdict(run, claims.speedup).held is False


def test_best_tradeoff_names_who_is_better(run):
    assert verdict(run, claims.best_tradeoff).held  # though HNSW, not in the paper, is faster
    change(run, "milliseconds_per_query", 0.4, method="pca")
    found = verdict(run, claims.best_tradeoff)
    assert found.held is False
    assert "by PCA 0.4 ms at 0.948" in found.numbers
    assert "beaten in 2 of 2 settings" in found.numbers  # 0.950 is within 0.005 of PCA's 0.948
    change(run, "recall_at_1", 0.954, method="flops", setting={"weight": 10.0})
    assert "beaten in 1 of 2 settings" in verdict(run, claims.best_tradeoff).numbers


def test_orders_of_methods(run):
    assert verdict(run, claims.beats_l1).held
    assert verdict(run, claims.pq_leads).held
    assert verdict(run, claims.sdh_is_poor).held
    change(run, "milliseconds_per_query", 0.1, method=("lsh", "sdh", "l1"))
    assert verdict(run, claims.pq_leads).held is False
    assert verdict(run, claims.sdh_is_poor).held is False
    assert verdict(run, claims.beats_l1).held is False


def test_a_few_percent_of_time_are_noise(run):
    """Relaxed FLOPs take 1.0 and 1.5 ms: 1.04 ms are the same as 1.0, 1.06 are slower."""
    change(run, "milliseconds_per_query", 1.04, method="l1")
    assert verdict(run, claims.beats_l1).held is False
    change(run, "milliseconds_per_query", 1.06, method="l1")
    assert verdict(run, claims.beats_l1).held
    change(run, "milliseconds_per_query", 0.96, method="pca")
    assert "beaten in 1 of 2 settings" in verdict(run, claims.best_tradeoff).numbers
    change(run, "milliseconds_per_query", 0.94, method="pca")
    assert "beaten in 2 of 2 settings" in verdict(run, claims.best_tradeoff).numbers


def test_spread_is_compared_at_equal_sparsity(run):
    """At p = 0.02 and 0.04 both have a weight: 1.10 against 2.00, 1.05 against 1.30."""
    found = verdict(run, claims.evenly_spread)
    assert found.held
    assert "p=0.020: 1.10 against 2.00, p=0.040: 1.05 against 1.30" in found.numbers
    assert verdict(run, claims.gap_grows).held
    change(run, "suboptimality_ratio", 1.07, method="l1", architecture="convnet")
    assert verdict(run, claims.evenly_spread).held is False
    assert verdict(run, claims.gap_grows).held is False


def test_reranking_and_verification(run):
    assert verdict(run, claims.reranking_helps).held
    assert verdict(run, claims.verification_of_sparse).held
    assert verdict(run, claims.easy_set_is_easier).held
    change(run, "recall_at_1", 0.5, method="l1", reranked=True)
    assert verdict(run, claims.reranking_helps).held is False
    change(run, "activation_probability", 0.2, method="l1")
    assert verdict(run, claims.verification_of_sparse).held is None


def test_exact_claims():
    """By the test of the trajectory, p2 at p1 = 0.1 is 0.060, 0.063 and 0.039."""
    found = verdict([], claims.evens_out)
    assert found.held
    assert "F 0.060, relaxed F 0.063, l1 0.039" in found.numbers
    assert verdict([], claims.relaxation_is_near).held


def test_activations(run):
    assert verdict(run, claims.activations_are_gaussian).held
    one = [record for record in run if record["architecture"] == "convnet"]
    assert verdict(one, claims.activations_are_gaussian).held is None
    change(run, "relative_ks_distance", 0.11, experiment="activations", architecture="convnet")
    assert verdict(run, claims.activations_are_gaussian).held is False


def test_cifar100():
    """The paper's own table: 0.40 is less than half of 1.18; precision above l1 everywhere."""
    kind = {"experiment": "cifar100", "chosen": True}
    run = [
        {**kind, "model": f"fast_{name}", **dict(zip(METRICS, row, strict=True))}
        for name, (_, row) in PAPER.items()
    ]
    assert verdict(run, claims.cheaper_than_sdh).held
    assert verdict(run, claims.better_than_l1_on_cifar100).held
    change(run, "precision_at_4_test", 0.5, model="fast_flops")
    assert verdict(run, claims.better_than_l1_on_cifar100).held is False


def test_cifar100_is_judged_with_the_papers_own_network_if_there_is_a_record_of_it():
    kind = {"experiment": "cifar100", "chosen": True}
    run = [
        {**kind, "model": prefix + name, **dict(zip(METRICS, row, strict=True))}
        for prefix in ("fast_", "")
        for name, (_, row) in PAPER.items()
    ]
    change(run, "flops_per_row", 2.0, model="flops")
    found = verdict(run, claims.cheaper_than_sdh)
    assert found.held is False
    assert found.numbers.startswith("network in network: 2.00 against 1.18")
    # Half of its rows are no reason to take the other half from another network.
    found = verdict([r for r in run if r["model"] != "sdh_k1"], claims.cheaper_than_sdh)
    assert (found.held, found.word) == (None, "not measured")
    fast = [r for r in run if r["model"].startswith("fast_")]
    assert verdict(fast, claims.cheaper_than_sdh).numbers.startswith("haarnet: 0.40 against 1.18")


def test_a_rehearsal_judges_nothing():
    found = claims.unjudged("rehearsal")
    assert [v.claim for v in found] == [claim.text for claim in claims.CLAIMS]
    assert {(v.held, v.word) for v in found} == {(None, "not judged: rehearsal")}


def test_what_is_judged_on_recorded_results_says_so(recorded_run, cifar100_results):
    """Only the claims about CIFAR-100, of which the reproduction has no record of its own."""
    found = claims.verdicts(selection.load(recorded_run, cifar100_results))
    sources = {verdict.figure: verdict.source for verdict in found}
    assert sources.pop("cifar100") == f"{cifar100_results.parent.name}/cifar100"
    assert set(sources.values()) == {None}
    own = selection.load(cifar100_results.parent, cifar100_results)
    assert {v.source for v in claims.verdicts(own)} == {None}


def test_a_rival_that_the_paper_does_not_compare_decides_nothing(run):
    before = claims.verdicts(run)
    fast = {**selection.select(run, method="pca", reranked=True)[0], "method": "toy"}
    run.append({**fast, "milliseconds_per_query": 1e-3, "recall_at_1": 1.0})
    assert claims.verdicts(run) == before
