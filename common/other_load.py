"""How busy other processes keep the machine while something is timed."""

import time


class OtherLoad:
    """How many cores other processes keep busy while this context lasts.

    Attributes:
        cores: set at the end.
    """

    cores = 0.0

    def __enter__(self) -> "OtherLoad":
        self._start = self._read()
        return self

    def __exit__(self, *raised: object) -> None:
        elapsed, busy, own = (
            now - then for now, then in zip(self._read(), self._start, strict=True)
        )
        self.cores = max(0.0, (busy - own) / max(elapsed, 1e-9))

    @staticmethod
    def _read() -> tuple[float, float, float]:
        """Returns the time, the busy seconds of all cores, and those of this process."""
        import psutil  # of the extra `baselines`

        times = psutil.cpu_times()
        busy = sum(times) - times.idle - getattr(times, "iowait", 0.0)
        # Guests' time is counted as user time already.
        busy -= getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        return time.perf_counter(), busy, time.process_time()
