"""Features of the chat in a real browser: edit, retry, undo, choose, mention, search, export, answer."""

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta

from playwright.async_api import Browser, expect
from tests.api.in_process_server import Hosted
from tests.web.browser.pages import WatchedPage, needs_chromium, signed_in

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession, SessionChanges
from talaria.core.ids import SessionId
from talaria.testing.model_server import Ask, ModelServer, Say

pytestmark = needs_chromium

_PRESS_TWICE = """key => {  // nothing comes between them
    for (let count = 0; count < 2; count++)
        document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    return document.activeElement.textContent;
}"""


async def _say(watched: WatchedPage, text: str, replies: int) -> None:
    await watched.say(text)
    await expect(watched.page.locator(".reply")).to_have_count(replies)
    await watched.turn_stored()


async def test_a_message_is_edited_in_a_branch(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.answering(lambda asked: Say(f"re: {asked.question}"))
    async with signed_in(browser, host) as watched:
        page, box = watched.page, watched.page.get_by_label("Message", exact=True)
        await _say(watched, "one", 1)
        await _say(watched, "two", 2)
        first = page.url
        await box.fill("a draft")
        await page.locator(".bubble").first.hover()
        await page.get_by_role("button", name="Edit in a branch").first.click()
        await expect(box).to_have_value("one")
        await watched.assert_accessible()
        await page.keyboard.press("Escape")
        await expect(box).to_have_value("a draft")
        await page.get_by_role("button", name="Edit in a branch").last.click()
        await box.fill("three")
        await page.keyboard.press("Enter")
        await expect(page.locator(".bubble")).to_have_text(["one", "three"])
        await expect(page.locator(".reply").last).to_contain_text("re: three")
        assert page.url != first
        await page.get_by_role("button", name="Conversation menu").click()
        await page.get_by_role("button", name="Branches (2)").click()
        tree = page.get_by_role("dialog", name="Branches")
        await expect(tree.get_by_role("button").filter(has_text="messages")).to_have_count(2)
        await watched.assert_accessible()
        await tree.get_by_role("button").filter(has_text="messages").first.click()
        await expect(page.locator(".bubble")).to_have_text(["one", "two"])
        await expect(box).to_have_value("a draft")
        watched.assert_clean()


async def test_the_last_exchange_is_retried_and_undone(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.answering(lambda asked: Say(f"re: {asked.question}"))
    async with signed_in(browser, host) as watched:
        page = watched.page
        await _say(watched, "one", 1)
        model.answering(lambda asked: Say(f"again: {asked.question}"))
        await page.get_by_role("button", name="Retry").click()
        await expect(page.locator(".reply")).to_contain_text("again: one")
        await expect(page.locator(".bubble")).to_have_text(["one"])
        await page.get_by_role("button", name="Undo", exact=True).click()
        await expect(page.locator(".bubble")).to_have_count(0)
        await expect(page.get_by_label("Message", exact=True)).to_have_value("one")
        watched.assert_clean()


async def test_a_queued_message_is_edited_and_withdrawn(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.answering(lambda _: Say("word " * 2000, pause=0.05))
    async with signed_in(browser, host) as watched:
        page, box = watched.page, watched.page.get_by_label("Message", exact=True)
        await watched.say("go")
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        await expect(page.locator(".row.current .row-title")).to_have_text("go")  # until there is a title
        await box.fill("later")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Edit", exact=True).click()
        await expect(page.locator(".queued")).to_have_count(0)
        await expect(box).to_have_value("later")
        await box.fill("much later")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Withdraw").click()
        await expect(page.locator(".queued")).to_have_count(0)
        model.answering(lambda _: Say("Done."))
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator(".notice")).to_contain_text("Stopped")
        await expect(page.locator(".bubble")).to_have_text(["go"])
        watched.assert_clean()


async def test_model_effort_and_personality_are_chosen(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.answering(lambda _: Say("Yes."))
    async with signed_in(browser, host) as watched:
        page = watched.page
        await page.get_by_role("button", name="scripted").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_role("option").first).to_contain_text("mine:")
        await watched.assert_accessible()
        await dialog.get_by_role("button", name="Effort").click()
        await dialog.get_by_role("option", name="high").click()
        await expect(page.get_by_role("button", name="scripted · high")).to_be_visible()
        await _say(watched, "Hi", 1)
        await expect(page.get_by_role("button", name="scripted · high")).to_be_visible()
        await page.get_by_role("button", name="scripted · high").click()
        await dialog.get_by_role("button", name="Effort").click()
        await expect(dialog.get_by_role("combobox")).to_be_focused()
        await page.keyboard.type("lo")
        await expect(dialog.get_by_role("option")).to_have_text(re.compile("^low"))
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="scripted · low")).to_be_visible()
        await expect(page.locator(".toast")).to_contain_text("low")
        await page.get_by_role("button", name="scripted · low").click()
        await dialog.get_by_role("button", name="Personality").click()
        await dialog.get_by_role("option", name="pirate").click()
        await expect(page.locator(".toast")).to_contain_text("pirate")
        watched.assert_clean()


async def test_file_is_mentioned_in_a_message(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.script(Say(calls=[Ask("write_file", {"path": "notes of today.md", "content": "The tide is high."})]))
    model.answering(lambda _: Say("Done."))
    async with signed_in(browser, host) as watched:
        page, box = watched.page, watched.page.get_by_label("Message", exact=True)
        await _say(watched, "Write notes", 1)
        await box.press_sequentially("Look at @not")
        await expect(page.locator("#offers").get_by_role("option")).to_contain_text("notes of today.md")
        await page.keyboard.press("Tab")
        await expect(box).to_have_value('Look at @"notes of today.md" ')
        await page.keyboard.press("Enter")
        await expect(page.locator(".bubble").last).to_have_text('Look at @"notes of today.md"')
        await expect(page.locator(".reply")).to_have_count(2)
        await page.reload()
        await expect(page.locator(".bubble").last).to_have_text('Look at @"notes of today.md"')
        await expect(page.locator(".chip").last).to_have_text("notes of today.md")
        watched.assert_clean()


async def test_changes_of_a_file_are_shown_as_a_diff(browser: Browser, host: Hosted, model: ModelServer) -> None:
    edit = Ask("edit_file", {"path": "a.txt", "old_text": "old line", "new_text": "new line"})
    write, goes_on = Ask("write_file", {"path": "a.txt", "content": "old line\nkept\n"}), asyncio.Event()
    model.script(Say(calls=[write]), Say(calls=[edit]), Say("It is done.", hold=(2, goes_on)))
    model.answering(lambda _: Say("Done."))
    async with signed_in(browser, host) as watched:
        page = watched.page
        await watched.say("Change it")
        await expect(page.locator(".reply")).to_have_text("It is")
        for _ in range(2):  # live, then from the transcript
            await page.locator("details.tool", has_text="edit_file").locator("summary").click()
            await expect(page.locator(".diff-del")).to_contain_text("-old line")
            await expect(page.locator(".diff-add")).to_contain_text("+new line")
            await watched.assert_accessible()
            goes_on.set()
            await watched.turn_stored()
            await page.reload()
        await watched.say("/diff")
        await expect(page.locator(".note .diff-add")).to_have_text(["+new line\n", "+kept\n"])
        await watched.assert_accessible()
        watched.assert_clean()


async def test_full_tool_output_is_loaded_on_demand(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.script(Say(calls=[Ask("terminal", {"command": "seq 1 20000"})]), Say("Done."))
    async with signed_in(browser, host) as watched:
        page = watched.page
        await _say(watched, "Count", 1)
        await page.locator("details.tool summary").click()
        await page.get_by_role("button", name="Show the whole output").click()
        await expect(page.locator(".fold-body pre").last).to_contain_text("\n10000\n")
        watched.assert_clean()


async def test_message_found_by_search_is_shown(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.answering(lambda asked: Say("A platypus lays eggs." if asked.question == "first" else "Filler. " * 60))
    async with signed_in(browser, host) as watched:
        page = watched.page
        await _say(watched, "first", 1)
        for number in range(2, 6):
            await _say(watched, f"more {number}", number)
        await page.get_by_label("Search conversations").fill("platypus")
        results = page.get_by_role("navigation", name="Search results")
        await expect(results.locator(".match")).to_have_text("platypus")
        await results.get_by_label("Person").select_option("You")
        await watched.assert_accessible()
        await results.locator(".hit").click()
        await expect(page.locator(".found")).to_contain_text("A platypus lays eggs.")
        await expect(page.locator(".found")).to_be_in_viewport()
        await results.get_by_label("Status").select_option("Archived")
        await expect(results).to_contain_text("Nothing found.")
        watched.assert_clean()


async def test_a_conversation_is_downloaded(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.answering(lambda _: Say("Yes."))
    async with signed_in(browser, host) as watched:
        page = watched.page
        await _say(watched, "Hi", 1)
        await page.get_by_role("button", name="Conversation menu").click()
        await watched.assert_accessible()
        async with page.expect_download() as download:
            await page.get_by_role("link", name="Export as JSON").click()
        saved = json.loads((await (await download.value).path()).read_text())
        assert [one["message"]["role"] for one in saved["messages"]] == ["user", "assistant"]
        watched.assert_clean()


async def test_the_palette_finds_pages_conversations_commands_and_settings(
    browser: Browser, host: Hosted, model: ModelServer
) -> None:
    model.answering(lambda _: Say("Yes."))
    async with signed_in(browser, host) as watched:
        page = watched.page
        await _say(watched, "Hi", 1)
        await page.keyboard.press("Control+k")
        dialog = page.get_by_role("dialog", name="Command palette")
        field = dialog.get_by_role("combobox")
        await expect(field).to_be_focused()
        await expect(dialog.get_by_role("option").first).to_contain_text("New conversation")
        await watched.assert_accessible()
        await field.fill("/usage")
        await expect(dialog.get_by_role("option")).to_have_count(1)
        await page.keyboard.press("Enter")
        await expect(page.locator(".note")).to_contain_text("token")
        await page.keyboard.press("Control+k")
        await field.fill("approval")
        await dialog.get_by_role("option").filter(has_text="approval.mode").first.click()
        await page.wait_for_url("**/settings/approval")
        await page.keyboard.press("Control+k")
        await field.fill("browsers")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Signed-in browsers")
        watched.assert_clean()


async def test_shortcut_keys_work_outside_text_fields(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.answering(lambda asked: Say("A title" if asked.is_title_request else "Yes."))
    async with signed_in(browser, host) as watched:
        page, box = watched.page, watched.page.get_by_label("Message", exact=True)
        await _say(watched, "one", 1)
        await page.get_by_role("link", name="New", exact=True).click()
        await _say(watched, "two", 1)
        rows = page.locator(".row-link")
        await expect(rows.filter(has_text="A title")).to_have_count(2)  # what changes last comes first
        second = await rows.nth(1).get_attribute("href")
        await box.press_sequentially("j?/")
        await expect(box).to_have_value("j?/")
        await box.fill("")
        await box.blur()
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        await watched.assert_accessible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await page.keyboard.press("j")
        await expect(rows.first).to_be_focused()
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(f"{watched.url}{second}")
        await rows.first.focus()
        await page.keyboard.press("/")
        await expect(page.get_by_label("Search conversations")).to_be_focused()
        await expect(page.get_by_label("Search conversations")).to_have_value("")
        watched.assert_clean()


async def test_keys_act_at_once_and_their_row_survives_changes_of_the_list(browser: Browser, host: Hosted) -> None:
    store, today = host.application.store, datetime.now(UTC)

    async def change(session: SessionId, at: datetime) -> None:
        await store.write(lambda tx: tx.sessions.update(session, SessionChanges(updated_at=at)))

    def create(tx: Transaction) -> list[SessionId]:
        return [tx.sessions.create(NewSession(source="web", title=title)).id for title in "abc"]

    sessions = await store.write(create)
    for session, age in zip(sessions, (0, 40, 41), strict=True):
        await change(session, today - timedelta(days=age))
    async with signed_in(browser, host) as watched:
        page, rows = watched.page, watched.page.locator(".row-link")
        await expect(rows).to_have_text(["a", "b", "c"])
        await page.get_by_label("Message", exact=True).blur()
        assert await page.evaluate(_PRESS_TWICE, "j") == "b"
        for days, order in ((39, "acb"), (38, "abc")):  # both ways within a part of the list
            await change(sessions[2 if days == 39 else 1], today - timedelta(days=days))
            await expect(rows).to_have_text(list(order))
            await expect(rows.filter(has_text="b")).to_be_focused()
        await change(sessions[1], today + timedelta(minutes=1))  # into another part
        await expect(rows).to_have_text(["b", "a", "c"])
        await expect(rows.first).to_be_focused()
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(f"{watched.url}/c/{sessions[0]}")
        watched.assert_clean()


async def test_escape_stops_only_from_the_message_field(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.answering(lambda _: Say("word " * 2000, pause=0.05))
    async with signed_in(browser, host) as watched:
        page, box = watched.page, watched.page.get_by_label("Message", exact=True)
        await watched.say("go")
        stop = page.get_by_role("button", name="Stop")
        await expect(page.locator(".reply")).to_contain_text("word word")
        await page.keyboard.press("Control+k")
        await expect(page.get_by_role("dialog")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await page.get_by_label("Search conversations").press("Escape")
        await box.press_sequentially("/he")
        await expect(page.locator("#offers")).to_be_visible()
        await page.keyboard.press("Escape")  # closes the completions
        await expect(page.locator("#offers")).to_be_hidden()
        await expect(stop).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.locator(".notice")).to_contain_text("Stopped")
        watched.assert_clean()


async def test_enter_during_composition_belongs_to_the_input_method(
    browser: Browser, host: Hosted, model: ModelServer
) -> None:
    model.answering(lambda _: Say("Yes."))
    async with signed_in(browser, host) as watched:
        page, box = watched.page, watched.page.get_by_label("Message", exact=True)
        session = await watched.context.new_cdp_session(page)
        for count, text in enumerate(("日本語", "Größe")):
            await box.focus()
            await session.send(
                "Input.imeSetComposition", {"text": text, "selectionStart": len(text), "selectionEnd": len(text)}
            )
            await expect(box).to_have_value(text)
            enter = {"type": "rawKeyDown", "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 229}
            await session.send("Input.dispatchKeyEvent", enter)
            await session.send("Input.insertText", {"text": text})
            await expect(box).to_have_value(text)
            assert await page.locator(".bubble").count() == count, text
            await page.keyboard.press("Enter")
            await expect(page.locator(".bubble").nth(count)).to_have_text(text)
            await expect(page.locator(".reply")).to_have_count(count + 1)
            await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        watched.assert_clean()


async def test_question_is_not_answered_by_enter_in_the_message_field(
    browser: Browser, host: Hosted, model: ModelServer
) -> None:
    ask = Ask("clarify", {"question": "Which **colour**?", "choices": ["red", "blue"]})
    model.script(Say(calls=[ask]), Say("Blue it is."))
    async with signed_in(browser, host) as watched:
        page = watched.page
        await watched.say("Paint it")
        asked = page.get_by_role("region", name="Question")
        await page.keyboard.press("Enter")  # meant for the message field
        await expect(asked.get_by_role("button", name="blue")).to_be_enabled()
        await watched.assert_accessible()
        await asked.get_by_label("Your answer").fill("blue")
        await page.keyboard.press("Enter")
        await expect(page.locator(".reply").last).to_contain_text("Blue it is.")
        await expect(asked).to_have_count(0)
        watched.assert_clean()


async def test_formulas_are_drawn(browser: Browser, host: Hosted, model: ModelServer) -> None:
    sum_text = "Energy is $E = mc^2$, for $5:\n\n$$\\frac{1}{2} \\sum_{i=1}^n x_i$$"
    text = f"{sum_text}\n\nand \\(\\text{{<img src=x onerror=alert(1)>}}\\)."
    model.answering(lambda _: Say(text, chunks=30))
    async with signed_in(browser, host) as watched:
        page = watched.page
        await _say(watched, "Explain", 1)
        await expect(page.locator(".reply math")).to_have_count(3)
        assert await page.locator("math msup").first.evaluate("one => one.namespaceURI.endsWith('MathML')")
        assert await page.locator("math munderover").count() == 1
        assert await page.locator(".reply img").count() == 0
        await watched.assert_accessible()
        watched.assert_clean()
