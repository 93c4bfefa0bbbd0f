"""Talaria with a scripted model, run in parallel with its server."""

import asyncio
from pathlib import Path

from tests.app import warm_program
from tests.app.program import Outcome, Program

from talaria.testing.model_server import ModelServer


def scripted_program(home: Path, server: ModelServer, settings: str = "", secrets: str = "") -> Program:
    """Return a program that uses the scripted model, with these additional settings and secrets."""
    folder = home / "profiles" / "default"
    folder.mkdir(mode=0o700, parents=True)
    (home / "work").mkdir()
    own = f'[model]\nprovider = "mine"\nname = "scripted"\n[providers.mine]\nbase_url = "{server.url}/v1"\n'
    for name, text in (("config.toml", own + settings), (".env", secrets)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    return Program(home)


async def talk(program: Program, *arguments: str) -> Outcome:
    """Run the program in its working folder; the model answers meanwhile."""
    work = program.home / "work"
    return Outcome(*await asyncio.to_thread(warm_program.run, arguments, env=program.environment(), cwd=work))
