"""Parts of embeddings on Ray: long-lived workers, each of which loads the encoder once.

A worker that dies is started again by Ray, which then repeats the part that it had. A part is
written atomically, so that repeating it does no harm.
"""

import dataclasses
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from sparse_embed.common import ray_session
from sparse_embed.common.failures import Failure, UsageError
from sparse_embed.experiments.evaluation.embedding_parts import Outcome, Parts, Work

_TRIES = 3  # how often Ray tries a part whose worker dies


class Worker:
    """A process with an encoder and the examples.

    Args:
        work: what to embed.
        threads: how many threads TensorFlow may use.
    """

    def __init__(self, work: Work, threads: int):
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        self._parts = Parts(work)
        self._parts.prepare()
        self._name = f"{socket.gethostname()} {os.getpid()}"

    def name(self) -> str:
        """Returns the machine and the process."""
        return self._name

    def embed(self, number: int) -> tuple[str, Outcome]:
        """Embeds a part; returns which worker did it, and what came of it."""
        return self._name, self._parts.embed(number)


class Workers:
    """Some workers on Ray, which end with this context.

    Args:
        work: what they embed; its paths must mean the same on all machines.
        count: how many.
        cpus: cores that each one gets.
        address: see `ray_session.join`.
        temp_folder: see `ray_session.join`.
    """

    def __init__(
        self,
        work: Work,
        count: int,
        cpus: int = 1,
        address: str | None = None,
        temp_folder: str | None = None,
    ):
        ray_session.require_ray("--workers")
        self._work, self._count, self._cpus = work, count, cpus
        self._where = address, temp_folder

    def __enter__(self) -> "Workers":
        try:
            ray = ray_session.join("--workers", *self._where)
        except ConnectionError as error:
            raise UsageError(
                f"--ray_address={self._where[0]}: expected a Ray cluster: {error}"
            ) from error
        try:
            self.actors = self._start(ray)
        except BaseException:
            ray_session.leave()
            raise
        return self

    def _start(self, ray: Any) -> list[Any]:
        """Returns the workers when all have loaded the encoder."""
        cores = int(ray.cluster_resources().get("CPU", 0))
        if self._count * self._cpus > cores:
            raise UsageError(
                f"--workers={self._count}, --worker_cpus={self._cpus}: Ray has {cores} cores: "
                "expected no more in all, or the last workers would never start"
            )
        work = self._work
        folder, data_dir = work.image_folder, work.data_dir
        work = dataclasses.replace(  # a worker may have another working directory
            work,
            model_dir=work.model_dir.absolute(),
            output=work.output.absolute(),
            image_folder=folder.absolute() if folder else None,
            data_dir=os.path.abspath(data_dir) if data_dir else None,
        )
        actor = ray.remote(num_cpus=self._cpus, max_restarts=-1, max_task_retries=_TRIES - 1)(
            Worker
        )
        actors = [actor.remote(work, self._cpus) for _ in range(self._count)]
        try:
            ray.get([actor.name.remote() for actor in actors])
        except ray.exceptions.RayActorError as error:
            raise Failure(f"a worker does not start: {str(error).splitlines()[-1]}") from error
        return actors

    def __exit__(self, *raised: object) -> None:
        ray_session.leave()

    def embed(
        self, numbers: list[int], workers: int | None = None
    ) -> Iterator[tuple[str, Outcome]]:
        """Yields what came of each part, as they end.

        Args:
            numbers: the parts.
            workers: how many of the workers take part; None for all.
        """
        import ray
        from ray.util import ActorPool

        pool = ActorPool(self.actors[:workers])
        try:
            yield from pool.map_unordered(lambda actor, part: actor.embed.remote(part), numbers)
        except ray.exceptions.RayActorError as error:
            raise Failure(
                f"a worker died {_TRIES} times at the same part: {str(error).splitlines()[0]}"
            ) from error
        except ray.exceptions.RayTaskError as error:
            raise _cause(error) from error


def _cause(error: Any) -> Exception:
    """Returns what a worker raised, so that a script shows it in one line."""
    return error.cause if isinstance(error.cause, Failure | OSError) else error


def timed(outcomes: Iterator[tuple[str, Outcome]], ended: Callable[[Outcome], None]) -> "Rate":
    """Waits for all outcomes; returns how fast they came."""
    begin = time.perf_counter()
    by_worker: dict[str, tuple[int, float]] = {}
    for name, outcome in outcomes:
        rows, seconds = by_worker.get(name, (0, 0.0))
        by_worker[name] = rows + outcome.rows, seconds + outcome.seconds
        ended(outcome)
    return Rate(by_worker, time.perf_counter() - begin)


class Rate:
    """Rows per second: of each worker while it worked, and of all together.

    Attributes:
        by_worker: name -> (rows, seconds).
        seconds: that all took.
    """

    def __init__(self, by_worker: dict[str, tuple[int, float]], seconds: float):
        self.by_worker, self.seconds = by_worker, seconds

    @property
    def together(self) -> float:
        """Rows per second of all workers."""
        return sum(rows for rows, _ in self.by_worker.values()) / max(self.seconds, 1e-9)
