"""Verification: do two images show one identity? The protocol of LFW, AgeDB-30 and the like.

Pairs are scored by the dot product of their unit-norm embeddings (the paper's appendix, "FPR and
TPR curves") and called the same where the score reaches a threshold.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse

from sparse_embed.common.checks import check_number
from sparse_embed.retrieval.inputs import Matrix
from sparse_embed.retrieval.metrics import check_labels, check_unit_norm

FARS = (1e-3, 1e-2, 1e-1)


class Roc(NamedTuple):
    """The FPR-TPR curve: one point per threshold, from "nothing is the same" on.

    Attributes:
        thresholds: falling: +inf, then each score that occurs.
        fpr: fraction of the pairs of different identities that reach the threshold (FAR).
        tpr: fraction of the pairs of one identity that reach it (TAR).
    """

    thresholds: np.ndarray
    fpr: np.ndarray
    tpr: np.ndarray


class Verification(NamedTuple):
    """The result of `verification`.

    Attributes:
        accuracy: mean over the folds of the accuracy with the threshold chosen on the others.
        accuracy_std: its standard deviation over the folds.
        fold_accuracies: (folds,).
        fold_thresholds: (folds,).
        val_at_far: {far: (VAL, its standard deviation, FAR)}: mean TAR and FAR of the folds with
            the lowest threshold whose FAR on the other folds is at most `far`.
        tar_at_far: {far: TAR}: the highest TAR of the curve over all pairs at a FAR of at most
            `far`.
        roc: the curve over all pairs.
        scores: (pairs,) float32, from which all of it can be computed again.
    """

    accuracy: float
    accuracy_std: float
    fold_accuracies: np.ndarray
    fold_thresholds: np.ndarray
    val_at_far: dict[float, tuple[float, float, float]]
    tar_at_far: dict[float, float]
    roc: Roc
    scores: np.ndarray


def verification(
    embeddings: Matrix,
    same: np.ndarray,
    flipped: Matrix | None = None,
    folds: int = 10,
    fars: Sequence[float] = FARS,
) -> Verification:
    """Evaluates pairs of embeddings, dense or sparse.

    Args:
        embeddings: (2 * pairs, d) unit-norm rows: rows 2i and 2i + 1 are pair i, as in the packs.
        same: (pairs,) bool, whether a pair is of one identity.
        flipped: embeddings of the mirrored images; each row is then the sum of both, normalised
            again ("flip-sum").
        folds: number of folds, which are consecutive pairs in parts as equal as possible.
        fars: false accept rates at which to report.

    Raises:
        ValueError: arguments do not fit each other, rows are not of unit norm, or all folds but one
            hold pairs of only one kind.
    """
    scores = pair_scores(embeddings, flipped)
    same = check_labels("same", same, len(scores), "pairs, two rows of embeddings each,")
    return verification_of_scores(scores, same, folds, fars)


def pair_scores(embeddings: Matrix, flipped: Matrix | None = None) -> np.ndarray:
    """The scores of pairs of rows 2i and 2i + 1, (pairs,) float32; see `verification`."""
    if embeddings.ndim != 2 or embeddings.shape[0] % 2 or not embeddings.shape[0]:
        raise ValueError(
            f"embeddings of shape {embeddings.shape}: expected two rows per pair, and at least one "
            "pair"
        )
    check_unit_norm("embeddings", embeddings)
    rows = embeddings
    if flipped is not None:
        if flipped.shape != embeddings.shape:
            raise ValueError(f"flipped of shape {flipped.shape}: expected {embeddings.shape}")
        check_unit_norm("flipped", flipped)
        rows = embeddings + flipped
    if scipy.sparse.issparse(rows):
        rows = scipy.sparse.csr_array(rows)
        squares = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
        products = np.asarray(rows[::2].multiply(rows[1::2]).sum(axis=1)).ravel()
    else:
        rows = np.asarray(rows, np.float32)
        squares = np.einsum("ij,ij->i", rows, rows)
        products = np.einsum("ij,ij->i", rows[::2], rows[1::2])
    if flipped is None:
        return products.astype(np.float32)
    lengths = np.sqrt(squares[::2] * squares[1::2])
    return np.where(lengths > 0, products / np.where(lengths > 0, lengths, 1), 0).astype(np.float32)


def verification_of_scores(
    scores: np.ndarray, same: np.ndarray, folds: int = 10, fars: Sequence[float] = FARS
) -> Verification:
    """Returns the result of `verification` from the scores of the pairs."""
    scores = np.asarray(scores)
    same = check_labels("same", same, len(scores), "scores")
    if same.dtype != bool:
        raise ValueError(f"same has dtype {same.dtype}: expected bool")
    check_number("folds", folds, integer=True, minimum=2, maximum=max(2, len(scores)))
    for far in fars:
        check_number("fars", far, minimum=0, maximum=1)
    parts = np.array_split(np.arange(len(scores)), folds)
    accuracies, thresholds = np.empty(folds), np.empty(folds)
    at_far = np.empty((len(fars), folds, 2))
    for fold, held in enumerate(parts):
        others = np.delete(np.arange(len(scores)), held)
        if same[others].all() or not same[others].any():
            raise ValueError(
                f"same: all pairs outside fold {fold} are of one kind: expected both, to choose a "
                "threshold"
            )
        thresholds[fold] = best_threshold(scores[others], same[others])
        accuracies[fold] = np.mean((scores[held] >= thresholds[fold]) == same[held])
        curve = roc(scores[others], same[others])
        for row, far in enumerate(fars):
            accepted = scores[held] >= curve.thresholds[curve.fpr <= far][-1]
            at_far[row, fold] = _mean(accepted[same[held]]), _mean(accepted[~same[held]])
    whole = roc(scores, same)
    return Verification(
        float(accuracies.mean()),
        float(accuracies.std()),
        accuracies,
        thresholds,
        {
            float(far): (
                float(np.nanmean(values[:, 0])),
                float(np.nanstd(values[:, 0])),
                float(np.nanmean(values[:, 1])),
            )
            for far, values in zip(fars, at_far, strict=True)
        },
        {float(far): float(whole.tpr[whole.fpr <= far][-1]) for far in fars},
        whole,
        scores.astype(np.float32),
    )


def best_threshold(scores: np.ndarray, same: np.ndarray) -> float:
    """The threshold of highest accuracy: half-way between two neighbouring scores.

    The highest of several equally good ones. It lies below all scores, or above them, if it is best
    to call every pair, or none, the same.
    """
    curve = roc(scores, same)
    right = curve.tpr * same.sum() - curve.fpr * (~same).sum()
    best = int(np.argmax(np.round(right)))
    below = np.append(curve.thresholds[1:], -np.inf)[best]
    return float((curve.thresholds[best] + below) / 2)


def roc(scores: np.ndarray, same: np.ndarray) -> Roc:
    """The FPR-TPR curve of scored pairs, some of one identity and some not."""
    if same.all() or not same.any():
        raise ValueError("same: expected pairs of one identity and of two, got only one kind")
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))  # of equal scores
    accepted_same = np.cumsum(same[order])[last]
    accepted_other = last + 1 - accepted_same
    return Roc(
        np.concatenate([[np.inf], ordered[last]]),
        np.concatenate([[0.0], accepted_other / (~same).sum()]),
        np.concatenate([[0.0], accepted_same / same.sum()]),
    )


def _mean(flags: np.ndarray) -> float:
    """The fraction of true values, NaN without any: a fold may have pairs of only one kind."""
    return float(flags.mean()) if len(flags) else float("nan")
