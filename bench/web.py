"""Web app: size, requests, first paint, first word after Enter, streams, long conversations and tabs."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter

import httpx
from playwright.async_api import Browser, Cookie, Page, async_playwright

from bench import web_live, web_reading
from bench.measure import Measurement, bytecode_environment, command_path
from bench.web_live import measure_streams, sign_in
from talaria.storage.sqlite.open import open_sqlite
from talaria.testing.model_server import ModelServer, Received, Say
from talaria.web.assets import Assets

NAME = "web"

_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
_FAST_4G = {"offline": False, "latency": 60, "downloadThroughput": 9e6 / 8, "uploadThroughput": 1.5e6 / 8}
_REPLY = "Hello there, this is the reply."
_KB_PER_BYTE = 1 / 1000
_YEAR = 365
_REPLIES_PER_ROUND = 7  # enough for a 95th percentile
_HEADERS = {"sec-fetch-site": "same-origin", "x-talaria": "web", "content-type": "application/json"}


def run(quick: bool) -> list[Measurement]:
    """Measure the files, and the app in Chromium if it is installed."""
    return [*_measure_sizes(), *asyncio.run(_measure(3 if quick else 9, quick))]


def _measure_sizes() -> list[Measurement]:
    assets = Assets()
    graph = assets.graph()
    first = sum(assets.compressed_size(path) for path in (*graph, "app.css"))
    return [
        Measurement("code until the chat is usable, gzip", first * _KB_PER_BYTE, "kB", 60),
        Measurement("whole app, gzip", sum(map(assets.compressed_size, assets.paths())) * _KB_PER_BYTE, "kB", 200),
        Measurement("modules loaded at the start", len(graph), "files", 20),
    ]


async def _measure(rounds: int, quick: bool) -> list[Measurement]:
    async with ModelServer() as model:
        model.answering(_answer)
        began = perf_counter()
        async with _run_web(model) as (link, pid, home):
            started = Measurement(
                "start of `talaria web` until it listens", (perf_counter() - began) * 1000, "ms", 1000
            )
            client = await sign_in(link)
            measurements = [started, *await measure_streams(client, pid, _environment(home), quick)]
            await asyncio.to_thread(_fill_usage, home / "profiles/default/talaria.db")
            measurements += await _measure_usage(await _new_link(home), rounds)
            if (chromium := shutil.which("chromium")) is None:
                print("Chromium is not installed: pages are not measured.")
                return measurements
            key = (home / "profiles/default/api-key").read_text().strip()
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                measurements += await _measure_pages(browser, home, link, key, rounds, quick)
                await browser.close()
    return measurements


def _answer(received: Received) -> Say:
    match received.question:
        case web_reading.FAST:
            return Say(web_reading.FAST_REPLY, pause=0.001)
        case web_live.STORY:
            return Say("word " * web_live.STORY_WORDS, pause=web_live.STORY_PAUSE)
        case _:
            return Say(_REPLY)


@asynccontextmanager
async def _run_web(model: ModelServer) -> AsyncIterator[tuple[str, int, Path]]:
    """Run `talaria web`, and yield its sign-in link, process id and home."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "profiles/default").mkdir(parents=True)
        settings = f'[model]\nprovider = "mine"\nname = "scripted"\n[providers.mine]\nbase_url = "{model.url}/v1"\n'
        (home / "profiles/default/config.toml").write_text(
            f"{settings}[api]\nport = 0\nconnections = 4000\nrequests_at_once = 0\n"
        )
        process = await asyncio.create_subprocess_exec(
            command_path("talaria"), "web", "--no-open", env=_environment(home), stdout=asyncio.subprocess.PIPE
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
    """Return a sign-in link for another browser."""
    process = await asyncio.create_subprocess_exec(
        command_path("talaria"), "web", "--no-open", env=_environment(home), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return out.decode().strip()


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


async def _measure_pages(
    browser: Browser, home: Path, link: str, key: str, rounds: int, quick: bool
) -> list[Measurement]:
    base = link.partition("/#")[0]
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(await _new_link(home))
    await page.get_by_label("Message", exact=True).wait_for()
    cookies = await context.cookies()
    loads = await _measure_loads(browser, cookies, base, rounds)
    charts = [await _time_chart(browser, cookies, base) for _ in range(rounds)]
    first_words, raw_words = [], []
    for number in range(_REPLIES_PER_ROUND * rounds):
        if number % _REPLIES_PER_ROUND == 0:  # each raw request creates a session, too
            await page.get_by_role("link", name="New", exact=True).click()
            await page.locator(".reply").first.wait_for(state="detached")
        first_words.append(await _time_first_word(page))
        raw_words.append(await _time_raw_request(base, key))
    return [
        *loads,
        Measurement("usage of a year, from the click to the chart", median(charts), "ms", 100),
        Measurement(
            "Enter to the first word, delay over the raw API", median(first_words) - median(raw_words), "ms", 20
        ),
        Measurement("the same, 95th percentile", _percentile(first_words) - _percentile(raw_words), "ms", 50),
        *await web_reading.measure_reading(context, page, base, home, quick),
    ]


async def _measure_loads(browser: Browser, cookies: Sequence[Cookie], base: str, rounds: int) -> list[Measurement]:
    """Measure loads of the chat in new browsers, on loopback and with a throttled network and CPU."""
    cold: list[float] = []
    slow: list[float] = []
    usable: list[float] = []
    warm: list[float] = []
    sent: list[str] = []
    for _ in range(rounds):
        for times, is_slow in ((cold, False), (slow, True)):
            context = await browser.new_context()
            await context.add_cookies([{"name": one["name"], "value": one["value"], "url": base} for one in cookies])
            page = await context.new_page()
            sent.clear()
            page.on("request", lambda one: sent.append(one.url))
            if is_slow:
                session = await context.new_cdp_session(page)
                await session.send("Network.emulateNetworkConditions", _FAST_4G)
                await session.send("Emulation.setCPUThrottlingRate", {"rate": 4})
            await page.goto(base)
            await page.get_by_label("Message", exact=True).wait_for()
            times.append(await page.evaluate(_PAINT))
            if is_slow:
                usable.append(await _time_usable(page))
                count = len(sent)
                await page.reload()
                warm.append(await _time_usable(page))
                del sent[count:]
            await context.close()
    return [
        Measurement("requests until the chat is usable", len(sent), "requests", 20),
        Measurement("first paint, loopback, cold", median(cold), "ms", 200),
        Measurement("first paint, fast 4G and a quarter of the CPU, cold", median(slow), "ms", 700),
        Measurement("composer and list usable, fast 4G and a quarter of the CPU, cold", median(usable), "ms", 1500),
        Measurement("the same, warm", median(warm), "ms", 1000),
    ]


async def _time_usable(page: Page) -> float:
    """Return the milliseconds from the start of a load until composer and list are shown."""
    await page.get_by_label("Message", exact=True).wait_for()
    await page.locator(".row, .empty").first.wait_for()
    return float(await page.evaluate("performance.now()"))


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


def _percentile(times: list[float]) -> float:
    """Return the 95th percentile, which is used for the floor too: a busy machine slows both."""
    return quantiles(times, n=20)[-1]


async def _time_first_word(page: Page) -> float:
    """Return the milliseconds from Enter until the first word of the reply is shown."""
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


async def _time_raw_request(base: str, key: str) -> float:
    """Return the milliseconds from an API request to the first word of its reply."""
    body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
    async with httpx.AsyncClient(base_url=base, trust_env=False) as http:
        began = perf_counter()
        headers = {"authorization": f"Bearer {key}"}
        async with http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as reply:
            first = [perf_counter() - began async for line in reply.aiter_lines() if '"content":"Hello' in line]
    return first[0] * 1000
