"""Agent spec of a session: preferences, chosen model, signature, tools and system prompt."""

import hashlib
import os
import re
from asyncio import TaskGroup, to_thread
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec import Struct, structs

from talaria.agent.loop import AgentLoop, AgentRenewal
from talaria.agent.toolbox import Toolbox
from talaria.app.profile_admin import apply_persona, read_personality
from talaria.app.session.delegation_proxy import LazyDelegator
from talaria.app.session.memory import FILES
from talaria.app.session.toolsets import ToolContext, make_tools, may_use, needs_mcp_servers
from talaria.app.session.workspaces import OpenWorkspace
from talaria.contracts.provider import ChosenModel, Effort
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session, SessionFilter
from talaria.contracts.tool import Tool
from talaria.core.errors import Ambiguous, NotFound, ToolFailed
from talaria.core.files import FileCache
from talaria.core.ids import SessionId
from talaria.core.messages import Part
from talaria.core.session_context import context_variables
from talaria.runtime.agent_cache import AgentSignature, AgentSpec
from talaria.runtime.open_session import WORKSPACE, OpenRequest, ResumeSession, UnsavedSession
from talaria.sessions.branches import list_ancestors
from talaria.sessions.model_context import Prefix, choose_prefix, read_prefix, save_prefix
from talaria.sessions.preferences import PREFERENCES, Preferences, choose_sandbox
from talaria.sessions.titles import find_by_name
from talaria.settings.errors import ProfileUnusable
from talaria.settings.model import Settings, SurfaceSettings
from talaria.settings.profiles import Profile
from talaria.settings.sections.tools import McpServerSettings
from talaria.tools.skills.registry import format_index
from talaria.tools.skills.tool import Skills

if TYPE_CHECKING:  # the application opens sessions; the rest is loaded with the first MCP server
    from talaria.app.application import TalariaApplication
    from talaria.contracts.mcp import ServerPrompt, ServerState

DEFAULT_IDENTITY = (
    "You are Talaria, a personal agent. You help the person you talk to with their files, programs and the "
    "web, using your tools. Be direct and brief. Do things instead of describing them; check before you claim; "
    "say plainly what you couldn't do."
)
TALKING_IDENTITY = (
    "You are Talaria, a personal agent. You have no tools here; you can only talk. Be direct and brief, and "
    "say so when you don't know."
)
CONTEXT_FILES = (".talaria.md", "AGENTS.md", "CLAUDE.md")
_FILE_LIMIT = 20_000
_CONTEXT_LIMIT = 40_000
_INJECTED = (
    r"(?i)(ignore|disregard|forget)\s+(all\s+|any\s+)?(previous|prior|above|earlier)\s+(instructions|rules|prompts)"
    r"|do\s+not\s+tell\s+the\s+(user|person)|system\s+prompt\s+override"
    r"|curl\s[^\n]*\$\{?\w*(KEY|TOKEN|SECRET)"
)
_OMITTED_NOTICE = "(omitted: this file tries to give instructions that its reader can't see)"
_JOINERS = "[\u200c-\u200f]"  # used for emoji, and in Persian, Hebrew and Indian scripts
_INVISIBLE = "[\u200b\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e007f]"


class PromptTiers(Struct, frozen=True, kw_only=True):
    """The parts of the system prompt; an empty tier is left out."""

    identity: str = DEFAULT_IDENTITY
    tools: str = ""
    skills: str = ""
    project: str = ""
    memory: str = ""
    surface: str = ""


def build_instructions(tiers: PromptTiers) -> str:
    """Return the tiers as one text, the lasting ones first."""
    parts = (
        ("", tiers.identity),
        ("Tools", tiers.tools),
        ("Skills", tiers.skills),
        ("About this project", tiers.project),
        ("What you remember", tiers.memory),
        ("Where you are", tiers.surface),
    )
    return "\n\n".join(f"# {title}\n{text.strip()}" if title else text.strip() for title, text in parts if text.strip())


def read_project_context(folder: Path) -> str:
    """Return the files that describe a project, the nearest to the folder last, so that they take precedence.

    Searches up to the root of the repository. A file that tries to give hidden instructions is named and left out.
    """
    found: dict[str, str] = {}
    remaining = _CONTEXT_LIMIT
    for file in (
        f"{parent.rstrip('/')}/{name}" for parent in _list_parent_folders(str(folder)) for name in CONTEXT_FILES
    ):
        text = _truncate(_read_file(file), min(remaining, _FILE_LIMIT))
        if text and (real := os.path.realpath(file)) not in found:
            found[real] = f"## {file}\n{text}"
            remaining = max(remaining - len(text), 0)
    return "\n\n".join(reversed(found.values()))


def reject_injected(text: str) -> str | None:
    """Return the text, or ``None`` if it contains injected instructions or hidden characters."""
    if re.search(_INVISIBLE, text.removeprefix("\ufeff")) or re.search(_INJECTED, re.sub(_JOINERS, "", text)):
        return None
    return text


def _list_parent_folders(folder: str) -> Sequence[str]:
    """Return the folders up to the root of the repository; as strings, since every session starts with this."""
    folders = [folder]
    while not os.access(f"{folder}/.git", os.F_OK):
        if not folder.strip("/"):
            return folders[:1]
        folder = folder.rpartition("/")[0]
        folders.append(folder or "/")
    return folders


def _read_file(file: str) -> str:
    try:
        return _FILES.get(file) or ""
    except OSError:
        return ""


def _truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}\n… truncated: read the file for the rest."


def _replace_if_injected(text: str) -> str:
    return text if reject_injected(text) is not None else _OMITTED_NOTICE


_FILES = FileCache(_replace_if_injected, most=_FILE_LIMIT + 1)


async def agent_spec(application: "TalariaApplication", request: OpenRequest) -> AgentSpec:
    """Return the spec of the agent that a session would get if it were opened now."""
    session, preferences = await application.store.read(lambda tx: find_session(tx, request))
    settings, request = apply_preferences(application.settings, preferences, request)
    chosen = await application.models.resolve_default_model(settings.model)
    owner = session.owner if session else request.owner
    return AgentSpec(make_signature(application, settings, chosen, preferences, request, owner), settings.model.effort)


def apply_preferences(
    settings: Settings, preferences: Preferences, request: OpenRequest
) -> tuple[Settings, OpenRequest]:
    """Return settings and request with preferences and persona; the request's model is for this opening only."""
    if preferences.persona or request.persona:
        settings, request = apply_persona(settings, request, preferences.persona)
    requested, surface = request.model, request.surface.source
    provider, colon, name = settings.model.aliases.get(requested, requested or preferences.model).partition(":")
    if not colon:
        provider, name = settings.model.provider, provider or settings.model.name
    effort = cast("Effort", preferences.effort) or settings.model.effort
    model = structs.replace(settings.model, provider=provider, name=name, effort=effort)
    surfaces = settings.surfaces
    if preferences.sandbox:
        own = structs.replace(surfaces.get(surface) or SurfaceSettings(), sandbox=preferences.sandbox)
        surfaces = {**surfaces, surface: own}
    return structs.replace(settings, model=model, surfaces=surfaces), request


def make_signature(
    application: "TalariaApplication",
    settings: Settings,
    chosen: ChosenModel,
    preferences: Preferences,
    request: OpenRequest,
    owner: str,
) -> str:
    """Return a signature of everything that cannot be changed on an existing agent."""
    base_url, api_mode, api_key = application.models.get_access(chosen.provider)
    fixed = (
        request.surface.instructions,
        request.identity,
        str(request.surface.folder),
        preferences.personality,
        settings.access.guest_tools,
        structs.replace(settings.model, effort=""),
        owner,
        settings.models.get(chosen.model),
        settings.delegation.depth,
        (settings.goals.judge_seconds, settings.goals.verify_seconds),
        (settings.sandbox, settings.surfaces.get(request.surface.source)),
    )
    parts = AgentSignature(
        model=chosen.model,
        provider=chosen.provider,
        base_url=base_url,
        api_mode=api_mode,
        api_key=api_key,
        toolsets=(*settings.tools.toolsets, *(f"-{name}" for name in settings.tools.disabled)),
        extras=msgspec.json.encode((fixed, settings.mcp)).decode(),
    )
    return parts.signature()


def explain_model(chosen: ChosenModel, preferences: Preferences, request: OpenRequest) -> str:
    """Return a sentence that explains why this model was chosen."""
    if request.model:
        return "Chosen when this chat was opened."
    return "Chosen for this conversation." if preferences.model else chosen.why


class StoredSession(Struct, frozen=True):
    """Stored data of the session to resume; empty for a new one."""

    session: Session | None = None
    preferences: Preferences = Preferences()
    past: tuple[SessionId, ...] = ()
    workspace: str = ""
    prefix: Prefix | None = None


def read_stored_session(tx: Transaction, request: OpenRequest) -> StoredSession:
    """Return the stored data of the session to resume; see `find_session`."""
    session, preferences = find_session(tx, request)
    if session is None:
        return StoredSession()
    return StoredSession(
        session,
        preferences,
        list_ancestors(tx, session) if session.parent_id else (),
        WORKSPACE.get(tx, session.id) or "",
        read_prefix(tx, session.id),
    )


def find_session(tx: Transaction, request: OpenRequest) -> tuple[Session | None, Preferences]:
    """Return the session to resume with its preferences, or none for a new one.

    Raises `NotFound` if there is no such session and `Ambiguous` if several have that name.
    """
    name, source = "", request.surface.source
    match request.session:
        case None | UnsavedSession():
            return None, Preferences()
        case ResumeSession(name):
            if (exact := tx.sessions.get(SessionId(name))) is not None:
                return exact, PREFERENCES.get(tx, exact.id) or Preferences()
            source = ""
    found = find_by_name(tx, SessionFilter(matching=name, source=source, owner=request.owner, limit=2))
    if not found:
        raise NotFound("There is no such conversation. `talaria sessions list` lists all of them.")
    if name and len(found) > 1:
        raise Ambiguous(f"`{name}` matches several conversations. Use an id from `talaria sessions list`.")
    return found[0], PREFERENCES.get(tx, found[0].id) or Preferences()


_LEFT_OUT = "(description omitted: it contains instructions)"
_SOULS = FileCache(str.strip)


def make_prefix(
    tool_context: ToolContext, request: OpenRequest, toolbox: Toolbox, personality: str, stored: Prefix | None
) -> Prefix:
    """Return the prompt prefix of a session: the ``stored`` one if it still fits, else a new one."""
    prefix = Prefix(
        instructions="",
        tools=hashlib.sha256(msgspec.json.encode(toolbox.specs)).hexdigest(),
        model=tool_context.model.name,
        options=_describe_options(tool_context.settings, tool_context.settings.model.effort, personality),
        audience=tool_context.viewer.audience,
    )
    return choose_prefix(stored, prefix, lambda: build_instructions(_make_tiers(tool_context, request, personality)))


async def open_prefix(
    tool_context: ToolContext, request: OpenRequest, toolbox: Toolbox, personality: str, stored: Prefix | None
) -> Prefix:
    """Return the prompt prefix of a session; memory that isn't in files is read in a thread."""
    if tool_context.settings.memory.provider == FILES:
        return make_prefix(tool_context, request, toolbox, personality, stored)
    return await to_thread(make_prefix, tool_context, request, toolbox, personality, stored)


def _describe_options(settings: Settings, effort: Effort, personality: str) -> str:
    model = settings.model
    return f"{effort} {model.temperature} {model.max_output_tokens} {personality}".rstrip()


def _make_tiers(tool_context: ToolContext, request: OpenRequest, personality: str) -> PromptTiers:
    identity = (
        request.identity
        or _read_soul(tool_context.profile)
        or (DEFAULT_IDENTITY if tool_context.model.tools else TALKING_IDENTITY)
    )
    style = read_personality(tool_context.profile.folder, personality) if personality else ""
    folder = f"Your working folder is {request.surface.folder}."
    settings = tool_context.settings
    is_plain = settings.sandbox.kind == "bubblewrap" and not settings.surfaces
    return PromptTiers(
        identity=f"{identity}\n\n{style}".strip(),
        skills=_list_skills(tool_context) if may_use(tool_context, Skills.name) else "",
        project=read_project_context(request.surface.folder),
        memory=tool_context.memories.snapshot(tool_context.viewer),
        surface=" ".join(
            filter(None, (request.surface.instructions, folder, "" if is_plain else _describe_sandbox(tool_context)))
        ),
    )


def _describe_sandbox(tool_context: ToolContext) -> str:
    """Return a sentence about a sandbox that has other files and programs than this machine."""
    sandbox = tool_context.settings.sandbox
    kind = choose_sandbox(tool_context.settings, tool_context.surface)
    if kind == "ssh":
        return f"Commands and code run on {sandbox.ssh_host} over ssh; the tools for files work on this machine."
    if kind in ("podman", "docker"):
        return f"Commands and code run in a container ({sandbox.image}) that has your working folder."
    return ""


def _list_skills(tool_context: ToolContext) -> str:
    """Return the index of skills, without descriptions that look like injected instructions."""
    lines = format_index(tool_context.skill_folders, tool_context.settings.tools.disabled_skills).splitlines()
    return "\n".join(
        one if reject_injected(one) is not None else f"{one.partition(':')[0]}: {_LEFT_OUT}" for one in lines
    )


def _read_soul(profile: Profile) -> str:
    """Return the agent's identity from ``SOUL.md`` of the profile; empty if there is none.

    Raises `ProfileUnusable` if the file can't be read.
    """
    path = f"{profile.folder}/SOUL.md"
    try:
        return _SOULS.get(path) or ""
    except OSError as error:
        raise ProfileUnusable(Path(path), "can't be read", error) from error


_LONG_OPEN = ("cli", "web")  # surfaces that keep a session open as it is; the others compare signatures
_NO_TOOLS = Toolbox(())


class SessionTools:
    """The tools of a session: its own ones and those of MCP servers; implements `SessionServersView`.

    A server may change its list of tools at any time, and the owner may change the settings. What a turn sees is fixed
    when it begins: `renew` runs before each turn, and replaces tools and prefix together, so that one recorded reason
    explains why a request doesn't begin with the bytes of the one before.
    """

    def __init__(
        self,
        application: "TalariaApplication",
        tool_context: ToolContext,
        request: OpenRequest,
        jobs: TaskGroup,
        workplace: OpenWorkspace,
        delegator: LazyDelegator,
    ) -> None:
        self._application = application
        self._tool_context = tool_context
        self._request = request
        self._jobs = jobs
        self._workplace = workplace
        self._delegator = delegator
        self._own: Sequence[Tool] = ()
        self._accounts: Mapping[str, McpServerSettings] = {}
        self._problems: Mapping[str, str] = {}
        self._revision: object = None
        self._personality = ""
        self.toolbox = _NO_TOOLS
        self.prefix: Prefix | None = None
        self.notes: Sequence[str] = ()

    async def open(self, personality: str, stored: Prefix | None) -> Prefix:
        """Collect the tools of the first turn, and return the prefix that goes with them."""
        self._personality = personality
        if self._request.tools is not None:
            self._own = self._request.tools
        else:
            self._application.processes.supervise_within(self._jobs, self._tool_context.closing)
            self._own = make_tools(self._tool_context)
            if self._application.settings.mcp:
                await self._connect()
        return await self._use_tools(stored)

    @property
    def renewal(self) -> AgentRenewal | None:
        """Return what renews the agent before a turn; ``None`` where a session is reopened with new settings."""
        may_change = bool(self._accounts) or self._request.surface.source in _LONG_OPEN
        return self.renew if may_change and self._request.tools is None else None

    async def renew(self, agent: AgentLoop, *, may_wait: bool) -> bool:
        """Give an agent the tools that there are now; return whether its prefix has changed.

        New servers are connected to if that ``may_wait`` for them.
        """
        follow_settings_file(self._application, self._request.surface.source)
        if may_wait and self._application.settings.mcp != self._accounts:
            await self._connect()
        if (self._workplace.servers.revision if self._accounts else None) == self._revision:
            return False
        before = self.prefix
        prefix = await self._use_tools(before)
        agent.use_prompt(self.toolbox, prefix.instructions)
        return prefix != before

    def save_prefix(self, tx: Transaction, effort: Effort) -> None:
        """Store the prefix with the effort in use, in the transaction that begins a turn with it."""
        assert self.prefix is not None, "it is made when the session is opened"
        options = _describe_options(self._tool_context.settings, effort, self._personality)
        save_prefix(tx, self._tool_context.session_id, structs.replace(self.prefix, options=options))

    def states(self) -> "list[ServerState]":
        """Return the state of each configured server."""
        from talaria.contracts.mcp import ServerState  # noqa: PLC0415 (loaded for MCP servers)

        known = {one.name: one for one in self._workplace.servers.states()} if self._accounts else {}
        found = []
        for name, account in self._application.settings.mcp.items():
            problem = self._problems.get(name, "it isn't connected yet")
            missing = ServerState(name=name, condition="disconnected" if account.enabled else "off", problem=problem)
            found.append(known.get(name, missing) if account.enabled else ServerState(name=name, condition="off"))
        return found

    def prompts(self) -> "list[ServerPrompt]":
        """Return the prompts of all connected servers."""
        return self._workplace.servers.prompts() if self._accounts else []

    async def get_prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> Sequence[Part]:
        """Return a prompt, filled in; raises `ToolFailed` with the reason if that fails."""
        if not self._accounts:
            raise ToolFailed("No MCP server is part of this conversation.")
        return await self._workplace.servers.get_prompt(server, name, arguments)

    async def reload(self, names: Sequence[str] = ()) -> None:
        """Read the settings again and reconnect the named servers, all if empty; raises `NotFound` for a name."""
        from talaria.app.settings_reload import reload_settings  # noqa: PLC0415 (loaded when settings are read again)

        reload_settings(self._application)
        unknown = [name for name in names if name not in self._application.settings.mcp]
        if unknown:
            raise NotFound(f"There is no MCP server `{unknown[0]}`. `/mcp` lists them.")
        if self._accounts:
            self._workplace.servers.close(names or None)
        await self._connect()

    async def _connect(self) -> None:
        """Connect to the servers in the settings; those that are connected already stay so."""
        from talaria.app.session.mcp_servers import connect_servers, read_accounts  # noqa: PLC0415 (loaded for MCP servers)

        application, settings = self._application, self._application.settings
        persona = settings.personas.get(self._request.persona)
        if not self._tool_context.model.tools or not needs_mcp_servers(self._tool_context, persona):
            return
        self._accounts = settings.mcp
        configured, unusable = read_accounts(
            self._accounts,
            application.secrets,
            application.profile,
            on_secrets=application.mask.add,
            variables=context_variables(self._request.surface.context),
            roots=(str(self._request.surface.folder),),
        )
        self._problems, self.notes = await connect_servers(
            configured, unusable, self._workplace.servers, application.profile.logs_folder, self._jobs
        )

    async def _use_tools(self, stored: Prefix | None) -> Prefix:
        tools = list(self._own)
        if self._accounts:
            self._revision = self._workplace.servers.revision
            disabled = self._application.settings.tools.disabled
            others = [one for one in self._workplace.servers.tools if one.name not in disabled]
            tools += [one for one in others if may_use(self._tool_context, one.name)]
        else:
            self._revision = None
        self._delegator.tools = tuple(tool.name for tool in tools)
        self.toolbox = Toolbox(tools)
        self.prefix = await open_prefix(self._tool_context, self._request, self.toolbox, self._personality, stored)
        return self.prefix


def follow_settings_file(application: "TalariaApplication", surface: str) -> None:
    """Apply a settings file that has changed since it was read, in a terminal; servers poll theirs."""
    if surface == "cli" and application.settings_admin.is_outdated:
        from talaria.app.settings_reload import reload_settings  # noqa: PLC0415 (loaded when settings have changed)

        reload_settings(application)
