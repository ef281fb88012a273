"""The four verdicts, and how they follow from intervals; docs/claims.md has the rules."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.interpolate import make_interp_spline

from sparse_embed.experiments.reporting import selection
from sparse_embed.experiments.reporting.drawing import look
from sparse_embed.experiments.reporting.intervals import Interval
from sparse_embed.experiments.reporting.selection import Group, NotMeasured

HELD, NOT_HELD, UNDECIDED, NOT_MEASURED = "held", "not held", "undecided", "not measured"
OUTCOMES = (HELD, NOT_HELD, UNDECIDED, NOT_MEASURED)


class Finding(NamedTuple):
    """One of the first three outcomes, and the numbers that decide it."""

    outcome: str
    numbers: str


def above(interval: Interval, limit: float = 0.0) -> str:
    """Judges that a quantity is above a limit."""
    if interval.above(limit):
        return HELD
    return NOT_HELD if interval.below(limit) else UNDECIDED


def below(interval: Interval, limit: float = 0.0) -> str:
    """Judges that a quantity is below a limit."""
    if interval.below(limit):
        return HELD
    return NOT_HELD if interval.above(limit) else UNDECIDED


def exactly(held: bool) -> str:
    """Judges what is computed without an error."""
    return HELD if held else NOT_HELD


def apart(outcome: str, interval: Interval, numbers: str) -> Finding:
    """Judges encoders that were trained apart: one seed decides nothing."""
    if interval.seeds < 2:
        return Finding(UNDECIDED, f"{numbers} (one seed)")
    return Finding(outcome, numbers)


def all_hold(outcomes: Iterable[str]) -> str:
    """Returns the outcome of a claim about several things at once."""
    found = set(outcomes)
    return next(word for word in (NOT_HELD, UNDECIDED, HELD) if word in found)


def together(findings: Sequence[Finding]) -> Finding:
    """Judges a claim that must hold everywhere."""
    numbers = "; ".join(finding.numbers for finding in findings)
    return Finding(all_hold(finding.outcome for finding in findings), numbers)


def each(
    found: list[Group],
    what: str,
    methods: tuple[str, ...],
    judge: Callable[[list[Group]], Finding],
) -> Finding:
    """Judges each architecture that has all the methods; the claim must hold in all of these.

    Args:
        found: groups of all architectures.
        what: they are, for the reason why nothing was measured.
        methods: that the rule needs.
        judge: judges one architecture.
    """
    findings, reasons = [], []
    for architecture, part in selection.by_architecture(found):
        absent = set(methods) - {group["method"] for group in part}
        try:
            for method in sorted(absent):
                selection.needed(part, f"{look(method).label} in {what}", method=method)
            outcome, numbers = judge(part)
            findings.append(Finding(outcome, f"{architecture}, {numbers}"))
        except NotMeasured as reason:
            reasons.append(f"{architecture}: {reason}")
    if not findings:
        raise NotMeasured("; ".join(reasons) or f"this run has no record of {what}")
    return together(findings)


def name(group: Group) -> str:
    """Returns the method and setting of a group."""
    return f"{look(group['method']).label} {selection.setting(group)}"


Points = Sequence[tuple[float, np.ndarray]]
"""Settings of a method: F or p, and what is compared there, a number or an array."""


def advantage(ours: Points, theirs: Points, beyond: bool = False) -> np.ndarray | None:
    """Returns what we have more than they have at equal x, averaged over our settings.

    Theirs is interpolated linearly in log x.

    Args:
        ours: x and y of our settings.
        theirs: x and y of theirs.
        beyond: whether to compare with their nearest setting beyond their range; if not, those of
            our settings are left out.

    Returns:
        The mean; None if none of our settings can be compared.
    """
    x, place = np.unique([np.log(x) for x, _ in theirs], return_index=True)
    y = np.stack([np.asarray(theirs[i][1], float) for i in place])
    differences = []
    for at, value in ours:
        inside = np.clip(np.log(at), x[0], x[-1])
        if beyond or inside == np.log(at):
            other = make_interp_spline(x, y, k=1)(inside) if len(x) > 1 else y[0]
            differences.append(value - other)
    return np.mean(differences, axis=0) if differences else None
