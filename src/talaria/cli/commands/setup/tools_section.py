"""Setup section 3: toolsets, search engine, sandbox and approvals."""

from collections.abc import Callable, Sequence

import msgspec

from talaria.cli.commands.setup.questions import MenuChoice
from talaria.cli.commands.setup.wizard_state import SetupContext
from talaria.settings.sections.checks import is_web_address

DUCKDUCKGO = "duckduckgo"
MODES = {
    "ask": "ask before every dangerous command",
    "allow-list": "ask before every command that is not on your list",
    "off": "never ask, run everything",
}
SANDBOXES = {
    "auto": "in a sandbox for chats, the API and scheduled jobs; not in the terminal",
    "on": "always in a sandbox",
    "off": "never in a sandbox: commands have the same access as you",
}

_WHICH = (
    "Each tool makes every request a little larger. Give the numbers or names of the toolsets to turn on, or `none`."
)
_SEARCH = (
    f"`{DUCKDUCKGO}` needs no setup. To use a SearXNG server instead, give its address, for "
    "example http://127.0.0.1:8888."
)
_SANDBOX = "In a sandbox, the agent's commands can write only to their working folder and can't see your keys."
_NETWORK = "Without the network, sandboxed commands can't fetch or send anything; the web tools still can."
_MODE = "Dangerous commands, for example, delete a lot, write outside the working folder, or run downloaded code."


class ToolsSection:
    """Questions about toolsets, search engine, sandbox and approval mode; each answer is written at once."""

    title = "Tools"
    purpose = "What the agent may use, and when it must ask you. The defaults are sensible."

    def __init__(self, setup: SetupContext) -> None:
        self._setup = setup
        self._enabled: tuple[str, ...] = ()

    def steps(self) -> Sequence[Callable[[], bool]]:
        """Return the questions in order."""
        return (self._ask_toolsets, self._ask_search, self._ask_sandbox, self._ask_network, self._ask_approval)

    def _ask_toolsets(self) -> bool:
        self._enabled = self._setup.writer.settings().tools.toolsets
        choices = [
            MenuChoice(group.name, ", ".join(tool.name for tool in group.tools))
            for group in self._setup.services.toolsets()
        ]
        on = self._setup.questions.choose_some("Toolsets to turn on", choices, default=self._enabled, explain=_WHICH)
        self._enabled = tuple(on)
        self._setup.writer.put("tools.toolsets", msgspec.json.encode(on).decode())
        self._setup.say(f"On: {', '.join(on) or 'none'}.")
        return True

    def _ask_search(self) -> bool:
        if "web" not in self._enabled:
            return False
        now = self._setup.writer.settings().tools.search_engine
        while True:
            typed = self._setup.questions.ask("Web search", default=now or DUCKDUCKGO, explain=_SEARCH)
            address = "" if typed.lower() == DUCKDUCKGO else typed
            if is_web_address(address):
                break
            self._setup.say(f"Type `{DUCKDUCKGO}`, or an address that begins with http:// or https://.")
        self._setup.writer.put("tools.search_engine", address)
        self._setup.say(f"Web searches use {address or 'DuckDuckGo'}.")
        return True

    def _ask_sandbox(self) -> bool:
        if not {"terminal", "code"}.intersection(self._enabled):
            return False
        problem = self._setup.services.sandbox_problem()
        if problem:
            self._setup.say(f"A sandbox for commands isn't available here: {problem}")
            return False
        enabled = self._setup.writer.settings().sandbox.enabled
        now = enabled if enabled == "auto" else "on" if enabled else "off"
        choices = [MenuChoice(name, note) for name, note in SANDBOXES.items()]
        chosen = self._setup.questions.choose("Sandbox", choices, default=now, explain=_SANDBOX)
        self._setup.writer.put("sandbox.enabled", chosen)
        self._setup.say(f"Commands run {SANDBOXES[chosen]}.")
        return True

    def _ask_network(self) -> bool:
        settings = self._setup.writer.settings().sandbox
        if (
            not settings.enabled
            or self._setup.services.sandbox_problem()
            or not {"terminal", "code"}.intersection(self._enabled)
        ):
            return False
        on = self._setup.questions.confirm(
            "May sandboxed commands use the network?", default=settings.network, explain=_NETWORK
        )
        self._setup.writer.put("sandbox.network", "true" if on else "false")
        return True

    def _ask_approval(self) -> bool:
        choices = [MenuChoice(name, note) for name, note in MODES.items()]
        now = self._setup.writer.settings().approval.mode
        mode = self._setup.questions.choose("Approval", choices, default=now, explain=_MODE)
        self._setup.writer.put("approval.mode", mode)
        self._setup.say(f"Approval: {MODES[mode]}.")
        return True
