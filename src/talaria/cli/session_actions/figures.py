"""What is told about a session: its figures in words, and all of it as data."""

from typing import Any

from talaria.contracts.stores.sessions import Session
from talaria.core.messages import Usage


def as_data(session: Session) -> dict[str, Any]:
    """Return every field, counters that are zero included."""
    fields: dict[str, Any] = {name: getattr(session, name) for name in Session.__struct_fields__}
    return {**fields, "usage": {name: getattr(session.usage, name) for name in Usage.__struct_fields__}}


def money(microdollars: int) -> str:
    """Return an amount in dollars, with more digits where it is small; nothing for nothing."""
    if not microdollars:
        return ""
    dollars = microdollars / 1_000_000
    return f"${dollars:.2f}" if dollars >= 0.01 else f"${dollars:.4f}"


def size(characters: int) -> str:
    """Return a size of text in the unit that fits."""
    if characters < 1000:
        return f"{characters} B"
    if characters < 1_000_000:
        return f"{characters / 1000:.1f} kB"
    return f"{characters / 1_000_000:.1f} MB"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it belongs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
