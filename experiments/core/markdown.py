"""Tables in Markdown, and the place of a page where a script writes them."""

from collections.abc import Sequence

BEGIN, END = "<!-- costs -->\n", "<!-- end of costs -->"


def titled_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table under its title."""
    lines = [head, ["---"] * len(head), *rows]
    return f"### {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def put_between_marks(page: str, text: str) -> str:
    """Returns the page with the text in place of what stands between its marks.

    A page without marks becomes the text alone.
    """
    if BEGIN not in page or END not in page:
        return text
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + text + END + rest.partition(END)[2]
