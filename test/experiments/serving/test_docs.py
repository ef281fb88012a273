"""What docs/serving.md shows is run against a service: `curl`, and ten lines of Python.

The fences there say `bash` and `py`, since test_readme.py runs those of `sh` and `python` without a
service.
"""

import contextlib
import io
import json
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest
from PIL import Image

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "serving.md"


def blocks(language):
    text = PAGE.read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(photo, tmp_path, monkeypatch):
    Image.open(io.BytesIO(photo)).save(tmp_path / "photo.jpg", quality=100, subsampling=0)
    monkeypatch.chdir(tmp_path)
    return tmp_path


LINES = [line for block in blocks("bash") for line in block.splitlines()]


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("curl ")])
def test_curl(client, folder, line):
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    address = str(client.base_url).rstrip("/")
    words = shlex.split(line.replace("http://127.0.0.1:8000", address))
    if "--json" in words:  # curl has it since 7.82
        place = words.index("--json")
        kind = ["--header", "Content-Type: application/json", "--data"]
        words[place : place + 1] = kind
    done = subprocess.run([*words, "--silent", "--fail"], capture_output=True, check=True)
    if "/search/" in line:
        results = json.loads(done.stdout)["results"]
        assert 1 <= len(results) <= 5
        assert "forbidden" not in line or not {7, 8} & {result["id"] for result in results}
    elif "--output" in words:
        assert Image.open(folder / "nearest.png").size == (16, 16)
    else:
        assert done.stdout


def test_python(client, folder):
    (code,) = blocks("py")
    assert len(code.strip().splitlines()) == 10
    code = code.replace("http://127.0.0.1:8000", str(client.base_url).rstrip("/"))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "serving.md", "exec"), {})
    lines = printed.getvalue().splitlines()
    assert len(lines) == 5
    assert re.fullmatch(r"[01]\.\d\d\d b/27.png: [1-9]\d* dimensions shared", lines[0])


def test_there_is_something_to_run():
    assert sum(block.count("curl ") for block in blocks("bash")) == 6
