"""Approver of a session's tool calls: rules from the settings, stricter ones for guests, then a person."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from msgspec import structs

from talaria.agent.approval.grants import Grant, parse_allow_entry
from talaria.agent.approval.policy import ApprovalPolicy, Confinement
from talaria.app.session.guest_policy import resolve_person
from talaria.app.session.toolsets import ToolContext, is_guest_tool
from talaria.core.senders import OWNER, UNKNOWN, is_in_chat
from talaria.core.session_context import current_context
from talaria.runtime.approvals import StoredApprover
from talaria.runtime.open_session import OpenRequest
from talaria.runtime.questions import Questions
from talaria.settings.model import Settings
from talaria.settings.profiles import find_home
from talaria.tools.workspace import LocalWorkspace


def build_approver(
    tool_context: ToolContext,
    request: OpenRequest,
    questions: Questions,
    workspace: LocalWorkspace,
    settings: Callable[[], Settings],
    environment: Mapping[str, str],
) -> StoredApprover:
    """Return the approver of tool calls, with the settings in force at each call.

    Grants belong to the session in which a person is asked. Tools passed in the request are granted.
    """
    scratch: set[str] = set()
    own_tools = [Grant(tool.name, tool.name, kind="irreversible") for tool in request.tools or ()]
    scope = tool_context.delegated_scope

    def policy() -> ApprovalPolicy:
        approval = settings().approval
        return ApprovalPolicy(
            home=Path(environment.get("HOME", str(tool_context.folder))),
            mode=approval.mode,
            allowed=(*map(parse_allow_entry, approval.allowed), *own_tools),
            protected=(
                tool_context.profile.folder,
                tool_context.profile.guests_folder,
                find_home(environment) / "profiles",
            ),
            scratch=scratch,
            readable=(*tool_context.output_folders, *([tool_context.folder] if tool_context.guest else [])),
        )

    return StoredApprover(
        tool_context.store,
        scope.root if scope is not None else tool_context.session_id,
        _build_policy(tool_context, policy, settings),
        questions,
        workspace,
    )


def _build_policy(
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


def _is_owners_turn(settings: Settings, *, shared: bool) -> bool:
    context = current_context()
    sender = context.sender if context is not None else UNKNOWN
    return resolve_person(settings, sender) == OWNER or not (shared or is_in_chat(sender))
