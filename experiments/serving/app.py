"""The service as an ASGI application; `create_app` makes one of a `Collection`."""

import asyncio
import contextlib
import pathlib
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import anyio
import numpy as np
import scipy.sparse
from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect

from sparse_embed.common.failures import Failure
from sparse_embed.experiments.serving import answers, reading, schema
from sparse_embed.experiments.serving.batching import Batcher
from sparse_embed.experiments.serving.collection import Collection, ids_of
from sparse_embed.experiments.serving.limits import Guard, Limits, refuse
from sparse_embed.experiments.serving.metrics import Metrics
from sparse_embed.experiments.serving.refusals import Refusal

_HERE = pathlib.Path(__file__).parent
_LOCAL = ["127.0.0.1", "localhost", "[::1]"]
_DECODERS = 2  # images that are decoded at a time: each may take 15 bytes per pixel
_MOST_SHOWN = 100  # rows of a dimension
_SHARE_OF_SEARCH = 0.8  # of the time of an answer, after which absent shards are given up
_HEALTH_SECONDS = 2.0
_TINY = float(np.finfo(np.float32).tiny)  # a row that does not activate a dimension is no result

# Nothing is loaded from elsewhere, by this page or by what a picture may pretend to be.
_PAGE_POLICY = (
    "default-src 'none'; img-src 'self' blob: data:; connect-src 'self'; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
_PAGE_HEADERS = {"Content-Security-Policy": _PAGE_POLICY, "Referrer-Policy": "no-referrer"}
_PICTURE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, max-age=60",
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": schema.Error, "description": "The request is refused, in one sentence."},
    "5XX": {"model": schema.Error, "description": "It cannot be answered now, and why."},
}

RowId = Annotated[int, Path(ge=0, le=2**63 - 1)]
QueryOptions = Annotated[schema.Options, Query()]


def create_app(
    collection: Collection, limits: Limits | None = None, hosts: list[str] | None = None
) -> FastAPI:
    """Returns the application.

    Args:
        collection: what it answers from; it is closed when the application ends.
        limits: what it takes.
        hosts: names under which browsers may reach it; by default those of this machine. A page
            elsewhere whose name was made to point here gets nothing.
    """
    limits = limits or Limits()
    metrics = Metrics(collection.index.shape[0])
    service = _Service(collection, limits, metrics)
    app = FastAPI(
        title="sparse-embed",
        description="Nearest neighbours by sparse embeddings. The service only reads.",
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere
        redoc_url=None,
        lifespan=service.lifespan,
    )
    app.add_middleware(Guard, limits=limits, metrics=metrics)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts or _LOCAL)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Failure, _failed)
    app.add_exception_handler(ClientDisconnect, _gone)
    _add_pages(app)
    _add_state(app, service)
    _add_searches(app, service)
    _add_rows(app, service)
    return app


class _Service:
    """A collection with the worker that searches it."""

    def __init__(self, collection: Collection, limits: Limits, metrics: Metrics):
        self.collection, self.limits, self.metrics = collection, limits, metrics
        self.batcher: Batcher[answers.Query] | None = None
        self.probe: asyncio.Task[Any] | None = None  # of the shards' health, while it runs

    @contextlib.asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Runs the worker while the application runs."""
        del app
        deadline = _SHARE_OF_SEARCH * self.limits.seconds
        self.batcher = Batcher(
            lambda queries: answers.answer_all(self.collection, queries, deadline)
        )
        self.decoders = asyncio.Semaphore(_DECODERS)
        try:
            await self.warm_up()
            yield
        finally:
            await anyio.to_thread.run_sync(self.batcher.close)
            self.collection.close()

    async def warm_up(self) -> None:
        """Has one query answered, so that the first client need not wait for what is lazy."""
        if self.collection.image_shape is None:
            nothing = scipy.sparse.csr_array((1, self.collection.index.shape[1]), dtype=np.float32)
            query = answers.Query(1, vector=nothing)
        else:
            image = await anyio.to_thread.run_sync(
                reading.decoded, reading.BLANK, self.collection.image_shape, 1
            )
            shortlist = None if self.collection.dense_encoder is None else 1
            query = answers.Query(1, image=image, shortlist=shortlist)
        assert self.batcher is not None
        await asyncio.wrap_future(self.batcher.submit(query))

    async def decoded(self, data: bytes) -> np.ndarray:
        """Decodes an image beside few others; one that was given up counts until it is done."""
        assert self.collection.image_shape is not None
        await self.decoders.acquire()
        task = asyncio.ensure_future(
            asyncio.to_thread(
                reading.decoded, data, self.collection.image_shape, self.limits.pixels
            )
        )
        task.add_done_callback(self._decoder_is_free)
        return await asyncio.shield(task)

    def _decoder_is_free(self, task: "asyncio.Task[np.ndarray]") -> None:
        self.decoders.release()
        if not task.cancelled():
            task.exception()  # nobody may be there any more to be told

    async def why_not_ready(self) -> str | None:
        """Returns why searches are not answered, in one sentence; None if they are."""
        if self.batcher is None or not self.batcher.is_alive:
            return "The worker that searches has ended: start the service again."
        if hasattr(self.collection.index, "health"):
            away = [shard for shard in await self._health() if not shard.ok]
            if away:
                return f"{away[0].name} does not answer: {away[0].reason}."
        return None

    async def _health(self) -> Any:
        """Asks the shards how they do, unless they are being asked: then all wait for that answer.

        A shard that does not answer thus holds one thread, however many ask, of those that queries
        need too.
        """
        if self.probe is None:
            self.probe = asyncio.ensure_future(
                asyncio.to_thread(self.collection.index.health, _HEALTH_SECONDS)
            )
            self.probe.add_done_callback(self._probe_is_over)
        return await asyncio.shield(self.probe)

    def _probe_is_over(self, probe: "asyncio.Task[Any]") -> None:
        self.probe = None
        if not probe.cancelled():
            probe.exception()  # nobody may be there any more to be told

    async def answer(
        self, query: answers.Query, start: float, decoding: float = 0
    ) -> schema.Answer:
        """Has a query answered beside others, and returns a `schema.Answer`."""
        assert self.batcher is not None
        done = await asyncio.wrap_future(self.batcher.submit(query))
        found: answers.Answer = done.answer
        seconds = {"decode": decoding, **found.seconds}
        seconds["wait"] += done.waited
        for stage, taken in seconds.items():
            self.metrics.stages.labels(stage).observe(taken)
        self.metrics.batches.observe(done.batch)
        seconds["total"] = time.perf_counter() - start
        return schema.Answer(
            results=self.results(found.scores, found.ids, found.codes),
            query=code(found.code),
            milliseconds={stage: round(1e3 * taken, 3) for stage, taken in seconds.items()},
            batch=done.batch,
        )

    def results(self, scores: Any, ids: Any, codes: Any = None) -> list[schema.Result]:
        """Returns rows as clients get them."""
        return [
            schema.Result(
                id=number,
                score=score,
                code=None if codes is None else code(codes, place),
                **self.shown(number),
            )
            for place, (score, number) in enumerate(zip(scores.tolist(), ids.tolist(), strict=True))
        ]

    def shown(self, number: int) -> dict[str, str]:
        """Returns the name of a row's picture, and where it is."""
        pictures = self.collection.pictures
        if pictures is None or not number < len(pictures):
            return {}
        return {"name": pictures.name(number), "picture": f"rows/{number}/picture"}


def code(rows: scipy.sparse.csr_array, place: int = 0) -> schema.Code:
    """Returns one row of a CSR matrix as clients get it."""
    part = slice(rows.indptr[place], rows.indptr[place + 1])
    return schema.Code(indices=rows.indices[part].tolist(), values=rows.data[part].tolist())


def _add_pages(app: FastAPI) -> None:
    pages = {path: (_HERE / f"{path or 'page'}.html").read_text("utf-8") for path in ("", "docs")}

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page() -> Response:
        return HTMLResponse(pages[""], headers=_PAGE_HEADERS)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(pages["docs"], headers=_PAGE_HEADERS)


def _add_state(app: FastAPI, service: _Service) -> None:
    collection, limits = service.collection, service.limits

    @app.get("/health", tags=["state"])
    async def health() -> schema.State:
        """Whether the process answers at all."""
        return schema.State(status="ok")

    @app.get("/ready", tags=["state"], responses={503: {"model": schema.Error}})
    async def ready() -> schema.State:
        """Whether searches are answered."""
        if (why := await service.why_not_ready()) is not None:
            raise Refusal(503, why)
        return schema.State(status="ready")

    @app.get("/metrics", tags=["state"])
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    @app.get("/info", tags=["state"])
    async def info() -> schema.Info:
        """What this service can do."""
        shape, pictures = collection.image_shape, collection.pictures
        return schema.Info(
            rows=collection.index.shape[0],
            ids=ids_of(collection.index),
            dimensions=collection.index.shape[1],
            images=shape is not None,
            image_shape=None if shape is None else list(shape),
            rerank=collection.dense is not None,
            rerank_images=collection.dense_encoder is not None,
            codes=collection.has_codes,
            filters=collection.has_filters,
            pictures=pictures is not None,
            dark_paper=pictures is not None and pictures.dark_paper,
            largest_body=limits.body,
            largest_pixels=limits.pixels,
        )


def _add_searches(app: FastAPI, service: _Service) -> None:
    collection = service.collection
    binary = {"schema": {"type": "string", "format": "binary"}}
    body = {"requestBody": {"required": True, "content": {"image/*": binary}}}

    @app.post("/search/image", tags=["search"], responses=_ERRORS, openapi_extra=body)
    async def search_image(request: Request, options: QueryOptions) -> schema.Answer:
        """Searches for an image: the body is a JPEG, PNG, GIF or BMP."""
        start = time.perf_counter()
        if collection.image_shape is None:
            raise Refusal(422, "This service has no encoder: search by vector or by id.")
        data = await request.body()
        decoding = time.perf_counter()
        image = await service.decoded(data)
        decoding = time.perf_counter() - decoding
        query = reading.of_image(collection, options, image)
        return await service.answer(query, start, decoding)

    @app.get("/search/id/{number}", tags=["search"], responses=_ERRORS)
    async def search_id(number: RowId, options: QueryOptions) -> schema.Answer:
        """Searches for what is most like a row; the row itself is left out."""
        start = time.perf_counter()
        return await service.answer(reading.of_row(collection, options, number), start)

    @app.post("/search/vector", tags=["search"], responses=_ERRORS)
    async def search_vector(given: schema.VectorQuery) -> schema.Answer:
        """Searches for a sparse vector."""
        start = time.perf_counter()
        return await service.answer(reading.of_vector(collection, given), start)

    @app.get("/dimensions/{dimension}", tags=["rows"], responses=_ERRORS)
    async def dimension(
        dimension: int,
        k: Annotated[int, Query(ge=1, le=_MOST_SHOWN)] = 12,
        sign: Literal["1", "-1"] = "1",
    ) -> schema.Activation:
        """The rows that activate a dimension most; with sign=-1 those below zero."""
        dims = collection.index.shape[1]
        if not 0 <= dimension < dims:
            raise Refusal(404, f"dimension {dimension}: expected 0 to {dims - 1}.")
        # The score of a row with this query is its value in the dimension.
        unit = scipy.sparse.csr_array(([np.float32(sign)], ([0], [dimension])), shape=(1, dims))
        query = answers.Query(k, threshold=_TINY, vector=unit)
        assert service.batcher is not None
        found = (await asyncio.wrap_future(service.batcher.submit(query))).answer
        scores = found.scores * np.float32(sign)
        return schema.Activation(dimension=dimension, results=service.results(scores, found.ids))


def _add_rows(app: FastAPI, service: _Service) -> None:
    collection = service.collection

    @app.get("/rows/{number}", tags=["rows"], responses=_ERRORS)
    async def row(number: RowId) -> schema.Row:
        """A row: its name and its sparse embedding."""
        reading.check_row(collection, number)
        found = code(collection.index.reconstruct([number]))
        return schema.Row(id=number, code=found, **service.shown(number))

    @app.get("/rows/{number}/picture", tags=["rows"], responses=_ERRORS, response_class=Response)
    def picture(number: RowId) -> Response:
        """The picture of a row."""
        if collection.pictures is None:
            raise Refusal(404, "This service has no pictures.")
        found = collection.pictures.read(number)
        return Response(found.data, media_type=found.media_type, headers=_PICTURE_HEADERS)


async def _refused(request: Request, error: Any) -> JSONResponse:
    """Tells why; what Starlette refuses by itself is a path or a method that is not there."""
    if error.status_code == 400:  # FastAPI's word for JSON that it cannot read
        error = Refusal(422, "The body is no JSON.")
    if not isinstance(error, Refusal):
        sentence = f"{request.method} {request.url.path}: expected a path and a method of /docs."
        error = Refusal(error.status_code, sentence, error.headers)
    return refuse(error)


async def _invalid(request: Request, error: Any) -> JSONResponse:
    """Tells the first thing that is wrong with a request."""
    del request
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return refuse(Refusal(422, "The body is no JSON."))
    where = ".".join(str(part) for part in first["loc"][1:]) or "body"
    what = str(first["msg"])
    return refuse(Refusal(422, f"{where:.80}: {what[:1].lower()}{what[1:]}."))


async def _gone(request: Request, error: Any) -> JSONResponse:
    """Ends a request whose client has left; nobody reads this."""
    del request, error
    return refuse(Refusal(499, "The client has left."))


async def _failed(request: Request, error: Any) -> JSONResponse:
    """Tells what failed on our side, such as shards that do not answer."""
    del request
    return refuse(Refusal(503, f"{error}."))
