"""Requests to open a session, and the open session that a surface gets."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from talaria.contracts.delegation import Delegator
from talaria.contracts.provider import ModelInfo
from talaria.contracts.stores.ledger import Cap
from talaria.contracts.stores.sessions import Session
from talaria.contracts.tool import Tool, Workspace
from talaria.contracts.turn_listener import TurnFollowUp, TurnListener
from talaria.contracts.values import SessionValue
from talaria.core.ids import SessionId
from talaria.core.messages import is_same_sender
from talaria.core.session_context import SessionContext
from talaria.runtime.questions import Questions
from talaria.runtime.runner import SessionRunner
from talaria.runtime.turn_environment import TurnEvents
from talaria.runtime.turns import FetchAttachments, skip_attachments

WORKSPACE = SessionValue("workspace", str)  # folder and variables after the last turn, as JSON


class DelegatedScope(Struct, frozen=True, kw_only=True):
    """Limits of a delegated session: ``tools`` are all it may use, ``questions`` reach an approver.

    ``ancestors`` are the sessions that it works for, nearest first. Its cost counts towards their budgets and towards
    ``account``, the account of the delegating turn. ``seconds`` limits the duration of a turn.
    """

    tools: tuple[str, ...]
    ancestors: tuple[SessionId, ...]
    account: str
    questions: Questions | None = None
    seconds: float | None = None

    @property
    def depth(self) -> int:
        """Depth of delegation."""
        return len(self.ancestors)

    @property
    def root(self) -> SessionId:
        """The session in which a person is asked and grants are stored."""
        return self.ancestors[-1]


class OpenRequest(Struct, frozen=True, kw_only=True):
    """Options for opening a session: by default a new one with the configured model.

    ``resume`` is an id, a title or a part of one; ``latest`` continues the last session of this source. ``begins`` is a
    session that the caller stores together with its first turn. Unless ``attended``, questions are answered with no at
    once. ``lasting`` says that the surface stays open after the reply, so that a goal may continue there. ``owner`` and
    ``audience`` are those of a new session. ``unpack`` fetches the files of messages; ``file_limit`` is the largest
    file in bytes that can be sent here, ``None`` if this is no chat. With ``waits_for_store``, turns wait while the
    store cannot be written; without it they fail. With ``queues_replies``, a follow-up queues the replies. ``context``
    describes the surface. Unless ``watchable``, no other process can follow the turns; ``moved`` is called if a turn
    was moved to another chat. ``caps`` are budgets in addition to those of every session; ``delegated_scope`` is set if
    it works for another one.
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
    follow_ups: tuple[TurnFollowUp, ...] = ()
    listeners: tuple[TurnListener, ...] = ()
    unpack: FetchAttachments = skip_attachments
    file_limit: int | None = None
    waits_for_store: bool = False
    queues_replies: bool = False
    watchable: bool = True
    moved: Callable[[], None] | None = None
    context: SessionContext = SessionContext()
    caps: tuple[Cap, ...] = ()
    delegated_scope: DelegatedScope | None = None


def _do_nothing() -> None:
    """Do nothing."""


class OpenSession(Struct, frozen=True, kw_only=True):
    """An open session; ``notes`` are sentences that the person should read first.

    ``why`` explains in a sentence why this model is used, ``signature`` identifies everything the agent is built from.
    ``is_same_person`` compares two senders: text joins a turn only if its sender is that of the turn.
    ``keep_workspace`` lets the folder and processes of the session survive its closing, for the next opening in this
    process. ``end_background_work`` ends its background work.
    """

    conversation: SessionRunner
    events: TurnEvents
    questions: Questions
    title: str
    model: str
    provider: str
    why: str
    signature: str
    info: ModelInfo
    workspace: Workspace
    keep_workspace: Callable[[], None] = _do_nothing
    end_background_work: Callable[[], None] = _do_nothing
    is_same_person: Callable[[str, str], bool] = is_same_sender
    notes: tuple[str, ...] = ()
    delegator: Delegator | None = None
