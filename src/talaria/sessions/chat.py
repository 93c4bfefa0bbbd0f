"""What a front door asks for when it opens a conversation, and what it gets."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from talaria.contracts.delegation import Delegator
from talaria.contracts.follower import Follower, Witness
from talaria.contracts.models import ModelInfo
from talaria.contracts.stores.ledger import Cap
from talaria.contracts.stores.sessions import Session
from talaria.contracts.tool import Tool, Workspace
from talaria.core.senders import is_same_sender
from talaria.core.session_context import SessionContext
from talaria.sessions.admitted import Unpack, leave_packed
from talaria.sessions.conversation import Conversation
from talaria.sessions.mandate import Mandate
from talaria.sessions.questions import Questions


class ChatWish(Struct, frozen=True, kw_only=True):
    """Which conversation, with which model: a new one with the usual model where nothing is said.

    ``resume`` is an id, a title or a part of one; ``latest`` goes on with the last one of this source. One that
    ``begins`` is stored with its first turn, by whoever opens it. Where nobody attends, questions are answered with
    no at once. ``lasting`` says that the place stays open behind the reply, so that a goal may go on there. ``owner``
    and ``audience`` are those of a new conversation; ``followers`` and ``witnesses`` hear of its turns as well.
    ``unpack`` fetches the files of messages; ``file_limit`` is how many bytes a file may have that is sent here,
    ``None`` where this is no chat. ``held_up`` is called when a turn waits for a store that cannot be used, which it
    does only where this is given. ``context`` is what the front door knows of the place. Unless it is ``watchable``,
    nobody can follow its turns from elsewhere; ``moved`` is called when one was taken to another place meanwhile.
    ``caps`` are what may be spent beside what counts for every conversation; ``mandate`` is there where it works for
    another one.
    """

    source: str
    folder: Path
    resume: str = ""
    latest: bool = False
    begins: Session | None = None
    model: str = ""
    surface: str = ""
    identity: str = ""
    titled: bool = True
    attended: bool = True
    lasting: bool = False
    tools: tuple[Tool, ...] | None = None
    owner: str = ""
    audience: str = ""
    followers: tuple[Follower, ...] = ()
    witnesses: tuple[Witness, ...] = ()
    unpack: Unpack = leave_packed
    file_limit: int | None = None
    held_up: Callable[[], None] | None = None
    watchable: bool = True
    moved: Callable[[], None] | None = None
    context: SessionContext = SessionContext()
    caps: tuple[Cap, ...] = ()
    mandate: Mandate | None = None


def _nothing_to_keep() -> None:
    """Keep nothing, and end nothing."""


class Chat(Struct, frozen=True, kw_only=True):
    """An open conversation; ``notes`` are sentences that the person should read first.

    ``why`` is a sentence about why this model answers, ``signature`` stands for all that the agent is made of.
    ``is_same_person`` compares two senders: text joins a turn only if its sender is that of the turn.
    ``keep_workplace`` lets folder and processes of the conversation
    outlast its closing, for whoever opens it next in this process. ``end_work`` ends what goes on in its background.
    """

    conversation: Conversation
    questions: Questions
    title: str
    model: str
    provider: str
    why: str
    signature: str
    info: ModelInfo
    workspace: Workspace
    keep_workplace: Callable[[], None] = _nothing_to_keep
    end_work: Callable[[], None] = _nothing_to_keep
    is_same_person: Callable[[str, str], bool] = is_same_sender
    notes: tuple[str, ...] = ()
    delegator: Delegator | None = None
