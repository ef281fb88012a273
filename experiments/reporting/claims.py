"""The paper's claims about its figures, and whether the records of a reproduction support them.

Each claim has a rule, a function of the records (see `selection.load`) that returns an outcome and
the numbers that decide it, or raises `NotMeasured`. docs/claims.md states the rules.
"""

import dataclasses
from collections.abc import Callable

from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.reporting import (
    cifar100_rules,
    encoder_rules,
    pair_rules,
    search_rules,
)
from sparse_embed.experiments.reporting.judging import NOT_MEASURED, Finding
from sparse_embed.experiments.reporting.selection import NotMeasured


@dataclasses.dataclass(frozen=True)
class Claim:
    """A sentence of the paper, in our words.

    Attributes:
        figure: name of the figure that shows it.
        text: what is claimed.
        judge: its rule.
    """

    figure: str
    text: str
    judge: Callable[[list[Record]], Finding]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The verdict on a claim.

    Attributes:
        figure: name of the figure that shows it.
        claim: its text.
        verdict: one of `judging.OUTCOMES`, or why nothing was judged.
        numbers: that decide it, or why it was not measured.
        source: names the recorded results that it was judged on; None means the reproduction's own
            records.
    """

    figure: str
    claim: str
    verdict: str
    numbers: str
    source: str | None = None


def unjudged(reason: str) -> list[Verdict]:
    """Returns each claim without a verdict, for a run that can tell nothing about them."""
    return [Verdict(claim.figure, claim.text, f"not judged: {reason}", "") for claim in CLAIMS]


def verdicts(records: list[Record]) -> list[Verdict]:
    """Returns the verdict on each claim."""

    def judge(claim: Claim) -> Verdict:
        try:
            outcome, numbers = claim.judge(records)
        except NotMeasured as reason:
            return Verdict(claim.figure, claim.text, NOT_MEASURED, str(reason))
        kept = [r["source"] for r in records if "source" in r and r["experiment"] == claim.figure]
        return Verdict(claim.figure, claim.text, outcome, numbers, kept[0] if kept else None)

    return [judge(claim) for claim in CLAIMS]


CLAIMS = [
    Claim(
        "trajectory",
        "F and relaxed F sparsify the less sparse activation faster than l1 does, and so even out "
        "the probabilities.",
        encoder_rules.evens_out,
    ),
    Claim("trajectory", "Relaxed F behaves much like F.", encoder_rules.relaxation_is_near),
    Claim(
        "cdf",
        "Trained activations closely follow rectified Gaussians, in two architectures.",
        encoder_rules.activations_are_gaussian,
    ),
    Claim(
        "tradeoff",
        f"Sparse embeddings are about {search_rules.SPEEDUP} times faster than dense ones without "
        "a significant loss of accuracy.",
        search_rules.speedup,
    ),
    Claim(
        "tradeoff",
        "Relaxed FLOPs give the best trade-off of all methods.",
        search_rules.best_tradeoff,
    ),
    Claim("tradeoff", "Relaxed FLOPs improve on l1.", search_rules.beats_l1),
    Claim("tradeoff", "SDH has a very poor trade-off.", search_rules.sdh_is_poor),
    Claim("tradeoff", "IVF-PQ gives more speed than LSH and PCA.", search_rules.pq_leads),
    Claim(
        "suboptimality",
        "Relaxed FLOPs spread the non-zeros more evenly than l1 at the same sparsity.",
        encoder_rules.evenly_spread,
    ),
    Claim("suboptimality", "l1 becomes less even as it becomes sparser.", encoder_rules.gap_grows),
    Claim("rerank", "Without re-ranking, recall falls.", search_rules.reranking_helps),
    Claim(
        "roc",
        "At a similar activation probability relaxed FLOPs verify pairs better than l1.",
        pair_rules.verification_of_sparse,
    ),
    Claim(
        "roc",
        "The gap between sparse and dense models is smaller on the easier set.",
        pair_rules.easy_set_is_easier,
    ),
    Claim(
        "cifar100",
        "On CIFAR-100 relaxed FLOPs need less than half of the computation of SDH.",
        cifar100_rules.cheaper_than_sdh,
    ),
    Claim(
        "cifar100",
        "On CIFAR-100 relaxed FLOPs are more precise than l1 at no higher cost.",
        cifar100_rules.better_than_l1_on_cifar100,
    ),
]
