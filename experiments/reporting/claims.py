"""The paper's claims about its figures, and whether the records of a reproduction support them.

Each claim is a function of the records (see `selection.load`) that returns whether it
held and the numbers that decide it, or raises `NotMeasured`. Where the paper uses a word like
"close", the function says which number stands for it.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from sparse_embed.experiments.evaluation.records import Record
from sparse_embed.experiments.reporting import selection
from sparse_embed.experiments.reporting.cifar100_table import (
    FAST,
    METRICS,
    PAPER,
    in_table,
    recorded_series,
)
from sparse_embed.experiments.reporting.drawing import look
from sparse_embed.experiments.reporting.figures import cdf, suboptimality, tradeoff, trajectory
from sparse_embed.experiments.reporting.selection import NotMeasured

Finding = tuple[bool, str]
"""Whether a claim held, and the numbers."""

LOSS = 0.01  # of recall@1 against exhaustive search: allowed "without a significant loss"
TIE = 0.005  # recall@1 that is this much lower counts as the same
NOISE = 0.05  # times that differ by less count as the same
SPEEDUP = 50  # of the paper's conclusion
RIVALS = ("l1", "sdh", "ivfpq", "lsh", "pca", "dense")  # that the paper compares itself with


@dataclasses.dataclass(frozen=True)
class Claim:
    """A sentence of the paper, in our words.

    Attributes:
        figure: name of the figure that shows it.
        text: what is claimed.
        judge: see above.
    """

    figure: str
    text: str
    judge: Callable[[list[Record]], Finding]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The verdict on a claim: `held` is None if there is none, and `otherwise` then says why.

    `source` names the recorded results that it was judged on; None means the reproduction's own
    records.
    """

    figure: str
    claim: str
    held: bool | None
    numbers: str
    source: str | None = None
    otherwise: str = "not measured"

    @property
    def word(self) -> str:
        """The verdict in words."""
        return {True: "held", False: "not held", None: self.otherwise}[self.held]


def unjudged(reason: str) -> list[Verdict]:
    """Returns each claim without a verdict, for a run that can tell nothing about them."""
    word = f"not judged: {reason}"
    return [Verdict(claim.figure, claim.text, None, "", otherwise=word) for claim in CLAIMS]


def verdicts(records: list[Record]) -> list[Verdict]:
    """Returns the verdict on each claim."""

    def judge(claim: Claim) -> Verdict:
        try:
            held, numbers = claim.judge(records)
        except NotMeasured as reason:
            return Verdict(claim.figure, claim.text, None, str(reason))
        kept = [r["source"] for r in records if "source" in r and r["experiment"] == claim.figure]
        source = kept[0] if kept else None
        return Verdict(claim.figure, claim.text, bool(held), numbers, source)

    return [judge(claim) for claim in CLAIMS]


def _both(found: list[Record], what: str, *methods: str) -> None:
    """Raises NotMeasured unless there are records of all the methods."""
    for method in methods:
        selection.needed(found, f"{look(method).label} in {what}", method=method)


def _each(
    found: list[Record], what: str, methods: tuple[str, ...], judge: Callable[..., Finding]
) -> Finding:
    """Judges each architecture that has all the methods; holds if it holds in all of them."""
    findings = []
    for architecture, part in selection.by_architecture(found):
        if set(methods) <= {record["method"] for record in part}:
            held, numbers = judge(part)
            findings.append((held, f"{architecture}: {numbers}"))
    if not findings:
        _both(found, what, *methods)
        raise NotMeasured(f"no architecture has all of {', '.join(methods)} in {what}")
    return all(held for held, _ in findings), "; ".join(numbers for _, numbers in findings)


def evens_out(records: list[Record]) -> Finding:
    """F and the relaxed F leave p2 higher than l1 does, when p1 has fallen from 0.4 to 0.1."""
    del records
    left = {name: trajectory.second_probability(name, 0.1) for name in trajectory.CURVES}
    held = min(left["flops"], left["relaxed_flops"]) > left["l1"]
    text = ", ".join(f"{trajectory.CURVES[name][0]} {value:.3f}" for name, value in left.items())
    return held, f"when p1 has fallen from 0.4 to 0.1, p2 is: {text}"


def relaxation_is_near(records: list[Record]) -> Finding:
    """The path of the relaxed F is nearer to that of F than l1's is."""
    del records
    firsts = np.linspace(0.05, 0.35, 31)

    def distance(name: str) -> float:
        return max(
            abs(trajectory.second_probability(name, p) - trajectory.second_probability("flops", p))
            for p in firsts
        )

    relaxed, l1 = distance("relaxed_flops"), distance("l1")
    return relaxed < l1, (
        f"largest difference of p2 to the path of F, for p1 from 0.35 to 0.05: relaxed F "
        f"{relaxed:.3f}, l1 {l1:.3f}"
    )


def activations_are_gaussian(records: list[Record]) -> Finding:
    """The median KS distance is below a tenth of the activation probability."""
    shown = cdf.points(records)
    texts = [
        f"{record['architecture']}: median distance {record['ks_distance']:.4f}, "
        f"{record['relative_ks_distance']:.1%} of the activation probability"
        for record in shown
    ]
    held = all(record["relative_ks_distance"] < 0.1 for record in shown)
    numbers = f"{'; '.join(texts)} (close: below 10%)"
    if held and len({record["architecture"] for record in shown}) < 2:
        raise NotMeasured(f"{numbers}; this run has only one architecture")
    return held, numbers


def _fastest(found: list[Record], recall: float) -> Record | None:
    """The fastest record with at least that recall."""
    good = [record for record in found if record["recall_at_1"] >= recall]
    return min(good, key=lambda record: record["milliseconds_per_query"], default=None)


def _name(record: Record | None) -> str:
    if record is None:
        return "none"
    return (
        f"{look(record['method']).label} {record['milliseconds_per_query']:.3g} ms at "
        f"{record['recall_at_1']:.3f}"
    )


def _is_faster(one: float, other: float) -> bool:
    return one < other * (1 - NOISE)


def speedup(records: list[Record]) -> Finding:
    """The relaxed FLOPs are 50 times faster than exhaustive search within 0.01 of its recall."""

    def judge(part: list[Record]) -> Finding:
        dense = max(
            selection.select(part, method="dense"), key=lambda record: record["recall_at_1"]
        )
        best = _fastest(selection.select(part, method="flops"), dense["recall_at_1"] - LOSS)
        if best is None:
            closest = max(r["recall_at_1"] for r in selection.select(part, method="flops"))
            return False, f"no setting within {LOSS} of {_name(dense)}; closest: {closest:.3f}"
        factor = dense["milliseconds_per_query"] / best["milliseconds_per_query"]
        return factor >= SPEEDUP, f"{factor:.0f} times: {_name(best)}, {_name(dense)}"

    return _each(tradeoff.points(records), "identification", ("dense", "flops"), judge)


def best_tradeoff(records: list[Record]) -> Finding:
    """At the recall of each setting of the relaxed FLOPs, no other method of the paper is faster.

    Recall within 0.005 and times within 5% count as the same. Methods that the paper does not
    compare, such as HNSW, only appear in the figure.
    """

    def judge(part: list[Record]) -> Finding:
        ours = selection.select(part, method="flops")
        others = selection.select(part, method=RIVALS)
        beaten = []
        for record in ours:
            rival = _fastest(others, record["recall_at_1"] - TIE)
            if rival and _is_faster(
                rival["milliseconds_per_query"], record["milliseconds_per_query"]
            ):
                beaten.append(f"{_name(record)} by {_name(rival)}")
        if beaten:
            return False, f"beaten in {len(beaten)} of {len(ours)} settings: {'; '.join(beaten)}"
        return True, f"unbeaten in all {len(ours)} settings"

    return _each(tradeoff.points(records), "identification", ("flops", "ivfpq"), judge)


def _compare_fastest(better: str, worse: tuple[str, ...]) -> Callable[[list[Record]], Finding]:
    """Judges whether a method is faster than others within 0.01 of the best recall of all of them.

    Times within 5% count as the same.
    """

    def judge(part: list[Record]) -> Finding:
        compared = selection.select(part, method=(better, *worse))
        goal = max(record["recall_at_1"] for record in compared) - LOSS
        best = {
            name: _fastest(selection.select(part, method=name), goal) for name in (better, *worse)
        }
        times = {
            name: record["milliseconds_per_query"] if record else np.inf
            for name, record in best.items()
        }
        text = ", ".join(
            _name(record) if record else f"{look(name).label} never"
            for name, record in best.items()
        )
        held = all(_is_faster(times[better], times[name]) for name in worse)
        return held, f"fastest with recall@1 of {goal:.3f}: {text}"

    return judge


def beats_l1(records: list[Record]) -> Finding:
    """The relaxed FLOPs are faster than l1 within 0.01 of the better one's recall."""
    return _each(
        tradeoff.points(records),
        "identification",
        ("flops", "l1"),
        _compare_fastest("flops", ("l1",)),
    )


def pq_leads(records: list[Record]) -> Finding:
    """IVF-PQ is faster than LSH and PCA within 0.01 of the best recall of the three."""
    return _each(
        tradeoff.points(records),
        "identification",
        ("ivfpq", "lsh", "pca"),
        _compare_fastest("ivfpq", ("lsh", "pca")),
    )


def sdh_is_poor(records: list[Record]) -> Finding:
    """Each setting of SDH is beaten by one of the relaxed FLOPs, in time and in recall."""

    def judge(part: list[Record]) -> Finding:
        held, texts = True, []
        for record in selection.select(part, method="sdh"):
            rival = _fastest(selection.select(part, method="flops"), record["recall_at_1"])
            is_beaten = (
                rival is not None
                and rival["milliseconds_per_query"] < record["milliseconds_per_query"]
            )
            held = held and is_beaten
            texts.append(f"{_name(record)}, as good or better: {_name(rival)}")
        return held, "; ".join(texts)

    return _each(tradeoff.points(records), "identification", ("flops", "sdh"), judge)


def evenly_spread(records: list[Record]) -> Finding:
    """At equal activation probability the ratio of the relaxed FLOPs is below that of l1.

    Compared at each weight of the relaxed FLOPs, with l1 interpolated; beyond its range, with its
    nearest weight.
    """

    def judge(part: list[Record]) -> Finding:
        l1 = selection.select(part, method="l1")
        ratios = [
            (
                record["activation_probability"],
                record["suboptimality_ratio"],
                float(
                    np.interp(
                        record["activation_probability"],
                        [r["activation_probability"] for r in l1],
                        [r["suboptimality_ratio"] for r in l1],
                    )
                ),
            )
            for record in selection.select(part, method="flops")
        ]
        text = ", ".join(f"p={p:.3f}: {ours:.2f} against {other:.2f}" for p, ours, other in ratios)
        return all(ours < other for _, ours, other in ratios), text

    return _each(suboptimality.points(records), "sparsity", ("flops", "l1"), judge)


def gap_grows(records: list[Record]) -> Finding:
    """The sparser of two weights of l1, its first and last, has the higher ratio."""

    def judge(part: list[Record]) -> Finding:
        l1 = selection.select(part, method="l1")
        if len(l1) < 2:
            raise NotMeasured("this run has only one weight of l1")
        sparse, full = l1[0], l1[-1]
        return sparse["suboptimality_ratio"] > full["suboptimality_ratio"], (
            f"l1 has {full['suboptimality_ratio']:.3f} at p={full['activation_probability']:.3f} "
            f"and {sparse['suboptimality_ratio']:.3f} at p={sparse['activation_probability']:.3f}"
        )

    return _each(suboptimality.points(records), "sparsity", ("l1",), judge)


def reranking_helps(records: list[Record]) -> Finding:
    """Without re-ranking every sparse setting finds less."""
    texts, held = [], True
    pairs: dict[tuple, dict[bool, float]] = {}
    for record in selection.sparse_identification(records):
        key = (record["architecture"], record["method"], record["setting"]["weight"])
        pairs.setdefault(key, {})[record["reranked"]] = record["recall_at_1"]
    for (architecture, method, weight), recall in sorted(pairs.items()):
        if len(recall) == 2:
            held = held and recall[True] > recall[False]
            texts.append(
                f"{architecture}, {method} {weight:g}: {recall[False]:.3f} to {recall[True]:.3f}"
            )
    if not texts:
        raise NotMeasured("this run has no sparse setting both with and without re-ranking")
    return held, f"recall@1 without and with re-ranking: {'; '.join(texts)}"


def verification_of_sparse(records: list[Record]) -> Finding:
    """At about equal p, within 30%, the relaxed FLOPs accept more pairs at FPR 0.01 than l1."""
    found = selection.needed(records, "verification", experiment="verification")
    held, texts = True, []
    for record in selection.select(found, method="flops"):
        p = record["activation_probability"]
        rivals = selection.select(
            found, method="l1", data=record["data"], architecture=record["architecture"]
        )
        near = [r for r in rivals if 1 / 1.3 <= r["activation_probability"] / p <= 1.3]
        for rival in near:
            held = held and record["tar_at_far_0.01"] > rival["tar_at_far_0.01"]
            texts.append(
                f"{record['architecture']}, {record['data']}: {record['tar_at_far_0.01']:.3f} at "
                f"p={p:.3f}, l1 {rival['tar_at_far_0.01']:.3f} at "
                f"p={rival['activation_probability']:.3f}"
            )
    if not texts:
        raise NotMeasured("no encoders of both regularizers within 30% of each other's sparsity")
    return held, f"true positive rate at FPR 0.01: {'; '.join(texts)}"


def easy_set_is_easier(records: list[Record]) -> Finding:
    """The gap of the best sparse to the best dense model is smaller on the easier set."""
    found = selection.needed(records, "verification", experiment="verification")

    def judge(part: list[Record]) -> Finding:
        gaps = {}
        for data in selection.values(part, "data"):
            dense, sparse = (
                max(r["accuracy"] for r in selection.select(part, data=data, method=methods))
                for methods in (("dense",), ("flops", "l1"))
            )
            gaps[data] = dense - sparse, dense
        if len(gaps) < 2:
            raise NotMeasured("this run verified only one set of pairs")
        ordered = sorted(gaps.items(), key=lambda item: -item[1][1])
        text = ", ".join(f"{data} {gap:.3f} below {dense:.3f}" for data, (gap, dense) in ordered)
        return ordered[0][1][0] < ordered[-1][1][0], f"accuracy of the best sparse model: {text}"

    return _each(found, "verification", ("dense", "flops"), judge)


def _cifar100(records: list[Record], *rows: str) -> tuple[str, list[Record]]:
    """Returns the network and the records in the table for some rows.

    They are of one series: that of the paper's own network, if there is any record of it.
    """
    series = (recorded_series(records) or [FAST])[0]
    found = []
    for row in rows:
        record = in_table(records, series.prefix + row)
        if record is None:
            raise NotMeasured(f"this run has no record of CIFAR-100, {PAPER[row].title}")
        found.append(record)
    return series.network, found


PRECISIONS = METRICS[1:]


def cheaper_than_sdh(records: list[Record]) -> Finding:
    """Relaxed FLOPs cost less than half of SDH k=1; precision@4 among test images is reported."""
    network, (flops, sdh) = _cifar100(records, "flops", "sdh_k1")
    return flops["flops_per_row"] < 0.5 * sdh["flops_per_row"], (
        f"{network}: {flops['flops_per_row']:.2f} against {sdh['flops_per_row']:.2f} multiply-adds "
        "per row; "
        f"precision@4 among test images {flops['precision_at_4_test']:.2%} against "
        f"{sdh['precision_at_4_test']:.2%}"
    )


def better_than_l1_on_cifar100(records: list[Record]) -> Finding:
    """Relaxed FLOPs have higher precision than l1 in every column, at no higher cost."""
    network, (flops, l1) = _cifar100(records, "flops", "l1")
    held = flops["flops_per_row"] <= l1["flops_per_row"] and all(
        flops[name] > l1[name] for name in PRECISIONS
    )
    texts = [f"{name} {flops[name]:.2%} against {l1[name]:.2%}" for name in PRECISIONS]
    costs = f"{flops['flops_per_row']:.2f} against {l1['flops_per_row']:.2f} multiply-adds per row"
    return held, f"{network}: {costs}; {', '.join(texts)}"


CLAIMS = [
    Claim(
        "trajectory",
        "F and relaxed F sparsify the less sparse activation faster than l1 does, and so even out "
        "the probabilities.",
        evens_out,
    ),
    Claim("trajectory", "Relaxed F behaves much like F.", relaxation_is_near),
    Claim(
        "cdf",
        "Trained activations closely follow rectified Gaussians, in two architectures.",
        activations_are_gaussian,
    ),
    Claim(
        "tradeoff",
        f"Sparse embeddings are about {SPEEDUP} times faster than dense ones without a significant "
        "loss of accuracy.",
        speedup,
    ),
    Claim("tradeoff", "Relaxed FLOPs give the best trade-off of all methods.", best_tradeoff),
    Claim("tradeoff", "Relaxed FLOPs improve on l1.", beats_l1),
    Claim("tradeoff", "SDH has a very poor trade-off.", sdh_is_poor),
    Claim("tradeoff", "IVF-PQ gives more speed than LSH and PCA.", pq_leads),
    Claim(
        "suboptimality",
        "Relaxed FLOPs spread the non-zeros more evenly than l1 at the same sparsity.",
        evenly_spread,
    ),
    Claim("suboptimality", "l1 becomes less even as it becomes sparser.", gap_grows),
    Claim("rerank", "Without re-ranking, recall falls.", reranking_helps),
    Claim(
        "roc",
        "At a similar activation probability relaxed FLOPs verify pairs better than l1.",
        verification_of_sparse,
    ),
    Claim(
        "roc",
        "The gap between sparse and dense models is smaller on the easier set.",
        easy_set_is_easier,
    ),
    Claim(
        "cifar100",
        "On CIFAR-100 relaxed FLOPs need less than half of the computation of SDH.",
        cheaper_than_sdh,
    ),
    Claim(
        "cifar100",
        "On CIFAR-100 relaxed FLOPs are more precise than l1 at no higher cost.",
        better_than_l1_on_cifar100,
    ),
]
