"""Plan: an operation as declared. Turns calls into intents and values into what is kept, without I/O."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any
from uuid import UUID

from umavez.core.codec import Codec
from umavez.core.fingerprint import fingerprint
from umavez.core.key import Key, prefix_of
from umavez.core.policy import Answer, CannotTell, NotHappened, Policy, declare
from umavez.core.protocol import Intent
from umavez.core.record import Record, Settled
from umavez.core.refusal import revived, written
from umavez.core.resolution import Resolution
from umavez.errors import ConfigurationError, InvalidKey, NotStorable, OutcomeNotKept
from umavez.outcome import Question

_new = tuple.__new__  # as in core/drafts.py, and for the same reason
ARGUMENTS = object()
"""The default of `fingerprint=`: the function's bound arguments."""

ERROR_LENGTH = 2000
"""Longest stored error message; beyond that it is cut, since it is for people."""


class Plan:
    """One operation's name, policy, codec and the ways to show and keep its value."""

    __slots__ = ("_prefix", "codec", "keep_ms", "operation", "policy", "reference", "replay", "scope")

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
        self.scope = scope
        self.operation = operation
        self.policy = policy
        self.codec = codec
        self.replay = replay
        self.reference = reference
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
        name = self.key(key, scope)
        mark = None if meaning is None else fingerprint(meaning)
        return _new(Intent, (name, mark, process_instance, activity))

    def kept(self, key: Key, value: Any) -> tuple[Settled, str | None]:
        """What to store for `value`, and why it is not the value if it is not. Raises NotStorable."""
        body = self.codec.encode(value if self.reference is None else self.reference(value), key)
        size = len(body) if body.isascii() else len(body.encode())
        if size > self.policy.max_body:
            return Settled(True, None), f"{size} bytes are more than the {self.policy.max_body} allowed"
        return _new(Settled, (True, body)), None

    def refusal(self, key: Key, error: BaseException) -> Settled:
        """What to store for a final refusal."""
        return Settled(False, written(error, self.codec, key))

    def stored(self, record: Record) -> Any:
        """The value kept in `record`. Raises the stored refusal, or OutcomeNotKept."""
        settled = record.settled
        if settled is None or settled.body is None:
            raise OutcomeNotKept(record.key, record.error or "no reason recorded")
        if not settled.ok:
            raise revived(settled.body, self.codec, record.key)
        return self.codec.decode(settled.body, record.key)

    def question(self, record: Record) -> Question:
        """What to ask the far side about `record`."""
        progress = None if record.progress is None else self.codec.decode(record.progress, record.key)
        return Question(record.key, record.attempt, progress, record)


class Plans:
    """The plans of one engine: those declared by name, and those made on the way by run() and attempt()."""

    def __init__(self, scope: str, codec: Codec) -> None:
        prefix_of(scope, "checked")
        self._scope = scope
        self._codec = codec
        self._made: dict[object, Plan] = {}
        self.declarations: dict[str, Plan] = {}

    def declared(self, operation: str, options: dict[str, Any]) -> Plan:
        """Declare an operation. Raises NotDeclared, ConfigurationError, InvalidKey."""
        plan = self._plan(operation, options)
        self.declarations[operation] = plan
        return plan

    def of(self, operation: str, options: dict[str, Any]) -> Plan:
        """The plan for a call with `options`; without any, the one declared under that name."""
        if not options and operation in self.declarations:
            return self.declarations[operation]
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
        return plan

    def any(self, operation: str) -> Plan:
        """A plan good for looking records up: the declared one, or one that holds everything."""
        return self.declarations.get(operation) or self.of(operation, {"unknown": "hold"})

    def _plan(self, operation: str, options: dict[str, Any]) -> Plan:
        own = {name: options[name] for name in ("replay", "reference") if name in options}
        codec = options.get("codec") or self._codec
        rest = {name: value for name, value in options.items() if name not in ("codec", *own)}
        return Plan(self._scope, operation, declare(operation, rest), codec, **own)


def resolution_of(plan: Plan, key: Key, answer: Answer, by: str, reason: str) -> Resolution:
    """What a human's or a reconciler's answer makes of a record."""
    if not by or not reason:
        raise ConfigurationError("A resolution needs by= (who) and reason= (why); both are kept as evidence.")
    if isinstance(answer, CannotTell):
        raise ConfigurationError("CannotTell resolves nothing; give Happened(value) or NotHappened().")
    if isinstance(answer, NotHappened):
        return Resolution(None, by, reason)
    settled, _ = plan.kept(key, answer.value)
    return Resolution(settled, by, reason)


def message(error: BaseException) -> str:
    """What is stored about `error` for people, in bounded length."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text.replace("\0", "\u2400")[:ERROR_LENGTH]


def _text(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | UUID) and not isinstance(value, bool):
        return str(value)
    raise InvalidKey(f"key= gave a {type(value).__name__}; give text, an integer or a UUID that names the effect.")


class Binder:
    """Turns a call of `function` into an Intent: binds the arguments, computes key and fingerprint."""

    __slots__ = ("_fingerprint", "_key", "_names", "_plan", "_process", "_signature")

    def __init__(self, plan: Plan, function: Callable[..., Any], **makers: Any) -> None:
        self._plan = plan
        self._signature = inspect.signature(function)
        names = list(self._signature.parameters)
        simple = all(
            parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in self._signature.parameters.values()
        )
        self._names = tuple(names) if simple else None
        self._key = _chosen(plan.operation, "key", makers["key"], names)
        meaning = makers["fingerprint"]
        self._fingerprint = (
            meaning if meaning in (None, ARGUMENTS) else _chosen(plan.operation, "fingerprint", meaning, names)
        )
        self._process = tuple(
            _chosen(plan.operation, name, makers[name], names) if callable(makers[name]) else makers[name]
            for name in ("process_instance", "activity")
        )

    def intent(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Intent:
        """The intent of one call. Raises TypeError as the function itself would, and InvalidKey."""
        if self._names is not None and not kwargs and len(args) == len(self._names):
            bound = dict(zip(self._names, args, strict=True))
        else:
            arguments = self._signature.bind(*args, **kwargs)
            arguments.apply_defaults()
            bound = arguments.arguments
        key = self._plan.key(self._key(bound))
        instance, activity = self._process
        if instance is not None or activity is not None:
            instance = instance(bound) if callable(instance) else instance
            activity = activity(bound) if callable(activity) else activity
        mark = None if self._fingerprint is None else self._meaning(bound)
        return _new(Intent, (key, mark, instance, activity))

    def _meaning(self, bound: dict[str, Any]) -> str:
        if self._fingerprint is ARGUMENTS:
            bound.pop("self", None)
            bound.pop("cls", None)
            return _fingerprint_of(self._plan.operation, bound)
        return _fingerprint_of(self._plan.operation, self._fingerprint(bound))


def _fingerprint_of(operation: str, meaning: object) -> str:
    try:
        return fingerprint(meaning)
    except NotStorable as error:
        raise NotStorable(f"{operation}: {error}") from error


def _chosen(
    operation: str, option: str, maker: Callable[..., Any], names: list[str]
) -> Callable[[dict[str, Any]], Any]:
    """`maker` as a function of the bound arguments: it gets those it names, or all if it takes `**kwargs`."""
    if not callable(maker):
        raise ConfigurationError(
            f"{operation}: {option}= must be a callable that takes the function's arguments by name."
        )
    parameters = inspect.signature(maker).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return lambda bound: maker(**bound)
    wanted = tuple(parameter.name for parameter in parameters)
    missing = [
        parameter.name
        for parameter in parameters
        if parameter.name not in names and parameter.default is parameter.empty
    ]
    if missing:
        raise ConfigurationError(
            f"{operation}: {option}= asks for {missing[0]!r}, which the function does not take; "
            f"it takes {', '.join(names) or 'nothing'}."
        )
    if len(wanted) == 1 and wanted[0] in names:
        (only,) = wanted
        return lambda bound: maker(bound[only])
    return lambda bound: maker(**{name: bound[name] for name in wanted if name in bound})
