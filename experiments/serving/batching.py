"""Queries that come at the same time share one call of the search.

One thread works. It never waits for a batch to fill: it takes what has come while it was busy. So
a query alone is answered at once, and under load batches grow by themselves.
"""

import concurrent.futures
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from sparse_embed.common.failures import Failure

Job = TypeVar("Job")


class Done(NamedTuple):
    """What became of a job.

    Attributes:
        answer: of the job.
        waited: seconds until the worker took it.
        batch: how many jobs it took together.
    """

    answer: Any
    waited: float
    batch: int


class _Waiting(NamedTuple, Generic[Job]):
    job: Job
    future: "concurrent.futures.Future[Done]"
    since: float


class Batcher(Generic[Job]):
    """Gives jobs to a function in batches, in a thread of its own.

    A job whose future was cancelled before its turn is dropped. If a batch fails, its jobs are
    tried one by one, so that one job's failure is not the others'; but a `Failure`, such as shards
    that do not answer, is that of all.

    Args:
        work: jobs -> their answers, in the same order.
        largest: jobs that are given at once, at most.
    """

    def __init__(self, work: Callable[[list[Job]], list[Any]], largest: int = 32):
        self._work, self._largest = work, largest
        self._waiting: queue.SimpleQueue[_Waiting[Job] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="search", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the worker takes jobs."""
        return self._thread.is_alive()

    def submit(self, job: Job) -> "concurrent.futures.Future[Done]":
        """Puts a job into the queue; its future has a `Done`, or raises what the work raised."""
        future: concurrent.futures.Future[Done] = concurrent.futures.Future()
        self._waiting.put(_Waiting(job, future, time.perf_counter()))
        return future

    def close(self) -> None:
        """Ends the worker after what it has; jobs that come later are not done."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            taken = [self._waiting.get()]
            # This thread alone takes: what is there now stays there.
            more = min(self._waiting.qsize(), self._largest - 1)
            taken += [self._waiting.get() for _ in range(more)]
            batch = []
            for waiting in taken:
                if waiting is None:
                    is_open = False
                elif waiting.future.set_running_or_notify_cancel():
                    batch.append(waiting)
            if batch:
                self._answer(batch, time.perf_counter())

    def _answer(self, batch: list[_Waiting[Job]], now: float) -> None:
        try:
            answers = self._work([waiting.job for waiting in batch])
        except Exception as error:  # whatever it is belongs to whoever asked
            if len(batch) == 1 or isinstance(error, Failure):
                for waiting in batch:
                    waiting.future.set_exception(error)
                return
            for waiting in batch:
                self._answer([waiting], now)
            return
        for waiting, answer in zip(batch, answers, strict=True):
            waiting.future.set_result(Done(answer, now - waiting.since, len(batch)))
