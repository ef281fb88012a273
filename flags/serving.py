"""Where a service listens, and how much a client may ask for."""

from absl import flags

from sparse_embed.flags.shared import defined_on_import

__getattr__ = defined_on_import(
    globals(),
    {
        "HOST": lambda: flags.DEFINE_string(
            "host",
            "127.0.0.1",
            "Address to listen at; 0.0.0.0 lets all machines in that reach this one.",
        ),
        "PORT": lambda: flags.DEFINE_integer(
            "port", 8000, "Port to listen at; 0 for any that is free.", 0, 65535
        ),
        "MAX_BODY": lambda: flags.DEFINE_integer(
            "max_body", 8 << 20, "Bytes of a request, at most.", lower_bound=1
        ),
        "MAX_PIXELS": lambda: flags.DEFINE_integer(
            "max_pixels", 16_000_000, "Pixels of an uploaded image, at most.", 1, 10**8
        ),
        "MAX_QUEUE": lambda: flags.DEFINE_integer(
            "max_queue", 64, "Requests that are answered at a time, at most.", lower_bound=1
        ),
        "MAX_SECONDS": lambda: flags.DEFINE_float(
            "max_seconds", 10.0, "Seconds that an answer may take.", lower_bound=0.01
        ),
        "OPEN_PAGE": lambda: flags.DEFINE_bool(
            "open_page", False, "Opens the page in a browser, too."
        ),
    },
)
