"""Approver of the tool calls of one session, with the settings in force at each call."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from talaria.agent.approval.grants import Grant, parse_allow_entry
from talaria.app.session.toolsets import ToolContext, build_approval_policy, resolve_turn_person
from talaria.contracts.hooks import Hooks, NoHooks
from talaria.contracts.tool import Tool
from talaria.runtime.questions import Questions, StoredApprover
from talaria.settings.live import LiveSettings
from talaria.settings.profiles import find_home
from talaria.tools.workspace import LocalWorkspace

if TYPE_CHECKING:  # loaded with the first tool call
    from talaria.agent.approval.policy import ApprovalPolicy
    from talaria.agent.approval.rules import ApprovalRule


def make_approver(
    live: LiveSettings,
    environment: Mapping[str, str],
    tool_context: ToolContext,
    own_tools: Sequence[Tool],
    questions: Questions,
    workspace: LocalWorkspace,
    hooks: Hooks,
) -> StoredApprover:
    """Return the approver of a session.

    Grants belong to the session in which a person is asked. ``own_tools``, those of the caller, are granted.
    """
    scratch: set[str] = set()
    own_grants = [Grant(tool.name, tool.name, kind="irreversible") for tool in own_tools]
    scope, profile = tool_context.delegated_scope, tool_context.profile

    def policy() -> "ApprovalPolicy":
        from talaria.agent.approval.policy import ApprovalPolicy  # noqa: PLC0415 (loaded with the first tool call)

        approval = live.current.approval
        return ApprovalPolicy(
            home=Path(environment.get("HOME", str(tool_context.folder))),
            mode=approval.mode,
            allowed=(*map(parse_allow_entry, approval.allowed), *own_grants),
            protected=(profile.folder, profile.guests_folder, find_home(environment) / "profiles"),
            scratch=scratch,
            readable=(*tool_context.output_folders, *([tool_context.folder] if tool_context.guest else [])),
            rules=_select_rules(live, tool_context.surface),
        )

    return StoredApprover(
        tool_context.store,
        scope.root if scope is not None else tool_context.session_id,
        build_approval_policy(tool_context, policy, lambda: live.current),
        questions,
        workspace,
        veto=None if isinstance(hooks, NoHooks) else hooks.veto,
    )


def _select_rules(live: LiveSettings, surface: str) -> "tuple[ApprovalRule, ...]":
    """Return the rules of the settings for turns of the present person on a surface."""
    if not live.current.rules:
        return ()
    from talaria.agent.approval.rules import ApprovalRule  # noqa: PLC0415 (loaded with the first tool call)

    person = resolve_turn_person(live.current)
    rules = [
        ApprovalRule(
            name=name,
            action=one.action,
            tool=one.tool,
            command=one.command,
            folder=one.folder,
            surface=one.surface,
            person=one.person,
        )
        for name, one in live.current.rules.items()
    ]
    return tuple(rule for rule in rules if rule.is_for(surface, person))
