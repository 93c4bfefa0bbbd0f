"""The browser tools: read pages, and act on them."""

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.tools.browser.arguments import BrowserActArguments, BrowserArguments

if TYPE_CHECKING:  # Playwright is loaded with the first call
    from talaria.tools.browser.actions import PageActions

_SHOWN_CODE = 2_000
OpenActions = Callable[[Call], "PageActions"]


class BrowserPages:
    """Reads pages in the session's browser."""

    name = "browser"
    description = (
        "Use a web browser. Pages are shown as a snapshot with element refs (e12). `ask_person` hands the browser to "
        "the person, for logins and CAPTCHAs."
    )
    effect = Effect.IDEMPOTENT
    arguments: type[Struct] = BrowserArguments

    def __init__(self, open_actions: OpenActions) -> None:
        self._open_actions = open_actions

    def proposed_action(self, arguments: BrowserArguments) -> ProposedAction:
        """Describe what is opened or shown."""
        if arguments.action == "open":
            return ProposedAction("fetch", arguments.url)
        return ProposedAction("other", " ".join(filter(None, (arguments.action, arguments.ref, arguments.text))))

    async def run(self, arguments: BrowserArguments, call: Call) -> ToolOutput:
        """Carry out the action and return the page, or what was asked for."""
        actions = self._open_actions(call)
        match arguments.action:
            case "open":
                return await actions.open_page(arguments.url)
            case "snapshot":
                return await actions.show(part=arguments.part, text=arguments.text)
            case "screenshot":
                return await actions.take_screenshot(arguments.ref, send=arguments.send)
            case "scroll":
                return await actions.scroll(arguments.ref, arguments.screens)
            case "back":
                return await actions.go_back()
            case "tabs" | "switch_tab" | "close_tab":
                return await actions.use_tabs(arguments.action, arguments.tab)
            case "console":
                return await actions.read_console()
            case "wait" | "wait_gone":
                return await actions.wait(arguments.text, gone=arguments.action == "wait_gone")
            case "ask_person":
                return await actions.ask_person(arguments.text)


class BrowserAct:
    """Acts on the current page of the session's browser."""

    name = "browser_act"
    description = "Act on the browser's current page, by refs of the last snapshot. Downloads go to the workspace."
    effect = Effect.IRREVERSIBLE
    arguments: type[Struct] = BrowserActArguments

    def __init__(self, open_actions: OpenActions, address: Callable[[], str], label: Callable[[str], str]) -> None:
        self._open_actions = open_actions
        self._address = address
        self._label = label

    def proposed_action(self, arguments: BrowserActArguments) -> ProposedAction:
        """Describe the action: what leaves for the website needs approval, as does JavaScript."""
        host = urlsplit(self._address()).netloc or "the page"
        if arguments.action == "script":
            return ProposedAction("other", f"JavaScript on {host}: {arguments.text[:_SHOWN_CODE]}", host)
        what = self._label(arguments.ref) or arguments.ref
        text = f' "{arguments.text}"' if arguments.text else ""
        target = f"{arguments.action} {what}{text} on {host}"
        if arguments.action == "upload":
            return ProposedAction("submit", target, host, file=arguments.text)
        if arguments.submit or arguments.accept:
            return ProposedAction("submit", target, host)
        return ProposedAction("page", target, host)

    async def run(self, arguments: BrowserActArguments, call: Call) -> ToolOutput:
        """Carry out the action and return what has changed."""
        return await self._open_actions(call).act(arguments)
