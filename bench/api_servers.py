"""Servers of the API in processes of their own, and what can be asked of any of them."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench.api_load import Load
from bench.measure import bytecode_environment, cpu_seconds, installed
from talaria.core.os_processes import list_process_tree

CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Server:
    """A server that listens at ``url``; ``key`` is what it wants to be shown, if anything."""

    url: str
    pid: int
    key: str = ""

    async def load(self, in_flight: int, count: int, *, stream: bool = False) -> Load:
        """Let clients ask, from a process of their own."""
        words = [self.url + CHAT, str(in_flight), str(count), *(["--stream"] * stream), f"--key={self.key}"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.api_load", *words, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        if process.returncode:
            sys.exit(f"{self.url} did not answer {count} requests, {in_flight} in flight.")
        return msgspec.json.decode(out, type=Load)

    def memory(self) -> float:
        """Return what it holds in memory with all that it started, in MB."""
        return sum(map(_resident, list_process_tree(self.pid)))

    def processor_time(self) -> float:
        """Return how long the processors have worked for it and for all that it started, in seconds."""
        return sum(map(cpu_seconds, list_process_tree(self.pid)))


def within(times: Sequence[float], percent: int) -> float:
    """Return how many milliseconds so many percent of the times stay within."""
    ordered = sorted(times)
    return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)] * 1000


@asynccontextmanager
async def talaria(model: str, *, name: str = "words", context_limit: int = 0) -> AsyncIterator[Server]:
    """Run ours with a model of the server at ``model``, whose context limit is as known unless given."""
    with TemporaryDirectory() as home:
        folder = Path(home) / "profiles" / "default"
        folder.mkdir(parents=True)
        settings = f'[model]\nprovider = "mine"\nname = "{name}"\n[providers.mine]\nbase_url = "{model}/v1"\n'
        if context_limit:
            settings += f'[models."{name}"]\ncontext_limit = {context_limit}\n'
        (folder / "config.toml").write_text(settings)
        environment = bytecode_environment() | {"HOME": home, "TALARIA_HOME": home}
        process = await asyncio.create_subprocess_exec(
            installed("talaria"), "serve", "--port", "0", env=environment, stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        try:
            while "http://" not in (said := (await process.stderr.readline()).decode()):
                pass  # what it says about its key
            url = "http://" + said.partition("http://")[2].partition("/v1")[0]
            yield Server(url, process.pid, (folder / "api-key").read_text().strip())
        finally:
            process.kill()
            await process.wait()


@asynccontextmanager
async def bare() -> AsyncIterator[Server]:
    """Run the application that only streams the bytes of an answer."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.api_bare", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield Server((await process.stdout.readline()).decode().strip(), process.pid)
    finally:
        process.kill()
        await process.wait()


def _resident(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kibibytes = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return kibibytes * 1024 / 1_000_000
