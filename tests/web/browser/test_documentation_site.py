"""The documentation site: every document is a page, and pages need no other server, not even for searching."""

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect
from tests.house.tree import ROOT, files

GENERATOR = ROOT / ".site-generator" / "bin" / "zensical"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not GENERATOR.exists():
        pytest.skip("The generator of the site is not installed; scripts/site-generator.sh installs it.")
    build = tmp_path_factory.mktemp("build")
    command = [sys.executable, str(ROOT / "scripts" / "documentation_site.py"), str(GENERATOR), str(build)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return build / "site"


def test_every_document_is_a_page(site: Path) -> None:
    documents = [path.relative_to(ROOT / "docs") for path in files("docs", suffix=".md")]
    expected = {path.with_name(path.stem.replace("README", "index") + ".html") for path in documents}
    pages = {path.relative_to(site) for path in site.rglob("*.html")}
    assert expected - pages == set()
    assert {Path("index.html"), Path("architecture.html"), Path("changelog.html")} <= pages


@pytest.mark.asyncio(loop_scope="session")  # as the driver of the browser
async def test_a_page_opened_from_a_folder_can_be_searched_without_a_network(site: Path, browser: Browser) -> None:
    context = await browser.new_context()
    page = await context.new_page()
    requests: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    await page.goto((site / "how-to" / "choose-a-model.html").as_uri())
    await expect(page.get_by_role("heading", name="Choose a model")).to_be_visible()
    await page.get_by_role("button", name="Search").first.click()
    await page.keyboard.type("shell completion")
    await expect(page.get_by_role("link", name="Set up shell completion").first).to_be_visible()
    await context.close()
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert problems == []
