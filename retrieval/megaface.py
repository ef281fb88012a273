"""Identification among distractors: MegaFace's protocol, and the variant of the paper's authors.

A probe is searched among a million distractors and one more image of its own identity, its mate;
each other image of the identity is the mate in turn. The rank of the mate is the number of
distractors that score higher: a distractor of the very same score does not count. Recall@k is the
fraction of ranks below k. Other mates and images of other identities take no part.

All mates of a probe are found in one search. The database holds the probes themselves first and the
distractors after them, so that a mate precedes distractors of equal score ("ties by lower id").
Results that are neither distractors nor mates are dropped, and the search is repeated for more
results while too few distractors are left.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from sparse_embed.common.checks import check_choice, check_number
from sparse_embed.common.progress import progress_bar
from sparse_embed.retrieval.dense import DenseSearch
from sparse_embed.retrieval.index import SparseIndex
from sparse_embed.retrieval.inputs import Matrix
from sparse_embed.retrieval.metrics import check_labels, check_unit_norm
from sparse_embed.retrieval.protocol import Search
from sparse_embed.retrieval.protocol import shortlist as first_stage
from sparse_embed.retrieval.rerank import Reranker

KS = (1, 10, 50, 100)
NOT_FOUND = np.iinfo(np.int32).max  # rank of a mate that is not on the shortlist
PROTOCOLS = ("official", "authors")
_BATCH = 64  # probes per search


class PairRanks(NamedTuple):
    """The outcome of an identification: a rank for each ordered pair of probe and mate.

    Attributes:
        probes: (pairs,) int32 row of the probe, ascending.
        mates: (pairs,) int32 row of the mate.
        ranks: (pairs,) int32, distractors that score higher; `NOT_FOUND` off the shortlist.
        reranked: the same after re-ranking, None without.
    """

    probes: np.ndarray
    mates: np.ndarray
    ranks: np.ndarray
    reranked: np.ndarray | None


def identification_ranks(
    index: Search,
    probes: Matrix,
    labels: np.ndarray,
    *,
    shortlist: int | None = 1000,
    threshold: float | None = None,
    reranker: Reranker | None = None,
    dense_probes: np.ndarray | None = None,
    without_mate: str = "raise",
    num_threads: int = 1,
    progress: bool = False,
) -> PairRanks:
    """Ranks each mate of each probe among the distractors.

    For each probe and mate, the database is the distractors and that mate. The shortlist holds the
    rows that reach the threshold, at most `shortlist` of them; a mate outside is not found. A
    re-ranker, if given, then scores the rows of the shortlist too.

    Args:
        index: holds the probes in their order as rows 0 to n - 1, and the distractors after them.
        probes: the queries of the probes, (n, d), as the index takes them.
        labels: (n,) identity of each probe.
        shortlist: longest shortlist; the paper's is 1000. None takes all `candidates` of an index
            that has them, such as `SDHSearch`.
        threshold: lowest score on the shortlist, None for any; the paper's is 0.25.
        reranker: dense embeddings of the rows of the index.
        dense_probes: dense embeddings of the probes; goes with `reranker`.
        without_mate: "raise" if an identity has only one probe, or "skip" such probes.
        num_threads: threads of the searches.
        progress: whether to show a progress bar.
    """
    labels = check_labels("labels", labels, probes.shape[0], "probes")
    if shortlist is not None:
        check_number("shortlist", shortlist, integer=True, minimum=1)
    count, rows = len(labels), index.shape[0]
    if rows <= count:
        raise ValueError(
            f"index has {rows} rows and probes {count}: expected the probes and distractors"
        )
    if (reranker is None) != (dense_probes is None):
        raise ValueError("reranker, dense_probes: expected both or neither, one of them is None")
    if reranker is not None and reranker.shape[0] != rows:
        raise ValueError(f"reranker has {reranker.shape[0]} rows: expected {rows}, as in the index")
    if dense_probes is not None and len(dense_probes) != count:
        raise ValueError(f"dense_probes has {len(dense_probes)} rows: expected {count}, as probes")
    pairs = _pairs(labels, check_choice("without_mate", without_mate, ["raise", "skip"]))
    if reranker is not None:
        pairs = pairs._replace(reranked=pairs.ranks.copy())
    searched, firsts = np.unique(pairs.probes, return_index=True)
    bounds = np.append(firsts, len(pairs.probes))
    own = {probe: slice(*bounds[i : i + 2]) for i, probe in enumerate(searched.tolist())}
    width = None if shortlist is None else shortlist + 2 * int(np.diff(bounds).max())
    starts = range(0, len(searched), _BATCH)
    for start in progress_bar(starts, desc="identification", unit="batch", disable=not progress):
        batch = searched[start : start + _BATCH]
        for some, scores, ids in _shortlists(
            index, probes, labels, batch, shortlist, threshold, width, num_threads
        ):
            places = [own[probe] for probe in some.tolist()]
            _count_higher(pairs.mates, pairs.ranks, places, scores, ids, count)
            if reranker is not None and dense_probes is not None and pairs.reranked is not None:
                found = reranker.rerank(dense_probes[some], ids, ids.shape[1], num_threads)
                _count_higher(pairs.mates, pairs.reranked, places, *found, count)
    return pairs


def _count_higher(
    mates: np.ndarray,
    ranks: np.ndarray,
    places: Sequence[slice],
    scores: np.ndarray,
    ids: np.ndarray,
    count: int,
) -> None:
    """Sets the ranks of the mates among the ids; row i of the ids belongs to places[i]."""
    for own, row_scores, row_ids in zip(places, scores, ids, strict=True):
        is_mate = (row_ids >= 0) & (row_ids < count)
        rivals = np.sort(row_scores[row_ids >= count])
        higher = len(rivals) - np.searchsorted(rivals, row_scores[is_mate], side="right")
        order = np.argsort(row_ids[is_mate])
        ranks[own][np.isin(mates[own], row_ids[is_mate])] = higher[order]  # mates ascend


def _pairs(labels: np.ndarray, without_mate: str) -> PairRanks:
    """All ordered pairs of one identity, by probe, then by mate, none of them found yet."""
    order = np.argsort(labels, kind="stable")
    _, first, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    if without_mate == "raise" and (sizes == 1).any():
        alone = order[first[np.argmax(sizes == 1)]]
        raise ValueError(
            f"labels: probe {alone} (identity {labels[alone]}) has no mate, and "
            f"{np.sum(sizes == 1) - 1} others have none; remove them, or pass without_mate='skip'"
        )
    if (sizes == 1).all():
        raise ValueError("labels: no probe has a mate, so nothing can be ranked")
    members = np.split(order, first[1:])
    groups = [members[group] for group in np.flatnonzero(sizes > 1)]
    probes = np.concatenate([np.repeat(group, len(group)) for group in groups])
    mates = np.concatenate([np.tile(group, len(group)) for group in groups])
    by_probe = np.lexsort((mates, probes))
    by_probe = by_probe[probes[by_probe] != mates[by_probe]]
    ranks = np.full(len(by_probe), NOT_FOUND, np.int32)
    probes, mates = probes[by_probe].astype(np.int32), mates[by_probe].astype(np.int32)
    return PairRanks(probes, mates, ranks, None)


def _shortlists(
    index: Search,
    probes: Matrix,
    labels: np.ndarray,
    batch: np.ndarray,
    shortlist: int | None,
    threshold: float | None,
    width: int | None,
    num_threads: int,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields (probes, scores, ids): each mate and the distractors that share a shortlist with it.

    A shortlist with a mate on it has room for one distractor less. All other places are -1.
    """
    count, rows = len(labels), index.shape[0]
    longest = rows if shortlist is None else shortlist
    while len(batch):
        if width is not None:
            width = min(width, rows)
        scores, ids = first_stage(index, probes[batch], width, threshold, num_threads)
        is_distractor = ids >= count
        ahead = np.cumsum(is_distractor, axis=1)  # itself included
        # Everything is known once there are enough distractors, or nothing more to find.
        whole = (ahead[:, -1] >= longest) | (ids[:, -1] < 0) | (width in (None, rows))
        is_mate = ~is_distractor & (ids >= 0) & (ids != batch[:, None])
        is_mate &= labels[ids.clip(0, count - 1)] == labels[batch, None]
        kept = (is_distractor | is_mate) & (ahead < longest)
        if whole.any():
            yield batch[whole], scores[whole], np.where(kept, ids, -1)[whole]
        batch = batch[~whole]
        width = width and 4 * width


def recall_of_ranks(
    pairs: PairRanks,
    ks: Sequence[int] = KS,
    protocol: str = "official",
    reranked: bool = False,
) -> dict[int, float]:
    """Recall@k for each k, by one of two protocols.

    - "official", MegaFace's: the fraction of all ordered pairs whose rank is below k (micro
      average). As a function of k it is the CMC curve.
    - "authors", from the code of the paper's authors: per probe, the fraction of its identity's
      images whose rank is below k, the probe itself included and always found; averaged over the
      probes (macro average). With m mates per probe it is (1 + m * official) / (1 + m). (Their code
      also appends the mates that are not on the shortlist; here they are not found.)

    `reranked` takes the ranks after re-ranking.
    """
    ranks = pairs.reranked if reranked else pairs.ranks
    if ranks is None:
        raise ValueError("reranked=True: pairs were not re-ranked")
    check_choice("protocol", protocol, PROTOCOLS)
    for k in ks:
        check_number("ks", k, integer=True, minimum=1)
    _, starts, mates = np.unique(pairs.probes, return_index=True, return_counts=True)
    recalls = {}
    for k in ks:
        hits = ranks < k
        if protocol == "official":
            recalls[int(k)] = float(np.mean(hits))
        else:
            recalls[int(k)] = float(np.mean((1 + np.add.reduceat(hits, starts)) / (1 + mates)))
    return recalls


def megaface_recall(
    probes: Matrix,
    labels: np.ndarray,
    distractors: Matrix,
    ks: Sequence[int] = KS,
    protocol: str = "official",
    *,
    shortlist: int = 1000,
    threshold: float | None = None,
    dense_probes: np.ndarray | None = None,
    dense_distractors: np.ndarray | None = None,
    noisy_probes: np.ndarray | None = None,
    noisy_distractors: np.ndarray | None = None,
    without_mate: str = "raise",
    progress: bool = False,
) -> dict[int, float]:
    """Recall@k of exact search for embeddings, dense or sparse, by MegaFace's protocol.

    Memory holds the embeddings in one matrix and their index; probes are searched in batches.
    For other searches, `identification_ranks` and `recall_of_ranks` are the parts of this function.

    Args:
        probes: (n, d) unit-norm embeddings.
        labels: (n,) identity of each probe.
        distractors: (m, d) unit-norm embeddings.
        ks: the k of each recall@k, at most `shortlist`.
        protocol: "official" or "authors", see `recall_of_ranks`.
        shortlist: see `identification_ranks`; ranks are counted up to here.
        threshold: see `identification_ranks`; the paper's is 0.25.
        dense_probes: dense embeddings of the probes, to re-rank with.
        dense_distractors: dense embeddings of the distractors.
        noisy_probes: (n,) bool, probes to leave out (`datasets.megaface.noisy_images`).
        noisy_distractors: (m,) bool, distractors to leave out.
        without_mate: "raise" if an identity has only one probe, or "skip" such probes.
        progress: whether to show a progress bar.

    Returns:
        {k: recall@k}.

    Raises:
        ValueError: arguments do not fit each other, rows are not of unit norm, an identity has only
            one probe. Zero rows, which sparse encoders can give, are allowed with a threshold above
            0; without one, everything would score the same as their mates.
    """
    if max(ks, default=1) > shortlist:
        raise ValueError(f"ks={tuple(ks)}: expected at most shortlist={shortlist}")
    labels = check_labels("labels", labels, probes.shape[0], "probes")
    keep = _kept("noisy_probes", noisy_probes, probes.shape[0])
    database = _database("probes", probes, "distractors", distractors, keep, noisy_distractors)
    check_unit_norm("probes and distractors", database, threshold is not None and threshold > 0)
    index = (
        SparseIndex.build(database) if scipy.sparse.issparse(database) else DenseSearch(database)
    )
    reranker = None
    if dense_probes is not None and dense_distractors is not None:
        for name, dense, rows in (
            ("dense_probes", dense_probes, probes.shape[0]),
            ("dense_distractors", dense_distractors, distractors.shape[0]),
        ):
            if len(dense) != rows:
                raise ValueError(f"{name} has {len(dense)} rows: expected {rows}")
        dense = _database(
            "dense_probes",
            dense_probes,
            "dense_distractors",
            dense_distractors,
            keep,
            noisy_distractors,
        )
        check_unit_norm("dense_probes and dense_distractors", dense)
        reranker = Reranker(dense)
        dense_probes = dense_probes[keep]
    elif dense_probes is not None or dense_distractors is not None:
        raise ValueError(
            "dense_probes, dense_distractors: expected both or neither, one of them is None"
        )
    pairs = identification_ranks(
        index,
        probes[keep],
        labels[keep],
        shortlist=shortlist,
        threshold=threshold,
        reranker=reranker,
        dense_probes=dense_probes,
        without_mate=without_mate,
        progress=progress,
    )
    return recall_of_ranks(pairs, ks, protocol, reranked=reranker is not None)


def _kept(name: str, noisy: np.ndarray | None, rows: int) -> np.ndarray:
    """Rows that are not noisy."""
    if noisy is None:
        return np.arange(rows)
    noisy = np.asarray(noisy)
    if noisy.shape != (rows,) or noisy.dtype != bool:
        raise ValueError(
            f"{name} has dtype {noisy.dtype} and shape {noisy.shape}: expected bool ({rows},)"
        )
    return np.flatnonzero(~noisy)


def _database(
    name: str,
    probes: Matrix,
    more_name: str,
    distractors: Matrix,
    keep: np.ndarray,
    noisy_distractors: np.ndarray | None,
) -> Any:
    """Probes and distractors, without the noisy ones, as one matrix."""
    if distractors.shape[0] == 0:
        raise ValueError(f"{more_name} has no rows: expected at least one to rank against")
    if probes.ndim != 2 or distractors.ndim != 2 or probes.shape[1] != distractors.shape[1]:
        raise ValueError(
            f"{name} has shape {probes.shape} and {more_name} {distractors.shape}: expected "
            "matrices of the same number of columns"
        )
    if scipy.sparse.issparse(probes) != scipy.sparse.issparse(distractors):
        raise ValueError(f"{name} and {more_name}: expected both sparse or both dense")
    kept = _kept("noisy_distractors", noisy_distractors, distractors.shape[0])
    if scipy.sparse.issparse(probes):
        probes, distractors = scipy.sparse.csr_array(probes), scipy.sparse.csr_array(distractors)
        return scipy.sparse.vstack([probes[keep], distractors[kept]], format="csr")
    return np.concatenate([probes[keep], distractors[kept]])
