"""What fits into a column, checked before sending: a session without strict mode would cut it silently."""

from __future__ import annotations

from umavez.core.record import Draft
from umavez.errors import NotStorable

LONGEST = 255


def refuse_long_texts(draft: Draft) -> None:
    """Raises NotStorable where a text of `draft` is longer than its column."""
    for name in ("stamp", "process_instance", "activity"):
        text = getattr(draft, name)
        if text is not None and len(text) > LONGEST:
            raise NotStorable(f"The {name} has {len(text)} characters and at most {LONGEST} are kept; shorten it.")
