"""PostgreSQL with pgvector: a table of `sparsevec`, written by binary COPY.

Text would do, but has to be printed and parsed; the binary form of a row is the very bits of its
values. It is (big-endian) the number of dimensions, of values, and a zero, then all indices from 0,
then all values. In text and in SQL indices begin at 1.
"""

import json
import struct
from typing import Any

import numpy as np
import scipy.sparse

from sparse_embed.common.extras import require
from sparse_embed.common.failures import UsageError
from sparse_embed.common.reading import parse_json
from sparse_embed.experiments.exporting.rows import Payload
from sparse_embed.experiments.exporting.transfer import VECTOR, Note, Results

_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
_END = struct.pack(">h", -1)
_NULL = struct.pack(">i", -1)


class PgVector:
    """A table `(id bigint PRIMARY KEY, embedding sparsevec, payload jsonb)`; a comment is its note.

    Args:
        dsn: as libpq takes it; a password may stay out of it (`PGPASSWORD`, `~/.pgpass`).
        table: its name, perhaps with a schema: `items`, `public.items`.
    """

    def __init__(self, dsn: str, table: str):
        require("--to=pgvector", "export", "psycopg")
        import psycopg
        from psycopg import sql

        self.errors: tuple[type[Exception], ...] = (psycopg.Error,)
        self._table = sql.Identifier(*table.split("."))
        try:
            self.connection: Any = psycopg.connect(dsn, autocommit=True)
            self._run("CREATE EXTENSION IF NOT EXISTS vector")
        except psycopg.Error as error:
            raise UsageError(f"--target: expected PostgreSQL with pgvector: {error}") from error

    def _run(self, text: str, *values: Any) -> Any:
        """Runs a statement; {} in it is the table."""
        from psycopg import sql

        return self.connection.execute(sql.SQL(text).format(self._table), values or None)

    def note(self) -> Note | None:
        """The comment on the table."""
        name = self._table.as_string(self.connection)
        found = self.connection.execute(
            "SELECT obj_description(to_regclass(%s), 'pg_class') WHERE to_regclass(%s) IS NOT NULL",
            (name, name),
        ).fetchone()
        if found is None:
            return None
        try:
            content = parse_json(found[0] or "{}")
        except ValueError:  # somebody else's comment
            return {}
        return content if isinstance(content, dict) else {}

    def create(self, note: Note) -> None:
        """Makes the table and its comment at once."""
        with self.connection.transaction():
            self._run(
                f"CREATE TABLE {{}} (id bigint PRIMARY KEY, "
                f"{VECTOR} sparsevec({int(note['dims'])}) NOT NULL, payload jsonb)"
            )
            self.set_note(note)

    def set_note(self, note: Note) -> None:
        """Replaces the comment."""
        from psycopg import sql

        text = sql.SQL("COMMENT ON TABLE {} IS {}")
        self.connection.execute(text.format(self._table, sql.Literal(json.dumps(note))))

    def present(self, ids: np.ndarray) -> np.ndarray:
        """Asks for the ids."""
        found = self._run("SELECT id FROM {} WHERE id = ANY(%s)", ids.tolist()).fetchall()
        return np.isin(ids, [id for (id,) in found])

    def write(self, ids: np.ndarray, rows: scipy.sparse.csr_array, payloads: list[Payload]) -> None:
        """Copies into a temporary table and inserts from there, in one transaction."""
        with self.connection.transaction():
            self._run("CREATE TEMP TABLE batch (LIKE {}) ON COMMIT DROP")
            with self.connection.cursor().copy("COPY batch FROM STDIN (FORMAT binary)") as copy:
                copy.write(_HEADER + b"".join(_tuples(ids, rows, payloads)) + _END)
            self._run(
                "INSERT INTO {} SELECT * FROM batch ON CONFLICT (id) DO UPDATE "
                f"SET {VECTOR} = EXCLUDED.{VECTOR}, payload = EXCLUDED.payload"
            )

    def finish(self) -> None:
        """Tells the planner how large the table is."""
        self._run("VACUUM (ANALYZE) {}")

    def count(self) -> int:
        """Counts the rows."""
        rows: int = self._run("SELECT count(*) FROM {}").fetchone()[0]
        return rows

    def search(self, query: scipy.sparse.csr_array, k: int) -> Results:
        """Reads the whole table: exact; ties by lower id."""
        found = self._run(
            f"SELECT id, {VECTOR} <#> %s::sparsevec AS distance FROM {{}} "
            "ORDER BY distance, id LIMIT %s",
            *(sparsevec_text(query), k),
        ).fetchall()
        ids = np.array([id for id, _ in found], np.int64)
        return -np.array([distance for _, distance in found], np.float32), ids

    def close(self) -> None:
        """Closes the connection."""
        self.connection.close()


def sparsevec_text(row: scipy.sparse.csr_array) -> str:
    """Returns a row as pgvector reads it, `{index:value,...}/dims`, with all bits of its values."""
    pairs = zip((row.indices + 1).tolist(), row.data.tolist(), strict=True)
    content = ",".join(f"{index}:{value:.9g}" for index, value in pairs)
    return f"{{{content}}}/{row.shape[1]}"


def _tuples(ids: np.ndarray, rows: scipy.sparse.csr_array, payloads: list[Payload]) -> list[bytes]:
    """Returns the rows of a batch in PostgreSQL's binary format."""
    columns, values = rows.indices.astype(">i4"), rows.data.astype(">f4")
    ends, made = rows.indptr.tolist(), []
    for place, (id, payload) in enumerate(zip(ids.tolist(), payloads, strict=True)):
        part = slice(ends[place], ends[place + 1])
        vector = struct.pack(">iii", rows.shape[1], part.stop - part.start, 0)
        vector += columns[part].tobytes() + values[part].tobytes()
        made.append(struct.pack(">hiqi", 3, 8, id, len(vector)) + vector)
        if payload is None:
            made.append(_NULL)
        else:  # of `jsonb`, whose version is 1
            content = b"\1" + json.dumps(payload).encode()
            made.append(struct.pack(">i", len(content)) + content)
    return made
