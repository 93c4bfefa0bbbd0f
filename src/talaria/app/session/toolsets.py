"""Tools of a session by toolset, as the settings enable them, and the rules for sessions with guests."""

from asyncio import to_thread
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec import Struct, structs

from talaria.agent.toolbox import LazyTool, describe_tool
from talaria.app.session.browsers import BROWSER_TOOLS, ProfileBrowsers, has_browser
from talaria.app.session.memory import open_memory, space_folder
from talaria.app.session.workspaces import is_owners_turn
from talaria.contracts.background_processes import BackgroundWork
from talaria.contracts.delegation import Delegator
from talaria.contracts.jobs import CRON, JobService
from talaria.contracts.provider import ModelInfo, Provider
from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import Viewer
from talaria.contracts.tool import MessageSender, Tool, ToolsetState, ToolState
from talaria.core.addresses import WEB
from talaria.core.ids import SessionId
from talaria.core.messages import KEYLESS_OWNER
from talaria.runtime.open_session import DelegatedScope
from talaria.sessions.preferences import choose_sandbox
from talaria.settings.environment import process_environment
from talaria.settings.model import Settings
from talaria.settings.profiles import FolderTrust, Profile, join_path
from talaria.settings.sections.chats import GUEST_TOOLS
from talaria.tools.code.tool import ExecuteCode
from talaria.tools.cron.tool import Cron
from talaria.tools.delegate.tool import DelegateTask
from talaria.tools.files.edit import EditFile, WriteFile
from talaria.tools.files.read import ListFiles, ReadFile
from talaria.tools.files.search import SearchFiles
from talaria.tools.media import ImageGenerate, Speak, Vision
from talaria.tools.memory.notebook import Memories, Memory
from talaria.tools.output import FullOutputs
from talaria.tools.process.tool import Process
from talaria.tools.recall.tool import Meaning, SessionSearch
from talaria.tools.send.tool import Clarify, SendFile, SendMessage
from talaria.tools.skills.tool import Skills
from talaria.tools.terminal.shell import Processes
from talaria.tools.terminal.tool import Terminal
from talaria.tools.todo import Todo
from talaria.tools.web.fetch import WebClient, WebFetch
from talaria.tools.web.search import WebSearch

if TYPE_CHECKING:  # loaded with the first call
    from talaria.agent.approval.policy import ApprovalPolicy
    from talaria.app.media_models import SessionMedia
    from talaria.contracts.sandbox import Sandbox
    from talaria.settings.sections.chats import PersonaSettings

MCP_TOOLSET = "mcp"  # the toolset of all tools from MCP servers


class ToolFactory(Struct, frozen=True):
    """A built-in tool: the class that describes it, and how a session constructs it.

    ``is_available`` decides from the context whether a session has the tool at all; ``is_configured`` whether any has.
    """

    kind: type[Tool]
    construct: "Callable[[ToolContext], Tool]"
    is_available: "Callable[[ToolContext], bool]" = lambda _: True
    is_configured: Callable[[Settings], bool] = lambda _: True


class Toolset(Struct, frozen=True):
    """A group of tools that is enabled and disabled by one name."""

    factories: tuple[ToolFactory, ...]

    @property
    def kinds(self) -> tuple[type[Tool], ...]:
        """The classes of all its tools, available or not."""
        return tuple(factory.kind for factory in self.factories)


class ToolContext(Struct, frozen=True, kw_only=True):
    """Dependencies of the tools of one session.

    ``closing`` takes the callbacks that release what a tool holds. ``past`` are the ancestors of this session.
    ``processes``, if given, outlive the tools, and ``background`` work outlives the program. ``guest`` is set if the
    session does not belong to the agent's owner; ``viewer`` holds its owner and audience. ``began_in`` is the folder in
    which the session began, if that may differ from ``folder``. ``networks`` are where messages can be sent;
    ``file_limit`` and ``attaches_files`` are as in `SurfaceInfo`. ``delegator`` runs delegated tasks;
    ``delegated_scope`` is set if the session itself is one. ``find_secret`` returns a key by its name. ``sandboxes``
    has the sandbox of all tools of the session, once it is needed. ``browsers`` outlive it. ``media`` makes images and
    speech.
    """

    settings: Settings
    profile: Profile
    store: Store
    session_id: SessionId
    surface: str = ""
    folder: Path
    began_in: Path | None = None
    closing: AsyncExitStack
    vision_model: tuple[Provider, str] | None = None
    model: ModelInfo
    past: tuple[SessionId, ...] = ()
    processes: Callable[[], Processes] | None = None
    background: BackgroundWork | None = None
    guest: bool = False
    networks: tuple[str, ...] = ()
    file_limit: int | None = None
    attaches_files: bool = False
    viewer: Viewer = Viewer()
    delegator: Delegator | None = None
    delegated_scope: DelegatedScope | None = None
    find_secret: Callable[[str], str | None] = lambda _: None
    environment: Mapping[str, str] = {}
    sandboxes: "list[Sandbox | None]" = msgspec.field(default_factory=list)
    browsers: ProfileBrowsers | None = None
    media: "Callable[[], SessionMedia] | None" = None

    @property
    def skill_folders(self) -> tuple[Path, ...]:
        """The folders of skills: the profile's, the project's, then those of the settings."""
        return list_skill_folders(self.profile, self.folder, self.settings.tools.skill_folders, self.environment)

    @property
    def outputs(self) -> FullOutputs:
        """Storage for outputs that are too long for the model."""
        return FullOutputs(self.profile.outputs_folder)

    @property
    def output_folders(self) -> tuple[Path, ...]:
        """The folders of outputs and received files that the transcript mentions."""
        sessions = (self.session_id, *self.past)
        return (*map(self.outputs.find_folder, sessions), *(self.profile.media_folder / one for one in sessions))

    @property
    def memories(self) -> Memories:
        """The memory of all people."""
        memory = self.settings.memory
        options = tuple(memory.options.items())
        limits = memory.notes_limit, memory.person_limit
        folder = space_folder(self.profile, memory.space) if memory.space else self.profile.memory_folder
        return open_memory(folder, memory.provider, *limits, options)


def list_skill_folders(
    profile: Profile, project: Path, others: Sequence[str], environment: Mapping[str, str]
) -> tuple[Path, ...]:
    """Return the folders of skills: the profile's, those of a trusted project, then ``others``, in this order."""
    shared = _expand_folders(tuple(others), environment.get("HOME") or str(Path.home()))
    if not FolderTrust(profile.folder).is_trusted(project):
        return (profile.skills_folder, *shared)
    return (profile.skills_folder, join_path(project, ".talaria/skills"), *shared)


@cache
def _expand_folders(folders: tuple[str, ...], home: str) -> tuple[Path, ...]:
    return tuple(Path(f"{home}{one[1:]}" if one.startswith("~/") else one) for one in folders)


def list_command_folders(profile: Profile, project: Path) -> tuple[Path, ...]:
    """Return the folders with custom commands: the profile's, then the project's if that folder is trusted."""
    own = profile.folder / "commands"
    return (own, project / ".talaria" / "commands") if FolderTrust(profile.folder).is_trusted(project) else (own,)


def make_tools(tool_context: ToolContext) -> list[Tool]:
    """Return the tools that the settings enable; none for a model without tool calls.

    Nothing is constructed here: each tool is constructed on its first call. What it holds is released when
    ``tool_context.closing`` unwinds to this point, after the runner, which is registered later, has been closed.
    """
    if not tool_context.model.tools:
        return []
    closing = AsyncExitStack()
    tool_context.closing.push_async_exit(closing)
    tool_context = structs.replace(tool_context, closing=closing)
    return [
        LazyTool(factory.kind, partial(factory.construct, tool_context))
        for name in list_enabled_toolsets(tool_context.settings, tool_context.surface)
        for factory in TOOLSETS[name].factories
        if _has_tool(tool_context, factory)
    ]


def _has_tool(tool_context: ToolContext, factory: ToolFactory) -> bool:
    name = cast("Tool", factory.kind).name
    return (
        factory.is_configured(tool_context.settings)
        and factory.is_available(tool_context)
        and name not in tool_context.settings.tools.disabled
        and may_use(tool_context, name)
    )


def may_use(tool_context: ToolContext, name: str) -> bool:
    """Return whether the owner and the scope of a session permit a tool."""
    if tool_context.delegated_scope is not None and name not in tool_context.delegated_scope.tools:
        return False
    if tool_context.viewer.owner == KEYLESS_OWNER and not _is_listed(GUEST_TOOLS, name):  # always
        return False
    return not tool_context.guest or is_guest_tool(tool_context.settings, name)


def is_guest_tool(settings: Settings, name: str) -> bool:
    """Return whether people other than the owner may use a tool."""
    return _is_listed(settings.access.guest_tools, name)


def _is_listed(allowed: Collection[str], name: str) -> bool:
    """Return whether a list names a tool or its toolset."""
    return name in allowed or any(group in allowed for group in _map_groups().get(name, (MCP_TOOLSET,)))


@cache
def _map_groups() -> Mapping[str, tuple[str, ...]]:
    """Return the toolsets of each built-in tool."""
    found: dict[str, tuple[str, ...]] = {}
    for group, toolset in TOOLSETS.items():
        for kind in toolset.kinds:
            name = cast("Tool", kind).name
            found[name] = (*found.get(name, ()), group)
    return found


def list_enabled_toolsets(settings: Settings, surface: str) -> tuple[str, ...]:
    """Return the enabled toolsets of a surface: its own list, else the common one."""
    own = settings.surfaces.get(surface)
    return own.toolsets if own is not None and own.toolsets else settings.tools.toolsets


def list_toolsets(settings: Settings) -> tuple[ToolsetState, ...]:
    """Return every toolset with its tools and whether they are enabled; constructs none."""
    on = settings.tools.toolsets
    return tuple(
        ToolsetState(name, name in on, tuple(_make_state(one, name, settings) for one in toolset.factories))
        for name, toolset in TOOLSETS.items()
    )


def _make_state(factory: ToolFactory, toolset: str, settings: Settings) -> ToolState:
    tool = cast("Tool", factory.kind)
    is_listed = toolset in settings.tools.toolsets and tool.name not in settings.tools.disabled
    on = is_listed and factory.is_configured(settings)
    return ToolState(tool.name, tool.description, tool.effect.value, on, len(msgspec.json.encode(describe_tool(tool))))


def _construct_terminal(tool_context: ToolContext) -> Tool:
    if tool_context.processes is not None:
        processes = tool_context.processes()
    else:
        processes = Processes()
        tool_context.closing.callback(processes.close)
    return Terminal(
        processes, tool_context.outputs, sandbox=build_sandbox(tool_context), background=tool_context.background
    )


def _construct_process(tool_context: ToolContext) -> Tool:
    assert tool_context.background is not None
    return Process(tool_context.background)


def _construct_web_fetch(tool_context: ToolContext) -> Tool:
    return WebFetch(
        _open_web_client(tool_context), _get_page_folder(tool_context), robots=tool_context.settings.web.robots
    )


def _construct_web_search(tool_context: ToolContext) -> Tool:
    from talaria.app.search_engines import open_search  # noqa: PLC0415 (loaded with the first search)

    engines = open_search(tool_context.settings.web, tool_context.find_secret)
    tool_context.closing.push_async_callback(engines.close)
    return WebSearch(engines)


def _construct_session_search(tool_context: ToolContext) -> Tool:
    return SessionSearch(tool_context.store, Meaning() if Meaning.is_installed() else None)


def _construct_code(tool_context: ToolContext) -> Tool:
    return ExecuteCode(lambda call: call.call_tool, sandbox=build_sandbox(tool_context))


def _construct_vision(tool_context: ToolContext) -> Tool:
    assert tool_context.vision_model is not None
    return Vision(*tool_context.vision_model, _open_web_client(tool_context))


def _needs_vision(tool_context: ToolContext) -> bool:
    """Return whether the model does not accept images and an auxiliary model does."""
    return not tool_context.model.images and tool_context.vision_model is not None


def _construct_send_message(tool_context: ToolContext) -> Tool:
    return SendMessage(_make_sender(tool_context), guest=tool_context.guest)


def _has_networks(tool_context: ToolContext) -> bool:
    return any(name != WEB for name in tool_context.networks)


def _construct_skills(tool_context: ToolContext) -> Tool:
    return Skills(tool_context.skill_folders, tool_context.settings.tools.disabled_skills, tool_context.store)


def _construct_send_file(tool_context: ToolContext) -> SendFile:
    assert tool_context.file_limit is not None
    folder = tool_context.profile.media_folder / tool_context.session_id / "sent"
    sender = None if tool_context.attaches_files else _make_sender(tool_context)
    return SendFile(sender, folder, tool_context.file_limit)


def _can_send_files(context: ToolContext) -> bool:
    return (bool(context.networks) or context.attaches_files) and context.file_limit is not None


def _construct_media_tool(tool_context: ToolContext, *, draws: bool) -> Tool:
    assert tool_context.media is not None
    media, settings = tool_context.media(), tool_context.settings
    media.open(tool_context.closing)
    delivery = _construct_send_file(tool_context) if _can_send_files(tool_context) else None
    image_tool = ImageGenerate(media.image_maker, delivery, settings.images.seconds)
    return image_tool if draws else Speak(media.speaker, delivery, settings.voice.seconds)


def _construct_delegate_task(tool_context: ToolContext) -> Tool:
    assert tool_context.delegator is not None
    return DelegateTask(tool_context.delegator)


def _may_delegate(tool_context: ToolContext) -> bool:
    """Return whether the session may delegate tasks: up to the depth that the settings allow."""
    depth = tool_context.delegated_scope.depth if tool_context.delegated_scope is not None else 0
    return tool_context.delegator is not None and depth < tool_context.settings.delegation.depth


def _construct_browser(kind: type[Tool], context: ToolContext) -> Tool:
    assert context.browsers is not None
    return context.browsers.make_tool(kind, context.session_id, context.closing, guest=context.guest)


def _construct_cron(tool_context: ToolContext) -> Tool:
    """Construct the tool for jobs; a session that a job started cannot create further jobs."""

    def open_jobs() -> JobService:
        from talaria.app.jobs import open_job_service  # noqa: PLC0415 (loaded when jobs are used)

        return open_job_service(tool_context.store, tool_context.settings, tool_context.networks, process_environment())

    return Cron(open_jobs, makes=tool_context.surface != CRON)


def _open_web_client(tool_context: ToolContext) -> WebClient:
    client = WebClient(size_limit=round(tool_context.settings.web.fetch_megabytes * 1_000_000))
    tool_context.closing.push_async_callback(client.close)
    return client


def _get_page_folder(tool_context: ToolContext) -> Path:
    """Return the folder for images of pages of documents."""
    return tool_context.profile.media_folder / tool_context.session_id / "pages"


def _make_sender(tool_context: ToolContext) -> MessageSender:
    from talaria.runtime.cross_posts import ChatMessageSender  # noqa: PLC0415 (loaded with the first message)

    return ChatMessageSender(tool_context.store, tool_context.networks)


def build_sandbox(tool_context: ToolContext) -> "Sandbox | None":
    """Return the sandbox for programs of a session, one for all of them; ``None`` if they have the user's access."""
    if not tool_context.sandboxes:
        from talaria.app.session.sandbox import SandboxContext, open_sandbox  # noqa: PLC0415 (loaded with the first program)

        context = SandboxContext(
            settings=tool_context.settings,
            profile=tool_context.profile,
            surface=tool_context.surface,
            session_id=tool_context.session_id,
            environment=tool_context.environment,
            has_background=partial(_has_background, tool_context.background),
        )
        writable = (tool_context.folder, tool_context.began_in or tool_context.folder)
        found = open_sandbox(context, writable, tool_context.output_folders, tool_context.closing)
        tool_context.sandboxes.append(found)
    return tool_context.sandboxes[0]


async def list_sandbox_notes(tool_context: ToolContext) -> list[str]:
    """Return a warning if bubblewrap is required everywhere and doesn't work; others are checked by their first use."""
    settings = tool_context.settings
    if settings.sandbox.enabled is not True:
        return []
    if choose_sandbox(settings, tool_context.surface) != "bubblewrap":
        return []
    from talaria.tools.sandbox.bubblewrap import find_sandbox_problem  # noqa: PLC0415 (loaded where it is required)

    missing = await to_thread(find_sandbox_problem)
    return (
        [f"Commands can't run: sandbox.enabled is on, but no sandbox is available here. {missing}"] if missing else []
    )


async def _has_background(background: BackgroundWork | None, session_id: SessionId) -> bool:
    """Return whether background processes of a session are running."""
    return background is not None and any(one.is_alive for one in await background.of_session(session_id))


_construct_image_tool = partial(_construct_media_tool, draws=True)
_construct_speak_tool = partial(_construct_media_tool, draws=False)
TOOLSETS: Mapping[str, Toolset] = {
    "terminal": Toolset(
        (
            ToolFactory(Terminal, _construct_terminal),
            ToolFactory(Process, _construct_process, lambda context: context.background is not None),
        )
    ),
    "files": Toolset(
        (
            ToolFactory(ReadFile, lambda context: ReadFile(_get_page_folder(context))),
            ToolFactory(WriteFile, lambda _: WriteFile()),
            ToolFactory(EditFile, lambda _: EditFile()),
            ToolFactory(SearchFiles, lambda _: SearchFiles.with_installed_ripgrep()),
            ToolFactory(ListFiles, lambda _: ListFiles()),
        )
    ),
    "web": Toolset((ToolFactory(WebFetch, _construct_web_fetch), ToolFactory(WebSearch, _construct_web_search))),
    "memory": Toolset(
        (
            ToolFactory(Memory, lambda context: Memory(context.memories)),
            ToolFactory(SessionSearch, _construct_session_search),
        )
    ),
    "skills": Toolset((ToolFactory(Skills, _construct_skills),)),
    "planning": Toolset(
        (ToolFactory(Todo, lambda context: Todo(context.store)), ToolFactory(Clarify, lambda _: Clarify()))
    ),
    "code": Toolset((ToolFactory(ExecuteCode, _construct_code),)),
    "vision": Toolset((ToolFactory(Vision, _construct_vision, _needs_vision),)),
    "send": Toolset(
        (
            ToolFactory(SendMessage, _construct_send_message, _has_networks),
            ToolFactory(SendFile, _construct_send_file, _can_send_files),
        )
    ),
    "cron": Toolset((ToolFactory(Cron, _construct_cron),)),
    "delegation": Toolset((ToolFactory(DelegateTask, _construct_delegate_task, _may_delegate),)),
    "media": Toolset(
        (
            ToolFactory(ImageGenerate, _construct_image_tool, is_configured=lambda one: bool(one.images.generate)),
            ToolFactory(Speak, _construct_speak_tool, is_configured=lambda one: bool(one.voice.speaker)),
        )
    ),
    "browser": Toolset(
        tuple(
            ToolFactory(kind, partial(_construct_browser, kind), lambda it: has_browser(it.browsers))
            for kind in BROWSER_TOOLS
        )
    ),
}


def needs_mcp_servers(tool_context: ToolContext, persona: "PersonaSettings | None") -> bool:
    """Return whether tools of MCP servers could be used in a session of a persona."""
    if persona is not None and not persona.mcp:
        return False
    own_tools = {*TOOLSETS, *(kind.name for toolset in TOOLSETS.values() for kind in toolset.kinds)} - {MCP_TOOLSET}
    if tool_context.delegated_scope is not None and own_tools.issuperset(tool_context.delegated_scope.tools):
        return False
    return not tool_context.guest or not own_tools.issuperset(tool_context.settings.access.guest_tools)


def build_approval_policy(
    tool_context: ToolContext, policy: "Callable[[], ApprovalPolicy]", settings: Callable[[], Settings]
) -> "Callable[[], ApprovalPolicy]":
    """Return a function that builds the approval policy from the settings in force at each call.

    In a session of the owner, a turn that another person began in a chat follows the rules for guests, also where the
    terminal or the API continues it. In a shared session, so does a turn with an unknown sender. Text of another person
    never joins a turn, so the rules of a turn fit every text in it.
    """

    def build_confined_policy() -> "ApprovalPolicy":
        from talaria.agent.approval.policy import Confinement  # noqa: PLC0415 (loaded with the first tool call)

        folders = (tool_context.folder, *tool_context.output_folders)
        return structs.replace(policy(), confined=Confinement(folders, partial(is_guest_tool, settings())))

    if tool_context.guest:
        return build_confined_policy
    shared = bool(tool_context.viewer.owner)
    return lambda: policy() if is_owners_turn(settings(), shared=shared) else build_confined_policy()
