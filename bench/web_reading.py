"""Web app in Chromium: long conversations, a fast reply and many tabs."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from playwright.async_api import BrowserContext, Page

from bench.measure import Measurement
from talaria.app.store import open_store
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.core.messages import Message, Role, Text
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profiles

FAST = "Write as fast as you can"
_PARAGRAPH = "Some *words* with `code`, " + "and more. " * 40
FAST_REPLY = "\n\n".join(f"## Part {number}\n\n{_PARAGRAPH}" for number in range(52))
_OPEN = """async ([id, least]) => {
    const began = performance.now();
    document.querySelector(`a[href="/c/${id}"]`).click();
    await new Promise(resolve => {
        const check = () => document.querySelectorAll(".entries > li").length >= least
            ? resolve() : requestAnimationFrame(check);
        check();
    });
    await new Promise(requestAnimationFrame);
    return performance.now() - began;
}"""
_LONG_TASKS = """() => {
    window.longTasks = [];
    new PerformanceObserver(list => window.longTasks.push(...list.getEntries().map(one => one.duration)))
        .observe({ type: "longtask" });
}"""
_LEAST_SHOWN = 40


async def measure_reading(context: BrowserContext, page: Page, base: str, home: Path, quick: bool) -> list[Measurement]:
    """Open long conversations, read a fast reply, and open many tabs."""
    measurements = []
    for count, goal in ((400, 1000), (2000, 200)):
        session = await _add_conversation(home, count)
        await page.goto(base)
        await page.locator(f'a[href="/c/{session}"]').wait_for()
        duration = float(await page.evaluate(_OPEN, [session, _LEAST_SHOWN]))
        measurements.append(Measurement(f"open a conversation of {count:,} messages", duration, "ms", goal))
    elements = int(await page.evaluate("document.querySelectorAll('*').length"))
    return [
        *measurements,
        Measurement("elements of a conversation of 2,000 messages", elements, "elements", 3000),
        await _measure_fast_reply(page, base),
        await _measure_tabs(context, base, 10 if quick else 50),
    ]


async def _add_conversation(home: Path, count: int) -> str:
    """Store a conversation with many messages."""
    profile = Profiles(home).active()
    store, _ = open_store(load_settings(profile, {}), profile)
    roles: tuple[Role, Role] = ("user", "assistant")

    def add(tx: Transaction) -> str:
        session = tx.sessions.create(NewSession(source="web", title=f"{count} messages"))
        texts = (f"**Message** {number} with `code`.\n\n- one\n- two" for number in range(count))
        tx.messages.append(
            session.id,
            [
                Message(role=roles[number % 2], parts=(Text(text),), at=datetime.now(UTC))
                for number, text in enumerate(texts)
            ],
        )
        return session.id

    try:
        return await store.write(add)
    finally:
        await store.close()


async def _measure_fast_reply(page: Page, base: str) -> Measurement:
    """Return the longest task over 50 ms on the page while a long reply arrives."""
    await page.goto(base)
    box = page.get_by_label("Message", exact=True)
    await box.wait_for()
    await page.evaluate(_LONG_TASKS)
    await box.fill(FAST)
    await box.press("Enter")
    await page.locator(".reply", has_text="Part 51").wait_for()
    await page.get_by_role("button", name="Stop").wait_for(state="hidden")
    longest = float(await page.evaluate("Math.max(0, ...window.longTasks)"))
    return Measurement(f"longest task during a reply of {len(FAST_REPLY) // 1000} kB", longest, "ms", 50)


async def _measure_tabs(context: BrowserContext, base: str, count: int) -> Measurement:
    """Open many tabs of one browser, and count their streams."""
    for page in list(context.pages):
        await page.close()
    await asyncio.sleep(1)
    streams: set[str] = set()
    context.on("request", lambda one: streams.add(one.url) if "/web/stream?" in one.url else None)
    context.on("requestfinished", lambda one: streams.discard(one.url))
    context.on("requestfailed", lambda one: streams.discard(one.url))
    pages = [await context.new_page() for _ in range(count)]
    for page in pages:
        await page.goto(base)
        await page.get_by_label("Message", exact=True).wait_for()
    await asyncio.sleep(1)
    open_streams = len(streams)
    for page in pages:  # when the tab with the stream closes, another one opens it
        await page.close()
    return Measurement(f"streams of {count} tabs of one browser", open_streams, "connections", 1)
