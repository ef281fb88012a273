"""Runs the application until it is stopped."""

import contextlib
import socket
import threading
import webbrowser

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sparse_embed.common.failures import UsageError
from sparse_embed.experiments.serving.app import create_app
from sparse_embed.experiments.serving.collection import Collection
from sparse_embed.experiments.serving.limits import Limits

_LOCAL = ("127.0.0.1", "localhost", "::1")
_BACKLOG = 128  # connections that wait
_GRACE = 5  # seconds that requests in flight have when the service is stopped
_LARGEST_HEAD = 1 << 18  # bytes of a request line and headers; ids are given there, too


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 that refuses an endless head, which its parser would keep in memory."""

    _head = 0
    _in_head = True

    def on_message_begin(self) -> None:
        """Begins a request."""
        self._head, self._in_head = 0, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Ends its head."""
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Takes what has come."""
        super().data_received(data)
        self._head += len(data)
        if self._in_head and self._head > _LARGEST_HEAD and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")


def run(collection: Collection, limits: Limits, host: str, port: int, show: bool = False) -> None:
    """Serves a collection until SIGINT or SIGTERM.

    Args:
        collection: what to answer from.
        limits: what a client may ask for.
        host: address to listen at.
        port: 0 for any that is free.
        show: whether to open the page in a browser.
    """
    with _listen(host, port) as listener:
        number = listener.getsockname()[1]
        address = f"http://{f'[{host}]' if ':' in host else host}:{number}"
        # Elsewhere, clients may know this machine by any name.
        hosts = None if host in _LOCAL else ["*"]
        config = uvicorn.Config(
            create_app(collection, limits, hosts),
            log_level="warning",
            access_log=False,
            server_header=False,
            http=Protocol,
            ws="none",
            timeout_graceful_shutdown=_GRACE,
        )
        rows, dims = collection.index.shape
        about = f"{rows:,} rows of {dims} dimensions; {address}/docs; Ctrl-C ends it"
        print(f"{address}: {about}", flush=True)
        if show:
            timer = threading.Timer(1.0, _show, [address])
            timer.daemon = True
            timer.start()
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio asks for the protocol by name before it turns Nagle's algorithm off, without which the
    # body of an answer would wait 40 ms for the client to acknowledge its head.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)  # at once: whoever comes while encoders warm up waits
    except OSError as error:
        listener.close()
        raise UsageError(
            f"--host={host} --port={port}: expected an address that is free ({error.strerror})"
        ) from error
    return listener


def _show(address: str) -> None:
    if not webbrowser.open(address):
        print(f"no browser was found: open {address}")
