"""The tools of an agent by group, as the settings want them."""

import sys
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Struct

from talaria.agent.schema import describe
from talaria.app.subcommands import load
from talaria.contracts.delegation import Delegator
from talaria.contracts.models import ModelInfo
from talaria.contracts.processes import BackgroundWork
from talaria.contracts.provider import Provider
from talaria.contracts.schedules import CRON, JobDesk
from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import Viewer
from talaria.contracts.tool import Tool, ToolsetState, ToolState
from talaria.core.api_owner import KEYLESS_OWNER
from talaria.core.ids import SessionId
from talaria.sessions.mandate import Mandate
from talaria.settings.chats import GUEST_TOOLS
from talaria.settings.folder_trust import FolderTrust
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile, below
from talaria.tools.clarify import Clarify
from talaria.tools.code.tool import ExecuteCode
from talaria.tools.cron.tool import Cron
from talaria.tools.delegate.tool import DelegateTask
from talaria.tools.files.edit import EditFile
from talaria.tools.files.listing import ListFiles
from talaria.tools.files.read import ReadFile
from talaria.tools.files.search import SearchFiles
from talaria.tools.files.write import WriteFile
from talaria.tools.memory.tool import Memory
from talaria.tools.output import FullOutputs
from talaria.tools.process.tool import Process
from talaria.tools.recall.meaning import Meaning
from talaria.tools.recall.tool import SessionSearch
from talaria.tools.sandbox.bubblewrap import Sandbox, sandbox_available
from talaria.tools.send.file import SendFile
from talaria.tools.send.message import SendMessage
from talaria.tools.skills.tool import Skills
from talaria.tools.terminal.processes import Processes
from talaria.tools.terminal.tool import Terminal
from talaria.tools.todo import Todo
from talaria.tools.vision import Vision
from talaria.tools.web.client import WebClient
from talaria.tools.web.engines import DuckDuckGo, SearXng
from talaria.tools.web.fetch import WebFetch
from talaria.tools.web.search import WebSearch

OTHERS = "mcp"  # the group of all tools that are not ours
_PACKAGE = Path(__file__).parents[1]


class Toolset(Struct, frozen=True):
    """A group of tools: all that may be in it, and what makes those that the circumstances allow."""

    kinds: tuple[type[Tool], ...]
    make: "Callable[[Workbench], list[Tool]]"


class Workbench(Struct, frozen=True, kw_only=True):
    """What tools are made of; ``closing`` takes what has to be let go of in the end.

    ``past`` are the conversations from which this one branched off. ``processes`` outlast the tools, if they are given,
    and what is in the ``background`` outlasts the program.
    ``guest`` says that the conversation is not one of the agent's owner; ``viewer`` is as whom and before whom it is.
    ``networks`` are the chat networks that are set up; ``file_limit`` is how many bytes a file may have that is sent to
    this place, ``None`` where it is no chat. ``delegator`` hands tasks on; with a ``mandate``
    the conversation works for another one.
    """

    settings: Settings
    profile: Profile
    store: Store
    session_id: SessionId
    surface: str = ""
    folder: Path
    closing: AsyncExitStack
    seer: tuple[Provider, str] | None = None
    model: ModelInfo
    past: tuple[SessionId, ...] = ()
    processes: Processes | None = None
    background: BackgroundWork | None = None
    guest: bool = False
    networks: tuple[str, ...] = ()
    file_limit: int | None = None
    viewer: Viewer = Viewer()
    delegator: Delegator | None = None
    mandate: Mandate | None = None

    @property
    def skill_folders(self) -> tuple[Path, ...]:
        """Where skills are: the profile's own first, then those of the project."""
        return skill_folders(self.profile, self.folder)

    @property
    def outputs(self) -> FullOutputs:
        """Where outputs are kept that are too long for the model."""
        return FullOutputs(self.profile.outputs_folder)

    @property
    def output_places(self) -> tuple[Path, ...]:
        """The folders of outputs, and of files that people sent, that are mentioned in the conversation."""
        sessions = (self.session_id, *self.past)
        return (*map(self.outputs.place, sessions), *(self.profile.media_folder / one for one in sessions))

    @property
    def memory_folder(self) -> Path:
        """Where the agent keeps what it remembers."""
        return self.profile.memory_folder


def skill_folders(profile: Profile, project: Path) -> tuple[Path, ...]:
    """Return where skills are: the profile's own first, then those of a project that is trusted."""
    if not FolderTrust(profile.folder).is_trusted(project):
        return (profile.skills_folder,)
    return profile.skills_folder, below(project, ".talaria/skills")


def make_tools(bench: Workbench) -> list[Tool]:
    """Return the tools that the settings have on; none for a model that cannot use any."""
    if not bench.model.tools:
        return []
    wanted = bench.settings.tools
    made = [tool for name in toolsets_on(bench.settings, bench.surface) for tool in TOOLSETS[name].make(bench)]
    return [tool for tool in made if tool.name not in wanted.disabled and may_use(bench, tool.name)]


def may_use(bench: Workbench, name: str) -> bool:
    """Tell whether a tool is for whoever the conversation belongs to, and for what it works on."""
    if bench.mandate is not None and name not in bench.mandate.tools:
        return False
    if bench.viewer.owner == KEYLESS_OWNER and not _is_named(GUEST_TOOLS, name):  # whatever the settings say
        return False
    return not bench.guest or for_guests(bench.settings, name)


def for_guests(settings: Settings, name: str) -> bool:
    """Tell whether a tool is there for others than the owner."""
    return _is_named(settings.access.guest_tools, name)


def _is_named(allowed: Collection[str], name: str) -> bool:
    """Tell whether a tool is in a list: by its own name, or by that of its group."""
    return name in allowed or any(group in allowed for group in _groups().get(name, (OTHERS,)))


@cache
def _groups() -> Mapping[str, tuple[str, ...]]:
    """Return the groups in which each tool of ours is."""
    found: dict[str, tuple[str, ...]] = {}
    for group, toolset in TOOLSETS.items():
        for kind in toolset.kinds:
            name = cast("Tool", kind).name
            found[name] = (*found.get(name, ()), group)
    return found


def toolsets_on(settings: Settings, surface: str) -> tuple[str, ...]:
    """Return the groups that are on in a place: its own choice, else that of all places."""
    own = settings.surfaces.get(surface)
    return own.toolsets if own is not None and own.toolsets else settings.tools.toolsets


def list_toolsets(settings: Settings) -> tuple[ToolsetState, ...]:
    """Return every group with its tools, and whether they are on; makes none of them."""
    on = settings.tools.toolsets
    return tuple(
        ToolsetState(name, name in on, tuple(_state(kind, name, settings) for kind in toolset.kinds))
        for name, toolset in TOOLSETS.items()
    )


def _state(kind: type[Tool], toolset: str, settings: Settings) -> ToolState:
    # All that a model is told of a tool stands in its class.
    tool = cast("Tool", kind)
    on = toolset in settings.tools.toolsets and tool.name not in settings.tools.disabled
    return ToolState(tool.name, tool.description, tool.effect.value, on, len(msgspec.json.encode(describe(tool))))


def _terminal(bench: Workbench) -> list[Tool]:
    processes = bench.processes
    if processes is None:
        processes = Processes()
        bench.closing.callback(processes.close)
    terminal = Terminal(processes, bench.outputs, sandbox=sandbox_of(bench), background=bench.background)
    return [terminal, Process(bench.background)] if bench.background is not None else [terminal]


def _files(bench: Workbench) -> list[Tool]:
    return [ReadFile(), WriteFile(), EditFile(), SearchFiles(), ListFiles()]


def _web(bench: Workbench) -> list[Tool]:
    client = WebClient()
    url = bench.settings.tools.search_engine
    engine = SearXng(url) if url else DuckDuckGo()
    _close_later(bench, client.close, engine.close)
    return [WebFetch(client), WebSearch(engine)]


def _memory(bench: Workbench) -> list[Tool]:
    meaning = Meaning() if Meaning.is_installed() else None
    return [Memory(bench.memory_folder), SessionSearch(bench.store, meaning)]


def _skills(bench: Workbench) -> list[Tool]:
    return [Skills(bench.skill_folders)]


def _planning(bench: Workbench) -> list[Tool]:
    return [Todo(bench.store), Clarify()]


def _code(bench: Workbench) -> list[Tool]:
    return [ExecuteCode(lambda call: call.call_tool, wrap=_wrap(bench))]


def _vision(bench: Workbench) -> list[Tool]:
    """Give sight to a model that has none of its own, where another one can lend it."""
    if bench.model.images or bench.seer is None:
        return []
    client = WebClient()
    _close_later(bench, client.close)
    return [Vision(*bench.seer, client)]


def _send(bench: Workbench) -> list[Tool]:
    """Let messages be sent where there is a chat network to send them through, and files where this is a chat."""
    if not bench.networks:
        return []
    courier = load("talaria.sessions.courier").ChatCourier(bench.store, bench.networks)
    message = SendMessage(courier, guest=bench.guest)
    if bench.file_limit is None:
        return [message]
    return [message, SendFile(courier, bench.profile.media_folder / bench.session_id / "sent", bench.file_limit)]


def _delegation(bench: Workbench) -> list[Tool]:
    """Let tasks be handed on, as far down as the settings allow."""
    depth = bench.mandate.depth if bench.mandate is not None else 0
    if bench.delegator is None or depth >= bench.settings.delegation.depth:
        return []
    return [DelegateTask(bench.delegator)]


def _cron(bench: Workbench) -> list[Tool]:
    """Let jobs be scheduled, but not by what a job has begun."""

    def desk() -> JobDesk:
        environment = load("talaria.settings.environment").process_environment()
        opened: JobDesk = load("talaria.app.schedules").open_desk(
            bench.store, bench.settings, bench.networks, environment
        )
        return opened

    return [Cron(desk, makes=bench.surface != CRON)]


def sandbox_of(bench: Workbench) -> Sandbox | None:
    """Return what commands run in, where the settings want that; one that refuses where the machine cannot do it."""
    wanted = bench.settings.sandbox
    if not wanted.enabled:
        return None
    return Sandbox(
        writable=(bench.folder,),
        readable=(Path(sys.prefix), _PACKAGE, *bench.output_places),
        hidden=(bench.profile.folder, bench.profile.guests_folder),
        network=wanted.network,
        problem=sandbox_available() or "",
    )


def _wrap(bench: Workbench) -> Callable[..., list[str]] | None:
    sandbox = sandbox_of(bench)
    return sandbox.wrap if sandbox else None


def _close_later(bench: Workbench, *closes: Callable[[], Awaitable[None]]) -> None:
    for close in closes:
        bench.closing.push_async_callback(close)


TOOLSETS: Mapping[str, Toolset] = {
    "terminal": Toolset((Terminal, Process), _terminal),
    "files": Toolset((ReadFile, WriteFile, EditFile, SearchFiles, ListFiles), _files),
    "web": Toolset((WebFetch, WebSearch), _web),
    "memory": Toolset((Memory, SessionSearch), _memory),
    "skills": Toolset((Skills,), _skills),
    "planning": Toolset((Todo, Clarify), _planning),
    "code": Toolset((ExecuteCode,), _code),
    "vision": Toolset((Vision,), _vision),
    "send": Toolset((SendMessage, SendFile), _send),
    "cron": Toolset((Cron,), _cron),
    "delegation": Toolset((DelegateTask,), _delegation),
}
