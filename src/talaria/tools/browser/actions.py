"""Actions on pages, as the browser tools offer them: each returns what the model should see afterwards."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Locator, Page
from playwright.async_api import TimeoutError as PlaywrightTimeout

from talaria.contracts.tool import Call, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.ids import new_id
from talaria.core.messages import Image
from talaria.tools.browser.arguments import BrowserActArguments
from talaria.tools.browser.connection import SETTLE_SECONDS, BrowserConnection, convert_errors, describe_error
from talaria.tools.browser.session_browser import SessionBrowser
from talaria.tools.browser.snapshot import PageSnapshot

_DOWNLOADS = "downloads"
_LOADING_SECONDS = 8.0
_LONGEST_RESULT = 8_000
_MOST_CONSOLE = 40
_DONE, _CANNOT = "Done", "I can't"
_DOWNLOAD_STARTS = "Download is starting"
# Labels of buttons outside of forms that send, buy or delete something.
_CONSEQUENCES = re.compile(
    r"\b(buy|purchase|pay|order|check ?out|subscribe|donate|bid|book|reserve|send|submit|post|publish|delete|remove|"
    r"confirm|transfer|kaufen|bestellen|bezahlen|zahlungspflichtig|absenden|löschen|acheter|payer|commander|envoyer|"
    r"supprimer|comprar|pagar|enviar|eliminar|acquista|paga|invia)\b",
    re.IGNORECASE,
)
_PROBE = """(element, entering) => {
  const control = element.closest('button, input, [role=button], a[href], [role=link]') ?? element;
  const form = control.form ?? control.closest('form');
  const isLink = control.matches('a[href]:not([href^="javascript:"], [href="#"])');
  const isButton = control.matches('button, [role=button], input[type=button], input[type=submit], input[type=image]');
  const submits = form && (entering
    ? control.matches('input, select, [contenteditable]') && !control.matches('textarea')
    : control.matches('button:not([type=button], [type=reset]), input[type=submit], input[type=image]'));
  const search = form && form.method === 'get' && !form.querySelector('input[type=password], input[type=file]')
    && (form.matches('[role=search]') || form.closest('search, [role=search]') || form.hasAttribute('action')
        || form.querySelector('input[type=search], input[name=q], input[name=query], input[name=search]'));
  const label = [control.innerText, control.value, control.getAttribute('aria-label'), control.title]
    .find(text => text?.trim()) ?? '';
  return {submits: Boolean(submits && !search), isLink, isButton, label: label.trim().slice(0, 80),
    isFile: control.matches('input[type=file]'), opensTab: control.matches('a[target=_blank]')};
}"""


class _Probe(Struct, frozen=True):
    """The behaviour of an element: ``submits`` sends a form that is not a search."""

    submits: bool
    is_link: bool
    is_button: bool
    is_file: bool
    opens_tab: bool
    label: str

    @property
    def has_consequences(self) -> bool:
        """Return whether using it sends, buys or deletes something, as far as one can see."""
        return self.submits or (self.is_button and not self.is_link and bool(_CONSEQUENCES.search(self.label)))


class PageActions:
    """Actions of one call in a session's browser.

    ``pictures`` is the folder of screenshots; ``link`` is where the person can take over.
    """

    def __init__(self, browser: SessionBrowser, call: Call, pictures: Path, link: str) -> None:
        self._browser = browser
        self._call = call
        self._pictures = pictures
        self._link = link

    async def open_page(self, url: str) -> ToolOutput:
        """Open an address; a page that is still loading is shown as far as it is there."""
        url = url.strip()
        if not url:
            raise ToolFailed("Give the `url`.")
        if not re.match(r"[a-z][a-z0-9+.-]*:(?!\d)", url, re.IGNORECASE):
            url = f"https://{url}"
        connection = await self._connect()
        await connection.check_address(url)
        page = await connection.ensure_page()
        async with connection.acting():
            try:
                await page.goto(url, wait_until="commit")
            except PlaywrightTimeout as error:
                raise ToolFailed(f"{url} didn't answer within {connection.timeout:g} s.") from error
            except PlaywrightError as error:
                if _DOWNLOAD_STARTS not in error.message:
                    raise ToolFailed(self._explain_failure(connection, url, error)) from error
                await connection.wait_until(lambda: connection.has_downloads, connection.timeout)
        self._browser.forget_page()
        return await self._report(connection, await self._wait_for_content(connection))

    def _take_blocked(self, connection: BrowserConnection) -> tuple[str, ...]:
        blocked = (*self._browser.folder.take_blocked(), *connection.blocked)
        connection.blocked.clear()
        return blocked

    def _explain_failure(self, connection: BrowserConnection, url: str, error: PlaywrightError) -> str:
        if blocked := self._take_blocked(connection):
            return f"{url} leads to {', '.join(blocked)}, which is not a public address; it is blocked."
        return f"{url} can't be opened: {describe_error(error).partition(' at ')[0]}."

    async def _wait_for_content(self, connection: BrowserConnection) -> str:
        try:
            await connection.page.wait_for_load_state("domcontentloaded", timeout=_LOADING_SECONDS * 1000)
        except PlaywrightTimeout:
            return "The page is still loading; this is what is there so far."
        except PlaywrightError as error:
            raise ToolFailed(describe_error(error)) from error
        return ""

    async def show(self, *, part: int, text: str) -> ToolOutput:
        """Return a part of the page, or the lines that contain a text."""
        connection = await self._connect()
        last = self._browser.last
        if part == 1 or last is None or last.url != connection.page.url:
            last = await self._browser.take_snapshot()
        saved = await self._save_downloads(connection)
        return self._make_output(connection, last, last.find(text) if text else last.read_part(part), *saved)

    async def take_screenshot(self, reference: str, *, send: bool) -> ToolOutput:
        """Return an image of the visible part of the page, or of an element."""
        connection = await self._connect()
        page = connection.page
        await asyncio.to_thread(self._pictures.mkdir, 0o700, parents=True, exist_ok=True)
        path = self._pictures / f"{new_id()}.jpg"
        options: dict[str, Any] = {"type": "jpeg", "quality": 75, "scale": "css", "path": path}
        if reference:
            await convert_errors(lambda: self._find(page, reference).screenshot(**options))
        else:
            await convert_errors(lambda: page.screenshot(**options))
        sent = await self._send(path) if send else ""
        return ToolOutput(f"Screenshot of {page.url}: {path}{sent}", (Image(str(path), "image/jpeg"),), source=page.url)

    async def _send(self, path: Path) -> str:
        import msgspec  # noqa: PLC0415 (for one call)

        arguments = msgspec.json.encode({"path": str(path)}).decode()
        try:
            return f"\n{(await self._call.call_tool('send_file', arguments)).text}"
        except ToolFailed as error:  # for example in the terminal, where nothing can be sent
            return f"\nIt wasn't sent. {error} Tell the person where the file is."

    async def scroll(self, reference: str, screens: int) -> ToolOutput:
        """Scroll to an element, or by some screens."""
        connection = await self._connect()
        page = connection.page
        async with connection.acting():
            if reference:
                await convert_errors(lambda: self._find(page, reference).scroll_into_view_if_needed())
            else:
                code = "n => scrollBy({top: n * innerHeight * 0.9, behavior: 'instant'})"
                await convert_errors(lambda: page.evaluate(code, screens))
        return await self._report(connection)

    async def go_back(self) -> ToolOutput:
        """Go back to the previous page."""
        connection = await self._connect()
        async with connection.acting():
            before, reply = (
                connection.page.url,
                await convert_errors(lambda: connection.page.go_back(wait_until="commit")),
            )
            if reply is None and connection.page.url == before:
                raise ToolFailed("There is no previous page.")
        self._browser.forget_page()
        return await self._report(connection, await self._wait_for_content(connection))

    async def use_tabs(self, action: str, number: int) -> ToolOutput:
        """List, switch or close tabs."""
        connection = await self._connect()
        if action == "switch_tab":
            await convert_errors(lambda: connection.switch(number))
            self._browser.forget_page()
            return await self._report(connection)
        if action == "close_tab":
            await convert_errors(lambda: connection.close_tab(number or connection.tabs.index(connection.page) + 1))
        lines = [
            f"{'*' if page is connection.page else ' '} {index} {await page.title()} {page.url}"
            for index, page in enumerate(connection.tabs, 1)
        ]
        return ToolOutput("\n".join(lines) or "No tabs.", source="the browser")

    async def read_console(self) -> ToolOutput:
        """Return the last messages of the console."""
        connection = await self._connect()
        lines = list(connection.console)[-_MOST_CONSOLE:]
        return ToolOutput("\n".join(lines) or "The console is empty.", source=connection.page.url)

    async def wait(self, text: str, *, gone: bool) -> ToolOutput:
        """Wait until a text appears or disappears; without a text, until the page has loaded."""
        connection = await self._connect()
        page = connection.page
        try:
            if text:
                found = page.get_by_text(text).first
                await found.wait_for(state="hidden" if gone else "visible")
            else:
                await page.wait_for_load_state("load")
        except PlaywrightTimeout as error:
            state = "still there" if gone else "not there"
            raise ToolFailed(f'"{text or "The end of loading"}" is {state} after {connection.timeout:g} s.') from error
        except PlaywrightError as error:
            raise ToolFailed(describe_error(error)) from error
        return await self._report(connection)

    async def ask_person(self, reason: str) -> ToolOutput:
        """Hand the browser to the person, and return the page when they hand it back."""
        connection = await self._connect()
        folder = self._browser.folder
        folder.handover.give_to_person()
        connection.dialogs.set_with_person(is_there=True)
        where = "in the browser window, or " if self._has_window else ""
        question = (
            f"{reason.strip() or 'Please take over the browser.'}\nTake over {where}at {self._link} and answer here "
            "when you are done."
        )
        try:
            answer = await self._wait_for_person(question)
        finally:
            folder.handover.give_to_agent()
            connection.dialogs.set_with_person(is_there=False)
        self._browser.forget_page()
        note = {None: "Nobody answered in time; you have the browser again.", "": "The person has handed it back."}
        return await self._report(connection, note.get(answer) or f"The person answered: {answer}")

    @property
    def _has_window(self) -> bool:
        state = self._browser.folder.read_state()
        return bool(self._browser.options.attach) or (state is not None and state.visible)

    async def _wait_for_person(self, question: str) -> str | None:
        """Return the answer; empty if the browser was handed back in the web app instead."""
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(self._call.person.ask(question, (_DONE, _CANNOT)))
            handed = group.create_task(self._browser.wait_for_hand_back())
            await asyncio.wait([asked, handed], return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            handed.cancel()
        return asked.result() if not asked.cancelled() else ""

    async def act(self, arguments: BrowserActArguments) -> ToolOutput:
        """Carry out an action on the page, and return what has changed."""
        connection = await self._connect()
        page = connection.page
        if arguments.action == "script":
            return await self._run_script(connection, arguments.text)
        before, tabs = self._browser.last, len(connection.tabs)
        opens_tab = (
            arguments.action == "click"
            and (await self._probe(self._find(page, arguments.ref), entering=False)).opens_tab
        )
        action = await self._prepare(page, arguments)
        text = arguments.text if arguments.action == "click" else ""
        async with connection.acting(accept=arguments.accept, text=text):
            await convert_errors(action)
            if opens_tab:
                await connection.wait_until(lambda: len(connection.tabs) > tabs, SETTLE_SECONDS)
        return await self._report(connection, before=before)

    async def _prepare(self, page: Page, arguments: BrowserActArguments) -> Callable[[], Awaitable[object]]:
        """Return the action to run, or raise `ToolFailed` if it would do more than was declared."""
        if arguments.action == "press":
            return await self._prepare_key(page, arguments)
        if not arguments.ref:
            raise ToolFailed("Give the `ref` of an element in the snapshot.")
        element = self._find(page, arguments.ref)
        entering = arguments.action == "type" and arguments.enter
        if arguments.action == "click" or entering:
            await self._require_declaration(element, arguments, entering=entering)
        match arguments.action:
            case "click":
                return element.click
            case "type":
                return lambda: _type(element, arguments.text, enter=arguments.enter)
            case "select":
                return lambda: _select(element, arguments.text.split("\n"))
            case _:
                path = self._call.workspace.resolve(arguments.text)
                if not await asyncio.to_thread(path.is_file):
                    raise ToolFailed(f"{path} is not a file.")
                probe = await self._probe(element, entering=False)
                return lambda: _upload(page, element, path, is_input=probe.is_file)

    async def _prepare_key(self, page: Page, arguments: BrowserActArguments) -> Callable[[], Awaitable[object]]:
        if not arguments.text:
            raise ToolFailed("Give the key as `text`, for example Enter, Escape or Control+a.")
        target = self._find(page, arguments.ref) if arguments.ref else page.locator(":focus").first
        if arguments.text.rpartition("+")[2] in ("Enter", "NumpadEnter", "Return", " ", "Space") and (
            arguments.ref or await target.count()
        ):
            await self._require_declaration(target, arguments, entering=True)
            await self._require_declaration(target, arguments, entering=False)
        if arguments.ref:
            return lambda: target.press(arguments.text)
        return lambda: page.keyboard.press(arguments.text)

    async def _require_declaration(self, element: Locator, arguments: BrowserActArguments, *, entering: bool) -> None:
        if arguments.submit:
            return
        probe = await self._probe(element, entering=entering)
        if probe.has_consequences:
            what = f'"{probe.label}"' if probe.label and not entering else "This"
            raise ToolFailed(
                f"{what} submits a form, or sends, buys or deletes something. Check what is filled in, then repeat it "
                "with submit=true; the person may be asked."
            )

    async def _probe(self, element: Locator, *, entering: bool) -> _Probe:
        found = await convert_errors(lambda: element.evaluate(_PROBE, entering))
        return _Probe(
            submits=found["submits"],
            is_link=found["isLink"],
            is_button=found["isButton"],
            is_file=found["isFile"],
            opens_tab=found["opensTab"],
            label=found["label"],
        )

    async def _run_script(self, connection: BrowserConnection, code: str) -> ToolOutput:
        if not code.strip():
            raise ToolFailed("Give the JavaScript as `text`.")
        import msgspec  # noqa: PLC0415 (for one call)

        async with connection.acting():
            result = await convert_errors(lambda: connection.page.evaluate(code))
        try:
            shown = msgspec.json.encode(result).decode()
        except (TypeError, ValueError):
            shown = str(result)
        return ToolOutput(f"Result: {shown[:_LONGEST_RESULT]}", source=connection.page.url)

    def _find(self, page: Page, reference: str) -> Locator:
        last = self._browser.last
        if last is None or not re.fullmatch(r"\w+", reference):
            raise ToolFailed("Refs belong to the last snapshot. Take a snapshot first.")
        if reference not in last.labels:
            raise ToolFailed(f"The last snapshot has no element {reference}. Take a snapshot, and use a ref of it.")
        return page.locator(f"aria-ref={reference}")

    async def _connect(self) -> BrowserConnection:
        await self._browser.wait_for_control(self._call.step)
        return await self._browser.connect()

    async def _report(
        self, connection: BrowserConnection, note: str = "", before: PageSnapshot | None = None
    ) -> ToolOutput:
        """Return the page after an action: what is new since ``before``, or its first part."""
        saved = await self._save_downloads(connection)
        snapshot = await self._browser.take_snapshot()
        await self._browser.save_cookies()
        return self._make_output(connection, snapshot, snapshot.describe_change(before), *saved, note)

    async def _save_downloads(self, connection: BrowserConnection) -> list[str]:
        folder = self._call.workspace.folder / _DOWNLOADS
        saved = [f"Downloaded: {path}" for path in await connection.save_downloads(folder)]
        return [*saved, "A download is still running."] if connection.has_downloads else saved

    def _make_output(self, connection: BrowserConnection, page: PageSnapshot, text: str, *notes: str) -> ToolOutput:
        blocked = self._take_blocked(connection)
        tabs = f"{len(connection.tabs)} tabs are open." if len(connection.tabs) > 1 and not connection.attached else ""
        lines = (
            *self._browser.notes, *notes, *(f"A dialog: {one}." for one in connection.dialogs.seen),
            f"Blocked, not public: {', '.join(blocked[:5])}" if blocked else "", tabs,
            f"{page.title} — {page.url}", text,
        )  # fmt: skip
        self._browser.notes.clear()
        connection.dialogs.seen.clear()
        host = urlsplit(page.url).netloc or page.url
        return ToolOutput("\n".join(filter(None, lines)), source=host)


async def _type(element: Locator, text: str, *, enter: bool) -> None:
    await element.fill(text)
    if enter:
        await element.press("Enter")


async def _select(element: Locator, choices: list[str]) -> None:
    options = await element.evaluate("list => [...list.options ?? []].map(one => [one.label.trim(), one.value])")
    by_name = {name: value for label, value in reversed(options) for name in (value, label)}
    unknown = next((one for one in choices if one.strip() not in by_name), None)
    if unknown is not None:
        raise ToolFailed(f'There is no option "{unknown}". Options: {", ".join(label for label, _ in options[:50])}')
    await element.select_option(value=[by_name[one.strip()] for one in choices])


async def _upload(page: Page, element: Locator, path: Path, *, is_input: bool) -> None:
    if is_input:
        await element.set_input_files(path)
        return
    async with page.expect_file_chooser() as chooser:
        await element.click()
    await (await chooser.value).set_files(path)
