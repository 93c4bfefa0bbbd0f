"""Pages about goals, jobs, usage, traces and logs in a real browser."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from playwright.async_api import Browser, expect
from tests.api.in_process_server import Hosted
from tests.web.browser.pages import DESKTOP, PHONE, WatchedPage, needs_chromium, signed_in

from talaria.contracts.background_processes import BackgroundProcess, add_process
from talaria.contracts.delegation import ChildTask, DelegatedTask
from talaria.contracts.jobs import JobRequest, JobRequester
from talaria.contracts.platform import Content
from talaria.contracts.store import Transaction
from talaria.contracts.stores.access import PairedPerson, PairingRules
from talaria.contracts.stores.sessions import NewSession
from talaria.core.addresses import Address
from talaria.core.ids import SessionId, TurnId, WorkerId, new_id
from talaria.core.messages import Usage
from talaria.core.session_context import SessionContext
from talaria.goals.goal import JudgedTurn
from talaria.goals.goal_manager import GoalManager
from talaria.goals.goal_store import record_verdict
from talaria.runtime.delegation.task_store import Delegation, queue_in_background
from talaria.runtime.outbox import queue_notice
from talaria.testing.model_server import Ask, ModelServer, Say

pytestmark = needs_chromium

log = logging.getLogger("talaria.tests.pages")
HARMFUL = "<img src=x onerror='window.harmed=1'><script>window.harmed=2</script>"
PAGES = {
    "/home": "Home",
    "/goals": "Goals",
    "/schedules": "Schedules",
    "/background": "Background",
    "/usage": "Usage",
    "/trace": "Traces",
    "/gateway": "Gateway",
    "/logs": "Logs",
    "/doctor": "Doctor",
}


async def fill(host: Hosted) -> SessionId:
    """Store data for each page, with markup that must be shown as text."""
    store = host.application.store

    def create(tx: Transaction) -> SessionId:
        session = tx.sessions.create(NewSession(source="telegram", title=f"Parser {HARMFUL}"))
        tx.usage.add(session.id, Usage(2, 9_000, 400, 5_000, cost_microdollars=120_000), model="large", turns=1)
        tx.usage.add(session.id, Usage(1, 900, 40), model=f"local {HARMFUL}", turns=1, has_price=False)
        return session.id

    session = await store.write(create)
    goal = GoalManager(session, store=store)
    state = await goal.set(f"All tests pass {HARMFUL}\nverify: make test\nbudget: 8 turns, $2")
    await goal.pause(f"of {HARMFUL}")
    verdict = JudgedTurn(state.set_at + timedelta(minutes=1), state.id, "t", "continue", f"Two fail. {HARMFUL}", 1)
    await store.write(lambda tx: record_verdict(tx, session, verdict))
    await store.write(lambda tx: _add_background(tx, session))
    log.warning("odd text %s", HARMFUL)
    request = JobRequest(when="every weekday 9:00", prompt=f"Read the mail {HARMFUL}", name=f"Mail {HARMFUL}")
    await host.application.schedules.add(request, JobRequester(everyone=True))
    return session


def _add_background(tx: Transaction, session: SessionId) -> None:
    """Store a process, a task, an undelivered message and a request for access."""
    process = BackgroundProcess(
        id="p1", session_id=session, command=f"make {HARMFUL}", folder="/", files_folder="/none", machine="m", host="h",
        watcher=WorkerId("w"), begun_at=datetime.now(UTC), context=SessionContext(), last_line=HARMFUL,
        state="ended", ended_at=datetime.now(UTC),
    )  # fmt: skip
    add_process(tx, process)
    task = ChildTask(DelegatedTask(f"Read {HARMFUL}"), text=HARMFUL, state="done")
    delegation = Delegation(
        key="k", session_id=session, children=(task,), surface="cli", folder="/", began=datetime.now(UTC)
    )
    queue_in_background(tx, delegation)
    queue_notice(tx, session, Address("telegram", "7"), Content(text=HARMFUL))
    tx.pairing.offer(PairedPerson("telegram", "9", HARMFUL), "hash", PairingRules())


@asynccontextmanager
async def opened(browser: Browser, host: Hosted, path: str) -> AsyncIterator[WatchedPage]:
    async with signed_in(browser, host, path=path) as watched:
        yield watched
        watched.assert_clean()


async def test_every_page_shows_stored_text_unchanged(browser: Browser, host: Hosted) -> None:
    """Every page shows stored markup as text; `test_every_page.py` checks all looks."""
    await fill(host)
    async with signed_in(browser, host) as watched:
        page = watched.page
        for path, title in PAGES.items():
            await watched.visit(path)
            await expect(page.get_by_role("heading", level=1)).to_have_text(title)
            await expect(page.locator(".work-panel, .stat, .log-entry, .rows").first).to_be_visible()
            for fold in await page.locator("main details > summary").all():
                await fold.click()
            await watched.assert_accessible()
            await watched.assert_fits(PHONE, DESKTOP)
            assert await page.evaluate("window.harmed === undefined")
            assert await page.locator("main").locator("script, img, [onerror], [style]").count() == 0
        watched.assert_clean()


async def test_a_goal_is_set_and_followed(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.answer_when(lambda asked: asked.is_title_request, Say("A book"))
    done = Say('{"verdict": "done", "reason": "All chapters are there."}')
    model.script(Say("Chapter one."), Say('{"verdict": "continue", "reason": "One is missing."}'), Say("Two."), done)
    async with opened(browser, host, "/goals") as watched:
        page = watched.page
        await page.get_by_role("button", name="Set the first goal").click()
        await page.get_by_label("What should the agent achieve?").fill("Write the book\nbudget: 5 turns")
        await page.get_by_role("button", name="Set the goal").click()
        card = page.locator("li.work-panel")
        await expect(card.locator(".state").first).to_have_text("Reached")
        await expect(card.locator(".budget")).to_contain_text("2 of 5")
        await card.get_by_text("Verdicts").click()
        await expect(card.locator(".verdicts li")).to_have_count(2)
        await card.get_by_role("button", name="Clear").click()
        await card.get_by_role("button", name="Clear this goal?").click()
        await expect(page.get_by_role("button", name="Set the first goal")).to_be_visible()


async def test_a_job_is_previewed_scheduled_run_and_deleted(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.otherwise(Say("Nothing new."))
    async with opened(browser, host, "/schedules") as watched:
        page = watched.page
        await page.get_by_role("button", name="New job").click()
        text = page.get_by_label("When, and what?")
        await text.fill("whenever you like")
        await expect(page.locator("#job-preview")).to_contain_text("Start with a time")
        await expect(page.get_by_role("button", name="Schedule", exact=True)).to_be_disabled()
        await text.fill("every monday and thursday 18:30 water the plants")
        await expect(page.locator(".next-runs li")).to_have_count(5)
        await watched.assert_accessible()
        await page.get_by_role("button", name="Schedule", exact=True).click()
        card = page.locator("li.work-panel")
        await expect(card).to_contain_text("every Monday, Thursday 18:30")
        await card.get_by_text("History").click()
        await card.get_by_role("button", name="Run now").click()
        await expect(card.locator(".runs")).to_contain_text("Nothing new.")
        await expect(card.locator(".runs .state")).to_have_text("done")
        await card.get_by_role("button", name="Pause").click()
        await expect(card.locator(".state").first).to_have_text("Paused")
        await card.get_by_role("button", name="Edit").click()
        await page.get_by_label("New time").fill("every 2h")
        await page.get_by_role("button", name="Save").click()
        await expect(card).to_contain_text("every 2h")
        await card.get_by_role("button", name="Delete").click()
        await card.get_by_role("button", name="Delete with its history?").click()
        await expect(page.get_by_role("button", name="Schedule something")).to_be_visible()


async def test_usage_page_is_updated_while_it_is_open(browser: Browser, host: Hosted) -> None:
    session = await fill(host)
    store = host.application.store
    async with opened(browser, host, "/usage") as watched:
        page = watched.page
        rows = page.get_by_role("region", name="Totals by").locator("tbody tr")
        await expect(rows).to_have_count(2)
        await expect(rows.first).to_contain_text("$0.12")
        await expect(rows.last).to_contain_text("Unknown")
        await expect(page.locator(".legend .caption")).to_have_text(["$0.12", "Unknown"])

        def end_turn(tx: Transaction) -> None:
            turn = tx.turns.begin(session, TurnId(new_id()))
            tx.usage.add(session, Usage(1, 10, 10, cost_microdollars=50_000), model="other", turns=1)
            tx.turns.end(turn.id, "answered")

        await store.write(end_turn)
        await expect(rows).to_have_count(3)
        await page.get_by_role("button", name="Surface").click()
        await expect(rows).to_have_count(1)
        await page.get_by_role("button", name="1 year").click()
        await expect(page.locator(".chart .column")).to_have_count(53)


async def test_an_approval_is_answered_on_the_home_page(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.answer_when(lambda asked: asked.is_title_request, Say("Cleaning"))
    model.script(Say("", calls=[Ask("terminal", {"command": "rm -rf *"})]), Say("I left it alone."))
    async with signed_in(browser, host) as watched:
        page = watched.page
        await watched.say("Clean up")
        await page.get_by_role("link", name="Manage").click()
        await page.get_by_role("link", name="Home").click()
        card = page.locator("li.waiting")
        await expect(card).to_contain_text("rm -rf *")
        await watched.assert_accessible()
        await card.get_by_role("button", name="Say why not …").click()
        await card.get_by_label("Why not").fill("Ask me first.")
        await watched.assert_accessible()
        await card.get_by_role("button", name="Don't allow").last.click()
        await expect(page.get_by_text("Nothing is waiting for you.")).to_be_visible()
        await expect(page.get_by_text("No turn is running.")).to_be_visible()
        assert any("Ask me first." in str(received.json) for received in model.received)
        watched.assert_clean()


async def test_trace_is_shown_as_a_chart_with_details(browser: Browser, host: Hosted, model: ModelServer) -> None:
    model.answer_when(lambda asked: asked.is_title_request, Say("Files"))
    model.script(Say("", calls=[Ask("list_files", {}), Ask("list_files", {"path": "."})]), Say("Empty."))
    async with signed_in(browser, host) as watched:
        page = watched.page
        await watched.say("What is here?")
        await expect(page.locator(".reply").last).to_contain_text("Empty.")
        await page.get_by_role("button", name="Conversation menu").click()
        await page.get_by_role("link", name="Trace", exact=True).click()
        await expect(page.locator(".timeline .span")).to_have_count(4)
        await page.get_by_role("button", name="list_files").first.click()
        await expect(page.get_by_role("heading", name="list_files")).to_be_visible()
        await watched.assert_accessible()
        session = page.url.rpartition("/")[2]
        await page.get_by_role("link", name="Log of this conversation").click()
        await expect(page.get_by_label("Conversation", exact=True)).to_have_value(session)
        watched.assert_clean()


async def test_log_page_shows_new_entries(browser: Browser, host: Hosted) -> None:
    async with opened(browser, host, "/logs") as watched:
        page = watched.page
        await expect(page.locator(".log-entry").first).to_be_visible()
        log.warning("a wolf was seen")
        await expect(page.locator(".log-entry").last).to_contain_text("a wolf was seen")
        await page.get_by_label("Text").fill("wolf")
        await expect(page.locator(".log-entry")).to_have_count(1)
