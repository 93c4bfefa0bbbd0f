"""Memory that another package provides: found by its entry point, read when a session starts."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.app.serving_process import process, send_message

from talaria.contracts.stores.sessions import Viewer
from talaria.testing.model_server import Ask, Say

PACKAGE = """
from talaria.tools.memory.notebook import FileMemory

def open_notes(account):
    return FileMemory(account.folder.parent / account.options["place"])
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with a provider."""
    packages = tmp_path / "packages"
    details = packages / "some_notes-1.0.dist-info"
    details.mkdir(parents=True)
    (packages / "some_notes.py").write_text(PACKAGE)
    (details / "METADATA").write_text("Metadata-Version: 2.1\nName: some-notes\nVersion: 1.0\n")
    (details / "entry_points.txt").write_text("[talaria.memory]\nsome-notes = some_notes:open_notes\n")
    monkeypatch.syspath_prepend(str(packages))


@pytest.mark.usefixtures("installed")
async def test_session_uses_the_memory_provider_of_another_package(tmp_path: Path) -> None:
    chosen = {"TALARIA__MEMORY__PROVIDER": "some-notes", "TALARIA__MEMORY__OPTIONS": '{"place": "elsewhere"}'}
    async with process(tmp_path, **chosen) as here:
        chat = await here.open()
        add = Ask("memory", {"action": "add", "text": "Likes tea.", "book": "user"})
        here.server.script(Say(calls=[add]), Say("Saved."))
        await send_message(chat, "I like tea")
        assert "Likes tea." not in str(here.server.received[-1].json["messages"][0]), "an open session stays as it is"
        assert "Likes tea." in here.application.knowledge.memory.show(Viewer())
        assert "Likes tea." in (here.application.profile.folder / "elsewhere" / "USER.md").read_text()
        await chat.conversation.close()
        here.server.script(Say("Tea?"))
        await send_message(await here.open(), "Hello")
        assert "Likes tea." in str(here.server.received[-1].json["messages"][0])


def build_wheel(folder: Path) -> Path:
    """Return a wheel of the package with the provider."""
    wheel, details = folder / "some_notes-1.0-py3-none-any.whl", "some_notes-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("some_notes.py", PACKAGE)
        archive.writestr(f"{details}/METADATA", "Metadata-Version: 2.1\nName: some-notes\nVersion: 1.0\n")
        archive.writestr(f"{details}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{details}/entry_points.txt", "[talaria.memory]\nsome-notes = some_notes:open_notes\n")
        archive.writestr(f"{details}/RECORD", "")
    return wheel


@pytest.mark.slow
def test_memory_provider_of_an_installed_distribution_is_used(tmp_path: Path) -> None:
    program, packages = Program(tmp_path / "home"), tmp_path / "packages"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(packages)]
    subprocess.run([*install, str(build_wheel(tmp_path))], check=True, timeout=60, capture_output=True)
    chosen = {"TALARIA__MEMORY__PROVIDER": "some-notes", "TALARIA__MEMORY__OPTIONS": '{"place": "elsewhere"}'}
    assert "some-notes" in program.run("memory", "list", env=chosen).err  # which isn't found without the package
    chosen["PYTHONPATH"] = str(packages)
    added = program.run("memory", "add", "Likes tea.", "--kind", "user", env=chosen)
    assert added.code == 0, added.err
    assert "Likes tea." in program.run("memory", "list", env=chosen).out
    assert "Likes tea." in (program.home / "profiles" / "default" / "elsewhere" / "USER.md").read_text()
