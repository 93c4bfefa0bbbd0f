"""Slash commands `/approve` and `/deny`: answer approval requests of the running turn."""

from collections.abc import Sequence

from talaria.commands.command import Command, CommandContext
from talaria.core.errors import NotFound

SCOPES = {
    "once": "this time",
    "session": "for this conversation",
    "always": "in every conversation",
}


async def run_approve(context: CommandContext) -> None:
    """Approve the oldest pending request."""
    scope = context.arguments.lower() or "once"
    if scope not in SCOPES:
        raise NotFound(f"Unknown scope `{scope}`. Choose one of {', '.join(SCOPES)}.")
    questions = context.active_session.questions
    for request in questions.approvals[:1]:
        questions.answer(request.id, scope)
        context.surface.show(f"Allowed {SCOPES[scope]}: `{request.tool}`.{describe_pending_approvals(context)}")
        return
    context.surface.show("Nothing is waiting for approval.")


def describe_pending_approvals(context: CommandContext) -> str:
    """Return a sentence with the number of other pending requests, or an empty string."""
    rest = len(context.active_session.questions.approvals)
    return f" {rest} more to answer." if rest else ""


async def offer_approve_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the scopes of an approval."""
    return list(SCOPES.items())


APPROVE = Command(
    name="approve",
    category="Turn",
    help="Approve what the running turn asks for.",
    hint="[once|session|always]",
    who="owner",
    run=run_approve,
    offers=offer_approve_choices,
)


async def run_deny(context: CommandContext) -> None:
    """Deny the oldest pending request; the agent gets the reason."""
    questions = context.active_session.questions
    for request in questions.approvals[:1]:
        # The full stop keeps a reason from being read as an approval scope.
        questions.answer(request.id, f"{context.arguments.rstrip('.')}." if context.arguments else "no")
        context.surface.show(f"Denied: `{request.tool}`.{describe_pending_approvals(context)}")
        return
    context.surface.show("Nothing is waiting for approval.")


DENY = Command(
    name="deny",
    category="Turn",
    help="Deny what the running turn asks for; the agent is given your reason.",
    hint="[reason]",
    who="owner",
    run=run_deny,
)
