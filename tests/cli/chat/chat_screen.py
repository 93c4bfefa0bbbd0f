"""The chat on a terminal, as tests drive it: keys in, a screen out."""

import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

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


async def ready(screen: Screen) -> None:
    """Wait until the conversation is open: the status bar names the model then."""
    await screen.wait_for(READY)
    await screen.wait_for(re.compile(r"^  scripted · ", re.MULTILINE))
