"""What is exported: rows and ids as they are, and to each id its own payload."""

import json
import struct

import numpy as np
import pytest
import scipy.sparse

from sparse_embed.common.failures import DataError, UsageError
from sparse_embed.experiments.core import embedding_files
from sparse_embed.experiments.core.embedding_files import Embeddings
from sparse_embed.experiments.exporting.pgvector import _tuples, sparsevec_text
from sparse_embed.experiments.exporting.rows import open_rows, read_payloads
from sparse_embed.retrieval import SparseIndex

IDS = np.array([7, 2, 2**62])


@pytest.fixture
def index_file(tmp_path):
    rows = scipy.sparse.csr_array(np.array([[0, -1.5, 0], [2, 0, 1], [0, 0, 0]], np.float32))
    SparseIndex.build(rows, ids=IDS).save(tmp_path / "items.index")
    return tmp_path / "items.index"


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_ids_and_values_of_an_index_are_kept(index_file):
    rows = open_rows(index_file)
    assert rows.index.ids.tolist() == sorted(IDS.tolist())
    assert rows.index.reconstruct(IDS[:1]).toarray().tolist() == [[0, -1.5, 0]]
    assert rows.payloads_of(IDS) == [None, None, None]


def test_lines_belong_to_the_ids_that_they_name(index_file, tmp_path):
    lines = [{"id": 2**62, "name": "c"}, {"id": 7, "name": "ä"}, {"id": 2, "name": "b", "n": [1]}]
    rows = open_rows(index_file, write_lines(tmp_path / "payload.jsonl", lines))
    assert rows.payloads_of(IDS) == [{"name": "ä"}, {"name": "b", "n": [1]}, {"name": "c"}]


def test_lines_without_ids_belong_to_their_place(tmp_path):
    """Also if rows were removed: others keep their id, and so their line."""
    index = SparseIndex.build(np.eye(4, dtype=np.float32))
    index.remove(np.array([1]))
    index.save(tmp_path / "items.index")
    path = write_lines(tmp_path / "payload.jsonl", [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}])
    rows = open_rows(tmp_path / "items.index", path)
    assert rows.payloads_of(rows.index.ids) == [{"n": 0}, {"n": 2}, {"n": 3}]
    np.save(tmp_path / "labels.npy", np.array([5, 6, 7, 8]))
    rows = open_rows(tmp_path / "items.index", tmp_path / "labels.npy")
    assert rows.payloads_of(rows.index.ids) == [{"label": 5}, {"label": 7}, {"label": 8}]


def test_embedding_files_bring_their_labels(tmp_path):
    """One file, or parts whose rows are numbered through."""
    for number in range(2):
        vectors = scipy.sparse.csr_array(np.eye(3, dtype=np.float32) * (number + 1))
        labels = np.arange(3) + 10 * number
        path = tmp_path / f"part-{number:05}.npz"
        embedding_files.save(path, Embeddings(vectors, labels, {}))
    rows = open_rows(tmp_path)
    assert rows.index.ids.tolist() == [0, 1, 2, 3, 4, 5]
    assert rows.payloads_of(np.array([2, 3])) == [{"label": 2}, {"label": 10}]
    assert rows.index.reconstruct(np.array([4])).toarray().tolist() == [[0, 2, 0]]
    alone = open_rows(tmp_path / "part-00001.npz")
    assert alone.payloads_of(np.array([0])) == [{"label": 10}]
    assert alone.mark != rows.mark


def test_other_content_has_another_mark(index_file, tmp_path):
    marks = {open_rows(index_file).mark, open_rows(index_file).mark}
    assert len(marks) == 1
    path = write_lines(tmp_path / "payload.jsonl", [{"id": id} for id in IDS.tolist()])
    marks.add(open_rows(index_file, path).mark)
    write_lines(path, [{"id": id, "new": True} for id in IDS.tolist()])
    marks.add(open_rows(index_file, path).mark)
    assert len(marks) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}\nnonsense\n', "line 2: expected a JSON object"),
        ("[1]\n", "line 1: expected a JSON object"),
        ('{"id": 1}\n{"a": 1}\n', "on every line, or on none: 1 of 2"),
        ('{"id": 1}\n{"id": 1}\n', "2 of 2 lines have one, 1 different"),
        ('{"id": -1}\n', "expected an integer >= 0"),
        ('{"id": true}\n', "expected an integer >= 0"),
    ],
)
def test_broken_payloads_are_named(tmp_path, text, message):
    (tmp_path / "payload.jsonl").write_text(text)
    with pytest.raises(DataError, match=message):
        read_payloads(tmp_path / "payload.jsonl")


DEEP = "[" * 100 + "]" * 100


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("1e400", "a.b[1]=inf: expected a finite number"),
        ("-1e400", "a.b[1]=-inf: expected a finite number"),
        ("NaN", "a.b[1]=nan: expected a finite number"),
        (r'"x\u0000"', r"a.b[1]='x\x00': expected text without zeros"),
        (r'"\ud800x"', r"a.b[1]='\ud800x': expected text that UTF-8 can hold"),
        ("1" * 30, f"a.b[1]={'1' * 30}: expected an integer of 64 bits"),
        ("1" * 5000, "line 2: expected a JSON object: "),
        (r'{"\u0000": 1}', r"a.b[1]['\x00']: expected text without zeros"),
        (r'{"\udfff": 1}', r"a.b[1]['\udfff']: expected text that UTF-8 can hold"),
        (DEEP, "expected at most 100 levels"),
        ("[" * 100_000 + "]" * 100_000, "expected at most 100 levels"),
    ],
)
def test_what_databases_refuse_is_named_before_anything_is_sent(tmp_path, value, told):
    path = tmp_path / "payload.jsonl"
    path.write_text('{"a": 1}\n{"a": {"b": [1.5, ' + value + "]}}\n")
    with pytest.raises(DataError, match=r"payload\.jsonl: line 2: ") as caught:
        read_payloads(path)
    assert told in str(caught.value)


@pytest.mark.parametrize("line", [b'{"a": "\xed\xa0\x80"}', b'{"a": "\xff"}', b'{"a": "\0"}'])
def test_bytes_that_are_no_text_are_named(tmp_path, line):
    (tmp_path / "payload.jsonl").write_bytes(line)
    with pytest.raises(DataError, match=r"payload\.jsonl: line 1: expected a JSON object: ."):
        read_payloads(tmp_path / "payload.jsonl")


def test_what_databases_keep_is_kept(tmp_path):
    kept = {"n": [2**63 - 1, -(2**63), 1e308, 5e-324], "t": "\U0001f600\x01ä", "none": None}
    kept["deep"] = json.loads("[" * 98 + "]" * 98)
    path = write_lines(tmp_path / "payload.jsonl", [kept])
    assert read_payloads(path).of(np.array([0])) == [kept]


def test_rows_without_payload_are_named(index_file, tmp_path):
    np.save(tmp_path / "labels.npy", np.arange(8))
    with pytest.raises(UsageError, match=f"1 have none, such as that of id {2**62}"):
        open_rows(index_file, tmp_path / "labels.npy")
    with pytest.raises(UsageError, match="part-"):
        open_rows(tmp_path)


def test_values_that_are_no_numbers_are_refused(tmp_path):
    matrix = scipy.sparse.csr_array(np.array([[np.nan, 1]], np.float32))
    scipy.sparse.save_npz(tmp_path / "rows.npz", matrix)
    with pytest.raises(DataError, match="NaN"):
        open_rows(tmp_path / "rows.npz")


def test_text_and_binary_form_of_a_row():
    """Indices from 1 in text and from 0 in binary; values to the last bit in both."""
    value = np.float32(0.1)
    row = scipy.sparse.csr_array(np.array([[0, value, 0, -2]], np.float32))
    text = sparsevec_text(row)
    assert text == "{2:0.100000001,4:-2}/4"
    assert np.float32(text[3:14]) == value
    found = b"".join(_tuples(np.array([5]), row, [{"a": 1}]))
    wanted = b"\0\3" + b"\0\0\0\x08" + b"\0" * 7 + b"\5" + b"\0\0\0\x1c"
    wanted += b"\0\0\0\4\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\3"
    wanted += struct.pack(">ff", value, -2) + b"\0\0\0\x09" + b'\1{"a": 1}'
    assert found == wanted
