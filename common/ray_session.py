"""Ray, which several parts of the package use: it starts by itself, or joins a cluster.

Only this module says how. Ray is imported when it is first needed.
"""

import logging
import os
import threading
from typing import Any

from sparse_embed.common.extras import require

_lock = threading.Lock()
_users = 0
_ours = False  # whether we started or joined it, and so leave it


def require_ray(user: str) -> None:
    """Raises ImportError in one line that names the extra, unless Ray is installed."""
    require(user, "distributed", "ray")


def join(user: str, address: str | None = None, temp_folder: str | None = None) -> Any:
    """Returns the module `ray`, connected; each call needs a call of `leave`.

    A Ray that the process is connected to already is used as it is. Otherwise `address`, or else
    the variable RAY_ADDRESS, names the cluster to join. Without either, Ray starts on this machine
    and listens on 127.0.0.1 alone (unless `ray` was imported before), without dashboard and usage
    statistics.

    Args:
        user: what needs Ray, for the error if it is not installed.
        address: as for `ray.init`: "auto" or "host:port".
        temp_folder: where a Ray that is started here keeps sockets and logs; by default RAY_TMPDIR
            or /tmp/ray. Sockets allow about 40 characters.
    """
    global _users, _ours
    require_ray(user)
    here = address is None and not os.environ.get("RAY_ADDRESS")
    if here:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Ray's servers let anyone run code who reaches them. On macOS and Windows they listen on
        # the loopback interface alone; this, read when ray is imported, has the same on Linux.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray

    with _lock:
        if not ray.is_initialized():
            options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
            if here:
                options |= {"address": "local", "include_dashboard": False}
                options |= {"_node_ip_address": "127.0.0.1", "_temp_dir": temp_folder}
            else:
                options["address"] = address
            ray.init(**options)
            _ours = True
        _users += 1
    return ray


def leave() -> None:
    """Ends what `join` began; the last one shuts down what we started, or leaves a cluster."""
    global _users, _ours
    with _lock:
        _users -= 1
        if _users == 0 and _ours:
            import ray

            ray.shutdown()
            _ours = False
