"""Requests to open a session, and the open session that a surface gets."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from talaria.contracts.delegation import Delegator
from talaria.contracts.provider import ModelInfo
from talaria.contracts.stores.sessions import Session
from talaria.contracts.stores.turns import Cap
from talaria.contracts.tool import Tool, Workspace
from talaria.contracts.values import SessionValue
from talaria.core.ids import SessionId
from talaria.core.messages import is_same_sender
from talaria.core.session_context import SessionContext
from talaria.runtime.questions import Questions
from talaria.runtime.runner import SessionRunner
from talaria.runtime.turn_environment import TurnEvents
from talaria.runtime.turns import TurnOptions

WORKSPACE = SessionValue("workspace", str)  # folder and variables after the last turn, as JSON

if TYPE_CHECKING:  # loaded with the first MCP server
    from talaria.contracts.mcp import SessionServersView


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


class SurfaceInfo(Struct, frozen=True, kw_only=True):
    """The surface on which a session is opened, and what is possible there.

    ``instructions`` describe it to the model, ``context`` to tools and hooks. Unless ``attended``, questions are
    answered with no at once. ``lasting`` means that it stays open after the reply, so that a goal may continue there.
    Unless ``watchable``, no other process can follow the turns; ``on_moved`` is called if a turn was moved to another
    chat. ``file_limit`` is the largest file in bytes that can be sent here, ``None`` if files stay where they are. With
    ``attaches_files`` they are part of the answer instead of messages in a chat.
    """

    source: str
    folder: Path
    instructions: str = ""
    context: SessionContext = SessionContext()
    attended: bool = True
    lasting: bool = False
    watchable: bool = True
    on_moved: Callable[[], None] | None = None
    file_limit: int | None = None
    attaches_files: bool = False


class ResumeSession(Struct, frozen=True):
    """A stored session, by its id, its title or a part of one."""

    name: str


class LatestSession(Struct, frozen=True):
    """The last session of the same source."""


class UnsavedSession(Struct, frozen=True):
    """A session that the caller stores together with its first turn."""

    session: Session


class OpenRequest(Struct, frozen=True, kw_only=True):
    """Options for opening a session: by default a new one with the configured model.

    ``identity`` replaces the instructions of the profile, ``tools`` replace the configured ones. ``owner`` and
    ``audience`` are those of a new session. ``caps`` are budgets in addition to those of every session;
    ``delegated_scope`` is set if it works for another one. With ``plan``, a new session starts in plan mode; it
    belongs to ``persona``, as a stored one belongs to its own.
    """

    surface: SurfaceInfo
    session: ResumeSession | LatestSession | UnsavedSession | None = None
    model: str = ""
    identity: str = ""
    titled: bool = True
    tools: tuple[Tool, ...] | None = None
    owner: str = ""
    audience: str = ""
    turns: TurnOptions = TurnOptions()
    caps: tuple[Cap, ...] = ()
    delegated_scope: DelegatedScope | None = None
    plan: bool = False
    persona: str = ""


def _do_nothing() -> None:
    """Do nothing."""


class OpenSession(Struct, frozen=True, kw_only=True):
    """An open session; ``notes`` are sentences that the person should read first.

    ``why`` explains in a sentence why this model is used, ``signature`` identifies everything the agent is built from.
    ``is_same_person`` compares two senders: text joins a turn only if its sender is that of the turn.
    ``keep_workspace`` lets the folder and processes of the session survive its closing, for the next opening in this
    process. ``end_background_work`` ends its background work. ``servers`` are its MCP servers.
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
    servers: "SessionServersView | None" = None
