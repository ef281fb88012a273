"""What README.md and docs/ show is run, at a small size: commands, Python, links, the flags' table.

Commands that need no data, or data that can be made up, are run for real. Of the others the flags
are parsed. TensorFlow is imported once, by a process of which each command is a fork.

`python test/test_readme.py` writes the table of flags in docs/training.md again.
"""

import contextlib
import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import time
import traceback
import types

import pytest
from helpers import options_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
SCRIPTS = "sparse_embed.experiments."
STUDIES = "benchmarks/"
FLAGS_PAGE = ROOT / "docs" / "training.md"
FLAGS_BEGIN = "<!-- flags: python test/test_readme.py writes this table -->\n"
FLAGS_END = "<!-- end of flags -->"

TINY = ["--steps=2", "--batch_size=16", "--width=0.1", "--embedding_dim=64"]
SPARSE = ["--warmup_steps=2", "--initial_probability=0.3"]
FEW_GLYPHS = ["--validation=4", "--test=20"]
# Scripts that are run, and what is added to make them small; others are parsed.
SMALL = {
    "embed": ["--views=1"],
    "report": [],
    "prepare_data": ["--num_shards=2"],
    "search": [],
    "sparsify": ["--code_dim=32", "--code_nonzeros=4", "--learning_steps=3", "--compared_rows=500"],
    "train": TINY,
}
# Their commands that are parsed all the same: for want of data, or to save time, since other tests
# run the like.
ONLY_PARSED = (
    "--data_dir=cifar-100",
    "--data_dir=faces_emore",
    "--data_dir=runs/dense/train.npy",
    "--database=runs/workloads",
    "--dataset=tfrecords",
    "--figures=tradeoff,roc",
    "--source=",
    "--reg_path",
    "--split=train",
    "--strategy",
    "--warm_start",
)

# What a block of Python finds, by something that it says.
GIVEN = {
    "SparseIndex.build(database)": """
        import numpy as np, scipy.sparse
        database = scipy.sparse.random(50, 16, 0.3, "csr", np.float32)
        queries = database[:2]
        dense_database = np.eye(50, dtype=np.float32)
        dense_queries = dense_database[:2]
    """,
    "model.fit(images, labels": """
        import numpy as np
        num_classes = 4
        images = np.random.default_rng(0).random((32, 16, 16, 1), np.float32)
        labels, queries = np.arange(32) % 4, images[:2]
    """,
    "sparsifier.transform(dense_rows)": """
        import numpy as np
        dense_rows = np.random.default_rng(0).normal(size=(60, 16))
        dense_queries = dense_rows[:2]
    """,
    "index.tune(queries": """
        import numpy as np, scipy.sparse
        from sparse_embed.retrieval import SparseIndex
        queries = scipy.sparse.random(20, 16, 0.3, "csr", np.float32)
        index = SparseIndex.build(queries)
    """,
    'open("items.index"': """
        import numpy as np
        from sparse_embed.retrieval import SparseIndex
        SparseIndex.build(np.eye(9, dtype=np.float32)).save("items.index")
    """,
    "encoder.encode(images)": """
        import pathlib
        import numpy as np
        from sparse_embed.experiments.encoders import export
        from sparse_embed.experiments.core import run
        from sparse_embed.flags.train_config import TrainConfig
        from sparse_embed.models import build_encoder
        images = np.ones((2, 8, 8, 1), np.float32)
        record = {"config": TrainConfig().to_dict()}
        model = build_encoder("convnet", 16, "relu", (8, 8, 1), width=0.1)
        export.export(run.save(pathlib.Path("runs/sparse"), model, record), ["litert"])
    """,
    "model.fit(batches)": """
        import numpy as np, tensorflow as tf
        num_classes = 4
        examples = np.random.default_rng(0).random((16, 32, 32, 1), np.float32)
        batches = tf.data.Dataset.from_tensor_slices((examples, np.arange(16) % 4)).batch(8)
    """,
    "TrainConfig(*tiny": """
        from sparse_embed.flags.train_config import DataConfig, ModelConfig, ObjectiveConfig
        tiny = [
            DataConfig("dense_embeddings", "lfw_dlib128.npz", test=2800),
            ModelConfig("linear", embedding_dim=64),
            ObjectiveConfig(),
        ]
    """,
}
SMALLER = {
    "Sparsifier(dim=512, flops=2.0)": "Sparsifier(dim=32, flops=2.0, steps=3)",
    "TrainConfig(optimization=OptimizationConfig(steps=2000, batch_size=128))": (
        "TrainConfig(*tiny, optimization=OptimizationConfig(steps=2, batch_size=16))"
    ),
}

# How docs/extending.md is used: its examples in one file, which then runs each of these scripts.
EXTENDED = {
    "train": [
        "--dataset=image_array",
        "--data_dir=images.npz",
        "--invert",
        "--validation=3",
        "--model=patches",
        "--loss=cosface",
        "--margin=0.2",
        "--regularizer=cubic",
        "--model_dir=runs/extended",
        *TINY,
        *SPARSE,
    ],
    "report": ["--run_dir=results/full", "--figures=memory"],
}


@dataclasses.dataclass
class Block:
    """A block of code: its page, its line, its language and its text."""

    page: pathlib.Path
    line: int
    language: str
    text: str

    @property
    def place(self):
        return f"{self.page.name}:{self.line}"


def find_blocks(language):
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(page, line, match[1], match[2]))
    return [block for block in found if block.language == language]


def find_commands():
    """Returns (page, words) of every command in a shell block, in order."""
    found = []
    for block in find_blocks("sh"):
        for line in block.text.replace("\\\n", " ").splitlines():
            parts = line.partition("#")[0].split("&&")
            # Without variables of the environment, which may stand before a command.
            parts = [re.sub(r"^\s*([A-Z_]+=('[^']*'|\S+)\s+)*", "", part) for part in parts]
            found += [(block.page, shlex.split(part)) for part in parts if part.strip()]
    return found


def find_mentions():
    """Returns (page, words) of commands that stand in a sentence or a table."""
    found = []
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for span in re.findall(r"`([^`]+)`", text):
            found += (
                [(page, shlex.split(span))]
                if re.match(r"(python -m |python benchmarks/|make\s|pip\s)", span)
                else []
            )
    return found


def is_script(words):
    return words[:2] == ["python", "-m"] and words[2].startswith(SCRIPTS)


def is_study(words):
    return words[0] == "python" and words[1].startswith(STUDIES)


def command_jobs(page):
    """Returns the commands of a page, in the order in which they stand there."""
    jobs = []
    for owner, words in find_commands():
        if owner == page and is_script(words):
            jobs.append(script_job(words))
    for owner, words in find_mentions():
        if owner == page and is_script(words):
            jobs.append({**script_job(words), "kind": "parse", "arguments": words[3:]})
    for owner, words in [*find_commands(), *find_mentions()]:
        if owner == page and words[0] == "make":
            jobs.append({"kind": "make", "name": " ".join(words), "arguments": words[1:]})
        elif owner == page and is_study(words):
            job = {"kind": "parse", "name": " ".join(words[1:]), "script": words[1]}
            jobs.append({**job, "arguments": words[2:]})
    return jobs


def python_jobs(page):
    """Returns the blocks of Python of a page, and how its examples are used."""
    blocks = [block for block in find_blocks("python") if block.page == page]
    jobs = [
        {"kind": "python", "name": block.place, "code": with_given(block.text)} for block in blocks
    ]
    if page.name == "extending.md":
        examples = [block.text for block in blocks]
        for script, arguments in EXTENDED.items():
            frame = examples[0].replace("import train", f"import {script}")
            frame = frame.replace("train.main, train.", f"{script}.main, {script}.")
            code = frame.replace("...", "\n".join(examples[1:]), 1)
            job = {"kind": "script", "name": f"extended {script}", "code": code}
            jobs.append({**job, "arguments": arguments})
    return jobs


def script_job(words):
    script, arguments = words[2].removeprefix(SCRIPTS), words[3:]
    job = {"kind": "parse", "name": " ".join(words[2:]), "script": script}
    if script in SMALL and not any(word.startswith(ONLY_PARSED) for word in arguments):
        job["kind"] = "run"
        preset = "".join(word for word in arguments if word.startswith("--preset="))
        arguments = [*arguments, *SMALL[script]]
        if script == "train":
            arguments += [] if "dense" in preset else SPARSE
            arguments += FEW_GLYPHS if "glyphs" in preset else []
    return {**job, "arguments": arguments}


def with_given(text):
    for large, small in SMALLER.items():
        text = text.replace(large, small)
    for mark, code in GIVEN.items():
        if mark in text:
            return "\n".join(line.strip() for line in code.splitlines()) + "\n" + text
    return text


def prepare(folder):
    """Puts into a folder what the commands of the pages read."""
    import numpy as np
    import scipy.sparse
    from PIL import Image

    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (12, 4, 64, 64, 3), np.uint8)
    for number, images in enumerate(pictures):
        (folder / "photos" / f"class{number}").mkdir(parents=True)
        for place, image in enumerate(images):
            Image.fromarray(image).save(folder / "photos" / f"class{number}" / f"{place}.png")
    Image.fromarray(pictures[0, 0]).save(folder / "photo.jpg")
    labels = np.repeat(np.arange(12), 4)
    np.savez(folder / "images.npz", images=pictures.reshape(-1, 64, 64, 3), labels=labels)
    people = np.repeat(np.arange(2900), 2)  # more than --test takes
    vectors = rng.normal(size=(5800, 16)).astype(np.float32)
    np.savez(folder / "lfw_dlib128.npz", embeddings=vectors, labels=people)
    np.save(folder / "mine.npy", vectors)
    np.save(folder / "labels.npy", people)
    for name, rows in (("rows", 500), ("queries", 5)):
        matrix = scipy.sparse.random(rows, 64, 0.2, "csr", np.float32)
        scipy.sparse.save_npz(folder / f"{name}.npz", matrix)
    shutil.copytree(ROOT / "results", folder / "results")


def run_job(job):
    """Does one job in this process."""
    if job["kind"] == "python":
        exec(compile(job["code"], job["name"], "exec"), {"__name__": "block"})
        return
    sys.argv = [job["name"], *job.get("arguments", [])]
    if job["kind"] == "script":
        pathlib.Path("extended.py").write_text(job["code"])
        runpy.run_path("extended.py", run_name="__main__")
    elif job["kind"] == "run":
        runpy.run_module(SCRIPTS + job["script"], run_name="__main__", alter_sys=True)
    elif job["kind"] == "make":
        make(job["arguments"])
    elif job["kind"] == "flags":
        print(flag_table(), end="")
    else:
        parse(job["script"])


def parse(script):
    """Parses the flags as the script would; those of `train` are checked against each other."""
    from sparse_embed.flags import app

    if script.startswith(STUDIES):
        sys.path.insert(0, str(ROOT / STUDIES))  # as `python` does
        module = types.SimpleNamespace(**runpy.run_path(str(ROOT / script)))
    else:
        module = importlib.import_module(SCRIPTS + script)
    options = app.parse(options_of(module), sys.argv[1:])
    if script == "train":
        from sparse_embed.experiments.training.checks import check

        check(options.config)


def make(arguments):
    """Sees what make would do; if that is a script, its flags are parsed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--dry-run", *arguments]
    lines = subprocess.run(command, cwd=ROOT, env=kept, check=True, capture_output=True, text=True)
    for line in lines.stdout.splitlines():
        if SCRIPTS in line:
            _, _, script, *sys.argv[1:] = shlex.split(line)
            parse(script.removeprefix(SCRIPTS))


def fork(work, output=None):
    """Runs `work` in a fork and returns its process id; its output goes to a file."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        if output is not None:
            target = os.open(output, os.O_WRONLY | os.O_CREAT)
            os.dup2(target, 1)
            os.dup2(target, 2)
        code = work() or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def run_chain(chain):
    """Does jobs one after the other, each in a fork, and writes down how they ended."""
    folder = pathlib.Path(chain["folder"])
    os.chdir(folder)
    prepare(folder)
    for number, job in enumerate(chain["jobs"]):
        output, start = folder / f"job{number}.log", time.perf_counter()
        _, status = os.waitpid(fork(lambda job=job: run_job(job), output), 0)
        ended = {"code": os.waitstatus_to_exitcode(status), "output": output.read_text()}
        ended["seconds"] = time.perf_counter() - start
        (folder / f"job{number}.json").write_text(json.dumps(ended))


def run_chains(path):
    """Does all chains, two at a time."""
    import keras  # noqa: F401 - before the forks, which then have it
    import tensorflow  # noqa: F401

    running = set()
    for chain in json.loads(pathlib.Path(path).read_text()):
        if len(running) == 2:
            running.discard(os.wait()[0])
        running.add(fork(lambda chain=chain: run_chain(chain)))
    while running:
        running.discard(os.wait()[0])


def flag_table():
    """Returns the table of all flags of `train`."""
    from sparse_embed.flags.config import all_fields
    from sparse_embed.flags.options.train import Options

    rows = [
        ("model_dir", "", "Folder of the run; the one flag that must be given."),
        ("preset", "", "Flags of a whole experiment, which later flags replace."),
        (
            "export",
            "",
            "Formats to write the encoder in too, and compare: `saved_model`, `litert`, "
            "`litert_float16`, `litert_int8`.",
        ),
    ]
    for field in all_fields(Options):
        choices = field.metadata["choices"]
        text = field.metadata["help"]
        if choices is not None:
            names = choices() if callable(choices) else choices
            text = f"{', '.join(f'`{name}`' for name in names)}. {text}"
        if field.name not in ("model_dir", "export"):
            rows.append((field.name, field.default, text))
    lines = ["| flag | default | what it does |", "|---|---|---|"]
    for name, default, text in dict.fromkeys(rows):  # configs may share a flag
        shown = {None: "", False: "no", True: "yes"}.get(default, f"{default}")
        if isinstance(default, (int, float)) and not isinstance(default, bool):
            shown = f"{default:g}"
        escaped = text.replace("|", r"\|").replace("*", r"\*").replace("<", r"\<")
        lines.append(f"| `--{name}` | {shown} | {escaped} |")
    return "\n".join(lines) + "\n"


def split_flags_page():
    """Returns what stands before, between and after the marks in the page of the flags."""
    before, _, rest = FLAGS_PAGE.read_text().partition(FLAGS_BEGIN)
    table, end, after = rest.partition(FLAGS_END)
    assert end
    return before, table, after


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """How every job ended, by its page and name."""
    chains = []
    for (kind, page), jobs in sorted(CHAINS.items(), key=lambda item: -len(item[1])):
        if jobs:
            folder = tmp_path_factory.mktemp(f"{page.stem}_{kind}")
            chains.append({"page": page.name, "folder": str(folder), "jobs": jobs})
    path = tmp_path_factory.mktemp("chains") / "chains.json"
    path.write_text(json.dumps(chains))
    variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
    variables |= {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}  # two run at a time
    command = [sys.executable, __file__, "run", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, env=variables)
    assert result.returncode == 0, result.stdout + result.stderr
    found = {}
    for chain in chains:
        for number, job in enumerate(chain["jobs"]):
            log = pathlib.Path(chain["folder"], f"job{number}.json")
            assert log.exists(), f"{job['name']}: {result.stderr}"
            found[chain["page"], job["name"]] = json.loads(log.read_text())
    return found


CHAINS = {
    # Those of photographs need none of the others, and so can run beside them.
    **{
        ("commands", page): [j for j in command_jobs(page) if "photos" not in j["name"]]
        for page in PAGES
    },
    **{
        ("photos", page): [j for j in command_jobs(page) if "photos" in j["name"]] for page in PAGES
    },
    **{("python", page): python_jobs(page) for page in PAGES},
    ("flags", FLAGS_PAGE): [{"kind": "flags", "name": "flags"}],
}
NAMES = list(
    dict.fromkeys((page.name, job["name"]) for (_, page), jobs in CHAINS.items() for job in jobs)
)


@pytest.mark.parametrize(("page", "name"), NAMES, ids=[" ".join(name) for name in NAMES])
def test_that_works(ended, page, name):
    assert ended[page, name]["code"] == 0, ended[page, name]["output"]


def test_that_examples_are_made_small():
    text = "".join(block.text for block in find_blocks("python"))
    assert [mark for mark in SMALLER if mark not in text] == []
    assert [mark for mark in GIVEN if mark not in text + str(SMALLER)] == []


def test_table_of_flags(ended):
    _, table, _ = split_flags_page()
    assert table == ended[FLAGS_PAGE.name, "flags"]["output"], f"write it by python {__file__}"


def test_no_script_is_forgotten():
    scripts = {path.stem for path in (ROOT / "experiments").glob("[!_]*.py")}
    text = "".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"`(\w+)`", text)) | set(re.findall(r"experiments\.(\w+)", text))
    assert scripts - named == set()


OTHERS = [
    (page, words)
    for page, words in [*find_commands(), *find_mentions()]
    if not is_script(words) and not is_study(words) and words[0] != "make"
]


@pytest.mark.parametrize("words", dict.fromkeys(tuple(words) for _, words in OTHERS), ids=" ".join)
def test_other_commands(words):
    if words[0] == "pip":
        assert words[1] == "install"
        text = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
        extras = re.findall(r"^(\w+) = \[", text.partition("\n[")[0], re.MULTILINE)
        (target,) = words[2:]
        wanted = re.fullmatch(r"\.(?:\[([\w,]+)\])?", target)
        assert wanted, target
        assert set((wanted[1] or extras[0]).split(",")) <= set(extras)
    elif words[0] == "source":
        assert words[1] == ".venv/bin/activate"
        assert "VENV ?= .venv\n" in (ROOT / "Makefile").read_text()
    else:
        assert words[0] == "tensorboard"
        assert words[1].startswith("--logdir=")
        assert importlib.util.find_spec("tensorboard")


def slugs(page):
    """Returns the anchors of a page's headings, as GitHub names them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in slugs(target), link


def defined_flags():
    """Returns the names of all flags of the scripts, the studies and the examples."""
    from sparse_embed.flags.config import Kinds, all_fields

    found = {"help", "preset"}
    for path in (ROOT / "flags" / "options").glob("[!_]*.py"):
        content = vars(importlib.import_module(f"sparse_embed.flags.options.{path.stem}")).values()
        found |= {kinds.flag for kinds in content if isinstance(kinds, Kinds)}
        for options in filter(dataclasses.is_dataclass, content):
            found |= {field.name for field in all_fields(options)}
    others = [*(ROOT / "benchmarks").glob("*.py"), ROOT / "docs" / "extending.md"]
    text = "".join(path.read_text() for path in others)
    made = r"^\+?\s+(\w+): [^\n=]+ = (?:option|fields\.\w+|row_options\.\w+)\("
    found |= set(re.findall(made, text, re.MULTILINE))
    return found | {f"no{name}" for name in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_flags_exist(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"`[^`]*?--(\w+)", text))
    assert named - defined_flags() == set()


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run_chains(sys.argv[2])
    else:
        before, _, after = split_flags_page()
        FLAGS_PAGE.write_text(before + FLAGS_BEGIN + flag_table() + FLAGS_END + after)
