"""Talaria with a scripted model, run in parallel with its server."""

import asyncio
from pathlib import Path

from tests.app.program import TALARIA, Outcome, Program

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


async def talk(program: Program, *words: str) -> Outcome:
    """Run the program in its working folder; the model answers meanwhile."""
    process = await asyncio.create_subprocess_exec(
        TALARIA,
        *words,
        env=program.environment(),
        cwd=program.home / "work",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return Outcome(process.returncode or 0, out.decode(), err.decode())
