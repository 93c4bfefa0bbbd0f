"""Rules for sessions with guests: visibility, working folder, tools and approvals."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec import structs

from talaria.agent.approval.policy import ApprovalPolicy, Confinement
from talaria.app.session.toolsets import MCP_TOOLSET, TOOLSETS, ToolContext, is_guest_tool
from talaria.contracts.stores.sessions import Session, Viewer
from talaria.core.senders import OWNER, UNKNOWN, is_in_chat, is_same_sender
from talaria.core.session_context import current_context
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


def build_approval_policy(
    tool_context: ToolContext, policy: Callable[[], ApprovalPolicy], settings: Callable[[], Settings]
) -> Callable[[], ApprovalPolicy]:
    """Return a function that builds the approval policy from the settings in force at each call.

    In a session of the owner, a turn that another person began in a chat follows the rules for guests, also where the
    terminal or the API continues it. In a shared session, so does a turn with an unknown sender. Text of another person
    never joins a turn, so the rules of a turn fit every text in it.
    """

    def confined() -> ApprovalPolicy:
        folders = (tool_context.folder, *tool_context.output_folders)
        return structs.replace(policy(), confined=Confinement(folders, partial(is_guest_tool, settings())))

    if tool_context.guest:
        return confined
    shared = bool(tool_context.viewer.owner)
    return lambda: policy() if _is_owners_turn(settings(), shared=shared) else confined()


def is_same_person(settings: Callable[[], Settings], one: str, other: str) -> bool:
    """Return whether two senders are one person: the owner, a person of `people`, or the same id."""
    known = settings()
    return is_same_sender(_resolve_person(known, one), _resolve_person(known, other))


def _is_owners_turn(settings: Settings, *, shared: bool) -> bool:
    context = current_context()
    sender = context.sender if context is not None else UNKNOWN
    return _resolve_person(settings, sender) == OWNER or not (shared or is_in_chat(sender))


def _resolve_person(settings: Settings, sender: str) -> str:
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
