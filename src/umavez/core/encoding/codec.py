"""Codec: values to JSON text and back, to the same types. No pickle, nothing imported on the way."""

from __future__ import annotations

import base64
import copy
import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from typing import Any, NamedTuple, Protocol
from uuid import UUID
from zoneinfo import ZoneInfo

from umavez.core.encoding.models import is_model, members_of, namesakes_of, private_of
from umavez.core.key import Key
from umavez.errors import NotStorable

_SAME = frozenset((str, int, bool, type(None)))
_TEXT = frozenset((str,))


class _Around(NamedTuple):
    """What is being written around a value."""

    models: frozenset[int] = frozenset()
    """By id: a private attribute may lead back to one of them."""
    private: bool = False
    """Whether it is a private attribute's."""


_NOTHING = _Around()
_AROUND = ContextVar("umavez_codec_around", default=_NOTHING)


class _Circle(NotStorable):
    """A model is a part of itself."""


class Codec(Protocol):
    """Turns values into JSON text and back. `key` is what the text will be stored under."""

    def encode(self, value: Any, key: Key) -> str:
        """The JSON text of `value`; raises NotStorable when it has none."""
        ...

    def decode(self, text: str, key: Key) -> Any:
        """The value that `encode` was given, of the same type."""
        ...


class JsonCodec:
    """JSON in which datetime, Decimal, UUID, bytes, tuples, sets, dataclasses, pydantic models and enums keep types.

    Dataclasses, models and enums are found again by name among the modules already loaded, never by importing;
    give `types` to allow only those listed.
    """

    def __init__(self, types: Iterable[type] | None = None) -> None:
        self._types = None if types is None else {name_of(kind): kind for kind in types}

    def encode(self, value: Any, key: Key) -> str:
        """The JSON text of `value`; raises NotStorable when a part of it has no form."""
        if value is None:
            return "null"
        try:
            if type(value) is int:
                return str(value)
            kind = type(value)
            if kind is dict:
                plain = _SAME.issuperset(map(type, value.values())) and _TEXT.issuperset(map(type, value))
            else:
                plain = kind is list and _SAME.issuperset(map(type, value))
            # Flat, as most results are, and written by JSON as it is: it need not be copied.
            text = "".join(_WRITE(value, 0)) if plain else ""
            if not text or '"$' in text:
                # Not flat, or it may hold a name that would be taken for one of our tags.
                text = "".join(_WRITE(self._tagged(value), 0))
            if not text.isascii():
                text.encode()  # a lone surrogate is refused here, not by the store
        except (ValueError, RecursionError) as error:
            raise NotStorable(f"The result cannot be written as JSON ({error}).") from error
        return text

    def decode(self, text: str, key: Key) -> Any:
        """The value of `text`, with its types. Raises NotStorable when it does not fit them any more."""
        try:
            if '"$' not in text:
                return _SCAN(text, 0)[0]
            return json.loads(text, object_hook=self._untagged)
        except (NotStorable, json.JSONDecodeError):
            raise
        except StopIteration as error:
            raise json.JSONDecodeError("Expecting value", text, error.value) from None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise NotStorable(
                f"The stored result cannot be read back ({type(error).__name__}: {error}); its type has changed since: "
                "keep what was there before, or read the record as it is with get()."
            ) from error

    def _tagged(self, value: Any) -> Any:
        kind = type(value)
        if kind in _SAME:
            return value
        if kind is dict:
            if all(type(name) is str and not name.startswith("$") for name in value):
                return {name: self._tagged(item) for name, item in value.items()}
            return {"$map": [[self._tagged(name), self._tagged(item)] for name, item in value.items()]}
        if kind is list:
            return [self._tagged(item) for item in value]
        if kind is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if kind in _WRITERS:
            tag, write = _WRITERS[kind]
            return {tag: write(value)}
        return self._tagged_container(value)

    def _tagged_container(self, value: Any) -> Any:
        kind = type(value)
        if kind in _SEQUENCES:
            return {_SEQUENCES[kind]: [self._tagged(item) for item in value]}
        if isinstance(value, Flag):
            # By value: a combination of flags has no name of its own.
            return {"$flag": [self._findable(kind), value.value]}
        if isinstance(value, Enum):
            return {"$enum": [self._findable(kind), value.name]}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            members = {field.name: self._tagged(getattr(value, field.name)) for field in dataclasses.fields(value)}
            return {"$data": [self._findable(kind), members]}
        if is_model(value):
            return {"$model": self._modelled(value)}
        raise NotStorable(
            f"A result of type {kind.__module__}.{kind.__qualname__} cannot be kept; "
            "return plain values, dataclasses, pydantic models or enums, or pass codec=."
        )

    def _modelled(self, value: Any) -> list[Any]:
        """Its class, its members, which of them were given; and in a fourth place what has no name of its own there.

        The members are written as any dict is: what a model was given beyond its fields may bear the name of a tag.
        """
        kind = type(value)
        around = _AROUND.get()
        if id(value) in around.models:
            raise _Circle(f"A {name_of(kind)} that holds itself cannot be kept; return it without.")
        before = _AROUND.set(around._replace(models=around.models | {id(value)}))
        try:
            parts = [self._findable(kind), self._tagged(members_of(value)), sorted(value.model_fields_set)]
            apart: dict[str, Any] = {}
            if namesakes := namesakes_of(value):
                apart["extra"] = self._tagged(namesakes)
            if private := self._private(value):
                apart["private"] = private
        finally:
            _AROUND.reset(before)
        return [*parts, apart] if apart else parts

    def _private(self, value: Any) -> dict[str, Any]:
        """Its private attributes, without tools such as a lock or a way back to what it is a part of: of what cannot
        be kept, the class makes its own."""
        kept: dict[str, Any] = {}
        around = _AROUND.get()
        before = _AROUND.set(around._replace(private=True))
        try:
            for name, item in private_of(value).items():
                try:
                    kept[name] = self._tagged(item)
                except NotStorable as error:
                    if around.private and isinstance(error, _Circle):
                        raise  # to whoever began: left out at every turn, there would be no end of ways around
                    if not self._is_tool(value, name):
                        # Left out, a repeat would be given less than the first run was.
                        what = f"The private attribute {name} of {name_of(type(value))}"
                        raise NotStorable(f"{what} cannot be kept ({error})") from error
        finally:
            _AROUND.reset(before)
        return kept

    def _is_tool(self, value: Any, name: str) -> bool:
        """Whether every model of its class begins with something under `name` that cannot be kept, or with None."""
        try:
            fresh = private_of(_remodelled(type(value), members_of(value), []))
        except Exception:  # noqa: BLE001  # code of its author's: what it begins with is not known
            return False
        try:
            return name in fresh and self._tagged(fresh[name]) is None
        except NotStorable:
            return True

    def _findable(self, kind: type) -> str:
        """The name by which decoding finds `kind` again: what could not come back is refused before it is kept."""
        name = name_of(kind)
        if (self._types.get(name) if self._types is not None else loaded_class(name)) is kind:
            return name
        raise NotStorable(
            f"A result of type {name!r} could not be read back: define it at the top of a module, or add it to types=."
        )

    def _untagged(self, members: dict[str, Any]) -> Any:
        if len(members) != 1:
            return members
        tag, content = next(iter(members.items()))
        reader = _READERS.get(tag)
        if reader is not None:
            return reader(content)
        return self._typed(tag, content) if tag.startswith("$") else members

    def _typed(self, tag: str, content: Any) -> Any:
        match tag:
            case "$map":
                return dict(content)
            case "$enum":
                return self._loaded(content[0], Enum)[content[1]]
            case "$flag":
                return self._loaded(content[0], Flag)(content[1])
            case "$data":
                return _rebuilt(self._loaded(content[0], None), content[1])
            case "$model":
                return _remodelled(self._loaded(content[0], None), *content[1:])
        # A dict of the user's with such a name is kept as a $map, so this is a tag of another codec.
        raise NotStorable(f"the stored result is marked {tag!r}, which this codec does not know; give its codec=")

    def _loaded(self, name: str, parent: type | None) -> Any:
        """The class called `name`. Only dataclasses and enums of modules already loaded: decoding runs no import."""
        kind = self._types.get(name) if self._types is not None else loaded_class(name)
        if isinstance(kind, type) and (issubclass(kind, parent) if parent else _is_record(kind)):
            return kind
        raise NotStorable(f"The stored result has type {name!r}, which is not loaded here; import its module first.")


def name_of(kind: type) -> str:
    """`module:qualname`, by which a stored value names its class."""
    return f"{kind.__module__}:{kind.__qualname__}"


def loaded_class(name: str) -> object:
    """What stands at `module:qualname` among the modules already loaded, or None."""
    module, _, path = name.partition(":")
    found: object = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _is_record(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or hasattr(kind, "__pydantic_validator__")


def _remodelled(
    kind: Any, members: dict[str, Any], given: list[str], apart: dict[str, dict[str, Any]] | None = None
) -> Any:
    """A pydantic model with exactly `members`. Not validated again: a validator would change them a second time.

    Without private attributes, as older records are, they are what the class makes of them.
    """
    fields = kind.model_fields
    missing = [name for name, field in fields.items() if field.is_required() and name not in members]
    if missing:
        raise NotStorable(f"The stored {name_of(kind)} has no {missing[0]!r}, which it now needs; pass codec=.")
    taken = _for_code(members, getattr(kind, "__pydantic_post_init__", None))
    value = kind.model_construct(_fields_set=set(given), **taken)
    # As in _rebuilt: model_post_init has run again; and a field whose alias is the name of another was given its value.
    value.__dict__.update({name: item for name, item in members.items() if name in fields})
    object.__setattr__(value, "__pydantic_fields_set__", set(given))
    apart = apart or {}
    private = {name: item for name, item in apart.get("private", {}).items() if name in kind.__private_attributes__}
    if private:
        object.__setattr__(value, "__pydantic_private__", {**private_of(value), **private})
    if value.model_extra is not None:
        value.model_extra.update(apart.get("extra", {}))
    return value


def _rebuilt(kind: Any, members: dict[str, Any]) -> Any:
    """A dataclass with exactly `members`: built where the constructor takes them, then set field by field.

    The constructor alone is not enough: what its __post_init__ changes would be changed a second time.
    """
    takes = {field.name for field in dataclasses.fields(kind) if field.init}
    taken = _for_code({name: item for name, item in members.items() if name in takes}, hasattr(kind, "__post_init__"))
    try:
        value = kind(**taken)
    except (TypeError, ValueError):
        # It asks for more than its fields (InitVar), or refuses what it once accepted.
        value = object.__new__(kind)
    for name, item in members.items():
        object.__setattr__(value, name, item)
    return value


def _for_code(members: dict[str, Any], code: object) -> dict[str, Any]:
    """Members for a constructor; copies where it runs `code` of its author's, which may change a list in its place."""
    return copy.deepcopy(members) if code else members


def _moment(value: datetime | time) -> str | list[Any]:
    """ISO text; with the zone's name and which of two equal clock times it is, where there is such a thing to say."""
    zone = value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) else None
    if zone is None and not value.fold:
        return value.isoformat()
    bare = value.replace(tzinfo=None) if zone is not None else value
    return [bare.isoformat(), value.fold, zone]


def _momentary(kind: type[datetime | time]) -> Callable[[Any], Any]:
    def read(content: Any) -> Any:
        if isinstance(content, str):
            return kind.fromisoformat(content)
        text, fold, zone = content
        value = kind.fromisoformat(text).replace(fold=fold)
        return value if zone is None else value.replace(tzinfo=ZoneInfo(zone))

    return read


def _seconds(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


_WRITERS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    datetime: ("$datetime", _moment),
    date: ("$date", date.isoformat),
    time: ("$time", _moment),
    timedelta: ("$timedelta", _seconds),
    Decimal: ("$decimal", str),
    UUID: ("$uuid", str),
    bytes: ("$bytes", lambda value: base64.b64encode(value).decode()),
}
_SEQUENCES: dict[type, str] = {tuple: "$tuple", set: "$set", frozenset: "$frozenset"}
_READERS: dict[str, Callable[[Any], Any]] = {
    "$datetime": _momentary(datetime),
    "$date": date.fromisoformat,
    "$time": _momentary(time),
    "$timedelta": lambda parts: timedelta(*parts),
    "$decimal": Decimal,
    "$uuid": UUID,
    "$bytes": base64.b64decode,
    "$float": float,
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
}


def _writer() -> Callable[[Any, int], Iterable[str]]:
    """`JSONEncoder.iterencode` with its C encoder made once: making one for each value takes longer than using it.

    It looks for no cycles: what is encoded was walked by `_tagged`, or is flat.
    """
    plain = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return lambda value, _: plain.iterencode(value)
    write: Callable[[Any, int], Iterable[str]] = make(
        None, plain.default, json.encoder.encode_basestring, None, ":", ",", False, False, False
    )
    return write


_WRITE = _writer()
"""Gives the parts of a value's text; its second argument is for indentation, and 0."""
_SCAN: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # raw_decode's
"""The decoder's own scanner: what was encoded here has no space around it to skip. Raises StopIteration for no JSON."""
