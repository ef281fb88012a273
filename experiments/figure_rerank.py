"""Appendix, "Results without re-ranking": the sparse methods with and without the second stage.

    python -m sparse_embed.experiments.figure_rerank --run_dir=runs/reproduce/quick

Results of one regularizer have one colour; diamonds are re-ranked, triangles are not.
"""

from matplotlib.figure import Figure

from sparse_embed.experiments import figures
from sparse_embed.experiments.figure_tradeoff import AXES, describe
from sparse_embed.experiments.figures import LOOKS
from sparse_embed.experiments.records import Record
from sparse_embed.flags import app

NAME = "rerank"


def points(run: list[Record]) -> list[Record]:
    """Returns the records shown, by rising time."""
    found = figures.sparse_identification(run)
    return sorted(found, key=lambda record: record["milliseconds_per_query"])


def draw(run: list[Record]) -> Figure:
    """Draws diamonds with and triangles without re-ranking, as the paper does."""
    shown = points(run)
    figure, panels = figures.panels(shown)
    for axis, part in panels:
        for method in figures.values(shown, "method"):
            look = LOOKS[method]
            for reranked, marker, line, word in (
                (True, "D", "-", "re-ranked"),
                (False, "^", "--", "alone"),
            ):
                curve = figures.select(part, method=method, reranked=reranked)
                figures.plot(
                    axis,
                    curve,
                    "milliseconds_per_query",
                    "recall_at_1",
                    line + marker,
                    color=look.colour,
                    label=f"{look.label}, {word}",
                )
        axis.set(**AXES)
    figures.legend_below(figure, panels[0][0])
    return figure


def caption(run: list[Record]) -> str:
    """Says what is shown, on what data and by which run."""
    shown = points(run)
    return (
        "Recall@1 and time per query of the sparse methods, with (diamonds) and without "
        f"(triangles) re-ranking by dense embeddings. {describe(shown)} {figures.origin(shown)}"
    )


main = figures.main_of(NAME, draw, caption)

if __name__ == "__main__":
    app.run(main)
