"""The chat on a terminal for tests: typed keys and the resulting screen."""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial

from tests.app import warm_program
from tests.app.program import TALARIA, Program

from talaria.testing.screen import Screen, open_screen

READY = re.compile("^❯ Ask anything", re.MULTILINE)
DANGEROUS = "echo true | sh && touch done"


def opened(
    program: Program, *arguments: str, columns: int = 90, rows: int = 40, environment: Mapping[str, str] | None = None
) -> AbstractAsyncContextManager[Screen]:
    environment = environment or program.environment(TERM="xterm-256color")
    return open_screen(
        [TALARIA, *arguments],
        env=environment,
        columns=columns,
        rows=rows,
        spawn=warm_program.spawn,
        cwd=program.home / "work",
    )


async def say(screen: Screen, text: str) -> None:
    await screen.type(text)
    await screen.press("enter")


async def say_until(screen: Screen, text: str, holds: Callable[[], bool]) -> None:
    """Type a message, and again while it is refused because a turn is still ending, until a condition holds.

    A reply is on the screen a moment before its turn has ended.
    """
    while not holds():
        answered = partial(_is_answered, screen, holds, _refusals(screen))
        await say(screen, text)
        await screen.wait_until(answered, expected=text)


def typed_line(screen: Screen) -> str:
    """Return the line that is being typed, with its prompt."""
    return next((line for line in reversed(screen.lines) if line.startswith("❯")), "")


def _is_answered(screen: Screen, holds: Callable[[], bool], refusals: int) -> bool:
    return holds() or _refusals(screen) > refusals


def _refusals(screen: Screen) -> int:
    return sum("A turn is running" in line for line in screen.scrollback)


async def ready(screen: Screen) -> None:
    """Wait until the session is open: the status bar then names the model."""
    await screen.wait_for(READY)
    await screen.wait_for(re.compile(r"^  scripted · ", re.MULTILINE))
