"""Options of `reproduce`, by extent."""

import dataclasses

from sparse_embed.common.options import option
from sparse_embed.flags.config import Kinds
from sparse_embed.flags.options import fields

_EXTENT = (
    "How much to reproduce: quick and full on words, rehearsal and paper on the paper's data, its "
    "table of cifar100, or the comparison with one small network."
)


@dataclasses.dataclass(frozen=True)
class Words:
    """Everything in the paper, on words."""

    extent: str = option("quick", _EXTENT, choices=("quick", "full"))
    run_dir: str = fields.run_dir()
    first_seed: int = option(
        0,
        "First of the three seeds that are trained with; another one needs another --run_dir.",
        lower=0,
    )


@dataclasses.dataclass(frozen=True)
class Faces:
    """The paper's own experiments."""

    extent: str = option("paper", _EXTENT, choices=("rehearsal", "paper"))
    run_dir: str = fields.run_dir()
    data_root: str = option("data", "Folder of the data that paper and rehearsal need.")
    cifar100: str | None = option(
        None, "CIFAR-100, archive or folder, if it is not in --data_root."
    )
    lambdas: int | None = option(
        None,
        "How many weights of each regularizer paper and rehearsal train, the smallest ones; by "
        "default paper all, rehearsal 1.",
        lower=1,
    )
    train_flags: tuple[str, ...] = fields.train_flags()


@dataclasses.dataclass(frozen=True)
class Cifar100:
    """The paper's table of CIFAR-100."""

    run_dir: str = fields.run_dir()
    data_dir: str | None = fields.data_dir()
    only: tuple[str, ...] = option(
        (), "Models to train; by default those within a CPU's reach, fast_*."
    )
    train_flags: tuple[str, ...] = fields.train_flags()


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The comparison with one small network."""

    run_dir: str = fields.run_dir()
    drawn_from: str = fields.drawn_from()
    distractors: int = fields.distractors()
    probe_classes: int = fields.probe_classes()
    pair_count: int = fields.pair_count()
    start_steps: int = option(
        500, "Training steps of the run that all encoders start from.", lower=1
    )
    encoder_steps: int = option(500, "Training steps of each encoder after that.", lower=1)
    seeds: int = option(1, "How many times each is trained.", lower=1)
    flops_weights: str = option("30,100", "Weights of the FLOPs penalty.")
    l1_weights: str = option("0.6,1.2", "Weights of the l1 penalty.")
    only: tuple[str, ...] = fields.only()
    train_flags: tuple[str, ...] = fields.train_flags()


OPTIONS = Kinds(
    "extent",
    _EXTENT,
    {
        "quick": Words,
        "full": Words,
        "rehearsal": Faces,
        "paper": Faces,
        "cifar100": Cifar100,
        "comparison": Comparison,
    },
)
