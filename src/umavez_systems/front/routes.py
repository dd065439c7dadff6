"""What an OpenAPI document says of each route, as lines for people: parameters, fields of bodies, answers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

DEEPEST = 4
MOST_FIELDS = 120
_OTHERS = "server"
_NULL = {"type": "null"}


class Field(NamedTuple):
    """A parameter, or a field of a body: `itens[].valor` is one of each of its items."""

    name: str
    place: str
    kind: str
    required: bool
    about: str


class Answer(NamedTuple):
    """A status, and when it is given."""

    status: str
    about: str


class RouteShown(NamedTuple):
    """One method of one address."""

    system: str
    method: str
    path: str
    title: str
    about: str
    fields: tuple[Field, ...]
    example: str
    answers: tuple[Answer, ...]
    command: str

    @property
    def anchor(self) -> str:
        """Its place on the page."""
        return f"{self.method}{self.path}".replace("/", "-").replace("{", "").replace("}", "").lower()

    def holds(self, words: list[str]) -> bool:
        """Whether every word is somewhere in it."""
        text = " ".join((self.system, self.method, self.path, self.title, self.about, *(f.name for f in self.fields)))
        return all(word in text.casefold() for word in words)


def routes_of(document: Mapping[str, Any]) -> list[RouteShown]:
    """Every route of the document, in its order."""
    return [
        _shown(document, path, method, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]


def _shown(document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]) -> RouteShown:
    parameters = [_followed(document, each) for each in operation.get("parameters", ())]
    fields = [_parameter(document, each) for each in parameters]
    kind, body = _body(document, operation)
    fields += _fields(document, body.get("schema", {}), "", "body")
    example = body.get("example")
    told = "" if example is None else json.dumps(example, ensure_ascii=False, indent=2)
    answers = [
        Answer(status, str(_followed(document, answer).get("description", "")))
        for status, answer in sorted(operation.get("responses", {}).items())
    ]
    return RouteShown(
        next(iter(operation.get("tags", ())), _OTHERS),
        method.upper(),
        path,
        str(operation.get("summary", "")),
        str(operation.get("description", "")),
        tuple(fields[:MOST_FIELDS]),
        told,
        tuple(answers),
        _command(method, path, parameters, kind, example),
    )


def _followed(document: Mapping[str, Any], part: Any) -> dict[str, Any]:
    """`part`, or what its reference names; an empty one where that is nothing."""
    seen = 0
    while isinstance(part, Mapping) and "$ref" in part and seen < DEEPEST:
        found: Any = document
        for name in str(part["$ref"]).removeprefix("#/").split("/"):
            found = found.get(name, {}) if isinstance(found, Mapping) else {}
        part, seen = found, seen + 1
    return dict(part) if isinstance(part, Mapping) else {}


def _parameter(document: Mapping[str, Any], parameter: Mapping[str, Any]) -> Field:
    schema = _followed(document, parameter.get("schema", {}))
    about = str(parameter.get("description") or schema.get("description") or "")
    return Field(
        str(parameter.get("name", "?")),
        str(parameter.get("in", "")),
        _kind(document, schema),
        bool(parameter.get("required")),
        about,
    )


def _body(document: Mapping[str, Any], operation: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    content = _followed(document, operation.get("requestBody", {})).get("content", {})
    kind = next(iter(content), "")
    return str(kind), dict(content.get(kind, {}))


def _fields(document: Mapping[str, Any], schema: Any, before: str, kind: str, depth: int = 0) -> list[Field]:
    schema = _plain(document, schema)
    if schema.get("type") == "array":
        return _fields(document, schema.get("items", {}), f"{before}[]", kind, depth)
    found: list[Field] = []
    required = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        plain = _plain(document, inner)
        place = f"{before}.{name}" if before else str(name)
        found.append(Field(place, kind, _kind(document, inner), name in required, str(plain.get("description", ""))))
        if depth < DEEPEST:
            found += _fields(document, plain, place, kind, depth + 1)
    return found


def _plain(document: Mapping[str, Any], schema: Any) -> dict[str, Any]:
    """What a schema says where it is not null."""
    schema = _followed(document, schema)
    rest = [each for each in schema.get("anyOf", schema.get("oneOf", ())) if each != _NULL]
    return {**schema, **_followed(document, rest[0])} if len(rest) == 1 else schema


def _kind(document: Mapping[str, Any], schema: Any) -> str:
    schema = _plain(document, schema)
    if "enum" in schema:
        return " | ".join(str(each) for each in schema["enum"][:12])
    if schema.get("type") == "array":
        return f"{_kind(document, schema.get('items', {}))}[]"
    return " ".join(dict.fromkeys(_kinds(document, schema))) or "any"


def _kinds(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    for each in schema.get("anyOf", schema.get("oneOf", ())):
        if each != _NULL:
            yield str(_followed(document, each).get("type", ""))
    yield str(schema.get("format") or schema.get("type") or "")


def _command(method: str, path: str, parameters: list[dict[str, Any]], kind: str, example: Any) -> str:
    """How it is tried from a shell. The keys are made up, and everybody should make up their own."""
    parts = ["curl -i" if method in ("get", "post") else f"curl -i -X {method.upper()}", shlex.quote(f"$ADDRESS{path}")]
    if any(each.get("name") == "Idempotency-Key" for each in parameters):
        parts.append("-H 'Idempotency-Key: 7c1e'")
    if kind == "multipart/form-data":
        parts.append("-F file=@list.csv")
    elif kind:
        parts.append(f"-H 'Content-Type: {kind}'")
        body = "{}" if example is None else json.dumps(example, ensure_ascii=False)
        parts.append(f"-d {shlex.quote(body)}")
    elif method == "post":
        parts.insert(1, "-X POST")
    return " ".join(parts)
