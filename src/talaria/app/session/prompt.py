"""System prompt of a session: identity, skills, project, memory and surface, stored as its prompt prefix."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import structs

from talaria.agent.prompt import (
    DEFAULT_IDENTITY,
    TALKING_IDENTITY,
    PromptTiers,
    build_instructions,
    project_context,
    reject_injected,
)
from talaria.agent.toolbox import Toolbox
from talaria.app.session.personalities import read_personality
from talaria.app.session.toolsets import ToolContext, may_use
from talaria.contracts.provider import Effort
from talaria.contracts.store import Transaction
from talaria.core.file_cache import FileCache
from talaria.runtime.open_session import OpenRequest
from talaria.sessions.prompt_prefix import Prefix, choose_prefix, save_prefix
from talaria.settings.errors import ProfileUnusable
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.tools.memory.notebook import snapshot
from talaria.tools.skills.registry import index
from talaria.tools.skills.tool import Skills

_LEFT_OUT = "(description omitted: it contains instructions)"
_SOULS = FileCache(str.strip)


def make_prefix(
    tool_context: ToolContext, request: OpenRequest, toolbox: Toolbox, personality: str, stored: Prefix | None
) -> Prefix:
    """Return the prompt prefix of a session: the ``stored`` one if it still fits, else a new one."""
    wanted = Prefix(
        instructions="",
        tools=hashlib.sha256(msgspec.json.encode(toolbox.specs)).hexdigest(),
        model=tool_context.model.name,
        manner=_describe_options(tool_context.settings, tool_context.settings.model.effort, personality),
        audience=tool_context.viewer.audience,
    )
    return choose_prefix(stored, wanted, lambda: build_instructions(_make_tiers(tool_context, request, personality)))


def make_prefix_writer(
    tool_context: ToolContext, prefix: Prefix, personality: str
) -> Callable[[Transaction, Effort], None]:
    """Return a function that stores the prefix with the effort in use, which may have changed since."""

    def save(tx: Transaction, effort: Effort) -> None:
        manner = _describe_options(tool_context.settings, effort, personality)
        save_prefix(tx, tool_context.session_id, structs.replace(prefix, manner=manner))

    return save


def _describe_options(settings: Settings, effort: Effort, personality: str) -> str:
    model = settings.model
    return f"{effort} {model.temperature} {model.max_output_tokens} {personality}".rstrip()


def _make_tiers(tool_context: ToolContext, request: OpenRequest, personality: str) -> PromptTiers:
    identity = (
        request.identity
        or _read_soul(tool_context.profile)
        or (DEFAULT_IDENTITY if tool_context.model.tools else TALKING_IDENTITY)
    )
    manner = read_personality(tool_context.profile.folder, personality) if personality else ""
    return PromptTiers(
        identity=f"{identity}\n\n{manner}".strip(),
        skills=_list_skills(tool_context) if may_use(tool_context, Skills.name) else "",
        project=project_context(request.folder),
        memory=snapshot(tool_context.memory_folder, tool_context.viewer),
        surface=f"{request.surface} Your working folder is {request.folder}.".strip(),
    )


def _list_skills(tool_context: ToolContext) -> str:
    """Return the index of skills, without descriptions that look like injected instructions."""
    lines = index(tool_context.skill_folders).splitlines()
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
