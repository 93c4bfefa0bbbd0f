"""The chat on a terminal, as tests drive it: keys in, a screen out."""

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
    program: Program, *words: str, columns: int = 90, rows: int = 40, environment: Mapping[str, str] | None = None
) -> AbstractAsyncContextManager[Screen]:
    environment = environment or program.environment(TERM="xterm-256color")
    return open_screen(
        [TALARIA, *words],
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
    """Say something, again as long as it is refused because a turn has not quite ended, until something holds.

    A reply is on the screen a moment before its turn has ended.
    """
    while not holds():
        answered = partial(_answered, screen, holds, _refusals(screen))
        await say(screen, text)
        await screen.wait_until(answered, wanted=text)


def typed_line(screen: Screen) -> str:
    """Return the line that is being typed, with its prompt."""
    return next((line for line in reversed(screen.lines) if line.startswith("❯")), "")


def _answered(screen: Screen, holds: Callable[[], bool], refusals: int) -> bool:
    return holds() or _refusals(screen) > refusals


def _refusals(screen: Screen) -> int:
    return sum("A turn is running" in line for line in screen.scrollback)


async def ready(screen: Screen) -> None:
    """Wait until the conversation is open: the status bar names the model then."""
    await screen.wait_for(READY)
    await screen.wait_for(re.compile(r"^  scripted · ", re.MULTILINE))
