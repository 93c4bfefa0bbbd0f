"""Live streams of the web app: memory, idle CPU and fan-out per browser, and lag between processes."""

import asyncio
import json
import os
import re
from bisect import bisect_left
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from urllib.parse import urlsplit

import httpx
from msgspec import Struct

from bench.measure import Measurement, command_path, cpu_seconds
from talaria.core.os_processes import list_process_tree

HEADERS = {"sec-fetch-site": "same-origin", "x-talaria": "web", "content-type": "application/json"}
STORY = "Tell me a long story"
STORY_WORDS, STORY_PAUSE = 120, 0.02
_ADDRESS = re.compile(rb"(http://[\d.:]+)/v1")
_PERCENT = 100
_FIRST_STREAMS, _TABS = 20, 10
_SETTLE_SECONDS = 2.0


class WebClient(Struct, frozen=True):
    """Signed-in client of the web app; ``token`` is its cookie at every server of this home."""

    base: str
    token: str

    @property
    def cookie(self) -> str:
        """The cookie header for the server at ``base``."""
        return f"talaria-{urlsplit(self.base).port}={self.token}"

    def open_http(self) -> httpx.AsyncClient:
        """Return an HTTP client that sends the same headers as the page."""
        headers = {**HEADERS, "cookie": self.cookie}
        return httpx.AsyncClient(base_url=self.base, headers=headers, trust_env=False, timeout=60)


async def sign_in(link: str) -> WebClient:
    """Exchange the code of a sign-in link for a cookie."""
    base, _, code = link.partition("/#code=")
    async with httpx.AsyncClient(base_url=base, headers=HEADERS, trust_env=False) as http:
        (await http.post("/web/login", json={"code": code})).raise_for_status()
        (token,) = [value for _, value in http.cookies.items()]
    return WebClient(base, token)


async def measure_streams(
    client: WebClient, pid: int, environment: Mapping[str, str], quick: bool
) -> list[Measurement]:
    """Measure the server's cost per open browser, idle and during a turn."""
    count, seconds = (100, 5.0) if quick else (400, 20.0)
    async with AsyncExitStack() as stack:
        await _open_streams(stack, client, range(_TABS))
        idle = await _measure_idle(pid, seconds)
        await _open_streams(stack, client, range(_TABS, _FIRST_STREAMS))
        before = await _measure_memory(pid)
        await _open_streams(stack, client, range(_FIRST_STREAMS, _FIRST_STREAMS + count))
        each = (await _measure_memory(pid) - before) / count
    return [
        Measurement("server memory per open browser", each, "kB", 20),
        Measurement(f"idle CPU with {_TABS} tabs open", idle, "%", 0.5),
        await _measure_fan_out(client, pid, count),
        await _measure_lag(client, environment, 2 if quick else 6),
    ]


async def _measure_idle(pid: int, seconds: float) -> float:
    """Return the percentage of a core that the idle server uses."""
    await asyncio.sleep(_SETTLE_SECONDS)
    before = _cpu_time(pid)
    await asyncio.sleep(seconds)
    return (_cpu_time(pid) - before) / seconds * _PERCENT


async def _measure_memory(pid: int) -> float:
    """Return the memory of a process and its children in kB, after unused memory was freed."""
    await asyncio.sleep(_SETTLE_SECONDS)
    return _resident_memory(pid)


def _resident_memory(pid: int) -> float:
    pages = sum(int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in list_process_tree(pid))
    return pages * os.sysconf("SC_PAGE_SIZE") / 1000


def _cpu_time(pid: int) -> float:
    return sum(map(cpu_seconds, list_process_tree(pid)))


async def _open_streams(
    stack: AsyncExitStack, client: WebClient, numbers: range, topics: str = "sessions"
) -> list[asyncio.StreamReader]:
    address = urlsplit(client.base)
    opened = []
    for number in numbers:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        stack.callback(writer.close)
        request = (
            f"GET /web/stream?id=s{number}&topics={topics} HTTP/1.1\r\n"
            f"host: {address.netloc}\r\ncookie: {client.cookie}\r\n\r\n"
        )
        writer.write(request.encode())
        await reader.readuntil(b'"hello"')
        opened.append(reader)
    return opened


async def _measure_fan_out(client: WebClient, pid: int, count: int) -> Measurement:
    """Stream one reply to many browsers and compare its CPU time with that for one browser."""
    costs = []
    for browsers in (1, count):
        async with AsyncExitStack() as stack, client.open_http() as http:
            session = await _create_session(http, "Hi")
            streams = await _open_streams(stack, client, range(browsers), f"session:{session}")
            before = _cpu_time(pid)
            await http.post(f"/web/sessions/{session}/messages", json={"text": STORY, "id": f"story-{browsers}"})
            events = await asyncio.gather(*(_count_events(reader) for reader in streams))
            costs.append((_cpu_time(pid) - before, max(events)))
    (one, _), (many, events_each) = costs
    each = max(many - one, 0.0) * 1000 / (count - 1) / events_each
    return Measurement("fan-out, CPU per event and browser", each, "ms", 0.03)


async def _count_events(reader: asyncio.StreamReader) -> int:
    """Return the number of turn messages that a stream received."""
    count = 0
    while b'"answered"' not in (line := await reader.readuntil(b"\n\n")):
        count += b'"session"' in line
    return count


async def _create_session(http: httpx.AsyncClient, text: str) -> str:
    body = {"text": text, "id": os.urandom(8).hex()}
    session = str((await http.post("/web/sessions", json=body)).raise_for_status().json()["session_id"])
    while True:
        detail = (await http.get(f"/web/sessions/{session}")).json()
        if not detail["running"] and detail["message_count"] > 1:
            return session
        await asyncio.sleep(0.05)


async def _measure_lag(client: WebClient, environment: Mapping[str, str], rounds: int) -> Measurement:
    """Compare the arrival of text at the server that runs a turn and at another server."""
    lags: list[float] = []
    async with _other_server(client, environment) as other, client.open_http() as http:
        session = await _create_session(http, "Hi")
        for number in range(rounds):
            async with AsyncExitStack() as stack:
                (here,) = await _open_streams(stack, client, range(1), f"session:{session}")
                (there,) = await _open_streams(stack, other, range(1), f"session:{session}")
                await http.post(f"/web/sessions/{session}/messages", json={"text": STORY, "id": f"lag-{number}"})
                first, second = await asyncio.gather(_time_text(here), _time_text(there))
            lengths = [length for length, _ in first]
            lags += [at - first[min(bisect_left(lengths, length), len(first) - 1)][1] for length, at in second]
    return Measurement("lag of a turn in another process, 95th percentile", quantiles(lags, n=20)[-1] * 1000, "ms", 150)


async def _time_text(reader: asyncio.StreamReader) -> list[tuple[int, float]]:
    """Return the length of the reply and the time at each arrival of text."""
    arrivals: list[tuple[int, float]] = []
    length = 0
    while True:
        data = (await reader.readuntil(b"\n\n")).partition(b"data: ")[2]
        message = json.loads(data) if data else {}
        events = message.get("events", ())
        length += sum(len(event["text"]) for event in events if event["type"] == "text")
        if length and (not arrivals or arrivals[-1][0] < length):
            arrivals.append((length, perf_counter()))
        if any(event["type"] == "answered" for event in events):
            return arrivals


@asynccontextmanager
async def _other_server(client: WebClient, environment: Mapping[str, str]) -> AsyncIterator[WebClient]:
    """Run a second server on the same store."""
    process = await asyncio.create_subprocess_exec(
        command_path("talaria"), "serve", "--port", "0", env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        while (found := _ADDRESS.search(await process.stderr.readline())) is None:
            pass
        yield WebClient(found[1].decode(), client.token)
    finally:
        process.terminate()
        await process.wait()
