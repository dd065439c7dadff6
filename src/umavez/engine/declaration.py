"""Plan: an operation as declared. Turns calls into intents and values into what is kept, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, NoReturn
from uuid import UUID

from umavez.core.encoding.codec import Codec
from umavez.core.encoding.fingerprint import fingerprint
from umavez.core.encoding.refusal import revived, written
from umavez.core.encoding.texts import legible
from umavez.core.key import Key, checked, prefix_of
from umavez.core.policy import OPTIONS, Answer, CannotTell, NotHappened, Policy, declare
from umavez.core.protocol import Intent
from umavez.core.record import Record, Settled
from umavez.core.resolution import Resolution
from umavez.engine.options import async_refuse_awaited, is_awaited, takes
from umavez.engine.outcome import Question
from umavez.engine.places import Place, place_of
from umavez.errors import ConfigurationError, InvalidKey, NotStorable, OutcomeNotKept, OutcomeUnreadable

_new = tuple.__new__  # see core/drafts.py, where its gain is told
ARGUMENTS = object()
"""The default of `fingerprint=`: the function's bound arguments."""


_UNDONE = frozenset((CoroutineType, GeneratorType, AsyncGeneratorType, map, filter))
"""What a call may give at once for work that is done later, or never."""


class Plan:
    """One operation's name, policy, codec and the ways to show and keep its value."""

    __slots__ = ("_prefix", "check", "codec", "keep_ms", "operation", "policy", "reference", "replay", "scope")

    def __init__(
        self,
        scope: str,
        operation: str,
        policy: Policy,
        codec: Codec,
        replay: Callable[[Any], Any] | None = None,
        reference: Callable[[Any], Any] | None = None,
    ) -> None:
        if reference is not None and replay is None:
            raise ConfigurationError(
                f"{operation}: reference= needs replay=, which turns the reference back into a value."
            )
        # Found out at the first value, it would be after the effect.
        for option, given in (("replay", replay), ("reference", reference)):
            if given is not None and not callable(given):
                raise ConfigurationError(f"{operation}: {option}= takes a function; a {type(given).__name__} is none.")
        self.scope = scope
        self.operation = operation
        self.policy = policy
        self.codec = codec
        self.replay = replay
        self.reference = reference
        self.check: Callable[[Any], None] | None = None
        """Raises NotStorable for a value that no run of this operation could have given; asked about decisions."""
        self.keep_ms = policy.keep_ms
        self._prefix = prefix_of(scope, operation)

    def key(self, value: object, scope: str | None = None) -> Key:
        """The key of one call. Integers and UUIDs are taken as their text; anything else must be text."""
        if type(value) is not str:
            value = _text(value)
        if scope is None:
            return Key(self.scope, self.operation, value, self._prefix)
        return Key(scope, self.operation, value)

    def intent(
        self, key: object, meaning: Any, process_instance: str | None, activity: str | None, scope: str | None
    ) -> Intent:
        """The intent of a call that names its key itself."""
        # As `key` makes it: nearly every call comes with a text and in the engine's own scope.
        if type(key) is str and scope is None:
            name = Key(self.scope, self.operation, key, self._prefix)
        else:
            name = self.key(key, scope)
        mark = None if meaning is None else fingerprint(meaning)
        if process_instance is not None or activity is not None:
            process_instance, activity = placed("process_instance", process_instance), placed("activity", activity)
        return _new(Intent, (name, mark, process_instance, activity, None))

    def kept(self, key: Key, value: Any) -> tuple[Settled, str | None]:
        """What to store for `value`, and why it is not the value if it is not. Raises NotStorable.

        Raises ConfigurationError for a coroutine, a generator and the like: what they were to do has not been done, or
        not all of it, and must not be kept as done.
        """
        if self.reference is None and type(value) in _UNDONE:
            raise self._undone(value)
        try:
            body = self.codec.encode(value if self.reference is None else self.reference(value), key)
            size = len(body) if body.isascii() else len(body.encode())
        except Exception as error:
            if type(value) in _UNDONE or hasattr(value, "add_done_callback"):
                raise self._undone(value) from None
            if isinstance(error, NotStorable):
                raise
            # The effect has happened: what reference= or a codec of the caller's says then is no judgement on it.
            raise NotStorable(f"The result cannot be kept ({message(error)}).") from error
        if size > self.policy.max_body:
            return Settled(True, None), f"{size} bytes are more than the {self.policy.max_body} allowed"
        return _new(Settled, (True, body)), None

    def _undone(self, value: Any) -> ConfigurationError:
        what = f"{self.operation}: the call gave a {type(value).__name__}"
        if isinstance(value, CoroutineType):
            value.close()
            return ConfigurationError(
                f"{what} that nobody awaits, so its code has not run; "
                "await it with AsyncOnce, or call a function that does the work itself."
            )
        if type(value) in _UNDONE:
            return ConfigurationError(f"{what}, whose code runs as it is gone through; go through it in the call.")
        return ConfigurationError(f"{what}, whose work may not be over; wait for its result in the call.")

    def refusal(self, key: Key, error: BaseException) -> Settled:
        """What to store for a final refusal."""
        return Settled(False, written(error, self.codec, key))

    def stored(self, record: Record) -> Any:
        """The value kept in `record`. Raises the stored refusal, or OutcomeNotKept."""
        settled = record.settled
        if settled is None or settled.body is None:
            raise OutcomeNotKept(record.key, record.error or "no reason recorded")
        try:
            if settled.ok:
                return self.codec.decode(settled.body, record.key)
            refusal = revived(settled.body, self.codec, record.key)
        except Exception as error:
            # Whatever the codec says: the operation has happened, and that must not look like a failure of its own.
            raise OutcomeUnreadable(record.key, error) from error
        raise refusal

    def question(self, record: Record, fence: int) -> Question:
        """What to ask the far side about `record`, by a claim that bears `fence`."""
        progress = None if record.progress is None else self.codec.decode(record.progress, record.key)
        return Question(record.key, record.attempt, progress, record, fence)


class Plans:
    """The plans of one engine: those declared by name, and those made on the way by run() and attempt()."""

    def __init__(
        self, scope: str, codec: Codec, refuse: Callable[[str, Mapping[str, Any]], None] = async_refuse_awaited
    ) -> None:
        prefix_of(scope, "checked")
        self._scope = scope
        self._codec = codec
        self._refuse = refuse
        """Raises ConfigurationError for options that the engine cannot make use of."""
        self._made: dict[object, Plan] = {}
        self._last: tuple[str, Mapping[str, Any], Plan | None] = ("", {}, None)
        self._functions: dict[str, Place] = {}
        self.declarations: dict[str, Plan] = {}

    def declared(self, operation: str, options: Mapping[str, Any]) -> Plan:
        """Declare an operation. Raises NotDeclared, ConfigurationError, InvalidKey."""
        plan = self.planned(operation, options)
        self.declarations[operation] = plan
        return plan

    def planned(self, operation: str, options: Mapping[str, Any]) -> Plan:
        """The plan of an operation that is declared with its function; see `bind`. Raises as `declared` does."""
        return self._plan(operation, options)

    def bind(self, plan: Plan, function: Callable[..., Any]) -> None:
        """Declare `plan`, which is what `function` does. Raises ConfigurationError where another function is already.

        Under one name they would be one operation: each would be given the other's results. What is declared stays.
        """
        place = place_of(function)
        known = self._functions.get(plan.operation)
        if known is not None and known.is_not(place):
            raise ConfigurationError(
                f"{plan.operation!r} is {known.told(place)} already; give {place.told(known)} an operation of its own."
            )
        self._functions[plan.operation] = place
        self.declarations[plan.operation] = plan

    def of(self, operation: str, options: Mapping[str, Any]) -> Plan:
        """The plan for a call with `options`; without any, the one declared under that name."""
        if not options and operation in self.declarations:
            return self.declarations[operation]
        # The last one is asked for again and again, and to compare takes half as long as to look up.
        known, said, plan = self._last
        if plan is not None and known == operation and said == options:
            return plan
        try:
            name = (operation, *options.items())
            plan = self._made.get(name)
        except TypeError:
            return self._plan(operation, options)
        if plan is None:
            plan = self._plan(operation, options)
            if len(self._made) < 1000:
                # A bound, because options made anew for each call (a lambda) would otherwise pile up here.
                self._made[name] = plan
        self._last = operation, options, plan
        return plan

    def joined(self, operation: str, options: Mapping[str, Any]) -> Plan:
        """The plan for a block inside the caller's transaction: as declared, with `options` in place of its own.

        What commits together cannot be unknown, and needs no heartbeat. A claim that stands without its outcome all the
        same, because an attempt ran apart or a block was committed in the middle, is held if nothing else is declared.
        """
        declared = self.declarations.get(operation)
        if declared is None:
            return self.of(operation, {"unknown": "hold", **options, "heartbeat": False})
        own = {name: getattr(declared.policy, name) for name in OPTIONS}
        kept = {"codec": declared.codec, "replay": declared.replay, "reference": declared.reference}
        return self.of(operation, {**own, **kept, **options, "heartbeat": False})

    def any(self, operation: str) -> Plan:
        """A plan good for looking records up: the declared one, or one that holds everything."""
        return self.declarations.get(operation) or self.of(operation, {"unknown": "hold"})

    def _plan(self, operation: str, options: Mapping[str, Any]) -> Plan:
        self._refuse(operation, options)
        own = {name: options[name] for name in ("replay", "reference") if name in options}
        codec = codec_given(options["codec"]) if options.get("codec") is not None else self._codec
        rest = {name: value for name, value in options.items() if name not in ("codec", *own)}
        plan = Plan(self._scope, operation, declare(operation, rest), codec, **own)
        for option, given in (("unknown", plan.policy.unknown), *own.items()):
            if callable(given) and not takes(given, 1):
                raise ConfigurationError(f"{operation}: {option}= must be callable with one argument.")
        return plan


def codec_given(codec: Codec) -> Codec:
    """`codec` itself. Raises ConfigurationError for what is none."""
    ways: tuple[Any, Any] = (getattr(codec, "encode", None), getattr(codec, "decode", None))
    if not all(takes(way, 2) and not is_awaited(way) for way in ways):
        name = f"The class {codec.__name__}" if isinstance(codec, type) else type(codec).__name__
        raise ConfigurationError(f"{name} is no codec; give an object with encode(value, key) and decode(text, key).")
    return codec


def refuse_uncallable(operation: str, call: object) -> NoReturn:
    """Raise ConfigurationError for a call= that is none: once there is a claim, nobody knows what came of it."""
    if isinstance(call, CoroutineType):
        call.close()
    raise ConfigurationError(f"{operation}: call= takes a function without arguments, not a {type(call).__name__}.")


def resolution_of(plan: Plan, key: Key, answer: Answer, by: str, reason: str) -> Resolution:
    """What a human's answer makes of a record. Raises NotStorable for an outcome that could not be replayed."""
    if not by or not reason:
        raise ConfigurationError("A resolution needs by= (who) and reason= (why); both are kept as evidence.")
    if isinstance(answer, CannotTell):
        raise ConfigurationError("CannotTell resolves nothing; give Happened(value) or NotHappened().")
    if isinstance(answer, NotHappened):
        return Resolution(None, by, reason)
    return Resolution(_replayable(plan, key, answer.value), by, reason)


def _replayable(plan: Plan, key: Key, value: Any) -> Settled:
    """What is kept of `value`, once it is known that a repeat can be answered with it."""
    if plan.check is not None:
        plan.check(value)
    settled, why = plan.kept(key, value)
    if why is not None or settled.body is None:
        raise NotStorable(f"The outcome of {key.operation} {key.value!r} cannot be kept ({why}); give a shorter one.")
    try:
        plan.codec.decode(settled.body, key)
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise NotStorable(
            f"The outcome of {key.operation} {key.value!r} could not be read back; give what the operation returns."
        ) from error
    return settled


def message(error: BaseException) -> str:
    """What is stored about `error` for people, in bounded length."""
    said = legible(error)
    return legible(f"{type(error).__name__}: {said}") if said else type(error).__name__


def placed(what: str, value: object) -> str | None:
    """A process instance or an activity as it is stored: as a key's value, or None. Raises InvalidKey."""
    return None if value is None else checked(what, _text(value, what))


def _text(value: object, what: str = "key") -> str:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | UUID) and not isinstance(value, bool):
        try:
            return str(value)
        except ValueError:
            raise InvalidKey(f"{what}= gave an integer of more digits than a key can have; shorten it.") from None
    raise InvalidKey(f"{what}= gave a {type(value).__name__}; give text, an integer or a UUID.")
