r"""Puts the JSON files that studies write into one JSON-lines file, or takes them out again.

    python benchmarks/study_file.py --study=results/search.jsonl --put=runs/text.json
    python benchmarks/study_file.py --study=results/cost_model.jsonl --take=runs/cost_model/records

A line is the content of a file, with its `name`. What is put replaces the line of the same name.
"""

import dataclasses
import json
import pathlib
from typing import Any

from sparse_embed.common.failures import UsageError
from sparse_embed.common.files import atomic_path
from sparse_embed.common.options import option
from sparse_embed.common.reading import parse_json, read_json, reading
from sparse_embed.flags import app


@dataclasses.dataclass(frozen=True)
class Options:
    """Which study, and what to do with it."""

    study: str | None = option(None, "The JSON-lines file.")
    put: tuple[str, ...] = option((), "JSON files to put into it.")
    take: str | None = option(None, "Folder that gets a JSON file for each line.")


def load(path: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Returns the contents of a study by name, in the order of the file."""
    contents = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        with reading(f"{path}:{number}", "a line of a study"):
            content = parse_json(line)
            contents[content.pop("name")] = content
    return contents


def save(path: pathlib.Path, contents: dict[str, dict[str, Any]]) -> None:
    """Writes a study."""
    lines = [json.dumps({"name": name, **content}) for name, content in contents.items()]
    with atomic_path(path) as temporary:
        temporary.write_text("".join(line + "\n" for line in lines))


def main(options: Options) -> None:
    """Puts, or takes."""
    study = app.writable_file("study", options.study, ".jsonl")
    contents = load(study) if study.exists() else {}
    if bool(options.put) == bool(options.take):
        raise UsageError("expected one of --put and --take")
    for value in options.put:
        path = app.existing_path("put", value)
        contents[path.stem] = read_json(path, "what a study writes")
    if options.put:
        save(study, contents)
        return
    folder = app.writable_folder("take", options.take)
    for name, content in contents.items():
        with atomic_path(folder / f"{name}.json") as temporary:
            temporary.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    app.run(main, Options)
