"""JavaScript of the web app: unchanged libraries, small modules, and nothing loaded from other servers."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from tests.house.tree import ROOT, files, name

from talaria.web.assets import Assets

STATIC = ROOT / "src/talaria/web/static"
MOST_LINES = 350
MOST_FIRST_BYTES, MOST_BYTES = 60_000, 200_000  # compressed, until the chat is usable and in all
MOST_REQUESTS = 20
OTHER_REQUESTS = 5  # the page, its icon, the person, the list of conversations, the stream
LOCK = json.loads((STATIC / "vendor/lock.json").read_text())
MODULES = list(files("src/talaria/web/static/js", suffix=".js"))


def test_vendored_files_match_the_lock() -> None:
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (STATIC / "vendor").iterdir()
        if path.name.endswith(".js")
    }
    assert found == LOCK["files"]


def test_every_vendored_package_has_its_licence() -> None:
    licences = (STATIC / "vendor/LICENSES.txt").read_text()
    missing = [
        package
        for package, locked in LOCK["packages"].items()
        if not licences.count(f"{package} {locked['version']}\n")
        or not re.fullmatch("[0-9a-f]{64}", locked["archive_sha256"])
    ]
    assert missing == []


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_javascript_module_is_small_and_builds_no_markup_from_text(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MOST_LINES
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text) == []
    assert re.findall(r"export default", text) == []


def test_first_load_of_the_web_app_stays_small() -> None:
    assets = Assets()
    first = (*assets.graph(), "app.css")
    assert sum(map(assets.compressed_size, first)) <= MOST_FIRST_BYTES
    assert sum(map(assets.compressed_size, assets.paths())) <= MOST_BYTES
    assert len(first) + OTHER_REQUESTS <= MOST_REQUESTS


def test_comments_are_removed_from_served_javascript() -> None:
    sent = {path: Assets().body(path).decode() for path in Assets().graph() if path.startswith("js/")}
    assert sent
    for path, text in sent.items():
        written = (STATIC / path).read_text()
        assert text.count("\n") == written.count("\n")
        lines = [line for line in text.splitlines() if line.strip()]
        assert not [line for line in lines if line.lstrip().startswith(("/**", "* ", "//"))]
        assert len(lines) > len(written.splitlines()) / 3


def test_web_app_loads_nothing_from_other_servers() -> None:
    ours = [path for path in files("src/talaria/web/static") if "vendor" not in path.parts and path.suffix != ".png"]
    found = {
        name(path): re.findall(r"""(?:from|import\(|src=|href=|url\()\s*["']?(?:https?:)?//""", path.read_text())
        for path in ours
    }
    assert {path: links for path, links in found.items() if links} == {}


def _find_classes(sheet: Path) -> set[str]:
    """Return the classes that a sheet styles on their own: alone in a selector, outside of media queries."""
    text = re.sub(r"(?s)/\*.*?\*/|@[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", sheet.read_text())
    selectors = [one.strip() for head in re.findall(r"([^{}]+)\{", text) for one in head.split(",")]
    return {found[1] for one in selectors if (found := re.fullmatch(r"\.([a-z][\w-]*)", one))}


def test_css_class_belongs_to_one_style_sheet() -> None:
    """Loaded sheets stay: a class in two of them would depend on the pages that were opened before."""
    owners: dict[str, list[str]] = {}
    for sheet in sorted(STATIC.glob("*.css")):
        for one in _find_classes(sheet):
            owners.setdefault(one, []).append(sheet.name)
    assert len(owners) > 100
    assert {one: sheets for one, sheets in owners.items() if len(sheets) > 1} == {}
