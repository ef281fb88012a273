"""Lets indexes survive `os.fork`.

A fork copies the locks of all indexes: nobody may be within one at that moment.
"""

import os
import weakref

from sparse_embed.retrieval import _index

_living: "weakref.WeakKeyDictionary[object, _index.SparseIndex]" = weakref.WeakKeyDictionary()
_forking: list[_index.SparseIndex] = []


def register(owner: object, index: _index.SparseIndex) -> None:
    """Looks after `index` for as long as `owner` lives."""
    _living[owner] = index


def _before_fork() -> None:
    _forking.extend(list(_living.values()))
    for index in _forking:
        index.before_fork()


def _after_fork(in_child: bool) -> None:
    while _forking:
        _forking.pop().after_fork(in_child)


os.register_at_fork(
    before=_before_fork,
    after_in_parent=lambda: _after_fork(False),
    after_in_child=lambda: _after_fork(True),
)
