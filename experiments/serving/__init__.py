"""The HTTP service: what `serve` calls.

The way of a request: `limits` admits it, `app` reads it into what `schema` describes, `batching`
puts it beside others that wait, `answers` encodes, searches and re-ranks in a `collection`.
"""

from sparse_embed.common.extras import require

require(__name__, "serve", "fastapi", "prometheus_client", "pydantic", "uvicorn")
