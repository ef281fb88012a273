"""Rules of the claims about activations, and how evenly they are spread (docs/claims.md)."""

import numpy as np

from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.reporting import judging, measures, selection
from sparse_embed.experiments.reporting.figures import cdf, suboptimality, trajectory
from sparse_embed.experiments.reporting.intervals import of_median, of_seeds
from sparse_embed.experiments.reporting.judging import NOT_HELD, Finding
from sparse_embed.experiments.reporting.selection import Group, NotMeasured

CLOSE = 0.1  # KS distance in units of the activation probability


def evens_out(records: list[Record]) -> Finding:
    """F and the relaxed F leave p2 higher than l1 does, when p1 has fallen from 0.4 to 0.1."""
    del records
    left = {name: trajectory.second_probability(name, 0.1) for name in trajectory.CURVES}
    held = min(left["flops"], left["relaxed_flops"]) > left["l1"]
    text = ", ".join(f"{trajectory.CURVES[name][0]} {value:.3f}" for name, value in left.items())
    return Finding(judging.exactly(held), f"when p1 has fallen from 0.4 to 0.1, p2 is: {text}")


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
    return Finding(
        judging.exactly(relaxed < l1),
        f"largest difference of p2 to the path of F, for p1 from 0.35 to 0.05: relaxed F "
        f"{relaxed:.3f}, l1 {l1:.3f}",
    )


def activations_are_gaussian(records: list[Record]) -> Finding:
    """The median KS distance is below a tenth of the activation probability."""
    findings = []
    for record in cdf.points(records):
        relative = selection.arrays(record, "relative_distances")["relative_distances"]
        interval = of_median(relative)
        text = f"{record['architecture']}: median distance {record['ks_distance']:.4f}, "
        text += f"relative to the activation probability {interval:.1%}"
        findings.append(Finding(judging.below(interval, CLOSE), text))
    outcome, numbers = judging.together(findings)
    if outcome != NOT_HELD and len(findings) < 2:
        raise NotMeasured(f"{numbers}; this run has only one architecture")
    return Finding(outcome, f"{numbers} (close: below {CLOSE:.0%})")


def _ratios(group: Group, seed: int) -> tuple[float, np.ndarray]:
    """Returns p and the sub-optimality ratio of one seed."""
    record = group.records[seed]
    return record["activation_probability"], np.array(record["suboptimality_ratio"])


def evenly_spread(records: list[Record]) -> Finding:
    """At equal activation probability the ratio of relaxed FLOPs is below that of l1."""
    methods = ("flops", "l1")

    def judge(part: list[Group]) -> Finding:
        found = []
        for seed in sorted({seed for group in part for seed in group.records}):
            ours, theirs = (
                [_ratios(g, seed) for g in part if g["method"] == method and seed in g.records]
                for method in methods
            )
            if ours and theirs:
                found.append(judging.advantage(ours, theirs, beyond=True))
        if not found:
            raise NotMeasured("relaxed FLOPs and l1 have no seed in common")
        interval = of_seeds(np.array(found, float))
        ranges = ", ".join(
            f"{method} {min(ratios):.3f} to {max(ratios):.3f}"
            for method in methods
            if (ratios := [g["suboptimality_ratio"] for g in part if g["method"] == method])
        )
        text = f"{measures.told_seeds(interval.seeds)}: ratios {ranges}; FLOPs less l1 at equal p"
        return judging.apart(judging.below(interval), interval, f"{text} {interval:+.3f}")

    return judging.each(
        suboptimality.points(records, *methods), "sparse codes' spread", methods, judge
    )


def gap_grows(records: list[Record]) -> Finding:
    """The sparsest weight of l1 has a higher ratio than the least sparse one."""

    def judge(part: list[Group]) -> Finding:
        found = []
        l1 = selection.select(part, method="l1")
        for seed in sorted({seed for group in l1 for seed in group.records}):
            ratios = sorted(_ratios(group, seed) for group in l1 if seed in group.records)
            if len(ratios) > 1:
                found.append(ratios[0][1] - ratios[-1][1])
        if not found:
            raise NotMeasured("this run has only one weight of l1")
        interval = of_seeds(np.array(found))
        text = f"{measures.told_seeds(interval.seeds)}: ratio of the sparsest l1 less that of the "
        text += "least sparse"
        return judging.apart(judging.above(interval), interval, f"{text} {interval:+.3f}")

    return judging.each(suboptimality.points(records, "l1"), "sparse codes' spread", ("l1",), judge)
