"""API servers in their own processes: load them with requests, read their memory and CPU time."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench.api_load import Load
from bench.measure import bytecode_environment, command_path, cpu_seconds
from talaria.core.os_processes import list_process_tree

CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Server:
    """API server at ``url``; ``key`` is its API key, if it requires one."""

    url: str
    pid: int
    key: str = ""

    async def load(self, in_flight: int, count: int, *, stream: bool = False) -> Load:
        """Send ``count`` requests from clients in another process and return their times."""
        arguments = [self.url + CHAT, str(in_flight), str(count), *(["--stream"] * stream), f"--key={self.key}"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.api_load", *arguments, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        if process.returncode:
            sys.exit(f"{self.url} did not answer {count} requests, {in_flight} in flight.")
        return msgspec.json.decode(out, type=Load)

    def memory(self) -> float:
        """Return the resident memory of the server and its child processes, in MB."""
        return sum(map(_resident_memory, list_process_tree(self.pid)))

    def cpu_time(self) -> float:
        """Return the CPU time of the server and its child processes, in seconds."""
        return sum(map(cpu_seconds, list_process_tree(self.pid)))


def percentile_ms(times: Sequence[float], percent: int) -> float:
    """Return a percentile of some times in seconds, in milliseconds."""
    ordered = sorted(times)
    return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)] * 1000


@asynccontextmanager
async def run_talaria(model: str, *, name: str = "short", context_limit: int = 0) -> AsyncIterator[Server]:
    """Run Talaria's API server with a model of the model server at the URL ``model``.

    ``name`` is the name of the model; a ``context_limit`` of 0 leaves its limit to the default.
    """
    with TemporaryDirectory() as home:
        folder = Path(home) / "profiles" / "default"
        folder.mkdir(parents=True)
        settings = f'[model]\nprovider = "mine"\nname = "{name}"\n[providers.mine]\nbase_url = "{model}/v1"\n'
        if context_limit:
            settings += f'[models."{name}"]\ncontext_limit = {context_limit}\n'
        (folder / "config.toml").write_text(settings)
        environment = bytecode_environment() | {"HOME": home, "TALARIA_HOME": home}
        process = await asyncio.create_subprocess_exec(
            command_path("talaria"), "serve", "--port", "0", env=environment, stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        try:
            while "http://" not in (line := (await process.stderr.readline()).decode()):
                pass  # lines about the API key
            url = "http://" + line.partition("http://")[2].partition("/v1")[0]
            yield Server(url, process.pid, (folder / "api-key").read_text().strip())
        finally:
            process.kill()
            await process.wait()


@asynccontextmanager
async def run_bare() -> AsyncIterator[Server]:
    """Run the bare application, which only streams the bytes of an answer."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.api_bare", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield Server((await process.stdout.readline()).decode().strip(), process.pid)
    finally:
        process.kill()
        await process.wait()


def _resident_memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kibibytes = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return kibibytes * 1024 / 1_000_000
