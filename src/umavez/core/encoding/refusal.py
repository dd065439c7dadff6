"""Final refusals: exceptions as stored outcomes, raised again with the same type and message."""

from __future__ import annotations

from typing import Any

from umavez.core.encoding.codec import Codec, loaded_class, name_of
from umavez.core.encoding.texts import legible
from umavez.core.key import Key
from umavez.errors import NotStorable, Refused


def written(error: BaseException, codec: Codec, key: Key) -> str:
    """The stored form of `error`: its type, message, arguments and attributes, as far as they can be kept."""
    form: dict[str, Any] = {"error": name_of(type(error)), "message": _message(error)}
    try:
        return codec.encode({**form, "args": _arguments(error), "state": vars(error)}, key)
    except NotStorable:
        return codec.encode({**form, "message": legible(form["message"])}, key)


def revived(text: str, codec: Codec, key: Key) -> BaseException:
    """The exception that `written` was given. Its own type where that is loaded here; else Refused."""
    form = codec.decode(text, key)
    kind = loaded_class(form["error"])
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return Refused(form["message"], form["error"])
    try:
        error = _rebuilt(kind, form)
        if str(error) == form["message"]:
            return error
    except Exception:  # noqa: BLE001  # its author's code (__new__, __str__) may want what was not kept
        return Refused(form["message"], form["error"])
    return Refused(form["message"], form["error"])


def _rebuilt(kind: type[Exception], form: dict[str, Any]) -> Exception:
    args = tuple(form.get("args", (form["message"],)))
    # With its arguments: an OSError keeps its number outside of them, and __new__ is what puts it there.
    error = kind.__new__(kind, *args)
    if getattr(getattr(kind.__init__, "__objclass__", None), "__module__", "") == "builtins":
        # Python's own, as that of a UnicodeError, which keeps all it knows outside. Any other's signature is its
        # author's business, and it may do more than remember.
        kind.__init__(error, *args)
    if not isinstance(error, OSError) or len(args) < _WITH_FILE:
        # Past a __setattr__ of the author's: a frozen dataclass refuses.
        object.__setattr__(error, "args", args)
    vars(error).update(form.get("state", {}))
    return error


_WITH_FILE = 3
"""From so many arguments on, an OSError takes file names out of them."""


def _arguments(error: BaseException) -> list[Any]:
    """What makes `error` again; an OSError does not count the file's name among its arguments."""
    if isinstance(error, OSError) and type(error).__reduce__ is OSError.__reduce__:
        return list(error.__reduce__()[1])
    return list(error.args)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # as above
        return legible(error)
