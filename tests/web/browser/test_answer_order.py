"""Responses that arrive late or in another order while the person types or opens another page."""

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import httpx
from playwright.async_api import Browser, Page, Route, expect
from tests.api.in_process_server import Hosted
from tests.web.browser.pages import needs_chromium, signed_in

from talaria.access.browsers import create_code
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession, SessionChanges
from talaria.core.ids import SessionId
from talaria.testing.model_server import Ask, ModelServer, Received, Say
from talaria.testing.telegram_server import picture

pytestmark = needs_chromium

_SETTLED = "new Promise(resolve => requestAnimationFrame(() => setTimeout(resolve)))"

_CLOSE_AND_PRESS = """() => {
    document.querySelector("dialog").close();
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "k", ctrlKey: true, bubbles: true }));
}"""


class DelayedResponse:
    """A response that the server sends at once and that reaches the page when the test releases it."""

    def __init__(self, page: Page, path: str, *, only: Callable[[Route], bool] = lambda _: True) -> None:
        self._page = page
        self._path = path
        self._only = only
        self._released, self._arrived = asyncio.Event(), asyncio.Event()
        self.count = 0
        self.asked = asyncio.Event()

    async def start(self) -> "DelayedResponse":
        await self._page.route(self._path, self._delay)
        return self

    async def _delay(self, route: Route) -> None:
        if not self._only(route):
            await route.fallback()
            return
        self.count += 1
        answer = await route.fetch()
        self.asked.set()
        await self._released.wait()
        await route.fulfill(response=answer)
        self._arrived.set()

    async def release(self) -> None:
        """Let the response arrive, and wait until the page has drawn it."""
        self._released.set()
        await self._arrived.wait()
        await self._page.evaluate(_SETTLED)
        await self._page.evaluate(_SETTLED)


async def test_list_shows_what_changed_before_its_stream_was_open(browser: Browser, host: Hosted) -> None:
    def create(tx: Transaction) -> list[SessionId]:
        return [tx.sessions.create(NewSession(source="web", title=title)).id for title in "abc"]

    def change(tx: Transaction) -> None:
        tx.sessions.update(first, SessionChanges(title="d", updated_at=datetime.now(UTC) + timedelta(minutes=1)))
        tx.sessions.delete(third)

    first, _, third = await host.application.store.write(create)
    async with signed_in(browser, host) as watched:
        page, opening = watched.page, asyncio.Event()

        async def hold(route: Route) -> None:
            await opening.wait()
            await route.continue_()

        await page.route("**/web/stream?*", hold)
        await page.reload()
        await expect(page.locator(".row-link")).to_have_text(["c", "b", "a"])
        await host.application.store.write(change)
        opening.set()
        await expect(page.locator(".row-link")).to_have_text(["d", "b"])
        watched.assert_clean()


async def test_first_message_is_shown_at_once_and_the_next_can_be_typed(
    browser: Browser, host: Hosted, model: ModelServer
) -> None:
    model.answering(lambda _: Say("Hello."))
    async with signed_in(browser, host) as watched:
        page = watched.page
        held = await DelayedResponse(page, "**/web/sessions").start()
        box = page.get_by_label("Message", exact=True)
        await box.fill("Hi")
        await box.press("Enter")
        await expect(page.locator(".bubble")).to_have_text(["Hi"])
        await held.asked.wait()
        await box.fill("And then")
        await held.release()
        await expect(page.locator(".reply")).to_have_text(["Hello."])
        await expect(page.locator(".bubble")).to_have_text(["Hi"])
        await expect(box).to_have_value("And then")
        await expect(box).to_be_focused()
        await page.reload()
        await expect(box).to_have_value("And then")
        await page.get_by_role("link", name="New", exact=True).click()
        await expect(page.get_by_role("heading", name="New conversation")).to_be_visible()
        await expect(box).to_have_value("")
        watched.assert_clean()


async def test_page_stays_open_when_a_session_left_before_is_created(
    browser: Browser, host: Hosted, model: ModelServer
) -> None:
    model.answering(lambda _: Say("Hello."))
    async with signed_in(browser, host) as watched:
        page = watched.page
        held = await DelayedResponse(page, "**/web/sessions").start()
        await watched.say("Hi")
        await held.asked.wait()
        await watched.visit("/usage")
        await expect(page.get_by_role("heading", name="Usage")).to_be_visible()
        await held.release()
        await expect(page).to_have_url(f"{host.url}/usage")
        await page.get_by_role("link", name="Chats").click()
        await expect(page.locator(".row-link")).to_have_count(1)
        watched.assert_clean()


async def test_refused_message_is_put_back_before_the_draft(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.answering(lambda _: Say("Hello."))
    async with signed_in(browser, host) as watched:
        page, refused = watched.page, asyncio.Event()
        box = page.get_by_label("Message", exact=True)

        async def refuse(route: Route) -> None:
            await refused.wait()
            await route.fulfill(status=503, json={"error": {"message": "Not now."}})

        await watched.say("Hi")
        await expect(page.locator(".reply")).to_have_text(["Hello."])
        await page.route("**/messages", refuse)
        await watched.say("one")
        await box.fill("two")
        refused.set()
        await expect(page.locator(".toast")).to_contain_text("Not now.")
        await expect(box).to_have_value("one\ntwo")


async def test_a_file_sent_before_the_stream_is_connected_is_shown_while_the_turn_runs(
    browser: Browser, host: Hosted, model: ModelServer, tmp_path: Path
) -> None:
    shot, was_sent, may_continue = tmp_path / "shot.png", asyncio.Event(), asyncio.Event()
    shot.write_bytes(picture())

    async def answer(received: Received) -> Say:
        if "send_file" not in str(received.json["messages"]) and not received.is_title_request:
            return Say(calls=[Ask("send_file", {"path": str(shot)})])
        if not received.is_title_request:
            was_sent.set()
        await may_continue.wait()
        return Say("There it is.")

    model.answering(answer)
    async with signed_in(browser, host) as watched:
        page = watched.page
        connects = asyncio.Event()

        async def hold(route: Route) -> None:
            await connects.wait()
            await route.continue_()

        await page.route("**/web/stream?*", hold)
        await page.reload()
        await watched.say("Hi")
        await was_sent.wait()
        connects.set()
        await expect(page.locator(".files img")).to_be_visible()
        may_continue.set()
        await expect(page.get_by_text("There it is.")).to_be_visible()
        await expect(page.locator(".files img")).to_have_count(1)
        watched.assert_clean()


async def test_title_being_typed_survives_changes_of_the_list(
    browser: Browser, host: Hosted, owner: httpx.AsyncClient, model: ModelServer
) -> None:
    model.answering(lambda received: Say("Plants" if received.is_title_request else "Hello."))
    async with signed_in(browser, host) as watched:
        page = watched.page
        await watched.say("Hi")
        await expect(page.get_by_role("heading", name="Plants", level=1)).to_be_visible()
        session = page.url.rpartition("/")[2]
        await page.get_by_role("button", name="Actions for Plants").click()
        await page.get_by_role("button", name="Rename").click()
        await page.keyboard.type("My own")  # at once, over the selected title
        await owner.patch(f"/web/sessions/{session}", json={"title": "Trees"})
        await expect(page.get_by_role("heading", name="Trees", level=1)).to_be_visible()
        await expect(page.get_by_label("Title", exact=True)).to_have_value("My own")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="My own", level=1)).to_be_visible()
        watched.assert_clean()


async def test_late_responses_to_older_requests_are_not_shown(
    browser: Browser, host: Hosted, model: ModelServer
) -> None:
    model.answering(lambda received: Say("Plants" if received.is_title_request else "Hello."))
    async with signed_in(browser, host) as watched:
        page = watched.page
        await watched.say("Hi")
        await expect(page.locator(".row-link")).to_have_text(["Plants"])

        archived = await DelayedResponse(page, "**/web/sessions?archived=true").start()
        for _ in range(2):
            await page.get_by_role("button", name="Archive", exact=True).click()
        await archived.asked.wait()
        await archived.release()
        await expect(page.locator(".row-link")).to_have_text(["Plants"])

        search = await DelayedResponse(
            page, "**/web/search?q=hel*", only=lambda route: route.request.url.endswith("=hello")
        ).start()
        field = page.get_by_label("Search conversations")
        await field.fill("hello")
        await search.asked.wait()
        await field.fill("helium")
        await expect(page.get_by_text("Nothing found.")).to_be_visible()
        await search.release()
        await expect(page.locator(".hit")).to_have_count(0)

        usage = await DelayedResponse(page, "**/web/usage?days=90*").start()
        await watched.visit("/usage")
        await page.get_by_role("button", name="90 days").click()
        await usage.asked.wait()
        await page.get_by_role("button", name="7 days", exact=True).click()
        await expect(page.locator(".chart .column")).to_have_count(7)
        await usage.release()
        await expect(page.locator(".chart .column")).to_have_count(7)
        watched.assert_clean()


async def test_late_state_of_an_ended_turn_is_ignored(browser: Browser, host: Hosted, model: ModelServer) -> None:
    may_continue = asyncio.Event()

    async def answer(_: object) -> Say:
        await may_continue.wait()
        return Say("Hello.")

    model.answering(answer)
    async with signed_in(browser, host) as watched:
        page = watched.page
        detail = await DelayedResponse(page, "**/web/sessions/*", only=lambda route: not may_continue.is_set()).start()
        await watched.say("Hi")
        await detail.asked.wait()
        may_continue.set()
        await expect(page.locator(".reply")).to_have_text(["Hello."])
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        await expect(page.get_by_role("button", name="Retry")).to_be_visible()  # the transcript has replaced the turn
        await detail.release()
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        watched.assert_clean()


async def test_open_conversation_is_followed_when_requests_are_reordered(
    browser: Browser, host: Hosted, model: ModelServer
) -> None:
    may_continue = asyncio.Event()
    model.answering(lambda received: Say(received.question))
    model.answer_when(
        lambda received: received.question == "Go on", Say("Some words and more.", hold=(2, may_continue))
    )
    async with signed_in(browser, host) as watched:
        page, shown = watched.page, asyncio.Event()
        for text in ("First", "Second"):
            await page.get_by_role("link", name="New", exact=True).click()
            await watched.say(text)
            await expect(page.locator(".reply")).to_have_text([text])
            await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        second = page.url
        await page.get_by_role("link", name="New", exact=True).click()
        await expect(page.get_by_role("heading", name="New conversation")).to_be_visible()
        delayed: list[str] = []

        async def delay(route: Route) -> None:
            """Delay the first request until later ones have reached the server."""
            delayed.append(route.request.url)
            if len(delayed) == 1:
                await shown.wait()
            await route.continue_()

        await page.route("**/web/stream/*", delay)
        await page.locator(".row-link").last.click()
        await expect(page.locator(".reply")).to_have_text(["First"])
        await page.locator(".row-link").first.click()
        await expect(page).to_have_url(second)
        await expect(page.locator(".reply")).to_have_text(["Second"])
        shown.set()
        await page.evaluate(_SETTLED)
        await watched.say("Go on")
        await expect(page.locator(".reply").last).to_have_text("Some words")
        may_continue.set()
        await expect(page.locator(".reply").last).to_have_text("Some words and more.")
        watched.assert_clean()


async def test_forms_are_sent_once_and_text_typed_meanwhile_remains(
    browser: Browser, host: Hosted, model: ModelServer
) -> None:
    async with signed_in(browser, host) as watched:
        page = watched.page
        await watched.visit("/people")
        creation = await DelayedResponse(page, "**/web/api-keys").start()
        name = page.get_by_label("Name of a new key")
        await name.fill("script")
        for _ in range(2):
            await name.press("Enter")
        await creation.asked.wait()
        await creation.release()
        await expect(page.get_by_text("The key script is shown only now.")).to_be_visible()
        assert creation.count == 1

        await watched.visit("/settings/file")
        text = page.get_by_label("Settings as TOML")
        await expect(text).to_have_value(re.compile("people"))
        written = await text.input_value()
        await text.fill(f"{written}# one\n")
        await page.get_by_role("button", name="Check and compare").click()
        saving = await DelayedResponse(
            page, "**/web/settings/file", only=lambda route: route.request.method == "PUT"
        ).start()
        await page.get_by_role("button", name="Save").click()
        await saving.asked.wait()
        await text.fill(f"{written}# one\n# two\n")
        await saving.release()
        await expect(page.locator(".toast")).to_contain_text("Saved.")
        await expect(text).to_have_value(f"{written}# one\n# two\n")
        watched.assert_clean()


async def test_drafts_of_one_person_are_not_shown_to_the_next(
    browser: Browser, host: Hosted, model: ModelServer
) -> None:
    async with signed_in(browser, host) as watched:
        page = watched.page
        box = page.get_by_label("Message", exact=True)
        await box.fill("A secret")
        for person, draft in (("", "A secret"), ("alice", ""), ("", "")):
            await watched.visit("/browsers")
            async with page.expect_response("**/web/logout"):
                await page.locator(".card", has_text="This one").get_by_role("button", name="Sign out").click()
            await expect(page.get_by_label("Code", exact=True)).to_be_visible()
            code = await host.application.store.write(partial(create_code, person=person))
            await page.get_by_label("Code", exact=True).fill(code)
            await page.get_by_role("button", name="Sign in").click()
            await watched.visit("/")
            await expect(box).to_have_value(draft)


async def test_palette_opens_right_after_another_dialog_is_closed(browser: Browser, host: Hosted) -> None:
    async with signed_in(browser, host) as watched:
        page = watched.page
        link = page.get_by_role("link", name="New", exact=True)
        await link.focus()
        await page.keyboard.press("?")
        await page.get_by_role("dialog", name="Keys").get_by_role("button", name="Close").click()
        await expect(link).to_be_focused()
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        await page.evaluate(_CLOSE_AND_PRESS)  # the dialog reports its end after the key
        await page.get_by_role("combobox", name="Pages").fill("usage")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Usage")).to_be_visible()
        watched.assert_clean()
