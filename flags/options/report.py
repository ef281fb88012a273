"""Options of `report`."""

import dataclasses

from sparse_embed.common.options import option
from sparse_embed.flags.options import fields


@dataclasses.dataclass(frozen=True)
class Options:
    """The report of a reproduction, or figures or a table of it alone."""

    run_dir: str = fields.run_dir()
    figures: tuple[str, ...] = option(
        (), "Draw these figures, or all of them, as SVG, PDF and PNG, and write no report."
    )
    table: str | None = option(
        None, "Print this table, and write no report.", choices=("cifar100",)
    )
    publish: str | None = option(None, "Folder for the run as a study; optional.")
    cifar100_results: str | None = option(
        None, "Folder of recorded results of CIFAR-100, for a run without its own."
    )
