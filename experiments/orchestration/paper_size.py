"""How much of the paper's experiments to run: all, or as little as a rehearsal needs."""

import dataclasses
from collections.abc import Mapping

from sparse_embed.flags.app import preset_flags


@dataclasses.dataclass(frozen=True)
class Size:
    """How much of the paper's experiments to run, and how long that takes.

    Attributes:
        seconds: of a step, about, by network and kind; see `Step`.
        lambdas: how many weights of each regularizer, the smallest ones; None for all.
        steps: of each training run; None for those of its preset.
        batches: batch sizes by network, in place of the preset's.
        images: how many images to fit activations on and, of CIFAR-100, to search among and to
            search for; None for all.
        train_flags: more flags of every training run.
    """

    seconds: Mapping[str, Mapping[str, float]]
    lambdas: int | None = None
    steps: int | None = None
    batches: Mapping[str, int] = dataclasses.field(default_factory=dict)
    images: int | None = None
    train_flags: tuple[str, ...] = ()

    def training_flags(self, preset: str) -> list[str]:
        """Returns the flags that follow a preset."""
        if self.steps is None:
            return list(self.train_flags)
        whole = preset_flags(preset)
        # The curves tell the seconds of each step.
        found = [f"--steps={self.steps}", "--summary_every=1"]
        found.append(f"--batch_size={self.batches[whole['model']]}")
        if int(whole.get("decay_steps", 0)):
            found.append(f"--decay_steps={self.steps - 1}")
        if "warmup_steps" in whole:
            found.append(f"--warmup_steps={self.steps}")
        if "validation" in whole:
            found.append("--validation=2")
        return [*found, *self.train_flags]


# Guesses for 4 GPUs; of haarnet, on 2 cores.
WHOLE = Size(
    {
        **{
            network: {"train": 1e5, "embed": 2000, "verify": 60, "fit": 60, "compare": 5000}
            for network in ("mobilefacenet", "resnet101")
        },
        "nin": {"dense": 3000, "train": 3000, "evaluate": 60},
        "haarnet": {"dense": 4500, "train": 500, "evaluate": 30},
    }
)
# About, on 2 quiet cores of an AMD EPYC, with 765 images to embed and packs of 200 pairs.
REHEARSAL = Size(
    {
        "mobilefacenet": {"train": 18, "embed": 18, "verify": 14, "fit": 14, "compare": 30},
        "resnet101": {"train": 45, "embed": 70, "verify": 45, "fit": 40, "compare": 30},
        "nin": {"dense": 15, "train": 15, "evaluate": 15},
    },
    lambdas=1,
    steps=4,
    batches={"mobilefacenet": 16, "resnet101": 8, "nin": 64},
    images=256,
)
