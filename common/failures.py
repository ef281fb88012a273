"""Failures that one sentence explains: the scripts print it and exit with the failure's code."""


class Failure(Exception):  # noqa: N818 - not every failure is an error
    """Ends a script with one line on stderr and `exit_code`, without a traceback."""

    exit_code = 1


class UsageError(Failure):
    """A mistake in the arguments; the sentence names the flag, its value and what was expected."""

    exit_code = 2
