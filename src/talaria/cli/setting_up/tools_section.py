"""The third section of the set-up: what the agent can do, and what it has to ask for."""

from collections.abc import Callable, Sequence

import msgspec

from talaria.cli.setting_up.questions import Choice
from talaria.cli.setting_up.session import Guided
from talaria.settings.checks import is_web_address

DUCKDUCKGO = "duckduckgo"
MODES = {
    "ask": "ask before every dangerous command",
    "allow-list": "ask before every command that is not on your list",
    "off": "never ask, run everything",
}

_WHICH = "Each tool costs some of every request. Give the numbers or names of those that shall be on, or `none`."
_SEARCH = (
    f"`{DUCKDUCKGO}` needs nothing. The address of a SearXNG server, such as http://127.0.0.1:8888, asks that one"
    " instead."
)
_SANDBOX = "In a sandbox, commands of the agent can write to their working folder only, and do not see your keys."
_NETWORK = "Without it, commands in the sandbox cannot fetch or send anything; the web tools still can."
_MODE = "Dangerous is, for example, deleting much, writing outside the working folder, or running what was downloaded."


class ToolsSection:
    """Asks for toolsets, the search engine, the sandbox and the approval mode; each answer is written at once."""

    title = "Tools"
    purpose = "What the agent may use, and what it has to ask you for. The defaults are sensible."

    def __init__(self, guided: Guided) -> None:
        self._guided = guided
        self._on: tuple[str, ...] = ()

    def steps(self) -> Sequence[Callable[[], bool]]:
        """Return the questions in their order."""
        return (self._ask_toolsets, self._ask_search, self._ask_sandbox, self._ask_network, self._ask_approval)

    def _ask_toolsets(self) -> bool:
        self._on = self._guided.writer.settings().tools.toolsets
        choices = [
            Choice(group.name, ", ".join(tool.name for tool in group.tools))
            for group in self._guided.services.toolsets()
        ]
        on = self._guided.questions.choose_some("Toolsets that are on", choices, default=self._on, explain=_WHICH)
        self._on = tuple(on)
        self._guided.writer.put("tools.toolsets", msgspec.json.encode(on).decode())
        self._guided.say(f"On: {', '.join(on) or 'none'}.")
        return True

    def _ask_search(self) -> bool:
        if "web" not in self._on:
            return False
        now = self._guided.writer.settings().tools.search_engine
        while True:
            typed = self._guided.questions.ask("Web search", default=now or DUCKDUCKGO, explain=_SEARCH)
            address = "" if typed.lower() == DUCKDUCKGO else typed
            if is_web_address(address):
                break
            self._guided.say(f"Type `{DUCKDUCKGO}`, or an address that begins with http:// or https://.")
        self._guided.writer.put("tools.search_engine", address)
        self._guided.say(f"Searches go to {address or 'DuckDuckGo'}.")
        return True

    def _ask_sandbox(self) -> bool:
        if not {"terminal", "code"}.intersection(self._on):
            return False
        problem = self._guided.services.sandbox_problem()
        if problem:
            self._guided.say(f"A sandbox for commands is not possible here: {problem}")
            return False
        now = self._guided.writer.settings().sandbox.enabled
        on = self._guided.questions.yes("Run commands in a sandbox?", default=now, explain=_SANDBOX)
        self._guided.writer.put("sandbox.enabled", "true" if on else "false")
        self._guided.say("Commands run in a sandbox." if on else "Commands reach what you reach.")
        return True

    def _ask_network(self) -> bool:
        settings = self._guided.writer.settings().sandbox
        if not settings.enabled or not {"terminal", "code"}.intersection(self._on):
            return False
        on = self._guided.questions.yes("May they reach the network?", default=settings.network, explain=_NETWORK)
        self._guided.writer.put("sandbox.network", "true" if on else "false")
        return True

    def _ask_approval(self) -> bool:
        choices = [Choice(name, remark) for name, remark in MODES.items()]
        now = self._guided.writer.settings().approval.mode
        mode = self._guided.questions.choose("Approval", choices, default=now, explain=_MODE)
        self._guided.writer.put("approval.mode", mode)
        self._guided.say(f"Approval: {MODES[mode]}.")
        return True
