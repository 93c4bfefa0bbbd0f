"""Files, the installed app and notifications in a real browser."""

import asyncio
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, expect
from tests.api.in_process_server import Hosted, hosted
from tests.web.browser.pages import DESKTOP, PHONE, needs_chromium, signed_in

from talaria.testing.model_server import Ask, ModelServer, Received, Say
from talaria.testing.telegram_server import picture
from talaria.testing.wait import until

pytestmark = needs_chromium

_RECORD_STREAM = """() => {
    const devices = navigator.mediaDevices, open = devices.getUserMedia.bind(devices);
    devices.getUserMedia = async options => (window.heard = await open(options));
}"""


async def test_files_are_attached_shown_and_saved(
    browser: Browser, host: Hosted, model: ModelServer, tmp_path: Path
) -> None:
    report = tmp_path / "report.pdf"
    report.write_bytes(b"%PDF-1.7 text")
    shot = tmp_path / "shot.png"
    shot.write_bytes(picture())
    goes_on = asyncio.Event()

    async def answer(received: Received) -> Say:
        if "send_file" not in str(received.json["messages"]) and not received.is_title_request:
            return Say(calls=[Ask("send_file", {"path": str(shot)})])
        await goes_on.wait()
        return Say("There is the picture.")

    model.answering(answer)
    async with signed_in(browser, host, viewport=PHONE, dark=True, installs=True) as watched:
        page = watched.page
        async with page.expect_file_chooser() as chosen:
            await page.get_by_role("button", name="Attach files").click()
        await (await chosen.value).set_files([shot, report])
        await expect(page.locator(".attached-file:not(.loading)")).to_have_count(2)
        async with page.expect_file_chooser() as camera:
            await page.get_by_role("button", name="Take a photo").click()
        assert await (await camera.value).element.get_attribute("capture") == "environment"
        await page.reload()
        await expect(page.locator(".attached-file")).to_have_count(2)
        await watched.assert_accessible()
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator(".entry:not(.user) > .files img")).to_be_visible()  # while the turn is running
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        goes_on.set()
        await expect(page.get_by_text("There is the picture.")).to_be_visible()
        await expect(page.locator(".user .files img")).to_be_visible()
        await expect(page.locator(".entry:not(.user) > .files img")).to_be_visible()
        assert await page.locator(".user .files img").evaluate("image => image.complete && image.naturalWidth > 0")
        await watched.assert_accessible()
        async with page.expect_download() as saved:
            await page.get_by_role("link", name="report.pdf").click()
        await (await saved.value).save_as(tmp_path / "saved.pdf")
        assert (tmp_path / "saved.pdf").read_bytes() == report.read_bytes()
        await watched.assert_fits(PHONE, DESKTOP)
        watched.assert_clean()


async def test_pasted_and_dropped_files_are_attached(browser: Browser, host: Hosted) -> None:
    async with signed_in(browser, host) as watched:
        page = watched.page
        await page.get_by_label("Message", exact=True).evaluate(
            """(box, bytes) => {
              const data = new DataTransfer();
              data.items.add(new File([new Uint8Array(bytes)], "pasted.png", { type: "image/png" }));
              box.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
            }""",
            list(picture()),
        )
        await expect(page.get_by_role("button", name="Remove pasted.png")).to_be_visible()
        await expect(page.locator(".attached-file:not(.loading)")).to_have_count(1)
        await page.get_by_role("button", name="Remove pasted.png").click()
        await expect(page.locator(".attached-file")).to_have_count(0)
        await page.locator("form.composer").evaluate(
            """form => {
              const data = new DataTransfer();
              data.items.add(new File(["text"], "dropped.txt", { type: "text/plain" }));
              form.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
            }"""
        )
        await expect(page.get_by_role("button", name="Remove dropped.txt")).to_be_visible()
        await expect(page.locator(".attached-file:not(.loading)")).to_have_count(1)
        watched.assert_clean()


async def test_a_recording_becomes_text_in_the_composer(browser: Browser, tmp_path: Path, model: ModelServer) -> None:
    """The transcription program returns the first bytes of its input: a recording in the browser's format."""
    script = tmp_path / "transcribe.sh"
    script.write_text('#!/bin/sh\nhead -c 4 "$1" | od -An -tx1 | tr -d " \\n"\n')
    script.chmod(0o755)
    settings = f'[voice]\ntranscribe = "command"\ncommand = "{script} {{file}}"\n'
    async with hosted(tmp_path, model, settings) as host, signed_in(browser, host) as watched:
        page = watched.page
        await page.get_by_label("Message", exact=True).fill("It said:")
        await page.get_by_role("button", name="Speak").click()
        stop = page.get_by_role("button", name="Stop recording")
        await expect(stop).to_be_enabled()
        await watched.assert_accessible()
        await stop.click()
        await expect(page.get_by_label("Message", exact=True)).to_have_value("It said: 1a45dfa3")  # WebM
        await page.evaluate(_RECORD_STREAM)
        await page.get_by_role("button", name="Speak").click()
        await expect(stop).to_be_enabled()
        await page.get_by_role("link", name="Manage").click()  # the microphone is off without the composer
        await expect(stop).to_have_count(0)
        assert await page.evaluate("heard.getTracks().map(one => one.readyState)") == ["ended"]
        watched.assert_clean()


async def test_offline_app_opens_and_sends_messages_later(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.otherwise(Say("Here I am."))
    async with signed_in(browser, host, installs=True) as watched:
        page, context = watched.page, watched.context
        assert await page.evaluate("navigator.serviceWorker.ready.then(one => new URL(one.scope).pathname)") == "/"
        await watched.say("Hello")
        await expect(page.locator(".reply")).to_have_text(["Here I am."])
        await watched.turn_stored()  # an offline page wouldn't be notified
        await context.set_offline(True)
        await watched.say("Are you there?")
        await expect(page.locator(".toast")).to_contain_text("You're offline")
        await page.reload()
        await expect(page.locator(".boot")).to_contain_text("can't be reached")
        await context.set_offline(False)
        await page.reload()
        await expect(page.locator(".reply")).to_have_text(["Here I am."] * 2)
        stored = await page.evaluate(
            f"fetch('/web/sessions/{page.url.rpartition('/')[2]}/messages').then(r => r.json())"
        )
        sent = [one["parts"][0]["text"] for one in stored["messages"] if one["role"] == "user"]
        assert sent == ["Hello", "Are you there?"]


async def test_a_push_message_becomes_a_notification(notifying_browser: Browser, host: Hosted) -> None:
    async with signed_in(notifying_browser, host, installs=True) as watched:
        page, context = watched.page, watched.context
        await context.grant_permissions(["notifications"], origin=host.url)
        await page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        session = await context.new_cdp_session(page)
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def note(event: dict[str, Any]) -> None:
            for one in event["registrations"]:
                if one["scopeURL"].startswith(host.url) and not found.done():
                    found.set_result(one["registrationId"])

        session.on("ServiceWorker.workerRegistrationUpdated", note)
        await session.send("ServiceWorker.enable")
        message = '{"title": "New answer", "body": "", "path": "/c/x", "tag": "/c/x"}'
        pushed = {"origin": host.url, "registrationId": await found, "data": message}

        async def push_and_find_title() -> Any:
            """Push, also again: a busy browser drops a message if its worker doesn't start in time."""
            await session.send("ServiceWorker.deliverPushMessage", pushed)
            return await page.evaluate(
                "navigator.serviceWorker.ready.then(one => one.getNotifications())"
                ".then(all => all.map(one => [one.title, one.data.path])[0])"
            )

        assert await until(push_and_find_title) == ["New answer", "/c/x"]
        watched.assert_clean()


async def test_notifications_page_is_accessible(browser: Browser, host: Hosted) -> None:
    async with signed_in(browser, host, viewport=PHONE, dark=True, path="/notifications") as watched:
        await watched.context.grant_permissions(["notifications"], origin=host.url)
        await expect(watched.page.get_by_role("button", name="Turn on")).to_be_visible()
        await watched.assert_accessible()
        watched.assert_clean()
