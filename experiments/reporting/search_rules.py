"""Rules of the claims about identification: recall and time per query (docs/claims.md)."""

from typing import Any

from sparse_embed.experiments.core.records import Record
from sparse_embed.experiments.reporting import judging, measures, selection
from sparse_embed.experiments.reporting.figures import tradeoff
from sparse_embed.experiments.reporting.intervals import Interval, of_ratio
from sparse_embed.experiments.reporting.judging import HELD, NOT_HELD, UNDECIDED, Finding, name
from sparse_embed.experiments.reporting.measures import recall_difference, time_ratio
from sparse_embed.experiments.reporting.selection import TIME, Group, NotMeasured

SPEEDUP = 50  # of the paper's conclusion
LOSS = 0.01  # of recall@1: allowed "without a significant loss"
TIE = 0.005  # recall@1 that is this much lower counts as the same
LEAST_DISTRACTORS = 100_000  # for a factor of speed, which grows with the rows
RIVALS = ("l1", "sdh", "ivfpq", "lsh", "pca", "dense")  # that the paper compares itself with


def _told(difference: Interval, ratio: Interval) -> str:
    return f"recall difference {difference:+.4f}, time ratio {ratio:.3g}"


def speedup(records: list[Record]) -> Finding:
    """Relaxed FLOPs are 50 times faster than exhaustive search within 0.01 of its recall."""

    def judge(part: list[Group]) -> Finding:
        distractors = part[0]["distractors"]
        if distractors < LEAST_DISTRACTORS:
            raise NotMeasured(
                f"only {distractors:,} distractors were timed: the factor grows with the rows, and "
                f"is judged from {LEAST_DISTRACTORS:,} on"
            )
        dense = max(
            selection.select(part, method="dense"), key=lambda group: group["setting"]["dims"]
        )
        ours = selection.select(part, method="flops")
        found, texts = [], []
        for group in ours:
            difference = recall_difference(group, dense)
            ratio = time_ratio(dense, group)
            if difference.above(-LOSS) and ratio.low >= SPEEDUP:
                found.append(HELD)
            else:
                is_out = difference.below(-LOSS) or ratio.below(SPEEDUP)
                found.append(NOT_HELD if is_out else UNDECIDED)
            texts.append(
                f"{name(group)} {ratio:.3g} times faster, recall difference {difference:+.4f}"
            )
        # One setting is enough.
        outcome = next(word for word in (HELD, UNDECIDED, NOT_HELD) if word in found)
        where = measures.circumstances([dense, *ours])
        return Finding(outcome, f"{where}: against {name(dense)}: {', '.join(texts)}")

    return judging.each(tradeoff.points(records), "timed search", ("dense", "flops"), judge)


def best_tradeoff(records: list[Record]) -> Finding:
    """No rival's setting is as good as one of relaxed FLOPs in less time."""

    def judge(part: list[Group]) -> Finding:
        ours = selection.select(part, method="flops")
        rivals = selection.select(part, method=RIVALS)
        findings = [_against_all(group, rivals) for group in ours]
        outcome, numbers = judging.together(findings)
        return Finding(outcome, f"{measures.circumstances([*ours, *rivals])}: {numbers}")

    return judging.each(tradeoff.points(records), "timed search", ("flops", "ivfpq"), judge)


def _against_all(group: Group, rivals: list[Group]) -> Finding:
    """Judges that no rival beats a setting."""
    beaten, open_against = [], []
    for rival in rivals:
        difference, ratio = recall_difference(rival, group), time_ratio(rival, group)
        if difference.above(-TIE) and ratio.below(1):
            beaten.append(f"{name(rival)} ({_told(difference, ratio)})")
        elif not (difference.below(0) or ratio.above(1)):
            open_against.append(f"{name(rival)} ({_told(difference, ratio)})")
    if beaten:
        return Finding(NOT_HELD, f"{name(group)} beaten by {', '.join(beaten)}")
    if open_against:
        return Finding(UNDECIDED, f"{name(group)} undecided against {', '.join(open_against)}")
    return Finding(HELD, f"{name(group)} unbeaten")


def sdh_is_poor(records: list[Record]) -> Finding:
    """Each setting of SDH is beaten by one of relaxed FLOPs, in recall and in time."""

    def judge(part: list[Group]) -> Finding:
        ours = selection.select(part, method="flops")
        sdh = selection.select(part, method="sdh")
        findings = [_is_beaten(group, ours) for group in sdh]
        outcome, numbers = judging.together(findings)
        return Finding(outcome, f"{measures.circumstances([*ours, *sdh])}: {numbers}")

    return judging.each(tradeoff.points(records), "timed search", ("flops", "sdh"), judge)


def _is_beaten(poor: Group, rivals: list[Group]) -> Finding:
    """Judges that some rival beats a setting."""
    possible = []
    for rival in rivals:
        difference, ratio = recall_difference(rival, poor), time_ratio(rival, poor)
        text = f"{name(rival)} ({_told(difference, ratio)})"
        if difference.above(0) and ratio.below(1):
            return Finding(HELD, f"{name(poor)} beaten by {text}")
        if not (difference.below(0) or ratio.above(1)):
            possible.append(text)
    if possible:
        return Finding(UNDECIDED, f"{name(poor)} perhaps beaten by {', '.join(possible)}")
    return Finding(NOT_HELD, f"{name(poor)} beaten by none")


def pq_leads(records: list[Record]) -> Finding:
    """IVF-PQ is faster than LSH and PCA within 0.01 of the best recall of the three."""
    methods = ("ivfpq", "lsh", "pca")

    def judge(part: list[Group]) -> Finding:
        compared = selection.select(part, method=methods)
        best = max(compared, key=lambda group: group["recall_at_1"])
        to_best = [(group, recall_difference(group, best)) for group in compared]
        sure = [group for group, difference in to_best if difference.above(-LOSS)]
        perhaps = [group for group, difference in to_best if not difference.below(-LOSS)]
        findings = [_is_faster("ivfpq", rival, sure, perhaps) for rival in methods[1:]]
        outcome, numbers = judging.together(findings)
        where = measures.circumstances(compared)
        return Finding(outcome, f"{where}: within {LOSS} of {name(best)}: {numbers}")

    return judging.each(tradeoff.points(records), "timed search", methods, judge)


def _is_faster(ours: str, rival: str, sure: list[Group], perhaps: list[Group]) -> Finding:
    """Judges that a method reaches a goal faster than a rival.

    Args:
        ours: the method.
        rival: the rival.
        sure: settings of all methods that surely reach it.
        perhaps: settings that perhaps do, those included.
    """

    def fastest(method: str, among: list[Group]) -> Group | None:
        found = selection.select(among, method=method)
        return min(found, key=lambda group: group[TIME], default=None)

    our_sure, our_perhaps = fastest(ours, sure), fastest(ours, perhaps)
    their_sure, their_perhaps = fastest(rival, sure), fastest(rival, perhaps)
    if our_perhaps is None:
        return Finding(NOT_HELD, f"{ours} never reaches it")
    if their_perhaps is None:
        return Finding(HELD if our_sure else UNDECIDED, f"{rival} never reaches it")
    if our_sure is not None:
        ratio = time_ratio(our_sure, their_perhaps)
        if ratio.below(1):
            text = f"{name(our_sure)} takes {ratio:.3g} of the time of {name(their_perhaps)}"
            return Finding(HELD, text)
    ratio = time_ratio(our_perhaps, their_sure or their_perhaps)
    lost = their_sure is not None and ratio.above(1)
    other = name(their_sure or their_perhaps)
    text = f"{name(our_perhaps)} takes {ratio:.3g} of the time of {other}"
    return Finding(NOT_HELD if lost else UNDECIDED, text)


def beats_l1(records: list[Record]) -> Finding:
    """Relaxed FLOPs find more than l1 at equal multiply-adds per row, re-ranked."""
    methods = ("flops", "l1")
    found = selection.sparse_identification(records, reranked=True, method=methods)
    groups = selection.groups(selection.most_seeds(found, *methods))

    def judge(part: list[Group]) -> Finding:
        ours, theirs = (selection.select(part, method=method) for method in methods)
        interval = advantage(ours, theirs)
        text = f"{measures.circumstances(part)}: recall@1 of FLOPs less l1 at equal F"
        return judging.apart(judging.above(interval), interval, f"{text} {interval:+.4f}")

    return judging.each(groups, "re-ranked sparse search", methods, judge)


def advantage(ours: list[Group], theirs: list[Group], beyond: bool = False) -> Interval:
    """Returns recall@1 of a method less that of another at equal F.

    The other's is interpolated in log F, class by class and seed by seed.

    Args:
        ours: settings of the method, over which the mean is taken.
        theirs: settings of the other method.
        beyond: see `judging.advantage`.
    """
    found = []
    for seed in sorted({seed for group in ours for seed in group.records}):
        our_counts, their_counts = _counts(ours, seed), _counts(theirs, seed)
        if not our_counts or not their_counts:
            continue
        measures.check_probes([counts for _, counts in [*our_counts, *their_counts]])
        our_points = [(cost, counts.hits) for cost, counts in our_counts]
        their_points = [(cost, counts.hits) for cost, counts in their_counts]
        difference = judging.advantage(our_points, their_points, beyond)
        if difference is not None:
            found.append(our_counts[0][1]._replace(hits=difference))
    if not found:
        raise NotMeasured("no setting has an F within the range of the other method")
    return of_ratio(*measures.stack(found))


def _counts(found: list[Group], seed: int) -> list[tuple[float, measures.Counts]]:
    """Returns F and the counts of the settings that have a seed."""
    records = [group.records[seed] for group in found if seed in group.records]
    return [(record["flops_per_row"], measures.counts(record)) for record in records]


def reranking_helps(records: list[Record]) -> Finding:
    """Re-ranking raises the recall of every setting that was trained sparse."""
    methods = ("flops", "l1")
    found = selection.sparse_identification(records, method=methods)
    kinds = [{_key(r) for r in selection.select(found, reranked=kind)} for kind in (True, False)]
    both = [record for record in found if _key(record) in kinds[0] & kinds[1]]
    if not both:
        raise NotMeasured("this run has no sparse setting both with and without re-ranking")
    groups = selection.groups(selection.most_seeds(both))

    def judge(part: list[Group]) -> Finding:
        findings = []
        for group in selection.select(part, reranked=True):
            same = {key: group[key] for key in ("data", "method", "setting")}
            (alone,) = selection.select(part, reranked=False, **same)
            difference = recall_difference(group, alone)
            findings.append(Finding(judging.above(difference), f"{name(group)} {difference:+.4f}"))
        outcome, numbers = judging.together(findings)
        text = f"{measures.circumstances(part)}: recall@1 re-ranked less alone: {numbers}"
        return Finding(outcome, text)

    return judging.each(groups, "sparse search", (), judge)


def _key(record: Record) -> tuple[Any, ...]:
    """What two records share if one is the other re-ranked."""
    setting = tuple(sorted(record["setting"].items()))
    keys = ("architecture", "data", "method", "distractors")
    return (*(record[key] for key in keys), selection.seed(record), setting)
