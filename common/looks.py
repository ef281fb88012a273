"""How a method is shown in figures, tables and reports."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Look:
    """The label, colour and marker of a method.

    Attributes:
        label: the name in legends and tables.
        colour: from Okabe and Ito's palette, which people with any colour vision can tell apart.
        marker: matplotlib's name for the marker.
    """

    label: str
    colour: str
    marker: str
