"""How a method is shown in figures, tables and reports."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Look:
    """The name of a method, and a colour and a marker that are its own.

    Attributes:
        label: the name in legends and tables.
        colour: of Okabe and Ito's palette, which people with any colour vision can tell apart.
        marker: matplotlib's name of it.
    """

    label: str
    colour: str
    marker: str
