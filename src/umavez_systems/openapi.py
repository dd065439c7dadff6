"""OpenAPI: the document of the whole server, made true in one place.

FastAPI knows the routes and their parameters. What it cannot know is said here, for every operation alike: the
refusals that the contract can give, as problem documents; who must say who they are; bodies that routes read by
themselves; and that a repeat of what was created is answered with 200.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.responses import Response
from starlette.routing import Route

JSON = "application/json"
PROBLEM = "application/problem+json"
SUCCESS = {"200": "Feito, ou já feito antes", "201": "Criado agora", "202": "Aceito; ainda não se sabe o resultado"}
REFUSALS = {
    "400": "A requisição não pode ser lida",
    "401": "Falta uma chave de API válida",
    "403": "Sem chaves de API só esta máquina é atendida",
    "404": "Não existe, ou é de outra pessoa",
    "405": "Este endereço não aceita este método",
    "408": "O corpo não chegou a tempo",
    "409": "Conflito com o estado atual ou com outra requisição da mesma chave",
    "410": "Aconteceu, mas a resposta não foi guardada",
    "412": "A versão em If-Match não é a atual",
    "413": "Corpo grande demais",
    "415": "Tipo de conteúdo não aceito",
    "421": "O servidor não atende por este nome",
    "422": "Os dados não servem, ou a chave foi usada com outros",
    "429": "Requisições demais ao mesmo tempo",
    "503": "Ocupado ou fora do alcance; nada se perdeu, tente de novo",
    "default": "Qualquer outra recusa",
}
ALWAYS = ("400", "403", "405", "421", "429", "503", "default")
KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": 'Um valor novo para cada operação; repetir com ele é seguro. `k` e `"k"` são a mesma chave.',
    "schema": {"type": "string", "pattern": r'^(?:[!#-+\--:<-\[\]-~]{1,255}|"[!#-\[\]-~]{1,255}")$'},
}
WITHOUT_NUL = r"^[^\u0000]*$"
"""Of every text that has no form of its own: no database here keeps NUL."""


class Documented(FastAPI):
    """An application whose OpenAPI document says everything that it answers."""

    keyed = False
    """Whether callers must send an API key."""

    def __init__(self, **given: Any) -> None:
        self._routers: list[APIRouter] = []
        super().__init__(**given)

    def include_router(self, router: APIRouter, *given: Any, **named: Any) -> None:
        """Take in a router's routes, as they are."""
        self._routers.append(router)
        super().include_router(router, *given, **named)

    def methods_at(self, address: str) -> list[str]:
        """Every method that `address` takes; none where nothing is.

        By the routes themselves: the document does not say which names in an address may have slashes.
        """
        document = self.openapi()
        if address in document["paths"]:
            return _methods(document["paths"][address])
        every = chain(self.routes, *(router.routes for router in self._routers))
        fits = (route for route in every if isinstance(route, Route) and route.path_regex.match(address))
        return sorted({method for route in fits for method in route.methods or ()})

    def openapi(self) -> dict[str, Any]:
        """The document, made once."""
        if self.openapi_schema is None:
            document = super().openapi()
            _complete(document, self.keyed)
            self.openapi_schema = document
        return self.openapi_schema


def answers(kind: str, *, public: bool = False) -> dict[str, Any]:
    """What a route says that answers with `kind` instead of JSON; `public`: to everybody, without a key."""
    extra: dict[str, Any] = {"security": []} if public else {}
    content = {kind: {"schema": {"type": "string"}}}
    return {
        "response_class": Response,
        "responses": {200: {"description": SUCCESS["200"], "content": content}},
        "openapi_extra": extra,
    }


def written_out(document: dict[str, Any]) -> dict[str, list[str]]:
    """The methods of every address that has no names in braces."""
    return {path: _methods(item) for path, item in document["paths"].items() if "{" not in path}


def _methods(item: dict[str, Any]) -> list[str]:
    return sorted(method.upper() for method in item)


LATER: dict[int | str, dict[str, Any]] = {202: {"description": SUCCESS["202"]}}
"""For `responses=` of a route that may answer before it knows."""


def _complete(document: dict[str, Any], keyed: bool) -> None:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problema"] = _PROBLEM_SCHEMA
    components["responses"] = {_name(status): _refusal(status) for status in REFUSALS}
    components["parameters"] = {"IdempotencyKey": KEY}
    components["securitySchemes"] = {"chave": {"type": "http", "scheme": "bearer", "description": _BEARER}}
    document["security"] = [{"chave": []}] if keyed else [{}, {"chave": []}]
    for path, method, operation in _operations(document):
        if "server" in operation.get("tags", ()):
            operation["security"] = []
        _complete_parameters(operation, method)
        _complete_body(operation, schemas)
        _complete_answers(operation)
        for status in _possible(path, operation):
            operation["responses"].setdefault(status, {"$ref": f"#/components/responses/{_name(status)}"})


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def _complete_parameters(operation: dict[str, Any], method: str) -> None:
    """Credentials are no parameter, a key is one description for all, and reading needs none."""
    kept = []
    for parameter in operation.pop("parameters", []):
        name = parameter["name"].lower()
        if name == "authorization" or (method == "get" and name in ("idempotency-key", "prefer", "x-usuario")):
            continue
        if name == "idempotency-key":
            kept.append({"$ref": "#/components/parameters/IdempotencyKey"})
            continue
        parameter["schema"] = _sent(parameter["schema"])
        kept.append(parameter)
    if kept:
        operation["parameters"] = kept


def _sent(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter: nothing is null in an address or a header, it is left out."""
    plain = [kind for kind in schema.pop("anyOf", []) if kind.get("type") != "null"]
    if len(plain) == 1:
        schema = {**schema, **plain[0]}
    elif plain:
        schema = {**schema, "anyOf": plain}
    found: dict[str, Any] = _plain_texts(schema)
    return found


def _complete_body(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Bodies by name, with what they refer to beside them."""
    for kind in operation.get("requestBody", {}).get("content", {}).values():
        schema = kind["schema"]
        for name, part in schema.pop("$defs", {}).items():
            schemas[name] = _plain_texts(_pointed(part))
        name = schema.get("title")
        schema = _plain_texts(_pointed(schema))
        if name is None:
            kind["schema"] = schema
        else:
            schemas[name] = schema
            kind["schema"] = {"$ref": f"#/components/schemas/{name}"}


def _pointed(value: Any) -> Any:
    """The same with references to where the parts are now."""
    if isinstance(value, dict):
        return {name: _pointed(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_pointed(part) for part in value]
    if isinstance(value, str) and value.startswith("#/$defs/"):
        return value.replace("#/$defs/", "#/components/schemas/", 1)
    return value


def _plain_texts(schema: Any) -> Any:
    """The same, in which every text without a form of its own has no NUL."""
    if isinstance(schema, list):
        return [_plain_texts(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: part if name in _DATA else _plain_texts(part) for name, part in schema.items()}
    if found.get("type") == "string" and not {"pattern", "enum", "const", "format"} & set(found):
        found["pattern"] = WITHOUT_NUL
    return found


def _complete_answers(operation: dict[str, Any]) -> None:
    """What goes well: an object, and 200 beside 201, because a repeat creates nothing."""
    responses = operation["responses"]
    responses.pop("422", None)
    first = responses.get("201") or responses["200"]
    if "201" in responses:
        responses.setdefault("200", {})
    for status, response in responses.items():
        response["description"] = SUCCESS.get(status, response.get("description", ""))
        content = response.setdefault("content", first["content"])
        for kind in content.values():
            kind["schema"] = kind.get("schema") or {"type": "object"}


def _possible(path: str, operation: dict[str, Any]) -> Iterator[str]:
    """The refusals that the contract can give to this operation."""
    yield from ALWAYS
    names = {parameter.get("name", "Idempotency-Key").lower() for parameter in operation.get("parameters", [])}
    if operation.get("security") != []:
        yield "401"
    if "{" in path:
        yield "404"
    if "requestBody" in operation:
        yield from ("404", "408", "409", "413", "415", "422")
    if names:
        yield "422"
    if "idempotency-key" in names or "{" in path:
        yield "409"
    if "idempotency-key" in names:
        yield "410"
    if "if-match" in names:
        yield "412"


def _name(status: str) -> str:
    return f"Recusa{status.capitalize()}"


def _refusal(status: str) -> dict[str, Any]:
    content = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problema"}}}
    headers = {
        name: {"description": told, "required": needed, "schema": {"type": "string"}}
        for name, told, needed in _HEADERS.get(status, ())
    }
    return {"description": REFUSALS[status], "content": content, **({"headers": headers} if headers else {})}


_HEADERS = {
    "401": (("WWW-Authenticate", "Como se identificar", True),),
    "405": (("Allow", "Os métodos que o endereço aceita", True),),
    "409": (("Retry-After", "Segundos até tentar de novo, se adianta", False),),
    "429": (("Retry-After", "Segundos até tentar de novo", False),),
    "503": (("Retry-After", "Segundos até tentar de novo, se adianta", False),),
}
_BEARER = "Uma das chaves de UMAVEZ_API_KEYS. Sem chaves definidas, só esta máquina é atendida, e nenhuma é pedida."
_DATA = ("example", "examples", "default", "enum", "const", "required")
_PROBLEM_SCHEMA: dict[str, Any] = {
    "title": "Problema",
    "description": "Uma recusa (RFC 9457). `type` não muda; `detail` diz o que fazer.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "retryable"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string"},
        "retryable": {"type": "boolean", "description": "Se a mesma requisição, mais tarde, pode dar outra coisa"},
    },
    "additionalProperties": True,
}
