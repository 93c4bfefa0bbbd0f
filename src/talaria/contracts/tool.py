"""What a model can do: tools with typed arguments and a declared effect."""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId
from talaria.core.messages import Image
from talaria.core.session_context import SessionContext, for_child


class Effect(Enum):
    """What running a tool again would do; decides about approval, and about what a crash interrupted."""

    READS = "reads"
    IDEMPOTENT = "idempotent"
    IRREVERSIBLE = "irreversible"


class FileChange(Protocol):
    """A change of a file that was not made yet."""

    def diff(self, workspace: "Workspace") -> str:
        """Return what would change, as a unified diff; empty where nothing can be shown. Blocks: it reads the file."""


class Deed(Struct, frozen=True):
    """What a call is about to do, for a policy to judge and a person to read.

    ``place`` is where something is sent that others read; empty where only the person themself does.
    ``change`` is how a file would change, where the person can be shown that.
    """

    kind: Literal["command", "code", "read", "write", "fetch", "send", "other"]
    target: str
    place: str = ""
    change: FileChange | None = None


class ToolOutput(Struct, frozen=True):
    """What goes back to the model; pictures go along where the model can see.

    ``diff`` is what changed in a file, as a unified diff for people; the model does not get it. ``source`` names where
    text from outside comes from: a web page, a server. The model sees such text marked as untrusted.
    """

    text: str
    images: tuple[Image, ...] = ()
    diff: str = ""
    source: str = ""


class Workspace(Protocol):
    """Where a conversation works: kept for its life, the same for every tool of it."""

    folder: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of the next command."""

    def resolve(self, path: str) -> Path:
        """Return the absolute path that a model means; ``~`` and relative paths included."""

    def move_to(self, folder: Path) -> None:
        """Work in another folder from now on."""

    def set_environment(self, values: Mapping[str, str]) -> None:
        """Have these variables in every later command, instead of those that there were."""


class Person(Protocol):
    """The one the conversation is with, as far as a tool may bother them."""

    async def ask(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Return the answer, or ``None`` when nobody answers in time."""


def unshown(step: str) -> None:
    """Show nothing."""


async def no_other_tool(name: str, arguments: str) -> ToolOutput:
    """Say that there is no other tool to call."""
    raise ToolFailed(f"There is no tool {name} to call with {arguments} here.")


class Call(Struct, frozen=True, kw_only=True):
    """What a tool may know of the call it serves.

    ``progress`` shows what it prints, ``step`` tells in a line what it does right now.
    ``call_tool`` runs another tool by its name and its arguments as JSON, under the same approval and record.
    ``owner`` is whose conversation it is and ``audience`` who reads along there, as in `Session`: nothing may be
    brought in that these may not know. ``context`` tells whose turn it is.
    """

    id: str
    session_id: SessionId
    workspace: Workspace
    person: Person
    progress: Callable[[str], None]
    step: Callable[[str], None] = unshown
    call_tool: Callable[[str, str], Awaitable[ToolOutput]] = no_other_tool
    owner: str = ""
    audience: str = ""
    context: SessionContext = SessionContext()

    @property
    def environment(self) -> dict[str, str]:
        """The environment for a child process: that of the workspace, and what tells of this turn."""
        return for_child(self.workspace.environment, self.context)


class Tool(Protocol):
    """One thing that a model can do.

    ``arguments`` is a msgspec struct: its JSON schema is what the model is told, field descriptions included.
    """

    name: str
    description: str
    effect: Effect

    @property
    def arguments(self) -> type[Struct]:
        """What the model may give."""

    def deed(self, arguments: Any) -> Deed:
        """Say what these arguments would do."""

    async def run(self, arguments: Any, call: Call) -> ToolOutput:
        """Do it, or raise `ToolFailed` with what the model should know. Cancelling stops it, children included."""


class ToolState(Struct, frozen=True):
    """A tool: what a model is told that it does, and how many bytes that takes of each request."""

    name: str
    does: str
    effect: str
    enabled: bool
    bytes: int


class ToolsetState(Struct, frozen=True):
    """A group of tools; one that is off has none that is on."""

    name: str
    enabled: bool
    tools: tuple[ToolState, ...]
