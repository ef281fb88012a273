"""How much a client may ask for: bytes of a body, requests at a time, seconds."""

import asyncio
import contextlib
import dataclasses
import time
from typing import Any

from starlette.responses import JSONResponse

from sparse_embed.experiments.serving.metrics import Metrics
from sparse_embed.experiments.serving.refusals import Refusal

_FREE = frozenset({"/health", "/ready", "/metrics"})  # answered however busy the service is


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one service takes.

    Attributes:
        body: bytes of a request.
        pixels: of an image, before it is scaled.
        queue: requests that are answered at a time; more are refused.
        seconds: from a request to its answer.
    """

    body: int = 8 << 20
    pixels: int = 16_000_000
    queue: int = 64
    seconds: float = 10.0


class Guard:
    """ASGI middleware that keeps the limits and counts requests.

    Every refusal is `{"error": "one sentence"}`. The rest of a body that is too large is read and
    dropped, within the time limit, so that the client comes to read the refusal.
    """

    def __init__(self, app: Any, limits: Limits, metrics: Metrics):
        self._app, self._limits, self._metrics = app, limits, metrics
        self._in_flight = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers or refuses one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, start = 0, time.perf_counter()
        is_free = scope["path"] in _FREE

        async def noting(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._in_flight += not is_free
        self._metrics.in_flight.set(self._in_flight)
        try:
            if self._in_flight > self._limits.queue and not is_free:
                sentence = f"{self._limits.queue} requests are being answered: try again later."
                raise Refusal(503, sentence, {"Retry-After": "1"})
            await asyncio.wait_for(self._admitted(scope, receive, noting), self._limits.seconds)
        except Refusal as refusal:
            await refuse(refusal)(scope, receive, noting)
        except asyncio.TimeoutError:
            if not status:
                sentence = f"The answer took longer than {self._limits.seconds:g} seconds."
                await refuse(Refusal(504, sentence))(scope, receive, noting)
        finally:
            self._in_flight -= not is_free
            self._metrics.in_flight.set(self._in_flight)
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.requests.labels(route, status or 500).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - start)

    async def _admitted(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers a request, unless its body is too large."""
        most, taken = self._limits.body, 0
        too_large = Refusal(413, f"The body is too large: expected at most {most:,} bytes.")
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > most:
                await self._drop(receive)
                raise too_large

        async def limited() -> Any:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > most:
                if message.get("more_body"):
                    await self._drop(receive)
                raise too_large
            return message

        await self._app(scope, limited, send)

    async def _drop(self, receive: Any) -> None:
        """Reads what is left of a body and forgets it; gives up in time for the refusal."""

        async def read() -> None:
            while (await receive()).get("more_body"):
                pass

        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(read(), self._limits.seconds / 2)


def refuse(refusal: Refusal) -> JSONResponse:
    """Returns the response that a refusal is."""
    return JSONResponse({"error": refusal.detail}, refusal.status_code, refusal.headers)
