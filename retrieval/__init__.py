"""Exact sparse search, dense re-ranking, the baselines, and metrics of sparsity."""

from sparse_embed.retrieval.algorithm1 import Algorithm1, algorithm1_search
from sparse_embed.retrieval.baselines import BASELINES, Baseline
from sparse_embed.retrieval.dense import DenseSearch
from sparse_embed.retrieval.faiss_search import HNSWSearch, IVFPQSearch, LSHSearch
from sparse_embed.retrieval.index import SparseIndex
from sparse_embed.retrieval.megaface import megaface_recall
from sparse_embed.retrieval.metrics import precision_at_k, recall_at_k
from sparse_embed.retrieval.pair_verification import verification
from sparse_embed.retrieval.pca import PCASearch
from sparse_embed.retrieval.protocol import Search
from sparse_embed.retrieval.rerank import Reranker, TwoStage
from sparse_embed.retrieval.sdh import SDHSearch, hash_codes
from sparse_embed.retrieval.sharded_index import (
    OverloadedError,
    ShardedIndex,
    ShardHealth,
    ShardUnavailableError,
)
from sparse_embed.retrieval.sparsity import (
    activation_probability,
    flops_per_row,
    sparsity_metrics,
    suboptimality_ratio,
)
from sparse_embed.retrieval.truncation import keep_largest

__all__ = [
    "BASELINES",
    "Algorithm1",
    "Baseline",
    "DenseSearch",
    "HNSWSearch",
    "IVFPQSearch",
    "LSHSearch",
    "OverloadedError",
    "PCASearch",
    "Reranker",
    "SDHSearch",
    "Search",
    "ShardHealth",
    "ShardUnavailableError",
    "ShardedIndex",
    "SparseIndex",
    "TwoStage",
    "activation_probability",
    "algorithm1_search",
    "flops_per_row",
    "hash_codes",
    "keep_largest",
    "megaface_recall",
    "precision_at_k",
    "recall_at_k",
    "sparsity_metrics",
    "suboptimality_ratio",
    "verification",
]
