"""Find and rank messages of earlier sessions."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from msgspec import Struct

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.search import SearchQuery
from talaria.contracts.stores.sessions import Session, SessionFilter, Viewer
from talaria.core.ids import SessionId
from talaria.tools.recall.embeddings import Meaning

_HITS = 40
_NEWEST = 400
_SESSIONS_LOOKED_AT = 40
_NEAR = 0.15
_SNIPPET = 240
_RANK_OFFSET = 60  # of reciprocal rank fusion: dampens the advantage of the very first ranks


class Passage(Struct, frozen=True):
    """A matching message, as far as it is shown."""

    session_id: SessionId
    seq: int
    role: str
    text: str

    @property
    def place(self) -> tuple[SessionId, int]:
        """Return the identity of the message."""
        return self.session_id, self.seq


class Find(Struct, frozen=True):
    """A session and its matches, best first."""

    session: Session
    passages: tuple[Passage, ...]


async def find(
    store: Store, query: str, viewer: Viewer | None, *, session_id: SessionId | None, meaning: Meaning | None
) -> list[Find]:
    """Return sessions with matches, best first: by words, and by meaning where possible."""
    by_words = await store.read(_by_words(query, viewer, session_id))
    by_meaning = [] if meaning is None else await _by_meaning(store, meaning, query, viewer, session_id)
    ranked = _fused(*by_words, by_meaning)
    return await store.read(lambda tx: _grouped(tx, ranked, viewer))


def _by_words(
    query: str, viewer: Viewer | None, session_id: SessionId | None
) -> Callable[[Transaction], tuple[list[Passage], list[Passage]]]:
    """Return messages with all of the words, and with some of them."""

    def search(tx: Transaction, text: str) -> list[Passage]:
        hits = tx.search.find(SearchQuery(text=text, seen_by=viewer, session_id=session_id, limit=_HITS))
        return [Passage(hit.session_id, hit.seq, hit.role, hit.snippet) for hit in hits]

    def both(tx: Transaction) -> tuple[list[Passage], list[Passage]]:
        words = [word for word in query.split() if word.isalnum()]
        return search(tx, query), search(tx, " OR ".join(words)) if len(words) > 1 else []

    return both


async def _by_meaning(
    store: Store, meaning: Meaning, query: str, viewer: Viewer | None, session_id: SessionId | None
) -> list[Passage]:
    newest = await store.read(lambda tx: _newest(tx, viewer, session_id))
    near = await meaning.nearness(query, [passage.text for passage in newest])
    ranked = sorted(zip(near, newest, strict=True), key=lambda pair: -pair[0])
    return [_cut(passage) for nearness, passage in ranked[:_HITS] if nearness >= _NEAR]


def _newest(tx: Transaction, viewer: Viewer | None, session_id: SessionId | None) -> list[Passage]:
    """Return the newest messages of people and the agent."""
    wanted = SessionFilter(id=session_id, seen_by=viewer, archived=None, limit=_SESSIONS_LOOKED_AT)
    sessions = [session.id for session in tx.sessions.find(wanted)]
    passages: dict[str, Passage] = {}
    for one in sessions:
        for stored in reversed(tx.messages.last(one, _NEWEST)):
            message = stored.message
            if message.role in {"user", "assistant"} and message.text:
                passages.setdefault(message.text, Passage(one, stored.seq, message.role, message.text))
        if len(passages) >= _NEWEST:
            break
    return list(passages.values())[:_NEWEST]


def _fused(*rankings: Sequence[Passage]) -> list[Passage]:
    scores: dict[tuple[SessionId, int], float] = {}
    passages: dict[tuple[SessionId, int], Passage] = {}
    for ranking in rankings:
        for rank, passage in enumerate(ranking):
            scores[passage.place] = scores.get(passage.place, 0) + 1 / (_RANK_OFFSET + rank)
            passages.setdefault(passage.place, passage)
    return [passages[place] for place in sorted(scores, key=lambda place: -scores[place])]


def _grouped(tx: Transaction, ranked: Iterable[Passage], viewer: Viewer | None) -> list[Find]:
    """Return the passages by session, ordered by the best of each."""
    order: dict[SessionId, int] = {}
    for passage in ranked:
        order.setdefault(passage.session_id, len(order))
    finds = []
    by_session = sorted(ranked, key=lambda passage: order[passage.session_id])
    for session_id, passages in groupby(by_session, key=lambda passage: passage.session_id):
        seen = tx.sessions.find(SessionFilter(id=session_id, seen_by=viewer, archived=None))
        if seen:
            finds.append(Find(seen[0], tuple(passages)))
    return finds


def _cut(passage: Passage) -> Passage:
    text = " ".join(passage.text.split())
    return Passage(
        passage.session_id, passage.seq, passage.role, text if len(text) <= _SNIPPET else text[:_SNIPPET] + "…"
    )
