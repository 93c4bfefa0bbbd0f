"""Rules for sessions with guests: visibility, working folder, tools, and who a sender is."""

from collections.abc import Callable
from pathlib import Path

from talaria.app.session.toolsets import MCP_TOOLSET, TOOLSETS, ToolContext
from talaria.contracts.stores.sessions import Session, Viewer
from talaria.core.senders import OWNER, UNKNOWN, is_same_sender
from talaria.runtime.open_session import OpenRequest
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.tools.scoped_folders import folder_of

_OWNER_ONLY = 0o700


def resolve_viewer(request: OpenRequest, session: Session) -> Viewer:
    """Return the person and the audience that a session acts for.

    The audience is that of the chat, or else that of the session, so that earlier readers still count. In a shared
    chat, the session acts for the chat itself, regardless of who moved it there.
    """
    audience = request.audience or session.audience
    shared = bool(audience) and request.owner == audience
    return Viewer(audience if shared else session.owner, audience)


def make_working_folder(profile: Profile, request: OpenRequest, session: Session) -> Path:
    """Return the working folder of a session; guests get their own, outside the profile's folders."""
    if not session.owner:
        return request.folder
    folder = folder_of(resolve_viewer(request, session), profile.guests_folder)
    folder.mkdir(_OWNER_ONLY, parents=True, exist_ok=True)
    return folder


def needs_mcp_servers(tool_context: ToolContext) -> bool:
    """Return whether tools of MCP servers could be used in a session."""
    own_tools = {*TOOLSETS, *(kind.name for toolset in TOOLSETS.values() for kind in toolset.kinds)} - {MCP_TOOLSET}
    if tool_context.delegated_scope is not None and own_tools.issuperset(tool_context.delegated_scope.tools):
        return False
    return not tool_context.guest or not own_tools.issuperset(tool_context.settings.access.guest_tools)


def is_same_person(settings: Callable[[], Settings], one: str, other: str) -> bool:
    """Return whether two senders are one person: the owner, a person of `people`, or the same id."""
    known = settings()
    return is_same_sender(resolve_person(known, one), resolve_person(known, other))


def resolve_person(settings: Settings, sender: str) -> str:
    """Return the owner, a person of `people`, or an unknown sender, for the sender of a message."""
    if sender in (OWNER, UNKNOWN):
        return sender
    from talaria.access.policy import People  # noqa: PLC0415 (loaded for a sender of a chat network)

    platform, _, user_id = sender.partition(":")
    if not user_id:
        return UNKNOWN
    people = People(settings.people)
    if people.names(platform, {user_id}) & set(settings.access.owners):
        return OWNER
    return f"person:{people.person(platform, (user_id,))}"
