"""What the tests of several folders use."""

import importlib

from sparse_embed.flags import app


def call(script, *words):
    """Calls a script of the package in this process, with these flags."""
    module = importlib.import_module(f"sparse_embed.experiments.{script}")
    return module.main(app.parse(options_of(module), words))


def options_of(module):
    """Returns the options of a script, as it gives them to `app.run`."""
    return getattr(module, "OPTIONS", None) or module.Options
