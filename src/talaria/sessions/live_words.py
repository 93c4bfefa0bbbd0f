"""Who watches which conversation, and what they say to the turn that runs there, as small rows of the store."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Struct

from talaria.contracts.store import Store, Transaction
from talaria.core.addresses import Route
from talaria.core.ids import SessionId, TurnId, new_id
from talaria.sessions.rerouting import reroute

LIVE = "live"  # the topic of hints for those who run turns: somebody watches one, or says something to it
WATCHED_FOR = timedelta(seconds=20)
_WATCH, _WORD = "live:watch:", "live:word:"


class Stop(Struct, frozen=True, tag="stop"):
    """End the turn; what was done so far is kept."""


class Answer(Struct, frozen=True, tag="answer"):
    """The answer to a question of the turn."""

    question_id: str
    text: str


class Nudge(Struct, frozen=True, tag="nudge"):
    """Something was put into the inbox, perhaps to steer the turn."""

    steered: bool = False


class Moved(Struct, frozen=True, tag="moved"):
    """The conversation is at another place now, and the reply of this turn goes there; ``move`` says which move."""

    move: str


Word = Stop | Answer | Nudge | Moved


class Spoken(Struct, frozen=True):
    """A word, and the turn that it is meant for."""

    turn_id: TurnId
    word: Word


_encode = msgspec.json.Encoder().encode
_decode_watch = msgspec.json.Decoder(datetime).decode
_decode_word = msgspec.json.Decoder(Spoken).decode


def stream_of(session_id: SessionId) -> str:
    """Return the stream of a conversation, which is the topic of hints for its watchers as well."""
    return f"live:{session_id}"


def keep_watch(tx: Transaction, session_id: SessionId, watcher: str) -> bool:
    """Say that somebody watches, for a while from now on; tell whether that was known."""
    until = _encode(datetime.now(UTC) + WATCHED_FOR).decode()
    return tx.state.put(_watch_key(session_id, watcher), until) > 1


def end_watch(tx: Transaction, session_id: SessionId, watcher: str) -> None:
    """Say that somebody watches no more; the last one takes the stream away."""
    tx.state.delete(_watch_key(session_id, watcher))
    if not watchers(tx).get(session_id):
        tx.events.drop(stream_of(session_id))


def watchers(tx: Transaction, *, lapsed: bool = False) -> Mapping[SessionId, Collection[str]]:
    """Return who watches, by conversation; or those who have said nothing for so long that they are gone."""
    now = datetime.now(UTC)
    found: dict[SessionId, set[str]] = {}
    for entry in tx.state.with_prefix(_WATCH):
        watcher, _, session_id = entry.key.removeprefix(_WATCH).partition(":")
        if (_decode_watch(entry.value) <= now) is lapsed:
            found.setdefault(SessionId(session_id), set()).add(watcher)
    return found


def forget_lapsed(tx: Transaction) -> None:
    """Forget those who watched and are gone, with what was told to them alone."""
    for session_id, gone in watchers(tx, lapsed=True).items():
        for watcher in gone:
            end_watch(tx, session_id, watcher)


def speak(tx: Transaction, session_id: SessionId, word: Word) -> bool:
    """Say something to the running turn of a conversation, whoever runs it; ``False`` where none is running.

    A hint of the topic `LIVE` behind the transaction lets it be heard at once.
    """
    for turn in tx.turns.find(session_id, running=True, limit=1):
        tx.state.put(f"{_WORD}{new_id()}:{session_id}", _encode(Spoken(turn.id, word)).decode())
        return True
    return False


def move_along(tx: Transaction, session_id: SessionId, route: Route | None) -> TurnId | None:
    """Take a running turn along to where its conversation was brought: its reply goes there, and its owner is told.

    Returns which turn that is, if there is one. Hints of the topics `LIVE` and `OUTBOX` belong behind the transaction.
    """
    moved = reroute(tx, session_id, route)
    if moved is None:
        return None
    speak(tx, session_id, Moved(moved.move))
    return moved.turn_id


async def speak_to(store: Store, session_id: SessionId, word: Word) -> bool:
    """Do so in a transaction of its own, and give the hint."""
    spoken = await store.write(lambda tx: speak(tx, session_id, word))
    if spoken:
        await store.hint(LIVE)
    return spoken


def spoken_to(tx: Transaction) -> set[SessionId]:
    """Return the conversations to whose turns something was said."""
    return {SessionId(entry.key.rpartition(":")[2]) for entry in tx.state.with_prefix(_WORD)}


def take_words(tx: Transaction, sessions: Collection[SessionId]) -> list[tuple[SessionId, Spoken]]:
    """Take what was said to the turns of these conversations, oldest first."""
    taken = []
    for entry in tx.state.with_prefix(_WORD):
        session_id = SessionId(entry.key.rpartition(":")[2])
        if session_id in sessions:
            tx.state.delete(entry.key)
            taken.append((session_id, _decode_word(entry.value)))
    return taken


def _watch_key(session_id: SessionId, watcher: str) -> str:
    return f"{_WATCH}{watcher}:{session_id}"
