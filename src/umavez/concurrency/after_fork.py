"""What a forked child must forget: threads that do not exist in it, and sockets that are its parent's.

One registry for the whole engine. Its members are told in the order in which they were made.
"""

from __future__ import annotations

import os
import threading
import weakref
from itertools import count
from typing import Protocol, runtime_checkable


class Resettable(Protocol):
    """Something that can begin anew."""

    def reset(self) -> None:
        """Forget everything that belongs to the parent. Takes no lock that a thread of the parent may hold."""
        ...


@runtime_checkable
class Holdable(Protocol):
    """Something that must be still while the process forks."""

    def hold(self) -> None:
        """Wait until no thread is inside, and keep it so."""
        ...

    def let_go(self) -> None:
        """The end of `hold`, in the parent. The child is told `reset` instead."""
        ...


_ORDER = count()
_MEMBERS: weakref.WeakKeyDictionary[Resettable, int] = weakref.WeakKeyDictionary()


def reset_after_fork(member: Resettable) -> None:
    """Call `member.reset()` in every child forked from now on, as long as `member` lives; hold it for the fork too."""
    _MEMBERS[member] = next(_ORDER)


def _in_order() -> list[Resettable]:
    members = sorted(_MEMBERS.copy().items(), key=lambda entry: entry[1])
    return [member for member, _ in members]


class _Fork:
    """One fork at a time: two threads that fork at once would hold the same members in two orders."""

    def __init__(self) -> None:
        self._turn = threading.RLock()
        self._held: list[Holdable] = []

    def before(self) -> None:
        self._turn.acquire()
        for member in _in_order():
            if isinstance(member, Holdable):
                member.hold()
                self._held.append(member)

    def after_in_parent(self) -> None:
        while self._held:
            self._held.pop().let_go()
        self._turn.release()

    def after_in_child(self) -> None:
        # The turn is held by a thread of the parent; so are the locks of what was held.
        self._turn = threading.RLock()
        self._held.clear()
        for member in _in_order():
            member.reset()


_FORK = _Fork()
os.register_at_fork(before=_FORK.before, after_in_parent=_FORK.after_in_parent, after_in_child=_FORK.after_in_child)
