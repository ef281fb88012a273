"""An index in shards, each searched by a process of its own, on one machine or many, with Ray."""

import contextlib
import dataclasses
import os
import pathlib
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from sparse_embed.common import ray_session
from sparse_embed.common.checks import check_number
from sparse_embed.common.failures import DataError, MachineError
from sparse_embed.retrieval import shard_folder
from sparse_embed.retrieval.index import SparseIndex, widened
from sparse_embed.retrieval.inputs import Matrix, canonical_csr
from sparse_embed.retrieval.merging import merge_results
from sparse_embed.retrieval.shard_folder import ListGoneError, Manifest, Rows, Shard
from sparse_embed.retrieval.shard_server import Request, ShardServer

_PAUSE = 0.05  # seconds before a shard that failed is asked again
_GLANCE = 0.5  # seconds after which a call that waits sees whether the index was closed
_INLINE = 100_000  # bytes; Ray copies smaller arguments into each call
_DEADLINE = 30.0

Path = str | os.PathLike[str]


class ShardUnavailableError(MachineError):
    """Shards did not answer before the deadline.

    Attributes:
        shards: their names.
    """

    def __init__(self, message: str, shards: tuple[str, ...]):
        super().__init__(message, shards)
        self.shards = shards

    def __str__(self) -> str:
        text: str = self.args[0]
        return text


class OverloadedError(MachineError):
    """As many searches as the index takes at a time were still running at the deadline."""


@dataclasses.dataclass(frozen=True)
class ShardHealth:
    """How a shard does.

    Attributes:
        name: of the shard.
        rows: that can be found in it.
        ok: whether it answered, with its files open.
        host: where its process runs; None if it did not answer.
        pid: id of that process.
        reason: why it did not answer.
    """

    name: str
    rows: int
    ok: bool
    host: str | None = None
    pid: int | None = None
    reason: str | None = None


class ShardedIndex:
    """Index files that are searched as one, with the results of one `SparseIndex`, bit for bit.

    Each shard has a process (an actor of Ray) that maps its file. A process that dies is started
    again by Ray, and searches that it was at are asked again until their deadline. Any thread may
    search at any time; a search sees the index as it was when it began. Changes are written to the
    folder before they return; other processes that have it open see them after `refresh`.

    Use `build`, `from_files` or `open`, and `close` at the end, or a `with` block.

    Example:
        >>> with ShardedIndex.build(np.eye(4), "four", shards=2) as index:
        ...     index.search(np.array([[0.0, 1.0, 0.5, 0.0]]), k=2)
        (array([[1. , 0.5]], dtype=float32), array([[1, 2]]))
    """

    def __init__(
        self,
        folder: Path,
        address: str | None = None,
        temp_folder: str | None = None,
        max_in_flight: int = 4,
        actor_options: dict[str, Any] | None = None,
    ):
        check_number("max_in_flight", max_in_flight, integer=True, minimum=1, maximum=1000)
        self._folder = pathlib.Path(folder).resolve()
        ray_session.require_ray("ShardedIndex")
        self._manifest = shard_folder.read(self._folder)
        self._max_in_flight = max_in_flight
        self._slots = threading.BoundedSemaphore(max_in_flight)
        self._lock = threading.Condition()
        self._calls = 0  # that are asking shards
        self._empty = SparseIndex(self._manifest.dims)
        self._actor_options = dict(actor_options or {})
        self._actors: dict[str, Any] = {}
        self._closed = False
        self._ray = ray_session.join("ShardedIndex", address, temp_folder)
        try:
            self._start(self._manifest.shards)
        except BaseException:  # such as unknown `actor_options`
            self.close()
            raise

    @classmethod
    def build(
        cls,
        csr: Rows,
        folder: Path,
        shards: int | None = None,
        shard_rows: int | None = None,
        ids: np.ndarray | None = None,
        num_threads: int = 1,
        progress: bool = False,
        rows: int | None = None,
        **opening: Any,
    ) -> "ShardedIndex":
        """Writes rows to a new folder as shards of about equal size, and opens it.

        One batch and the shard that is built are in memory at a time.

        Args:
            csr: one row per item; or an iterator (or a list) of such matrices, or of pairs
                `(matrix, ids)`, as for `SparseIndex.build`.
            folder: where to write; every machine that searches must see it under this path.
            shards: how many shards. The rows of an iterator are counted first, unless `rows` is
                given: they go to temporary files in the folder for that time.
            shard_rows: instead, the rows of each shard.
            ids: an id for each row of the matrix; by default row i gets id i.
            num_threads: threads that build a shard.
            progress: whether to draw a progress bar.
            rows: how many rows an iterator has, if that is known.
            **opening: further arguments of `open`.

        Raises:
            ValueError: the folder holds an index already, or as for `SparseIndex.build`.
        """
        ray_session.require_ray(cls.__name__)
        target = pathlib.Path(folder)
        shard_folder.create(target, csr, shards, shard_rows, ids, num_threads, progress, rows)
        return cls.open(folder, **opening)

    @classmethod
    def from_files(cls, paths: Iterable[Path], folder: Path, **opening: Any) -> "ShardedIndex":
        """Makes files that `SparseIndex.save` wrote the shards of a new index, and opens it.

        The files stay where they are, and must not change. No two may have rows of one id: build
        them with `ids`.

        Args:
            paths: the files; every machine that searches must see them under these paths.
            folder: for the manifest and later changes.
            **opening: further arguments of `open`.
        """
        ray_session.require_ray(cls.__name__)
        shard_folder.create_from_files(pathlib.Path(folder), paths)
        return cls.open(folder, **opening)

    @classmethod
    def open(
        cls,
        folder: Path,
        address: str | None = None,
        temp_folder: str | None = None,
        max_in_flight: int = 4,
        actor_options: dict[str, Any] | None = None,
    ) -> "ShardedIndex":
        """Opens a folder, and starts a process for each shard.

        Args:
            folder: of the index.
            address: the Ray cluster to join ("auto", "host:port"). By default a Ray to which this
                process is connected is used, or that of RAY_ADDRESS; else Ray starts here.
            temp_folder: where a Ray that starts here keeps sockets and logs; by default RAY_TMPDIR
                or /tmp/ray.
            max_in_flight: batches of queries that are searched at a time. Further calls of `search`
                wait for their turn.
            actor_options: how Ray places the processes, e.g. `{"resources": {"search": 1}}`; see
                `ray.remote`. By default they are spread over the machines.

        Raises:
            DataError: the folder holds no index, or a file is missing or damaged.
            ImportError: Ray is not installed.
        """
        return cls(folder, address, temp_folder, max_in_flight, actor_options)

    def __enter__(self) -> "ShardedIndex":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the processes of the shards, and Ray if this started it.

        Calls that are under way in other threads raise ValueError first.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._lock.wait_for(lambda: not self._calls)
            if self._ray.is_initialized():  # the caller may have ended it
                for actor in self._actors.values():
                    self._ray.kill(actor)
            self._actors = {}
        ray_session.leave()

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, dimensions); rows that were removed count, see `len`."""
        return sum(shard.rows for shard in self._manifest.shards), self._manifest.dims

    def __len__(self) -> int:
        """Number of rows that can be found: those added and not removed."""
        return sum(map(len, self._manifest.shards))

    @property
    def folder(self) -> pathlib.Path:
        """Where its files are."""
        return self._folder

    @property
    def shards(self) -> tuple[str, ...]:
        """The names of the shards."""
        return tuple(shard.name for shard in self._manifest.shards)

    @property
    def next_id(self) -> int:
        """The id that the next row gets by default: one more than any id so far."""
        return self._manifest.next_id

    @property
    def nbytes(self) -> int:
        """Bytes of the shards' files."""
        return sum(shard.bytes for shard in self._manifest.shards)

    @property
    def settings(self) -> dict[str, int]:
        """The settings to keep in a record of this search."""
        return {"shards": len(self._manifest.shards)}

    def add(self, csr: Matrix, ids: np.ndarray | None = None, num_threads: int = 1) -> np.ndarray:
        """Adds rows as a new shard and returns their ids; see `SparseIndex.add`.

        When it returns, the rows are on disk and are found. Each shard is a process, so add many
        rows at a time.
        """
        self._check_open()
        manifest, given = shard_folder.add(self._folder, csr, ids, num_threads)
        self._follow(manifest)
        return given

    def remove(self, ids: np.ndarray) -> int:
        """Removes rows; see `SparseIndex.remove`. Their place in the files is not freed.

        When it returns, the removal is on disk, and no search that begins now finds the rows.

        Returns:
            How many rows were removed by this call.
        """
        self._check_open()
        manifest, count = shard_folder.remove(self._folder, ids)
        self._follow(manifest)
        return count

    def refresh(self) -> None:
        """Follows what other processes have added and removed."""
        self._check_open()
        self._follow(shard_folder.read(self._folder))

    def _follow(self, manifest: Manifest) -> None:
        """Searches what `manifest` says from now on, unless a later one has come before."""
        self._start(manifest.shards)
        with self._lock:
            if manifest.changes >= self._manifest.changes:
                self._manifest = manifest

    def search(
        self,
        queries: Matrix,
        k: int = 1000,
        threshold: float | None = None,
        num_threads: int = 1,
        allowed: np.ndarray | None = None,
        forbidden: np.ndarray | None = None,
        effort: float = 1.0,
        deadline: float = _DEADLINE,
        partial: bool = False,
    ) -> Any:
        """Finds the k rows of largest inner product with each query, in all shards.

        Args:
            queries: one query per row, dense or sparse.
            k: how many results per query.
            threshold: smallest score that is returned; None for no limit.
            num_threads: threads of each shard's process.
            allowed: the rows that may be found: ids, or a mask over ids; see `SparseIndex.search`.
            forbidden: the rows that may not be found, instead of `allowed`.
            effort: see `SparseIndex.search`. Below 1, which rows are missed depends on the shards.
            deadline: seconds that the call may take. Until then shards that fail are asked again.
            partial: whether to return what the others found when shards do not answer.

        Returns:
            `(scores, ids)` as `SparseIndex.search` does; with `partial`, `(scores, ids, missing)`,
            where `missing` names the shards that did not answer.

        Raises:
            ShardUnavailableError: shards did not answer in time, and `partial` is not set, or none
                did.
            OverloadedError: `max_in_flight` other searches took all the time.
        """
        check_number("deadline", deadline, above=0)
        end = time.monotonic() + deadline
        options: dict[str, Any] = {
            **{"threshold": threshold, "num_threads": num_threads, "effort": effort},
            **{"allowed": _array(allowed), "forbidden": _array(forbidden)},
        }
        csr = canonical_csr("queries", queries, self._manifest.dims)
        # An index without rows finds nothing, but checks what it is asked.
        self._empty.search(np.empty((0, self._manifest.dims), np.float32), k, **options)
        arrays = [np.asarray(array) for array in csr.arrays]
        request = Request(csr.shape, (arrays[0], arrays[1], arrays[2]), k, options)
        with self._slot(deadline, end), self._calling():
            answers, reasons = self._search(request, end, partial)
        missing = tuple(reasons)
        if missing and not (partial and answers):
            told = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
            raise ShardUnavailableError(f"no answer within {deadline:g} s from {told}", missing)
        found = merge_results(list(answers.values()), k)
        if found[0].shape[1] < k:
            found = widened(*found, k)
        return (*found, missing) if partial else found

    @contextlib.contextmanager
    def _slot(self, deadline: float, end: float) -> Iterator[None]:
        """Waits until fewer than `max_in_flight` searches run."""
        acquired = self._slots.acquire(timeout=max(0.0, end - time.monotonic()))
        try:
            if not acquired or time.monotonic() >= end:
                raise OverloadedError(
                    f"deadline={deadline:g}: {self._max_in_flight} other searches were running all "
                    "the time: expected fewer at a time, or a larger max_in_flight"
                )
            yield
        finally:
            if acquired:
                self._slots.release()

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """Keeps `close` from ending Ray meanwhile."""
        with self._lock:
            self._check_open()
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                self._lock.notify_all()

    def _search(
        self, request: Request, end: float, partial: bool
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Asks all shards, on the newest state if a removal has overtaken the one it began on."""
        large = request.nbytes > _INLINE
        sent = self._ray.put(request) if large else request
        while True:
            manifest = self._manifest
            _check_masks(request, manifest)
            try:
                passing = (OSError, DataError) if partial else (OSError,)
                return self._ask("search", manifest.shards, sent, end, passing)
            except ListGoneError:
                self.refresh()
                if self._manifest == manifest:  # it was lost
                    raise

    def health(self, timeout: float = 5.0) -> list[ShardHealth]:
        """Asks each shard how it does; those that do not answer within `timeout` s are not ok."""
        check_number("timeout", timeout, above=0)
        end = time.monotonic() + timeout
        with self._calling():
            shards = self._manifest.shards
            try:
                answers, reasons = self._ask("health", shards, None, end, (OSError, DataError))
            except ListGoneError:  # a removal by another process
                self.refresh()
                shards = self._manifest.shards
                answers, reasons = self._ask("health", shards, None, end, (Exception,))
        return [
            ShardHealth(shard.name, len(shard), True, **answers[shard.name])
            if shard.name in answers
            else ShardHealth(shard.name, len(shard), False, reason=reasons[shard.name])
            for shard in shards
        ]

    def _ask(
        self,
        method: str,
        shards: tuple[Shard, ...],
        argument: Any,
        end: float,
        passing: tuple[type[Exception], ...],
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Calls a method of all shards at once, and again where it fails, until `end`.

        Returns:
            The answers by the shards' names, in their order; and why the others gave none.

        Raises:
            Exception: what the method raised, other than `passing`, after which it is called again.
            ListGoneError: in any case, unless all exceptions pass.
        """
        failures = self._ray.exceptions
        answers: dict[str, Any] = {}
        reasons = {shard.name: "it did not answer" for shard in shards}
        running: dict[Any, tuple[Shard, Any]] = {}
        due = {shard: 0.0 for shard in shards}  # when to call it, if it is not running
        while len(answers) < len(shards) and time.monotonic() < end:
            if self._closed:
                self._cancel(running)
                self._check_open()
            for shard in [shard for shard, moment in due.items() if moment <= time.monotonic()]:
                actor = self._actors[shard.name]
                try:
                    running[getattr(actor, method).remote(shard, argument)] = shard, actor
                    del due[shard]
                except failures.RayError as error:  # too many calls are pending
                    reasons[shard.name] = _reason(error)
                    due[shard] = time.monotonic() + _PAUSE
            pause = max(0.0, min([end, *due.values()]) - time.monotonic())
            pause = min(pause, _GLANCE)
            if not running:
                time.sleep(pause)
                continue
            ready, _ = self._ray.wait(list(running), num_returns=1, timeout=pause)
            for call in ready:
                shard, actor = running.pop(call)
                try:
                    answers[shard.name] = self._ray.get(call)
                    continue
                except failures.RayTaskError as error:
                    gone = isinstance(error.cause, ListGoneError) and Exception not in passing
                    if gone or not isinstance(error.cause, passing):
                        self._cancel(running)
                        raise error.cause from None
                    reasons[shard.name] = _reason(error.cause)
                except failures.ActorDiedError as error:  # for good: Ray does not start it again
                    self._start([shard], instead_of=actor)
                    reasons[shard.name] = _reason(error)
                except failures.RayError as error:
                    reasons[shard.name] = _reason(error)
                due[shard] = time.monotonic() + _PAUSE
        self._cancel(running)
        found = {shard.name: answers[shard.name] for shard in shards if shard.name in answers}
        return found, {name: reason for name, reason in reasons.items() if name not in found}

    def _cancel(self, calls: Iterable[Any]) -> None:
        """Gives calls up: those that have not begun do not begin."""
        for call in calls:
            self._ray.cancel(call)

    def _start(self, shards: Iterable[Shard], instead_of: Any = None) -> None:
        """Starts the processes of shards that have none, or had `instead_of`."""
        options: dict[str, Any] = {
            "num_cpus": 0,
            "scheduling_strategy": "SPREAD",
            "max_restarts": -1,
            "max_task_retries": 0,  # `_ask` does that, and knows the deadline
            "max_concurrency": self._max_in_flight + 1,  # `health` does not wait for searches
            # Calls that were given up may still run: those to come must not pile up behind them.
            "max_pending_calls": 2 * self._max_in_flight + 2,
            **self._actor_options,
        }
        with self._lock:
            self._check_open()
            for shard in shards:
                if self._actors.get(shard.name) is instead_of:
                    server = self._ray.remote(ShardServer).options(**options)
                    self._actors[shard.name] = server.remote(self._folder, self._manifest.dims)

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the index is closed: expected one that is open")


def _array(given: Any) -> np.ndarray | None:
    return None if given is None else np.asarray(given)


def _check_masks(request: Request, manifest: Manifest) -> None:
    """Raises ValueError if a mask does not have a place for every id, as one index does."""
    for name in ("allowed", "forbidden"):
        mask = request.options[name]
        if mask is not None and mask.dtype == np.bool_ and len(mask) < manifest.next_id:
            raise ValueError(
                f"{name} has {len(mask)} places: expected at least {manifest.next_id}, one for "
                "each id from 0 to the largest (or ids)"
            )


def _reason(error: BaseException) -> str:
    """Returns an error in a line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
