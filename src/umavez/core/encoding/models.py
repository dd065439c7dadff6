"""Pydantic models, as both encodings see them: what one holds. Pydantic is not imported."""

from __future__ import annotations

from typing import Any


def is_model(value: object) -> bool:
    """Whether `value` is an instance of a pydantic model; told without importing pydantic."""
    return hasattr(type(value), "__pydantic_validator__") and hasattr(type(value), "model_fields")


def members_of(value: Any) -> dict[str, Any]:
    """What a pydantic model holds, by the names of its fields and of what it was given beyond them."""
    fields = {name: getattr(value, name) for name in type(value).model_fields}
    extra = value.model_extra
    return {**fields, **{name: extra[name] for name in extra if name not in fields}} if extra else fields


def namesakes_of(value: Any) -> dict[str, Any]:
    """What it was given beyond its fields under the name of one: where a field has an alias, its name is free."""
    extra = value.model_extra
    return {name: extra[name] for name in extra if name in type(value).model_fields} if extra else {}


def private_of(value: Any) -> dict[str, Any]:
    """The private attributes of a pydantic model; those that were never set are none."""
    return getattr(value, "__pydantic_private__", None) or {}
