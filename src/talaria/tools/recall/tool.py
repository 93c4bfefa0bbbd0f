"""The session_search tool: find and rank messages of earlier sessions by words and by meaning."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Annotated, Any

from msgspec import Meta, Struct

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import SearchQuery, Session, SessionFilter, StoredMessage, Viewer
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId

_BEGINNING = 500  # characters of each text that are compared; 400 texts take a tenth of a second
_BATCH = 16
_loading = Lock()
log = logging.getLogger(__name__)
_HITS = 40
_NEWEST = 400
_SESSIONS_LOOKED_AT = 40
_NEAR = 0.15
_SNIPPET = 240
_RANK_OFFSET = 60  # of reciprocal rank fusion: dampens the advantage of the very first ranks
_SESSIONS_SHOWN = 6
_PASSAGES_SHOWN = 4
_RECENT = 15
_BEFORE = 5
_AROUND = 11
_LONGEST_MESSAGE = 1_500


class Meaning:
    """Compares texts; the weights are loaded at the first comparison, once per process."""

    @staticmethod
    def is_installed() -> bool:
        """Return whether texts can be compared here."""
        return _is_installed()

    async def compute_similarity(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the similarity of each text to the query: 1 is equal, 0 unrelated, or not comparable here."""
        return await asyncio.to_thread(self._compute_similarity, query, [text[:_BEGINNING] for text in texts])

    def _compute_similarity(self, query: str, texts: list[str]) -> list[float]:
        try:
            with _loading:
                model = _load()
        except (ImportError, OSError) as error:  # an incomplete installation: the words alone are searched
            log.warning("can't search by meaning; install the extra `meaning` again: %s", error)
            return [0.0] * len(texts)
        # Batches are padded to their longest text, so texts of one length go together.
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        vectors = model.embed([query, *(texts[index] or "-" for index in order)], norm=True, batch_size=_BATCH)
        near = dict(zip(order, (vectors[1:] @ vectors[0]).tolist(), strict=True))
        return [near[index] for index in range(len(texts))]


@cache
def _is_installed() -> bool:
    return find_spec("wordllama") is not None


@cache
def _load() -> Any:
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    import wordllama  # type: ignore[import-untyped]  # noqa: PLC0415 (an optional package, loaded with the first comparison)

    # The package configures logging for the whole process when it is imported.
    root.setLevel(level)
    root.handlers[:] = handlers
    # It contains its tokenizer, but looks for it in a folder of another name, unless given as a cache.
    return wordllama.WordLlama.load(cache_dir=Path(str(wordllama.__file__)).parent, disable_download=True)


class Passage(Struct, frozen=True):
    """A matching message, as far as it is shown."""

    session_id: SessionId
    seq: int
    role: str
    text: str

    @property
    def position(self) -> tuple[SessionId, int]:
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
    by_words = await store.read(_make_word_search(query, viewer, session_id))
    by_meaning = [] if meaning is None else await _search_by_meaning(store, meaning, query, viewer, session_id)
    ranked = _fuse_rankings(*by_words, by_meaning)
    return await store.read(lambda tx: _group_passages(tx, ranked, viewer))


def _make_word_search(
    query: str, viewer: Viewer | None, session_id: SessionId | None
) -> Callable[[Transaction], tuple[list[Passage], list[Passage]]]:
    """Return messages with all of the words, and with some of them."""

    def search(tx: Transaction, text: str) -> list[Passage]:
        hits = tx.search.find(SearchQuery(text=text, seen_by=viewer, session_id=session_id, limit=_HITS))
        return [Passage(hit.session_id, hit.seq, hit.role, hit.snippet) for hit in hits]

    def search_both(tx: Transaction) -> tuple[list[Passage], list[Passage]]:
        words = [word for word in query.split() if word.isalnum()]
        return search(tx, query), search(tx, " OR ".join(words)) if len(words) > 1 else []

    return search_both


async def _search_by_meaning(
    store: Store, meaning: Meaning, query: str, viewer: Viewer | None, session_id: SessionId | None
) -> list[Passage]:
    newest = await store.read(lambda tx: _load_newest(tx, viewer, session_id))
    near = await meaning.compute_similarity(query, [passage.text for passage in newest])
    ranked = sorted(zip(near, newest, strict=True), key=lambda pair: -pair[0])
    return [_cut_passage(passage) for similarity, passage in ranked[:_HITS] if similarity >= _NEAR]


def _load_newest(tx: Transaction, viewer: Viewer | None, session_id: SessionId | None) -> list[Passage]:
    """Return the newest messages of people and the agent."""
    session_filter = SessionFilter(id=session_id, seen_by=viewer, archived=None, limit=_SESSIONS_LOOKED_AT)
    sessions = [session.id for session in tx.sessions.find(session_filter)]
    passages: dict[str, Passage] = {}
    for one in sessions:
        for stored in reversed(tx.messages.last(one, _NEWEST)):
            message = stored.message
            if message.role in {"user", "assistant"} and message.text:
                passages.setdefault(message.text, Passage(one, stored.seq, message.role, message.text))
        if len(passages) >= _NEWEST:
            break
    return list(passages.values())[:_NEWEST]


def _fuse_rankings(*rankings: Sequence[Passage]) -> list[Passage]:
    scores: dict[tuple[SessionId, int], float] = {}
    passages: dict[tuple[SessionId, int], Passage] = {}
    for ranking in rankings:
        for rank, passage in enumerate(ranking):
            scores[passage.position] = scores.get(passage.position, 0) + 1 / (_RANK_OFFSET + rank)
            passages.setdefault(passage.position, passage)
    return [passages[position] for position in sorted(scores, key=lambda position: -scores[position])]


def _group_passages(tx: Transaction, ranked: Iterable[Passage], viewer: Viewer | None) -> list[Find]:
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


def _cut_passage(passage: Passage) -> Passage:
    text = " ".join(passage.text.split())
    return Passage(
        passage.session_id, passage.seq, passage.role, text if len(text) <= _SNIPPET else text[:_SNIPPET] + "…"
    )


class SessionSearchArguments(Struct, frozen=True):
    """A query, or a position to read from."""

    query: Annotated[str, Meta(description="Keywords or meaning; empty: recent conversations")] = ""
    session: Annotated[str, Meta(description="Search only this session")] = ""
    around: Annotated[int, Meta(ge=0, description="Read that session's messages around this number")] = 0


class SessionSearch:
    """Searches the store; people find only their own sessions, and in a group only those of that group.

    The current session may always be read: a summary refers to its messages.
    """

    name = "session_search"
    description = "Search earlier conversations."
    effect = Effect.READS
    arguments: type[Struct] = SessionSearchArguments

    def __init__(self, store: Store, meaning: Meaning | None = None) -> None:
        self._store = store
        self._meaning = meaning

    def proposed_action(self, arguments: SessionSearchArguments) -> ProposedAction:
        """Describe the search."""
        return ProposedAction("other", f"search conversations: {arguments.query or arguments.session or 'recent'}")

    async def run(self, arguments: SessionSearchArguments, call: Call) -> ToolOutput:
        """Return matches, messages around a number, or the latest sessions."""
        session_id = SessionId(arguments.session) if arguments.session else None
        viewer = None if session_id == call.session_id else Viewer(call.owner, call.audience)
        if session_id is not None and (arguments.around or not arguments.query):
            return ToolOutput(
                await self._store.read(lambda tx: _read_messages(tx, session_id, viewer, arguments.around))
            )
        if not arguments.query.strip():
            return ToolOutput(await self._store.read(lambda tx: _list_recent(tx, viewer, call.session_id)))
        finds = await find(self._store, arguments.query, viewer, session_id=session_id, meaning=self._meaning)
        shown = "\n\n".join(_format_find(one, call.session_id) for one in finds[:_SESSIONS_SHOWN])
        return ToolOutput(shown or "Nothing found. Try other words.")


def _format_find(found: Find, here: SessionId) -> str:
    lines = [f"#{one.seq} {one.role}: {one.text}" for one in found.passages[:_PASSAGES_SHOWN]]
    return "\n".join([_format_headline(found.session, here), *lines])


def _format_headline(session: Session, here: SessionId) -> str:
    title = session.title or "untitled"
    note = ", this conversation" if session.id == here else ""
    return f"{session.updated_at:%Y-%m-%d} {title} (session {session.id}, {session.message_count} messages{note})"


def _list_recent(tx: Transaction, viewer: Viewer | None, here: SessionId) -> str:
    sessions = tx.sessions.find(SessionFilter(seen_by=viewer, limit=_RECENT))
    return "\n".join(_format_headline(session, here) for session in sessions) or "There are no sessions yet."


def _read_messages(tx: Transaction, session_id: SessionId, viewer: Viewer | None, around: int) -> str:
    found = tx.sessions.find(SessionFilter(id=session_id, seen_by=viewer, archived=None))
    if not found:
        raise ToolFailed(f"there is no session {session_id}")
    if around:
        messages = tx.messages.load(session_id, after=max(0, around - 1 - _BEFORE), limit=_AROUND)
    else:
        messages = tx.messages.last(session_id, _AROUND)
    return "\n\n".join([_format_headline(found[0], SessionId("")), *map(_format_message, messages)])


def _format_message(stored: StoredMessage) -> str:
    text = stored.message.text.strip()
    if len(text) > _LONGEST_MESSAGE:
        text = f"{text[:_LONGEST_MESSAGE]}… [{len(text)} characters]"
    message = stored.message
    # Messages sent to a session from elsewhere have an author; other messages of the agent have none.
    who = f"{message.role} ({message.author})" if message.role == "assistant" and message.author else message.role
    return f"#{stored.seq} {who}: {text or '(no text)'}"
