"""What Prometheus reads at /metrics."""

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_BATCHES = (1, 2, 4, 8, 16, 32)


class Metrics:
    """The metrics of one service, with a registry of their own.

    Attributes:
        requests: how many were answered, by route and status.
        seconds: from a request to its answer, by route.
        stages: seconds of decoding, waiting, encoding, searching and re-ranking.
        batches: how many queries shared a batch.
        in_flight: requests that are being answered.
        rows: of the collection.
    """

    def __init__(self, rows: int):
        self._registry = CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self._registry)
        self.requests = Counter(
            "sparse_embed_requests",
            "Requests answered.",
            ["route", "status"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "sparse_embed_request_seconds",
            "Seconds from a request to its answer.",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.stages = Histogram(
            "sparse_embed_stage_seconds",
            "Seconds of each stage of a query.",
            ["stage"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.batches = Histogram(
            "sparse_embed_batch_queries",
            "Queries that shared a batch.",
            buckets=_BATCHES,
            registry=self._registry,
        )
        self.in_flight = Gauge(
            "sparse_embed_in_flight", "Requests being answered.", registry=self._registry
        )
        self.rows = Gauge("sparse_embed_rows", "Rows that are searched.", registry=self._registry)
        self.rows.set(rows)

    def text(self) -> bytes:
        """Returns all of them in the text format of Prometheus."""
        return prometheus_client.generate_latest(self._registry)
