"""Texts: statements that stand whole in files of their own, so that they can be read and reviewed as SQL."""

from __future__ import annotations

from importlib.resources import files


def statement(backend: str, name: str) -> str:
    """The statement in `sql/name.sql` of a backend, without comments and indentation: those are for its readers."""
    text = files(f"umavez.stores.{backend}").joinpath("sql", f"{name}.sql").read_text("utf-8")
    return " ".join(line.strip() for line in text.splitlines() if not line.lstrip().startswith("--"))
