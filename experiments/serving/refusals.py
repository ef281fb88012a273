"""Requests that are not answered: a status of HTTP and one sentence."""

from starlette.exceptions import HTTPException


class Refusal(HTTPException):
    """What a client is told instead of an answer: a status, and one sentence of what was wrong."""


def unknown_id(number: int) -> Refusal:
    """No row has this id."""
    return Refusal(404, f"id {number}: expected the id of a row.")
