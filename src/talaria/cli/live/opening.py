"""Open the chat on a terminal: the prompt first, everything else behind it."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module

from talaria.cli.live.front import Front
from talaria.cli.live.styles import theme_of
from talaria.cli.services import Services
from talaria.core.errors import TalariaError
from talaria.sessions.company import first_error

_CHAT = "talaria.cli.live.chat"


def open_live(arguments: argparse.Namespace, services: Services) -> int:
    """Run the chat until the person leaves it, and return the exit code."""

    async def serve(front: Front) -> None:
        chat = await asyncio.to_thread(import_module, _CHAT)
        await chat.serve(front, arguments, services)

    return run_behind(services, serve)


def run_behind(services: Services, serve: Callable[[Front], Awaitable[None]]) -> int:
    """Put up the prompt, and let ``serve`` act on what is typed there until the person leaves."""
    try:
        return asyncio.run(_run(services, serve))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors


async def _run(services: Services, serve: Callable[[Front], Awaitable[None]]) -> int:
    services.profile.prepare()
    theme = theme_of(services.settings().cli.theme, services.environment)
    term = services.environment.get("TERM", "")
    front = Front(sys.stdout, term, services.profile.folder / "history", theme)
    failed: list[TalariaError] = []

    async def behind() -> None:
        try:
            await serve(front)
        except TalariaError as error:
            failed.append(error)
            front.leave(1)

    async with asyncio.TaskGroup() as jobs:
        serving = jobs.create_task(behind())
        code = await front.canvas.app.run_async(set_exception_handler=False)
        serving.cancel()
    sys.stdout.write(front.canvas.finish())
    if failed:
        raise failed[0]
    return code
