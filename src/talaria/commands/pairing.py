"""Slash command `/pairing`: pairing requests of people and browsers, answered from any chat."""

from collections.abc import Sequence

from talaria.access.browsers import resolve_person
from talaria.access.pairing import WEB, approve_code, refuse_request
from talaria.commands.arguments import split_arguments
from talaria.commands.command import Command, CommandContext
from talaria.contracts.stores.access import PairedPerson
from talaria.core.errors import Refused

_USAGE = "Use `/pairing approve PLATFORM CODE` or `/pairing refuse PLATFORM USER`. `/pairing` lists the requests."


async def run_pairing(context: CommandContext) -> None:
    """List the pairing requests, or answer one."""
    words = split_arguments(context.arguments)
    match words:
        case []:
            await _list(context)
        case ["approve", platform, code]:
            await _approve(context, platform.lower(), code, "")
        case ["approve", platform, code, person] if platform.lower() == WEB:
            await _approve(context, WEB, code, person)
        case ["refuse", platform, user_id]:
            await context.active_session.store.write(lambda tx: refuse_request(tx, platform.lower(), user_id))
            context.surface.show(f"Refused. The code of `{user_id}` no longer works.")
        case _:
            raise Refused(_USAGE)


async def _list(context: CommandContext) -> None:
    waiting = await context.active_session.store.read(lambda tx: tx.pairing.waiting())
    lines = [f"- {one.platform}: {one.name or 'unknown'} (`{one.user_id}`)" for one in waiting]
    context.surface.show("\n".join([*lines, "", _USAGE]) if lines else "There are no pairing requests.")


async def _approve(context: CommandContext, platform: str, code: str, person: str) -> None:
    name = resolve_person(context.application.settings_admin.current, person)
    found = await context.active_session.store.write(lambda tx: approve_code(tx, platform, code, person=name))
    if found is None:
        raise Refused(f"`{code}` isn't a valid code on {platform}, or it has expired.")
    context.surface.show(_describe(found, name))


def _describe(found: PairedPerson, person: str) -> str:
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
