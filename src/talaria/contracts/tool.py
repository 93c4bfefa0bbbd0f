"""The tool contract: typed arguments and a declared effect, and messages that a tool sends to chats."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from talaria.core.addresses import ChatType
from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId
from talaria.core.messages import File, Image
from talaria.core.session_context import SessionContext, child_environment

ORIGIN = "origin"  # the target that stands for the chat of the session


class Effect(Enum):
    """Effect of repeating a tool call; decides about approval and about interrupted calls."""

    READS = "reads"
    IDEMPOTENT = "idempotent"
    IRREVERSIBLE = "irreversible"


class FileChange(Protocol):
    """A proposed change of a file."""

    def diff(self, workspace: "Workspace") -> str:
        """Return the proposed change as a unified diff; empty if there is nothing to show. Reads the file."""


class ProposedAction(Struct, frozen=True):
    """The action of a call, for the policy to judge and a person to read before it runs.

    ``destination`` is the chat or website that something is sent to; empty if only the person sees it. ``change`` is
    the proposed change of a file, where it can be shown. ``page`` is an action on a web page, ``submit`` one that sends
    something there; ``file`` is sent with it.
    """

    kind: Literal["command", "code", "read", "write", "fetch", "send", "page", "submit", "skill", "other"]
    target: str
    destination: str = ""
    change: FileChange | None = None
    file: str = ""


class ToolOutput(Struct, frozen=True):
    """The result for the model; images are included if the model can see.

    ``diff`` is what changed in a file, as a unified diff for people; the model doesn't get it. ``source`` names the
    origin of external text: a web page, a server. The model sees such text marked as untrusted. ``files`` are for the
    person, where they aren't sent to a chat.
    """

    text: str
    images: tuple[Image, ...] = ()
    diff: str = ""
    source: str = ""
    files: tuple[Image | File, ...] = ()


class Workspace(Protocol):
    """The working folder and environment of a session, shared by all its tools.

    ``sandbox_folder`` is the folder of commands where these run among other files than those of this machine.
    """

    folder: Path
    sandbox_folder: str

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables for the next command."""

    def resolve(self, path: str) -> Path:
        """Return the absolute path that a model means; ``~`` and relative paths included."""

    def move_to(self, folder: Path) -> None:
        """Change the working folder, also of commands in a sandbox."""

    def move_inside(self, folder: str) -> None:
        """Change the folder of commands in a sandbox with its own files."""

    def set_environment(self, values: Mapping[str, str]) -> None:
        """Replace the variables for all later commands."""


class Questioner(Protocol):
    """The person a tool may ask questions."""

    async def ask(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Return the answer, or ``None`` if nobody answers in time."""


def ignore_step(step: str) -> None:
    """Ignore a step."""


async def no_other_tool(name: str, arguments: str) -> ToolOutput:
    """Raise `ToolFailed`, since no other tool can be called."""
    raise ToolFailed(f"There is no tool {name} to call with {arguments}.")


class Call(Struct, frozen=True, kw_only=True):
    """The context of a tool call.

    ``progress`` shows output, ``step`` reports in one line what the tool is doing. ``call_tool`` runs another tool by
    its name and its arguments as JSON, under the same approval and record. ``owner`` is the owner of the session and
    ``audience`` who can read it, as in `Session`: results must not contain what these may not know. ``context``
    describes the turn.
    """

    id: str
    session_id: SessionId
    workspace: Workspace
    person: Questioner
    progress: Callable[[str], None]
    step: Callable[[str], None] = ignore_step
    call_tool: Callable[[str, str], Awaitable[ToolOutput]] = no_other_tool
    owner: str = ""
    audience: str = ""
    context: SessionContext = SessionContext()

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment for a child process: that of the workspace, and the session context."""
        return child_environment(self.workspace.environment, self.context)


class RemoteArguments(Struct, frozen=True):
    """Arguments of a tool on a server, which knows what else it accepts; unknown ones are dropped."""


class Tool(Protocol):
    """A tool that a model can call.

    ``arguments`` is a msgspec struct; its JSON schema, including field descriptions, is sent to the model. A call with
    other arguments is answered with an error, except for `RemoteArguments`.
    """

    name: str
    description: str
    effect: Effect

    @property
    def arguments(self) -> type[Struct]:
        """Return the type of the arguments."""

    def proposed_action(self, arguments: Any) -> ProposedAction:
        """Describe what these arguments would do."""

    async def run(self, arguments: Any, call: Call) -> ToolOutput:
        """Run the tool, or raise `ToolFailed` with a message for the model. Cancelling stops it and its child
        processes.
        """


class ChangeRecorder(Protocol):
    """Records the state of files around tool calls that may change them."""

    def around(
        self, effect: Effect, proposed_action: ProposedAction, workspace: Workspace, context: SessionContext
    ) -> AbstractAsyncContextManager[str]:
        """Record the state before the block if it may change files, and what it has changed after it.

        The block gets a notice for the person; empty if there is none.
        """


class ToolState(Struct, frozen=True):
    """A tool for display: its description, and its size in bytes in each request."""

    name: str
    does: str
    effect: str
    enabled: bool
    bytes: int


class ToolsetState(Struct, frozen=True):
    """A group of tools; all tools of a disabled group are disabled."""

    name: str
    enabled: bool
    tools: tuple[ToolState, ...]


class ReachableChat(Struct, frozen=True):
    """A chat that messages can be sent to; ``home`` marks the owner's home chat on its network."""

    target: str
    name: str
    kind: ChatType
    home: bool = False


class SentMessage(Struct, frozen=True):
    """A queued message: ``target`` is its chat, ``served`` means that a gateway is running to deliver it."""

    target: str
    served: bool


class MessageSender(Protocol):
    """Sends messages to chats through the outbox: durably, and each exactly once."""

    async def send(self, target: str, text: str, call: Call, files: tuple[File | Image, ...] = ()) -> SentMessage:
        """Queue a message for a target as people write it, or for ``origin``, the chat of the call's session.

        The same message of the same call is queued once. Raises `NotFound` or `Ambiguous` for an unknown target.
        """

    async def list_reachable(self) -> list[ReachableChat]:
        """Return the known chats, most recently active first."""
