"""Full-text search over every message."""

from datetime import datetime
from typing import Protocol

from msgspec import Struct

from talaria.contracts.stores.sessions import Viewer
from talaria.core.ids import SessionId
from talaria.core.messages import Role


class SearchQuery(Struct, frozen=True, kw_only=True):
    """A search query.

    ``text`` is what a person typed: all words must occur; "quotes" make a phrase, ``word*`` a prefix, ``-word``
    excludes, ``OR`` between words gives a choice. Anything else counts as plain words.
    """

    text: str
    source: str = ""
    role: Role | None = None
    session_id: SessionId | None = None
    owner: str | None = None
    seen_by: Viewer | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 20


class Hit(Struct, frozen=True, kw_only=True):
    """A matching message; ``snippet`` has the matched words between ``[`` and ``]``."""

    session_id: SessionId
    session_title: str
    seq: int
    role: Role
    at: datetime
    snippet: str
    score: float


class Search(Protocol):
    """Full-text search, best matches first; for a very common word the newest matches are ranked."""

    def find(self, query: SearchQuery) -> list[Hit]:
        """Return the best matches; text without a word in it finds nothing and never raises."""

    def unindexed(self) -> int:
        """Return the number of messages not indexed yet; `find` searches the newest 2,000 of them itself."""

    def catch_up(self, count: int = 200) -> int:
        """Index up to ``count`` messages that are stored but not indexed, and return how many were."""
