"""The terminal as commands see it."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from prompt_toolkit.formatted_text import ANSI, to_formatted_text
from prompt_toolkit.output import Output

from talaria.cli.approval import decision_of
from talaria.cli.cells import cell, cut
from talaria.cli.clipboard import copy_sequence, read_clipboard
from talaria.cli.live.activity import Activity
from talaria.cli.live.front import Front
from talaria.cli.live.keys import KEYS
from talaria.cli.rendering.document import render
from talaria.cli.rendering.notice import render_notice
from talaria.cli.rendering.themes import THEMES
from talaria.cli.wishes import SOURCE
from talaria.commands.command import Display
from talaria.core.addresses import Address
from talaria.core.errors import NotFound
from talaria.core.events import ApprovalAsked
from talaria.core.messages import Image


class TerminalPlace:
    """Implements `Place` and `Screen`; ``keep`` is told of changes that are to last."""

    name = SOURCE
    keys = KEYS
    address: Address | None = None

    def __init__(
        self, front: Front, activity: Activity, display: Display, pictures: Path, keep: Callable[[Display], None]
    ) -> None:
        self.display = display
        self._front = front
        self._activity = activity
        self._pictures = pictures
        self._keep = keep
        self.leaving = self.hushed = False

    @property
    def theme(self) -> str:
        """The theme in use."""
        return self._front.theme

    def change_display(self, display: Display) -> None:
        """Show this much from now on, also after the next start."""
        self.display = display
        self._keep(display)

    def show(self, text: str) -> None:
        """Tell the person something; the text is Markdown."""
        rendered = render(text, THEMES[self.theme], self._front.canvas.width)
        self._activity.add(f"{rendered.rstrip()}\n\n")
        self._activity.tick()

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        """Let the person choose, and return which; ``None`` when they do not."""
        theme, width = THEMES[self.theme], self._front.canvas.width
        asked = to_formatted_text(ANSI(render_notice(question, theme, theme.bold, width).rstrip("\n")))
        return await self._front.choose(asked, choices)

    async def wait_for_attention(self) -> None:
        """Wait until the person is not typing."""
        await self._front.wait_for_quiet()

    async def approve(self, asked: ApprovalAsked) -> str:
        """Show exactly what would happen, and return the decision."""
        self._activity.add_approval(asked)
        self._activity.tick()
        summary = cut(cell(f"{asked.tool}: {asked.summary}"), self._front.canvas.width - 3)
        decision = await self._front.approval.ask(summary, decision_of)
        self._activity.add_decision(decision)
        return decision

    def change_theme(self, name: str) -> None:
        """Choose a theme, or raise `NotFound` with the names that there are."""
        if name not in THEMES:
            raise NotFound(f"There is no theme `{name}`: {', '.join(THEMES)}.")
        self._front.theme = name
        self._activity.change_theme(THEMES[name])

    def attach(self, picture: Image) -> None:
        """Show this picture to the model with the next message."""
        self._front.line.attach(picture)

    def fill_in(self, text: str) -> None:
        """Put text into the input line, to be edited and sent."""
        self._front.line.fill_in(text)

    def copy(self, text: str) -> None:
        """Put text into the clipboard, by way of the terminal."""
        output: Output = self._front.canvas.app.output
        output.write_raw(copy_sequence(text))
        output.flush()

    async def paste(self) -> str | Image | None:
        """Return what the clipboard holds, if there is one and it holds something."""
        return await read_clipboard(self._pictures)

    async def ask(self, question: str) -> str:
        """Return what the person types as the answer."""
        self.show(f"**{question}**")
        return await self._front.ask()

    async def lend(self, use: Callable[[], Awaitable[None]]) -> None:
        """Leave the terminal to another program meanwhile."""
        self._activity.tick()
        await self._front.lend(use)

    def hush(self) -> None:
        """Show nothing more of the running turn, and ask nothing for it: it is seen elsewhere."""
        self.hushed = True
        self._activity.break_off()
        self._activity.tick()

    def leave(self) -> None:
        """End the program as soon as this command is done."""
        self.leaving = True
        if self.hushed:
            self._front.leave()
