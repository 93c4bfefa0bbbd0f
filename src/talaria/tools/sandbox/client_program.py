"""Short calls of podman, docker and ssh, bounded in time."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from msgspec import Struct

_END_SECONDS = 30.0

log = logging.getLogger(__name__)


class ClientResult(Struct, frozen=True):
    """End of a call; the code is negative if it couldn't be made or took too long."""

    code: int
    output: bytes
    error: str


async def run_client(argv: Sequence[str], environment: Mapping[str, str] | None, seconds: float) -> ClientResult:
    """Run a program without input and return how it ended; without an environment it has ours."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=environment,
            cwd="/",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError:
        return ClientResult(-1, b"", f"{argv[0]} is not installed.")
    except OSError as error:
        return ClientResult(-1, b"", f"{argv[0]} couldn't be started: {error}")
    try:
        async with asyncio.timeout(seconds):
            output, error_output = await process.communicate()
    except TimeoutError:
        return ClientResult(-1, b"", f"{argv[0]} didn't answer within {seconds:g} s.")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return ClientResult(process.returncode or 0, output, error_output.decode(errors="replace").strip())


async def end_inside(end: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """End what a command started in a sandbox that doesn't end with it; ``end`` is the call for that."""
    if not end:
        return
    ended = await run_client(end, environment, _END_SECONDS)
    if ended.code != 0:
        log.warning("processes in a sandbox may still run: %s", ended.error)
