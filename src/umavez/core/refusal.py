"""Final refusals: exceptions as stored outcomes, raised again with the same type and message."""

from __future__ import annotations

from typing import Any

from umavez.core.codec import Codec, loaded_class, name_of
from umavez.core.key import Key
from umavez.errors import NotStorable, Refused


def written(error: BaseException, codec: Codec, key: Key) -> str:
    """The stored form of `error`: its type, message, arguments and attributes, as far as they can be kept."""
    form: dict[str, Any] = {"error": name_of(type(error)), "message": str(error)}
    try:
        return codec.encode({**form, "args": list(error.args), "state": vars(error)}, key)
    except NotStorable:
        return codec.encode(form, key)


def revived(text: str, codec: Codec, key: Key) -> BaseException:
    """The exception that `written` was given. Its own type where that is loaded here; else Refused."""
    form = codec.decode(text, key)
    kind = loaded_class(form["error"])
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return Refused(form["message"], form["error"])
    # Not through __init__: its signature is the author's business, and it may do more than remember.
    args = tuple(form.get("args", (form["message"],)))
    # With its arguments: an OSError keeps its number outside of them, and __new__ is what puts it there.
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(form.get("state", {}))
    return error if str(error) == form["message"] else Refused(form["message"], form["error"])
