"""Slash commands `/approve`, `/deny`, `/approvals` and `/pairing`: answer requests, list and revoke approvals."""

from collections.abc import Sequence

from msgspec import structs

from talaria.access.browsers import resolve_person
from talaria.access.pairing import WEB, approve_code, refuse_request
from talaria.commands.arguments import split_arguments, truncate
from talaria.commands.command import Command, CommandContext
from talaria.contracts.stores.access import PairedPerson
from talaria.core.errors import NotFound, Refused
from talaria.runtime.questions import SESSION_GRANTS, grant_id, list_standing_grants, revoke_grants
from talaria.sessions.transcript_export import format_inline_code
from talaria.settings.sections.tools import ApprovalRuleSettings

SCOPES = {
    "once": "this time",
    "session": "for this conversation",
    "always": "in every conversation",
}
_PAIRING_USAGE = (
    "Use `/pairing approve PLATFORM CODE` or `/pairing refuse PLATFORM USER`. `/pairing` lists the requests."
)


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
_LONGEST_CALL = 120
_REVOKE = "revoke"


async def run_approvals(context: CommandContext) -> None:
    """List the rules and approvals that apply here, or revoke an approval."""
    action, _, selection = context.arguments.partition(" ")
    if action == _REVOKE and selection.strip():
        revoked = await context.active_session.store.write(lambda tx: revoke_grants(tx, selection.strip()))
        context.surface.show(f"Revoked: {_describe_call(revoked[0].tool, revoked[0].pattern)}.")
        return
    if action:
        raise NotFound("Use `/approvals`, or `/approvals revoke ID`.")
    session_id = context.active_session.session_id
    always, here = await context.active_session.store.read(
        lambda tx: (list_standing_grants(tx), SESSION_GRANTS.get(tx, session_id) or [])
    )
    settings = context.application.settings_admin.current
    rules = [f"- {rule.action} `{name}`: {_describe_rule(rule)}" for name, rule in settings.rules.items()]
    granted = [
        f"- `{grant_id(one)}` {_describe_call(one.tool, one.pattern)}, {where}"
        for grants, where in ((always, "always"), (here, "in this conversation"))
        for one in grants
    ]
    lines = [
        f"Approval mode: `{settings.approval.mode}`.",
        *(["", "Rules of the settings:", *rules] if rules else []),
        "",
        *(
            ["Approved:", *granted, "", "`/approvals revoke ID` takes one back."]
            if granted
            else ["Nothing is approved permanently."]
        ),
    ]
    context.surface.show("\n".join(lines))


def _describe_rule(rule: ApprovalRuleSettings) -> str:
    """Return what a rule names, for example ``command `git push`, surface `telegram```."""
    named = {name: value for name, value in structs.asdict(rule).items() if name != "action" and value}
    return ", ".join(f"{name} {format_inline_code(value)}" for name, value in named.items()) or "every call"


def _describe_call(tool: str, pattern: str) -> str:
    return f"{tool}: {format_inline_code(truncate(pattern, _LONGEST_CALL))}"


async def offer_approvals(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return what can be revoked."""
    grants = await context.active_session.store.read(list_standing_grants)
    return [(f"{_REVOKE} {grant_id(one)}", f"{one.tool}: {truncate(one.pattern, _LONGEST_CALL)}") for one in grants]


APPROVALS = Command(
    name="approvals",
    category="Abilities",
    help="List rules and approvals, or revoke an approval.",
    hint="[revoke ID]",
    who="owner",
    run=run_approvals,
    offers=offer_approvals,
)


async def run_pairing(context: CommandContext) -> None:
    """List the pairing requests, or answer one."""
    words = split_arguments(context.arguments)
    match words:
        case []:
            await _list_pairing_requests(context)
        case ["approve", platform, code]:
            await _approve_pairing(context, platform.lower(), code, "")
        case ["approve", platform, code, person] if platform.lower() == WEB:
            await _approve_pairing(context, WEB, code, person)
        case ["refuse", platform, user_id]:
            await context.active_session.store.write(lambda tx: refuse_request(tx, platform.lower(), user_id))
            context.surface.show(f"Refused. The code of `{user_id}` no longer works.")
        case _:
            raise Refused(_PAIRING_USAGE)


async def _list_pairing_requests(context: CommandContext) -> None:
    waiting = await context.active_session.store.read(lambda tx: tx.pairing.waiting())
    lines = [f"- {one.platform}: {one.name or 'unknown'} (`{one.user_id}`)" for one in waiting]
    context.surface.show("\n".join([*lines, "", _PAIRING_USAGE]) if lines else "There are no pairing requests.")


async def _approve_pairing(context: CommandContext, platform: str, code: str, person: str) -> None:
    name = resolve_person(context.application.settings_admin.current, person)
    found = await context.active_session.store.write(lambda tx: approve_code(tx, platform, code, person=name))
    if found is None:
        raise Refused(f"`{code}` isn't a valid code on {platform}, or it has expired.")
    context.surface.show(_describe_person(found, name))


def _describe_person(found: PairedPerson, person: str) -> str:
    if found.platform == WEB:
        return f"{found.name or 'The browser'} is now signed in as {person or 'you'}."
    return f"{found.name or found.user_id} can now talk to the agent on {found.platform}."


async def offer_pairing_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the answers to each request as completions."""
    waiting = await context.active_session.store.read(lambda tx: tx.pairing.waiting())
    platforms = dict.fromkeys(one.platform for one in waiting)
    approvals = [(f"approve {platform} ", "then the code") for platform in platforms]
    return [*approvals, *((f"refuse {one.platform} {one.user_id}", one.name) for one in waiting)]


PAIRING = Command(
    name="pairing",
    category="Program",
    help="List pairing requests of people and browsers, or answer one.",
    hint="[approve platform code|refuse platform user]",
    who="owner",
    run=run_pairing,
    offers=offer_pairing_choices,
)
