"""Build the documentation site from docs/ and the documents of the root folder, as searchable pages.

usage: python scripts/documentation_site.py GENERATOR [FOLDER]

GENERATOR is the program that renders the pages. It gets a copy of the documents in which links lead to pages, and
mkdocs.yml with the navigation, which is made from docs/README.md. The site is built in build/ unless a FOLDER is given.
"""

import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
WORKER = Path(__file__).with_name("documentation_search.js")
REMOTE_WORKER = "https://unpkg.com/iframe-worker/shim"  # the script that the generator would load from another server
INDEX = "docs/README.md"  # lists all pages, by section
# Documents in the root folder, and their names in the site.
ROOT_DOCUMENTS = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
_SECTION = re.compile(r"^\*\*(.+?)\*\*")
_ENTRY = re.compile(r"^- \[(.+?)\]\((.+?)\)")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")

Navigation = list[dict[str, Any]]


def main(generator: str, folder: str = "build") -> int:
    """Build the site and return an exit code."""
    build = (ROOT / folder).resolve()
    site = build / "site"
    copy_documents(build / "site-source")
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    settings |= {"docs_dir": "site-source", "site_dir": site.name, "nav": navigation((ROOT / INDEX).read_text())}
    config = build / "mkdocs.yml"
    config.write_text(yaml.safe_dump(settings, sort_keys=False))
    command = [generator, "build", "--strict", "--clean", "-f", str(config)]
    if code := subprocess.run(command, check=False).returncode:
        return code
    replace_remote_script(site)
    print(f"The site is in {folder}/site: open index.html there.")
    return 0


def copy_documents(source: Path) -> None:
    """Copy all documents to one folder, with links that lead to pages."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "docs", source, ignore=shutil.ignore_patterns("README.md"))
    documents = [*ROOT_DOCUMENTS, *(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
    for document in documents:
        if document != INDEX:
            page = page_of(document) or document
            (source / page).write_text(relink((ROOT / document).read_text(), document, page))


def navigation(index: str) -> Navigation:
    """Return the navigation: one section per heading of the list; ``a: b`` is section b within a."""
    sections: dict[str, Navigation] = {}
    entries: Navigation = []
    for line in index.splitlines():
        if heading := _SECTION.match(line):
            entries = sections.setdefault(heading[1], [])
        elif entry := _ENTRY.match(line):
            entries.append({entry[1]: page_of(posixpath.normpath(f"docs/{entry[2]}"))})
    found: Navigation = [{"Home": "index.md"}]
    for section, pages in sections.items():
        group, _, part = section.partition(": ")
        if part and group not in found[-1]:
            found.append({group: []})
        if part:
            found[-1][group].append({part.capitalize(): pages})
        else:
            found.append({group: pages})
    project = [{name.capitalize(): f"{name}.md"} for name in ("changelog", "contributing", "security")]
    return [*found, {"Project": project}]


def relink(text: str, document: str, page: str) -> str:
    """Return a document whose links lead to pages; links to other files are replaced by their text."""

    def replace(link: re.Match[str]) -> str:
        image_mark, label, target, section = link[1], link[2], link[3], link[4] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        found = page_of(posixpath.normpath(posixpath.join(posixpath.dirname(document), target)))
        if found is None:
            return label
        return f"{image_mark}[{label}]({posixpath.relpath(found, posixpath.dirname(page) or '.')}{section})"

    return _LINK.sub(replace, text)


def replace_remote_script(site: Path) -> None:
    """Replace the remote search script with ours, so that nothing is loaded from another server."""
    script = site / "assets" / "javascripts" / "worker.js"
    shutil.copy(WORKER, script)
    for page in site.rglob("*.html"):
        address = posixpath.relpath(script.as_posix(), page.parent.as_posix())
        page.write_text(page.read_text().replace(REMOTE_WORKER, address))


def page_of(document: str) -> str | None:
    """Return the page name of a file of the repository, or None if it isn't in the site."""
    if document in {INDEX, "docs"}:
        return "index.md"
    if (ROOT / document).is_dir():
        return None
    return document.removeprefix("docs/") if document.startswith("docs/") else ROOT_DOCUMENTS.get(document)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
