"""The web app: size, requests, first paint, the first word after Enter next to the raw API, and memory per browser."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from urllib.parse import urlsplit

import httpx
from playwright.async_api import Browser, Cookie, Page, async_playwright

from bench.measure import Measurement, bytecode_environment, installed
from talaria.core.os_processes import list_process_tree
from talaria.storage.sqlite.open import open_sqlite
from talaria.testing.model_server import ModelServer, Say
from talaria.web.assets import Assets

NAME = "web"

_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
_FAST_4G = {"offline": False, "latency": 60, "downloadThroughput": 9e6 / 8, "uploadThroughput": 1.5e6 / 8}
_REPLY = "Hello there, this is the reply."
_PAGE_KB = 1 / 1000
_YEAR = 365
_HEADERS = {"sec-fetch-site": "same-origin", "x-talaria": "web", "content-type": "application/json"}


def run(quick: bool) -> list[Measurement]:
    """Measure the files, and the app in Chromium if it is installed."""
    return [*_sizes(), *asyncio.run(_measure(3 if quick else 9, 100 if quick else 400))]


def _sizes() -> list[Measurement]:
    assets = Assets()
    graph = assets.graph()
    first = sum(assets.compressed_size(path) for path in (*graph, "app.css"))
    return [
        Measurement("code until the chat is usable, gzip", first * _PAGE_KB, "kB", 60),
        Measurement("whole app, gzip", sum(map(assets.compressed_size, assets.paths())) * _PAGE_KB, "kB", 200),
        Measurement("modules loaded at the start", len(graph), "files", 20),
    ]


async def _measure(rounds: int, browsers: int) -> list[Measurement]:
    found: list[Measurement] = []
    async with ModelServer() as model:
        model.otherwise(Say(_REPLY))
        async with _served(model) as (link, pid, home):
            found += await _measure_memory(link, pid, browsers)
            await asyncio.to_thread(_fill_usage, home / "profiles/default/talaria.db")
            found += await _measure_usage(await _new_link(home), rounds)
            if (chromium := shutil.which("chromium")) is None:
                print("Chromium is not installed: nothing is drawn.")
                return found
            key = (home / "profiles/default/api-key").read_text().strip()
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                found += await _measure_pages(browser, home, link, key, rounds)
                await browser.close()
    return found


@asynccontextmanager
async def _served(model: ModelServer) -> AsyncIterator[tuple[str, int, Path]]:
    """Run `talaria web`, and yield the address that signs in, the process and its home."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "profiles/default").mkdir(parents=True)
        settings = f'[model]\nprovider = "mine"\nname = "words"\n[providers.mine]\nbase_url = "{model.url}/v1"\n'
        (home / "profiles/default/config.toml").write_text(f"{settings}[api]\nport = 0\nconnections = 4000\n")
        process = await asyncio.create_subprocess_exec(
            installed("talaria"), "web", "--no-open", env=_environment(home), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            yield (await process.stdout.readline()).decode().strip(), process.pid, home
        finally:
            process.terminate()
            await process.wait()


def _environment(home: Path) -> dict[str, str]:
    return bytecode_environment() | {"HOME": str(home), "TALARIA_HOME": str(home)}


async def _new_link(home: Path) -> str:
    """Return an address that signs in another browser."""
    process = await asyncio.create_subprocess_exec(
        installed("talaria"), "web", "--no-open", env=_environment(home), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return out.decode().strip()


async def _measure_memory(link: str, pid: int, browsers: int) -> list[Measurement]:
    """Open many streams with one cookie, and measure what each of them takes."""
    base, _, code = link.partition("/#code=")
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=base, headers=_HEADERS, limits=limits, trust_env=False) as http:
        (await http.post("/web/login", json={"code": code})).raise_for_status()
        cookie = "; ".join(f"{name}={value}" for name, value in http.cookies.items())
        async with AsyncExitStack() as stack:
            await _open_streams(stack, base, cookie, range(20))
            before = _resident(pid)
            await _open_streams(stack, base, cookie, range(20, 20 + min(browsers, 100)))
            each = (_resident(pid) - before) / min(browsers, 100)
    return [Measurement("server memory per open browser", each, "kB", 20)]


def _fill_usage(file: Path) -> None:
    """Store a year of usage: 4 models, 4 surfaces and 4 people on each day."""
    today = (datetime.now(UTC).date() - date(1970, 1, 1)).days
    names = ("day", "model", "surface", "owner", "turns", "calls", "input_tokens", "output_tokens", "cost_microdollars")
    rows = [
        (today - day, f"model-{model}", surface, owner, 3, 9, 90_000, 4_000, 12_000)
        for day in range(_YEAR)
        for model in range(4)
        for surface in ("cli", "telegram", "web", "cron")
        for owner in ("", "ana", "ben", "eva")
    ]
    database = open_sqlite(file)
    database.write(lambda tx: tx.archive.load("daily_usage", names, rows))
    database.close()


async def _measure_usage(link: str, rounds: int) -> list[Measurement]:
    """Measure the request of the usage page for a year."""
    base, _, code = link.partition("/#code=")
    times: list[float] = []
    async with httpx.AsyncClient(base_url=base, headers=_HEADERS, trust_env=False) as http:
        (await http.post("/web/login", json={"code": code})).raise_for_status()
        for _ in range(rounds):
            for group in ("model", "surface", "owner"):
                began = perf_counter()
                (await http.get("/web/usage", params={"days": _YEAR, "by": group})).raise_for_status()
                times.append((perf_counter() - began) * 1000)
    return [Measurement("usage of a year, request", median(times), "ms", 100)]


async def _open_streams(stack: AsyncExitStack, base: str, cookie: str, numbers: range) -> None:
    where = urlsplit(base)
    for number in numbers:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        stack.callback(writer.close)
        request = (
            f"GET /web/stream?id=s{number}&topics=sessions HTTP/1.1\r\nhost: {where.netloc}\r\ncookie: {cookie}\r\n\r\n"
        )
        writer.write(request.encode())
        await reader.readuntil(b'"hello"')


def _resident(pid: int) -> float:
    """Return the memory of a process and its children, in kB."""
    pages = sum(int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in list_process_tree(pid))
    return pages * os.sysconf("SC_PAGE_SIZE") / 1000


async def _measure_pages(browser: Browser, home: Path, link: str, key: str, rounds: int) -> list[Measurement]:
    base = link.partition("/#")[0]
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(await _new_link(home))
    await page.get_by_label("Message", exact=True).wait_for()
    cookies = await context.cookies()
    cold: list[float] = []
    slow: list[float] = []
    sent: list[str] = []
    for _ in range(rounds):
        for times, is_slow in ((cold, False), (slow, True)):
            fresh = await browser.new_context()
            await fresh.add_cookies([{"name": one["name"], "value": one["value"], "url": base} for one in cookies])
            shown = await fresh.new_page()
            sent.clear()
            shown.on("request", lambda one: sent.append(one.url))
            if is_slow:
                session = await fresh.new_cdp_session(shown)
                await session.send("Network.emulateNetworkConditions", _FAST_4G)
                await session.send("Emulation.setCPUThrottlingRate", {"rate": 4})
            await shown.goto(base)
            await shown.get_by_label("Message", exact=True).wait_for()
            times.append(await shown.evaluate(_PAINT))
            await fresh.close()
    charts = [await _time_chart(browser, cookies, base) for _ in range(rounds)]
    words = [await _time_first_word(page) for _ in range(rounds)]
    raw = [await _time_raw(base, key) for _ in range(rounds)]
    return [
        Measurement("requests until the chat is usable", len(sent), "requests", 20),
        Measurement("first paint, loopback, cold", median(cold), "ms", 200),
        Measurement("first paint, fast 4G and a quarter of the CPU, cold", median(slow), "ms", 700),
        Measurement("usage of a year, from the click to the chart", median(charts), "ms", 100),
        Measurement("Enter to the first word, above the raw API", median(words) - median(raw), "ms", 20),
    ]


async def _time_chart(browser: Browser, cookies: Sequence[Cookie], base: str) -> float:
    """Return the milliseconds from choosing a year on the usage page to its chart."""
    context = await browser.new_context()
    await context.add_cookies([{"name": one["name"], "value": one["value"], "url": base} for one in cookies])
    page = await context.new_page()
    await page.goto(f"{base}/usage")
    await page.locator(".chart .column").first.wait_for(state="attached")
    took = await page.evaluate(
        """() => new Promise(resolve => {
            const began = performance.now();
            new MutationObserver((_, observer) => {
                if (document.querySelectorAll(".chart .column").length === 53) {
                    observer.disconnect();
                    resolve(performance.now() - began);
                }
            }).observe(document.body, { childList: true, subtree: true });
            [...document.querySelectorAll("button")].find(one => one.textContent === "1 year").click();
        })"""
    )
    await context.close()
    return float(took)


async def _time_first_word(page: Page) -> float:
    """Return the milliseconds from Enter to the first word of the reply on the screen."""
    await page.get_by_label("Message", exact=True).fill("Hi")
    count = await page.locator(".reply").count()
    await page.evaluate(
        """count => { window.firstWord = new Promise(resolve => {
            let began = 0;
            addEventListener("keydown", () => { began = performance.now(); }, { once: true, capture: true });
            new MutationObserver((_, observer) => {
                if (document.querySelectorAll(".reply").length > count) {
                    observer.disconnect();
                    resolve(performance.now() - began);
                }
            }).observe(document.body, { childList: true, subtree: true, characterData: true });
        }); }""",
        count,
    )
    await page.get_by_label("Message", exact=True).press("Enter")
    took = float(await page.evaluate("window.firstWord"))
    await page.get_by_role("button", name="Stop").wait_for(state="hidden")
    return took


async def _time_raw(base: str, key: str) -> float:
    """Return the milliseconds from a request of the API to the first word of its reply."""
    body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
    async with httpx.AsyncClient(base_url=base, trust_env=False) as http:
        began = perf_counter()
        headers = {"authorization": f"Bearer {key}"}
        async with http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as reply:
            async for line in reply.aiter_lines():
                if '"content":"Hello' in line:
                    return (perf_counter() - began) * 1000
    raise AssertionError("the API did not answer")
