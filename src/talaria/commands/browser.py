"""Slash command `/browser`: state of the session's browser, taking over, closing."""

from datetime import UTC, datetime

from talaria.commands.command import Command, CommandContext
from talaria.contracts.browser import BrowserStatus
from talaria.core.errors import NotFound, Refused
from talaria.core.formatting import format_age

_ACTIONS = {
    "takeover": "use the browser yourself, for example to log in",
    "handback": "let the agent continue",
    "close": "close it; its profile stays until the conversation ends",
}


async def run_browser(context: CommandContext) -> None:
    """Show the browser of the session, take it over, hand it back, or close it."""
    browsers, session_id = context.application.browsers, context.active_session.session_id
    found = browsers.find(session_id)
    match context.arguments.strip():
        case "" | "status":
            context.surface.show(_describe(found, browsers.link(session_id)))
        case "takeover" | "take over":
            browsers.take_over(session_id)
            context.surface.show(
                f"You have the browser: {browsers.link(session_id)} (or its window). "
                "`/browser handback` lets the agent continue."
            )
        case "handback" | "hand back":
            if found is None:
                raise NotFound("This conversation has no browser.")
            browsers.hand_back(session_id)
            context.surface.show("The agent has the browser again.")
        case "close":
            is_closed = await browsers.close_browser(session_id)
            context.surface.show("Closed the browser." if is_closed else "The browser isn't running.")
        case other:
            raise Refused(f"`/browser {other}` isn't known. Use `status`, {', '.join(f'`{one}`' for one in _ACTIONS)}.")


def _describe(found: BrowserStatus | None, link: str) -> str:
    if found is None or (not found.running and not found.attached):
        last = f" Its last page was {found.url}." if found is not None and found.url else ""
        return f"The browser of this conversation isn't running.{last}"
    kind = "Your own browser" if found.attached else "A visible browser" if found.visible else "A browser"
    age = format_age(datetime.fromtimestamp(found.used_at, UTC), datetime.now(UTC))
    lines = [
        f"{kind} at {found.url or 'an empty page'}, used {age}.",
        "You have it: `/browser handback` lets the agent continue." if found.with_person else f"Take over: {link}",
    ]
    if not found.sandboxed:
        lines.append("Chromium runs without its own sandbox, because it can't use it as root or in this container.")
    return "\n\n".join(lines)


async def _offer_actions(_: CommandContext) -> list[tuple[str, str]]:
    return list(_ACTIONS.items())


BROWSER = Command(
    name="browser",
    category="Abilities",
    help="Show the agent's web browser, use it yourself, or close it.",
    hint="[takeover | handback | close]",
    run=run_browser,
    who="owner",
    offers=_offer_actions,
)
