"""Start of the interactive chat: the prompt first, then everything else."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable

from talaria.cli.chat.tui.prompt import PromptScreen, resolve_theme
from talaria.cli.services import Services
from talaria.core.aio import first_error
from talaria.core.errors import TalariaError


def open_live_chat(arguments: argparse.Namespace, services: Services) -> int:
    """Run the chat until the user leaves and return the exit code."""

    async def serve(prompt: PromptScreen) -> None:
        serve_chat = await asyncio.to_thread(_load_chat)
        await serve_chat(prompt, arguments, services)

    return run_with_prompt(services, serve)


def run_with_prompt(services: Services, serve: Callable[[PromptScreen], Awaitable[None]]) -> int:
    """Show the prompt and run ``serve`` on its input until the user leaves."""
    try:
        return asyncio.run(_run(services, serve))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors


def _load_chat() -> Callable[[PromptScreen, argparse.Namespace, Services], Awaitable[None]]:
    from talaria.cli.chat.tui.chat import serve  # noqa: PLC0415 (loaded in a thread, while the prompt is shown)

    return serve


async def _run(services: Services, serve: Callable[[PromptScreen], Awaitable[None]]) -> int:
    services.profile.prepare()
    theme = resolve_theme(services.settings().cli.theme, services.environment)
    term = services.environment.get("TERM", "")
    prompt = PromptScreen(sys.stdout, term, services.profile.folder / "history", theme)
    failures: list[TalariaError] = []

    async def run_handler() -> None:
        try:
            await serve(prompt)
        except TalariaError as error:
            failures.append(error)
            prompt.leave(1)

    async with asyncio.TaskGroup() as jobs:
        serve_task = jobs.create_task(run_handler())
        code = await prompt.canvas.app.run_async(set_exception_handler=False)
        serve_task.cancel()
    sys.stdout.write(prompt.canvas.finish())
    if failures:
        raise failures[0]
    return code
