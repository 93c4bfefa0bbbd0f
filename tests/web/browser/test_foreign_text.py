"""Harmful text is shown as text in every field: titles, messages, tools, files, models, questions, errors."""

import json
from datetime import UTC, datetime
from pathlib import Path

import httpx
from playwright.async_api import Browser, expect
from scripts.page_pictures import CHAT_PATHS, settle
from tests.api.in_process_server import Hosted
from tests.web.browser.pages import WatchedPage, needs_chromium, signed_in
from tests.web.web_client import begin, settled

from talaria.access.pairing import offer_code
from talaria.contracts.stores.access import PairedPerson
from talaria.contracts.stores.sessions import NewSession
from talaria.core.messages import Message, Text
from talaria.testing.model_server import Ask, ModelServer, Say, refused
from talaria.web.assets import Assets

pytestmark = needs_chromium

CORPUS = [
    "<script>window.harmed = 1</script>",
    "<img src=x onerror=window.harmed=2>",
    "<svg/onload=window.harmed=3>",
    '"><iframe srcdoc="<script>parent.harmed=4</script>">',
    "[x](javascript:window.harmed=5) ![y](https://tracker.example/p.png)",
    "<a href='data:text/html,<script>opener.harmed=6</script>'>z</a>",
    "</title></textarea></style><script>window.harmed = 7</script>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.harmed=8>",
    "{{constructor.constructor('window.harmed=9')()}} ${window.harmed=10}",
    "javascript:/*--></title></style></textarea></script><svg onload='window.harmed=11'>",
    "\u202ehtml.exe \u0000".replace("\u0000", "") + "<style>*{display:none}</style>",
    "![](x' onerror='window.harmed=12) <base href=https://tracker.example/>",
    "```html\n<script>window.harmed = 13</script>\n```",
    '| <b onmouseover="window.harmed=14">cell</b> |\n| --- |\n| <iframe src="javascript:window.harmed=15"></iframe> |',
    "<javascript:window.harmed=16> `<script>window.harmed = 17</script>` &lt;script&gt; **<u>bold</u>**",
]
HARMFUL = "\n\n".join(CORPUS)
LINE = " ".join(CORPUS)[:190]
FORBIDDEN = "script, iframe, img, style, base, object, embed, u, b, [onerror], [onload], [onmouseover], [srcdoc]"


async def _assert_harmless(watched: WatchedPage) -> None:
    page = watched.page
    assert await page.evaluate("window.harmed === undefined")
    assert await page.locator("#app").locator(FORBIDDEN).count() == 0
    links = await page.locator("#app a").evaluate_all("links => links.map(link => link.protocol)")
    assert set(links) <= {"https:", "http:", "mailto:"}
    watched.assert_clean()


async def test_harmful_text_in_a_session_is_shown_as_text(browser: Browser, host: Hosted, model: ModelServer) -> None:
    calls = [
        Ask("terminal", {"command": f"printf '%s' '{LINE.replace(chr(39), '')}'"}),
        Ask("write_file", {"path": "<img src=x onerror=harmed=1>.md", "content": HARMFUL}),
        Ask("no_such_<b>tool</b>", {"<i>key</i>": HARMFUL}),
    ]
    question = Ask("clarify", {"question": HARMFUL, "choices": CORPUS[:3]})
    model.script(Say(HARMFUL, reasoning=HARMFUL, calls=calls), Say(calls=[question]), Say(HARMFUL))
    model.otherwise(Say(HARMFUL))
    async with signed_in(browser, host) as watched:
        page = watched.page
        await watched.say(HARMFUL)
        asked = page.get_by_role("region", name="Question")
        await expect(asked).to_be_visible()
        await _assert_harmless(watched)
        await asked.get_by_role("button", name=CORPUS[0], exact=True).click()
        await expect(page.locator(".reply")).to_have_count(2)
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        for _ in range(2):  # live, then from the transcript
            for fold in await page.locator("details.fold > summary").all():
                await fold.click()
            await settle(page)
            await _assert_harmless(watched)
            await page.reload()
            await expect(page.locator(".reply")).to_have_count(2)


async def test_harmful_author_names_and_skill_audits_are_shown_as_text(
    browser: Browser, host: Hosted, owner: httpx.AsyncClient, tmp_path: Path
) -> None:
    store, skills = host.application.store, host.application.knowledge.skills
    message = Message(role="user", parts=(Text(LINE),), at=datetime.now(UTC), author=LINE)
    session = await store.write(lambda tx: tx.sessions.create(NewSession(source="telegram")))
    await store.write(lambda tx: tx.messages.append(session.id, [message]))
    (tmp_path / "source").mkdir()
    code = "```sh\ncurl https://<img src=x onerror=harmed=1>\n```"
    (tmp_path / "source/SKILL.md").write_text(f"---\nname: harm\ndescription: Harms.\n---\n\n{code}\n{HARMFUL}\n")
    (change,) = skills.fetch(str(tmp_path / "source"))
    skills.apply(change, enable=False)
    async with signed_in(browser, host, path=f"/c/{session.id}") as watched:
        page = watched.page
        await expect(page.locator(".user .caption")).to_have_text(LINE)
        await _assert_harmless(watched)
        await watched.visit("/tools")
        await page.get_by_role("switch", name="Skill harm").click()
        await expect(page.get_by_role("region", name="What harm would run")).to_contain_text("curl")
        await _assert_harmless(watched)


async def test_harmful_titles_in_lists_and_menus_are_shown_as_text(
    browser: Browser, host: Hosted, model: ModelServer, owner: httpx.AsyncClient
) -> None:
    model.otherwise(Say(LINE))
    session = await begin(owner, LINE)
    await settled(owner, session, 2)
    await owner.patch(f"/web/sessions/{session}", json={"title": LINE})
    await owner.post(f"/web/sessions/{session}/branch", json={"seq": 1})
    async with signed_in(browser, host, path=f"/c/{session}") as watched:
        page = watched.page
        await expect(page.get_by_role("heading", level=1)).to_have_text(LINE)
        assert await page.title() == f"{LINE} · Talaria"
        await page.get_by_label("Search conversations").fill("window")
        await expect(page.locator(".hit").first).to_be_visible()
        await page.get_by_role("button", name="Conversation menu").click()
        await page.get_by_role("button", name="Branches").click()
        await expect(page.get_by_role("dialog").get_by_role("button").nth(1)).to_be_visible()
        await _assert_harmless(watched)
        await page.keyboard.press("Escape")
        await page.keyboard.press("Control+k")
        await page.get_by_role("combobox", name="Pages").fill("window")
        await expect(page.get_by_role("dialog").get_by_role("option").first).to_be_visible()
        await settle(page)
        await _assert_harmless(watched)


async def test_harmful_approvals_commands_and_errors_are_shown_as_text(
    browser: Browser, host: Hosted, model: ModelServer
) -> None:
    model.script(Say(calls=[Ask("terminal", {"command": f"rm -rf * # {LINE}"})]), refused())
    async with signed_in(browser, host) as watched:
        page = watched.page
        await watched.say("Clean up")
        asked = page.get_by_role("region", name="Approval needed")
        await expect(asked.get_by_role("button", name="Don't allow")).to_be_enabled()
        await _assert_harmless(watched)
        await asked.get_by_role("button", name="Don't allow").click()
        await expect(page.locator(".notice.error")).to_be_visible()
        for command in (f"/title {LINE}", f"/model {LINE}", f"/{LINE[1:20]}", f"/search {LINE}"):
            await page.get_by_label("Message", exact=True).fill(command)
            await page.keyboard.press("Enter")
        await expect(page.locator(".note")).not_to_have_count(0)
        await _assert_harmless(watched)


async def test_harmful_text_on_every_page_is_shown_as_text(
    browser: Browser, host: Hosted, model: ModelServer, owner: httpx.AsyncClient
) -> None:
    model.otherwise(Say(LINE))
    session = await begin(owner, LINE)
    await settled(owner, session, 2)
    await owner.patch(f"/web/sessions/{session}", json={"title": LINE})
    for command in (f"/goal {LINE}", f"/cron add every day at 7:00 {LINE}"):
        await owner.post(f"/web/sessions/{session}/commands", json={"text": command})
    await settled(owner, session, 2)
    await owner.post("/web/memory", json={"kind": "memory", "new": LINE})
    skill = f"---\nname: harm\ndescription: {json.dumps(LINE)}\n---\n\n{HARMFUL}\n"
    assert (await owner.put("/web/skills/harm", json={"text": skill})).status_code == 200
    asking = PairedPerson("telegram", "9", LINE)
    await host.application.store.write(lambda tx: offer_code(tx, asking))
    async with signed_in(browser, host) as watched:
        menu = watched.page.get_by_role("navigation", name="Pages")
        for path in [path for path in Assets().page_paths if path not in CHAT_PATHS]:
            await watched.visit(path)
            await expect(menu.locator('[aria-current="page"]')).to_have_attribute("href", path)
            await expect(watched.page.get_by_role("heading", level=1)).not_to_be_empty()
            await settle(watched.page)
            await _assert_harmless(watched)
