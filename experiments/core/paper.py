"""The paper's table of CIFAR-100 (appendix "Cifar-100 results"), and the models that make ours.

There are three series of our own: models with the paper's network and loss (the presets
`cifar100_<row>`), and models within a CPU's reach, with ReLU (`cifar100_fast_<row>`) and with the
paper's activation (`cifar100_fast_soft_<row>`).
"""

from typing import NamedTuple

DENSE = "dense"  # the row that others start from
METRICS = (
    "flops_per_row",
    "precision_at_4_train",
    "precision_at_16_train",
    "precision_at_4_test",
    "precision_at_16_test",
)


class PaperRow(NamedTuple):
    """A row of the paper's table: title, and numbers in the order of METRICS, in percent."""

    title: str
    metrics: tuple[float, ...]


PAPER = {
    DENSE: PaperRow("dense", (64, 61.53, 61.26, 57.31, 56.95)),
    "sdh_k1": PaperRow("SDH k=1", (1.18, 62.29, 61.94, 57.22, 55.87)),
    "sdh_k2": PaperRow("SDH k=2", (3.95, 60.93, 60.15, 55.98, 54.42)),
    "sdh_k3": PaperRow("SDH k=3", (8.82, 60.80, 59.96, 55.81, 54.10)),
    "flops": PaperRow("relaxed FLOPs", (0.40, 61.05, 61.08, 55.23, 55.21)),
    "l1": PaperRow("l1", (0.47, 60.50, 60.17, 54.32, 54.96)),
}


class Series(NamedTuple):
    """Our models of some rows: `prefix` and a row's name are a model's name."""

    prefix: str
    network: str
    rows: tuple[str, ...] = tuple(PAPER)

    @property
    def models(self) -> list[str]:
        """Names of the models, in the order of the rows."""
        return [self.prefix + row for row in self.rows]


OWN = Series("", "network in network")  # as in the paper
FAST = Series("fast_", "haarnet")
SOFT = Series("fast_soft_", "haarnet, soft threshold", ("flops", "l1"))
SERIES = (OWN, FAST, SOFT)
