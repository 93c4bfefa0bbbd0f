"""Take screenshots of the web app for the documentation, in Chromium with a scripted model."""

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import httpx
from playwright.async_api import Browser, BrowserContext, Page, ViewportSize, async_playwright

from talaria.testing.model_server import Ask, ModelServer, Received, Say, Tokens
from talaria.testing.wait import until
from talaria.web.assets import Assets

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
DESKTOP, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=390, height=844)
HEADERS = {"sec-fetch-site": "same-origin", "x-talaria": "web", "content-type": "application/json"}
CHAT_PATHS = ("/", "/c")

_TIDES = """\
from datetime import datetime, timedelta

def next_high_tide(last: datetime) -> datetime:
    return last + timedelta(hours=12)
"""
_EXPLANATION = """\
It adds half a **solar** day, but tides follow the moon: two high tides are *12 h 25 min* apart.

| Harbour | Shown | Correct |
| --- | ---: | ---: |
| Saint-Malo | 07:42 | 08:07 |
| Brest | 05:10 | 05:35 |

```python
LUNAR_DAY = timedelta(hours=24, minutes=50)

def next_high_tide(last: datetime) -> datetime:
    return last + LUNAR_DAY / 2
```

I changed `tides.py`; the error no longer grows with each tide.
"""
_EDIT = {
    "path": "tides.py",
    "old_text": "    return last + timedelta(hours=12)",
    "new_text": "    return last + LUNAR_DAY / 2",
}
QUESTION = "Why are the times in tides.py too early?"
CONVERSATIONS = (
    ("Packing list for a week on Sark", "What should I pack for a week on Sark?", "A rain jacket, and good shoes."),
    ("Train to Saint-Malo", "Which train reaches Saint-Malo before noon?", "The 07:53 from Montparnasse, at 10:37."),
    ("Bread without kneading", "How do I bake bread without kneading?", "Let it rest for 18 hours, then bake it hot."),
    ("Early tides", QUESTION, _EXPLANATION),
)
COMMANDS = (
    "/goal Keep the tide tables of the five harbours correct",
    "/cron add every day at 7:00 Post the tides of today",
    "/cron add every monday at 9:00 Plan the week",
)
_FERRY = "Book the ferry to Sark for Friday: "
_FERRY_PAGE = b"""\
<!doctype html><meta charset="utf-8"><title>Ferries to Sark</title>
<body style="font: 18px sans-serif; margin: 3rem auto; max-width: 40rem; color: #123">
<h1>Ferries to Sark</h1><p>Friday, 08:30 and 14:15, 50 minutes.</p>
<form style="display: grid; gap: 1rem; max-width: 22rem">
<label>Name <input style="font: inherit; width: 100%" value="Ada Lovelace"></label>
<label>E-mail <input style="font: inherit; width: 100%"></label>
<label>Password <input type="password" style="font: inherit; width: 100%"></label>
<button style="font: inherit; padding: .6rem">Sign in and pay</button></form>
"""


def answer(received: Received) -> Say:
    """Return the scripted model's answer to a request."""
    messages = str(received.json["messages"])
    if received.question.startswith(_FERRY) and "tool_calls" not in messages:
        return Say(calls=[Ask("browser", {"action": "open", "url": received.question.removeprefix(_FERRY)})])
    if QUESTION in messages and "LUNAR_DAY" not in messages and received.question == QUESTION:
        if "write_file" not in messages.partition(QUESTION)[2]:
            return Say(calls=[Ask("write_file", {"path": "tides.py", "content": _TIDES})])
        return Say("Let me correct it.", calls=[Ask("edit_file", _EDIT)], usage=Tokens(input=5210, output=48))
    if "wait_seconds" in messages:  # the judge of the goal
        return Say('{"verdict": "wait", "reason": "Brest publishes its table at noon.", "wait_seconds": 3600}')
    if received.question == "Publish the corrected tables.":
        return Say(
            "The server has commits that we do not have.",
            calls=[Ask("terminal", {"command": "git push --force origin main"})],
        )
    replies = {question: reply for _, question, reply in CONVERSATIONS}
    return Say(replies.get(received.question, "Done."), usage=Tokens(input=6212, output=164, cache_read=5258))


async def fill(http: httpx.AsyncClient) -> str:
    """Create sessions, a goal and jobs through the web app's routes; return the id of the last session."""
    session = ""
    for number, (title, question, _) in enumerate(CONVERSATIONS):
        body = {"text": question, "id": f"picture-{number}"}
        session = (await http.post("/web/sessions", json=body)).raise_for_status().json()["session_id"]
        await _wait_until_idle(http, session)
        await http.patch(f"/web/sessions/{session}", json={"title": title})
        if number < len(COMMANDS):
            await http.post(f"/web/sessions/{session}/commands", json={"text": COMMANDS[number]})
            await _wait_until_idle(http, session)
    return session


async def _wait_until_idle(http: httpx.AsyncClient, session: str) -> None:
    async def is_idle() -> bool:
        detail = (await http.get(f"/web/sessions/{session}")).json()
        return not detail["running"] and detail["message_count"] > 1

    await until(is_idle)


def main() -> None:
    """Take all screenshots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=PICTURES, help="folder for the files")
    folder: Path = parser.parse_args().folder
    chromium = shutil.which("chromium")
    if chromium is None:
        print("Chromium is not installed: the screenshots of the web app aren't updated.")
        return
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(_take_screenshots(folder, chromium))


async def _take_screenshots(folder: Path, chromium: str) -> None:
    async with ModelServer() as model, async_playwright() as playwright:
        model.answering(answer)
        async with _run_web(model) as link:
            browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            try:
                await _capture_pages(browser, link, folder)
            finally:
                await browser.close()


async def _capture_pages(browser: Browser, link: str, folder: Path) -> None:
    base = link.partition("/#code=")[0]
    context = await browser.new_context(viewport=DESKTOP, reduced_motion="reduce", device_scale_factor=1)
    page = await context.new_page()
    await page.goto(base)
    await page.get_by_label("Code").wait_for()
    await _save(page, folder / "web-sign-in.png")
    await page.goto(link)
    await page.get_by_role("heading", name="New conversation").wait_for()
    session = await _fill_as_browser(context, base)
    for path in Assets().page_paths:
        if path not in CHAT_PATHS:
            await _open(page, base, {"/settings": "/settings/approval", "/trace": f"/trace/{session}"}.get(path, path))
            await _save(page, folder / f"web-{path.strip('/').replace('/', '-')}.png")
    await _capture_chat(page, base, session, folder)
    with _serve_ferry_page() as site:
        await page.set_viewport_size(DESKTOP)
        await page.emulate_media(color_scheme="light")
        await page.goto(base)
        await page.get_by_label("Message", exact=True).fill(_FERRY + site)
        await page.get_by_role("button", name="Send").click()
        await page.get_by_text("Done.", exact=True).wait_for()
        await _open(page, base, "/browser")
        await page.locator("main .cards a").click()
        await page.get_by_role("button", name="Take over").click()
        await page.get_by_role("button", name="Hand back").wait_for()
        await _save(page, folder / "web-browser.png")


async def _fill_as_browser(context: BrowserContext, base: str) -> str:
    cookies = "; ".join(f"{one['name']}={one['value']}" for one in await context.cookies())
    async with httpx.AsyncClient(
        base_url=base, headers={**HEADERS, "cookie": cookies}, trust_env=False, timeout=60
    ) as http:
        return await fill(http)


class _FerryHandler(BaseHTTPRequestHandler):
    """Serves the same page at every address."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(_FERRY_PAGE)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name in the library)
        """Log nothing."""


@contextmanager
def _serve_ferry_page() -> Iterator[str]:
    """Serve the page that the agent opens, and yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _FerryHandler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}/sark"
        server.shutdown()


async def _capture_chat(page: Page, base: str, session: str, folder: Path) -> None:
    await _open(page, base, f"/c/{session}")
    await page.locator(".hl-kwd").first.wait_for()
    await page.locator("details.tool", has_text="edit_file").locator("summary").click()
    await page.locator(".diff").wait_for()
    await _save(page, folder / "web-chat.png")
    await page.keyboard.press("Control+k")
    await page.get_by_role("dialog").get_by_role("option").first.wait_for()
    await _save(page, folder / "web-palette.png")
    await page.keyboard.press("Escape")
    await page.set_viewport_size(PHONE)
    await page.emulate_media(color_scheme="dark")
    await page.get_by_label("Message", exact=True).fill("Publish the corrected tables.")
    await page.get_by_role("button", name="Send").click()
    await page.get_by_role("button", name="Allow once").and_(page.locator(":enabled")).wait_for()
    await _save(page, folder / "web-phone.png")


async def _open(page: Page, base: str, path: str) -> None:
    """Open a page and wait until it has finished loading."""
    await page.goto(base + path)
    await page.get_by_role("heading", level=1).wait_for()
    await page.get_by_text("Running all checks…").wait_for(state="hidden", timeout=60_000)
    await settle(page)


async def settle(page: Page) -> None:
    """Wait until a page has made no request and changed no elements for 300 ms."""
    await page.evaluate(
        """async () => {
            const count = () => performance.getEntriesByType("resource").length + document.querySelectorAll("*").length;
            for (let before = -1, quiet = 0; quiet < 5; ) {
                await new Promise(resolve => setTimeout(resolve, 60));
                quiet = before === count() ? quiet + 1 : 0;
                before = count();
            }
        }"""
    )


async def _save(page: Page, file: Path) -> None:
    await settle(page)
    await page.mouse.move(0, 0)
    await page.screenshot(path=file)


@asynccontextmanager
async def _run_web(model: ModelServer) -> AsyncIterator[str]:
    """Run `talaria web`, and yield its sign-in link."""
    with TemporaryDirectory() as temporary:
        home = Path(temporary)
        profile, work = home / ".talaria" / "profiles" / "default", home / "tides"
        profile.mkdir(parents=True, mode=0o700)
        work.mkdir()
        (profile / "config.toml").touch(0o600)
        (profile / "config.toml").write_text(
            f'[model]\nprovider = "local"\nname = "gpt-oss-120b"\n[providers.local]\nbase_url = "{model.url}/v1"\n'
            '[api]\nport = 0\n[people.alice]\nids = ["telegram:7"]\n'
            '[browser]\nallowed_hosts = ["localhost"]\n[surfaces.web]\ntoolsets = ["files", "terminal", "browser"]\n'
        )
        environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "TALARIA_HOME": str(home / ".talaria"),
            "LANG": "C.UTF-8",
        }
        process = await asyncio.create_subprocess_exec(
            "talaria", "web", "--no-open", env=environment, cwd=work, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            yield (await process.stdout.readline()).decode().strip()
        finally:
            process.terminate()
            await process.wait()


if __name__ == "__main__":
    main()
