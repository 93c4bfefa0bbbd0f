"""All that is known about a session, as data."""

from typing import Any

from talaria.contracts.stores.sessions import Session
from talaria.core.messages import Usage


def as_data(session: Session) -> dict[str, Any]:
    """Return every field, counters that are zero included."""
    fields: dict[str, Any] = {name: getattr(session, name) for name in Session.__struct_fields__}
    return {**fields, "usage": {name: getattr(session.usage, name) for name in Usage.__struct_fields__}}
