"""Which conversations somebody may see, as conditions of a query: one rule for lists and for search."""

from talaria.contracts.stores.sessions import Viewer
from talaria.storage.sql import Value


def visible_to(viewer: Viewer | None) -> list[tuple[str, Value]]:
    """Return conditions on the columns of ``sessions``, each with its value; none where everything may be seen."""
    if viewer is None:
        return []
    own: tuple[str, Value] = ("owner = ?", viewer.owner)
    return [own, ("audience = ?", viewer.audience)] if viewer.audience else [own]
