"""Interactive terminal as a surface for commands."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from prompt_toolkit.formatted_text import ANSI, to_formatted_text
from prompt_toolkit.output import Output

from talaria.cli.chat.approval import format_decision, parse_decision
from talaria.cli.chat.clipboard import copy_sequence, read_clipboard
from talaria.cli.chat.options import SOURCE
from talaria.cli.chat.tui.activity import Activity
from talaria.cli.chat.tui.prompt import PromptScreen
from talaria.cli.chat.tui.questions import ALLOW, CARRY_OUT
from talaria.cli.markdown.stream import render, render_notice
from talaria.cli.markdown.styled_text import THEMES
from talaria.cli.terminal_text import cut, format_cell
from talaria.commands.command import Display
from talaria.core.addresses import Address
from talaria.core.errors import NotFound
from talaria.core.events import ApprovalAsked
from talaria.core.messages import Image
from talaria.runtime.questions import PLAN

_KEYS = """\
**Keys**

- **Enter** sends; **Alt-Enter**, **Ctrl-J** or a backslash before Enter starts a new line
- **Esc** stops the running turn, closes a menu, refuses an approval
- **Ctrl-C** stops the running turn or clears the line (↑ restores it); pressed twice on an empty line, it leaves
- **Ctrl-D** leaves, on an empty line
- **Tab** completes commands, their arguments, and files after `@`
- **↑ ↓** recall earlier lines; **Ctrl-R** searches them: Enter, Tab or → accepts the match, Ctrl-G cancels
- **Ctrl-O** shows the full output or diff of the last tool call, and more of running ones
- **Ctrl-V** pastes an image or text from the clipboard
- **Ctrl-X Ctrl-E** opens the line in your editor (`$VISUAL` or `$EDITOR`)
- **Ctrl-L** clears the screen; **Ctrl-Z** suspends

Type `/` for commands, `@` for files, `!` for a shell command.
"""


class TuiScreen:
    """`ChatScreen` of the interactive chat; ``save`` stores permanent changes."""

    name = SOURCE
    keys = _KEYS
    address: Address | None = None
    home_address: Address | None = None

    def __init__(
        self,
        prompt: PromptScreen,
        activity: Activity,
        display: Display,
        pictures: Path,
        save: Callable[[Display], None],
    ) -> None:
        self.display = display
        self._prompt = prompt
        self._activity = activity
        self._pictures = pictures
        self._save = save
        self.is_leaving = self.is_muted = False

    @property
    def theme(self) -> str:
        """Current theme."""
        return self._prompt.theme

    def change_display(self, display: Display) -> None:
        """Change and save the display options."""
        self.display = display
        self._save(display)

    def show(self, text: str) -> None:
        """Show Markdown text to the user."""
        rendered = render(text, THEMES[self.theme], self._prompt.canvas.width)
        self._activity.add(f"{rendered.rstrip()}\n\n")
        self._activity.redraw_changes()

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        """Ask the user to choose and return the index; ``None`` if they decline."""
        theme, width = THEMES[self.theme], self._prompt.canvas.width
        asked = to_formatted_text(ANSI(render_notice(question, theme, theme.bold, width).rstrip("\n")))
        return await self._prompt.choose(asked, choices)

    async def wait_for_attention(self) -> None:
        """Wait until the user is not typing."""
        await self._prompt.wait_for_quiet()

    async def approve(self, asked: ApprovalAsked) -> str:
        """Show the exact action and return the decision."""
        self._activity.add_approval(asked)
        self._activity.redraw_changes()
        summary = cut(format_cell(f"{asked.tool}: {asked.summary}"), self._prompt.canvas.width - 3)
        wording = CARRY_OUT if asked.tool == PLAN else ALLOW
        decision = await self._prompt.approval.ask(summary, parse_decision, wording)
        self._activity.add_decision(format_decision(asked, decision))
        return decision

    def change_theme(self, name: str) -> None:
        """Change the theme; raises `NotFound` with the known names."""
        if name not in THEMES:
            raise NotFound(f"There is no theme `{name}`. Available: {', '.join(THEMES)}.")
        self._prompt.theme = name
        self._activity.change_theme(THEMES[name])

    def attach(self, picture: Image) -> None:
        """Send this image with the next message."""
        self._prompt.line.attach(picture)

    def set_input_text(self, text: str) -> None:
        """Put text into the input line, for editing."""
        self._prompt.line.set_input_text(text)

    def copy(self, text: str) -> None:
        """Copy text to the clipboard through the terminal."""
        output: Output = self._prompt.canvas.app.output
        output.write_raw(copy_sequence(text))
        output.flush()

    async def paste(self) -> str | Image | None:
        """Return the content of the clipboard, or ``None`` if it is empty or unavailable."""
        return await read_clipboard(self._pictures)

    async def ask(self, question: str) -> str:
        """Return the answer that the user types."""
        self.show(f"**{question}**")
        return await self._prompt.ask()

    async def run_in_foreground(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Release the terminal to another program."""
        self._activity.redraw_changes()
        await self._prompt.run_in_foreground(callback)

    def mute(self) -> None:
        """Stop showing the running turn and asking its questions here; another surface does so."""
        self.is_muted = True
        self._activity.abort()
        self._activity.redraw_changes()

    def leave(self) -> None:
        """Exit the program when this command is done."""
        self.is_leaving = True
        if self.is_muted:
            self._prompt.leave()
