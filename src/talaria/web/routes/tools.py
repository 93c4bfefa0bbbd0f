"""Routes for the tools, skills, memory, MCP servers and hooks of the agent."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from talaria.commands.application import Application
from talaria.commands.skills import format_audit
from talaria.contracts.mcp import ServerState
from talaria.contracts.memory import MemoryBook, MemoryKind
from talaria.contracts.skills import SkillInfo
from talaria.contracts.stores.sessions import Viewer
from talaria.contracts.tool import ToolsetState
from talaria.core.errors import NotFound, Refused
from talaria.hooks.discovery import BOOT, HANDLER, summarize_hooks
from talaria.hooks.editor import HookFiles, read_hook_files, switch_hook, write_hook_files
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.web.front_door import AGENT_OWNER, USER, WebCaller, WebRequest
from talaria.web.wire import Done

_TAG = "web"
_Entry = Annotated[str, Meta(max_length=4000)]


class SkillView(Struct, frozen=True):
    """A skill, without its text; ``own`` ones can be edited. ``problem`` says why one isn't enabled.

    An ``installed`` one is enabled after a person has seen what it would run.
    """

    name: str
    about: str
    enabled: bool
    own: bool
    problem: str = ""
    installed: bool = False


class SkillText(Struct, frozen=True):
    """A skill as the agent reads it; ``source`` is its SKILL.md, empty if it can't be edited."""

    name: str
    text: str
    source: str


class SkillAuditView(Struct, frozen=True):
    """Contents and possible effects of a skill, as Markdown; ``digest`` stands for the files that were looked at."""

    audit: str
    digest: str


class SkillSwitch(Struct, frozen=True):
    """New state of a skill; enabling an installed one takes the ``digest`` of its audit."""

    on: bool
    digest: Annotated[str, Meta(max_length=200)] = ""


class SkillEdit(Struct, frozen=True):
    """A new SKILL.md; ``before`` is the one it replaces, empty for a new skill."""

    text: Annotated[str, Meta(min_length=1, max_length=100_000)]
    before: Annotated[str, Meta(max_length=100_000)] = ""


class McpServerView(Struct, frozen=True, kw_only=True):
    """A configured MCP server; ``target`` is its command line or its address."""

    name: str
    enabled: bool
    target: str


class HookView(Struct, frozen=True, kw_only=True):
    """A hook of the owner; ``problem`` is set for a broken one. ``folder`` is empty for the built-in one."""

    name: str
    folder: str
    state: str
    description: str
    events: tuple[str, ...]
    handler: str
    path: str
    problem: str


class HookEdit(Struct, frozen=True):
    """New files of a hook; ``before`` are those it has, empty for a new hook."""

    files: HookFiles
    before: HookFiles = HookFiles()


class HookSwitch(Struct, frozen=True):
    """New state of a hook."""

    on: bool


class ToolsView(Struct, frozen=True, kw_only=True):
    """Everything that the agent can use."""

    toolsets: Sequence[ToolsetState]
    skills: list[SkillView]
    servers: list[McpServerView]
    hooks: list[HookView]


class ToolSwitch(Struct, frozen=True):
    """Tools, toolsets or MCP servers to switch on or off."""

    names: Annotated[list[Annotated[str, Meta(min_length=1, max_length=200)]], Meta(min_length=1, max_length=100)]
    on: bool


class SwitchedTools(Struct, frozen=True):
    """The names that changed, and what the person should know."""

    changed: Sequence[str]
    notes: Sequence[str]


class McpToolView(Struct, frozen=True):
    """A tool that a server offers."""

    name: str
    about: str


class McpTest(Struct, frozen=True, kw_only=True):
    """The result of connecting to a server."""

    connected: bool
    sentence: str
    tools: list[McpToolView]


class MemoryView(Struct, frozen=True, kw_only=True):
    """Memory of a person; ``people`` are the others whose memory the owner may open."""

    person: str
    books: Sequence[MemoryBook]
    people: Sequence[str]


class MemoryQuery(Struct, frozen=True):
    """The person whose memory to show; empty for the one who is signed in."""

    person: Annotated[str, Meta(max_length=200)] = ""


class MemoryEdit(Struct, frozen=True, kw_only=True):
    """A change: without ``old`` an entry is added, without ``new`` it is removed."""

    kind: MemoryKind
    old: _Entry = ""
    new: _Entry = ""
    person: Annotated[str, Meta(max_length=200)] = ""


class ToolRoutes:
    """Tools, skills, memory, MCP servers and hooks; ``try_server`` connects to an MCP server and lists its tools."""

    def __init__(self, application: Application, try_server: Callable[[str], Awaitable[ServerState]]) -> None:
        self._application = application
        self._try_server = try_server
        self._profile_folder = application.identity.folder

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="GET", path="/web/tools", handler=self._show,
                  summary="List toolsets, skills, MCP servers and hooks", scope=AGENT_OWNER, reply_type=ToolsView,
                  tag=_TAG),
            Route(method="POST", path="/web/tools/switch", handler=self._switch,
                  summary="Switch tools, toolsets or MCP servers", scope=AGENT_OWNER, takes=ToolSwitch,
                  reply_type=SwitchedTools, tag=_TAG),
            Route(method="GET", path="/web/skills/{name}", handler=self._show_skill, summary="Show a skill",
                  scope=AGENT_OWNER, reply_type=SkillText, tag=_TAG),
            Route(method="PUT", path="/web/skills/{name}", handler=self._save_skill,
                  summary="Create or change a skill", scope=AGENT_OWNER, takes=SkillEdit, reply_type=SkillText,
                  tag=_TAG),
            Route(method="GET", path="/web/skills/{name}/audit", handler=self._audit_skill,
                  summary="Show what a skill would run", scope=AGENT_OWNER, reply_type=SkillAuditView, tag=_TAG),
            Route(method="POST", path="/web/skills/{name}/switch", handler=self._switch_skill,
                  summary="Switch a skill on or off", scope=AGENT_OWNER, takes=SkillSwitch, reply_type=SwitchedTools,
                  tag=_TAG),
            Route(method="POST", path="/web/mcp/{name}/test", handler=self._test_server,
                  summary="Connect to an MCP server and list its tools", scope=AGENT_OWNER, reply_type=McpTest,
                  tag=_TAG),
            Route(method="GET", path="/web/hooks/{folder}", handler=self._show_hook, summary="Show the files of a hook",
                  scope=AGENT_OWNER, reply_type=HookFiles, tag=_TAG),
            Route(method="PUT", path="/web/hooks/{folder}", handler=self._save_hook,
                  summary="Create or change a hook", scope=AGENT_OWNER, takes=HookEdit, reply_type=HookFiles,
                  tag=_TAG),
            Route(method="POST", path="/web/hooks/{folder}/switch", handler=self._switch_hook,
                  summary="Switch a hook on or off", scope=AGENT_OWNER, takes=HookSwitch, reply_type=Done, tag=_TAG),
            Route(method="GET", path="/web/memory", handler=self._show_memory, summary="Show what is remembered",
                  scope=USER, asks=MemoryQuery, reply_type=MemoryView, tag=_TAG),
            Route(method="POST", path="/web/memory", handler=self._edit_memory,
                  summary="Add, change or remove a memory entry", scope=USER, takes=MemoryEdit,
                  reply_type=MemoryView, tag=_TAG),
        )  # fmt: skip

    async def _show(self, request: WebRequest) -> Reply:
        return make_json_reply(await asyncio.to_thread(self._read))

    async def _switch(self, request: WebRequest) -> Reply:
        switch = request.read(ToolSwitch)
        admin = self._application.settings_admin
        changed, notes = await asyncio.to_thread(lambda: admin.switch_tools(switch.names, on=switch.on))
        return make_json_reply(SwitchedTools(changed, notes))

    async def _show_skill(self, request: WebRequest) -> Reply:
        return make_json_reply(await asyncio.to_thread(self._read_skill, request.parts["name"]))

    async def _save_skill(self, request: WebRequest) -> Reply:
        name, edit = request.parts["name"], request.read(SkillEdit)
        await asyncio.to_thread(self._application.knowledge.save_skill, name, edit.before, edit.text)
        return make_json_reply(await asyncio.to_thread(self._read_skill, name))

    async def _audit_skill(self, request: WebRequest) -> Reply:
        audit = await asyncio.to_thread(self._application.knowledge.skills.audit, request.parts["name"])
        return make_json_reply(SkillAuditView(format_audit(audit), audit.digest))

    async def _switch_skill(self, request: WebRequest) -> Reply:
        name, switch = request.parts["name"], request.read(SkillSwitch)
        skills = self._application.knowledge.skills
        if switch.on and not switch.digest and (await asyncio.to_thread(skills.get, name)).origin is not None:
            raise Refused(f"Look at what `{name}` would run before you enable it.")
        effect = await asyncio.to_thread(lambda: skills.switch(name, on=switch.on, seen=switch.digest))
        return make_json_reply(SwitchedTools([name], [effect]))

    async def _test_server(self, request: WebRequest) -> Reply:
        name = request.parts["name"]
        if name not in self._application.settings_admin.current.mcp:
            raise NotFound(f"There is no MCP server `{name[:64]}`.")
        state = await self._try_server(name)
        count = f"{len(state.tools)} tool{'' if len(state.tools) == 1 else 's'}"
        is_connected = state.condition == "connected"
        view = McpTest(
            connected=is_connected,
            sentence=f"{name} is connected and offers {count}." if is_connected else f"{name}: {state.problem}",
            tools=[McpToolView(one.name, one.description) for one in state.tools],
        )
        return make_json_reply(view)

    async def _show_hook(self, request: WebRequest) -> Reply:
        files = await asyncio.to_thread(read_hook_files, self._profile_folder, request.parts["folder"])
        return make_json_reply(files)

    async def _save_hook(self, request: WebRequest) -> Reply:
        folder, edit = request.parts["folder"], request.read(HookEdit)
        await asyncio.to_thread(write_hook_files, self._profile_folder, folder, edit.before, edit.files)
        return make_json_reply(await asyncio.to_thread(read_hook_files, self._profile_folder, folder))

    async def _switch_hook(self, request: WebRequest) -> Reply:
        folder, switch = request.parts["folder"], request.read(HookSwitch)
        await asyncio.to_thread(lambda: switch_hook(self._profile_folder, folder, on=switch.on))
        return make_json_reply(Done())

    async def _show_memory(self, request: WebRequest) -> Reply:
        return make_json_reply(self._read_memory(request.caller, request.parse_query(MemoryQuery).person))

    async def _edit_memory(self, request: WebRequest) -> Reply:
        edit = request.read(MemoryEdit)
        if not edit.old and not edit.new.strip():
            raise Refused("Type what to remember.")
        viewer = _resolve_viewer(request.caller, edit.person)
        self._application.knowledge.memory.edit(viewer, edit.kind, edit.old, edit.new)
        return make_json_reply(self._read_memory(request.caller, edit.person))

    def _read(self) -> ToolsView:
        knowledge, current = self._application.knowledge, self._application.settings_admin.current
        return ToolsView(
            toolsets=knowledge.toolsets(),
            skills=_list_skills(knowledge.skills.list()),
            servers=[
                McpServerView(name=name, enabled=one.enabled, target=one.target) for name, one in current.mcp.items()
            ],
            hooks=[
                HookView(
                    name=one.name, folder="" if one.name == BOOT else one.path.name, state=one.state,
                    description=one.description, events=one.events,
                    handler="built in" if one.name == BOOT else one.run or HANDLER, path=str(one.path),
                    problem=one.problem,
                )
                for one in summarize_hooks(self._profile_folder)
            ],
        )  # fmt: skip

    def _read_skill(self, name: str) -> SkillText:
        knowledge = self._application.knowledge
        text, is_own = knowledge.skills.text(name), knowledge.skills.get(name).is_own
        return SkillText(name, text, knowledge.skill_source(name) if is_own else "")

    def _read_memory(self, caller: WebCaller, person: str) -> MemoryView:
        viewer, memory = _resolve_viewer(caller, person), self._application.knowledge.memory
        people = memory.people() if caller.is_owner else ()
        return MemoryView(person=viewer.owner, books=memory.books(viewer), people=people)


def _list_skills(skills: Sequence[SkillInfo]) -> list[SkillView]:
    """Return the skills that are in effect or can be; those that another hides and broken ones are left out."""
    found: dict[str, SkillView] = {}
    for one in skills:
        if one.about:
            is_installed = one.origin is not None
            view = SkillView(one.name, one.about, one.is_enabled, one.is_own, one.problem, is_installed)
            found.setdefault(one.name, view)
    return list(found.values())


def _resolve_viewer(caller: WebCaller, person: str) -> Viewer:
    """Return whose memory to use; raises `NotFound` for another person's, except for the owner."""
    if not caller.is_owner and person not in ("", caller.person):
        raise NotFound("There is no such memory.")
    return Viewer(person or caller.person)
