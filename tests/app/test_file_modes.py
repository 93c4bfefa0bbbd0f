"""File modes: files of the profile are private, files that the agent creates have the person's own modes."""

import os
from pathlib import Path

import pytest
from tests.app.program_with_model import scripted_program, talk

from talaria.testing.model_server import Ask, ModelServer, Say


def _modes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): f"{path.lstat().st_mode & 0o777:03o}"
        for path in folder.rglob("*")
        if path.is_file() or path.is_dir()
    }


@pytest.fixture(params=[0o000, 0o022, 0o027])
def mask(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


async def _chat(home: Path, model: ModelServer, mask: int, *arguments: str) -> Path:
    """Run the program with this umask and return its profile."""
    program = scripted_program(home, model)
    before = os.umask(mask)
    try:
        done = await talk(program, *arguments)
    finally:
        os.umask(before)
    assert done.code == 0, done.err
    return home / "profiles" / "default"


async def test_profile_files_are_private_and_created_files_follow_the_umask(tmp_path: Path, mask: int) -> None:
    calls = [
        Ask("write_file", {"path": "new/by-tool.txt", "content": "x"}),
        Ask("terminal", {"command": "mkdir made && touch made/by-command.txt && seq 100000"}),
        Ask("execute_code", {"code": "open('by-code.txt', 'w').close()"}),
        Ask("memory", {"action": "add", "text": "The person likes tides."}),
    ]
    async with ModelServer() as model:
        model.script(*(Say(calls=[one]) for one in calls), Say("done"))
        profile = await _chat(tmp_path, model, mask, "chat", "-q", "Go.")
    assert {mode for mode in _modes(profile).values() if int(mode, 8) & 0o077} == set(), _modes(profile)
    created = _modes(tmp_path / "work")
    file, folder = f"{0o666 & ~mask:03o}", f"{0o777 & ~mask:03o}"
    assert created == {
        "new": folder,
        "new/by-tool.txt": file,
        "made": folder,
        "made/by-command.txt": file,
        "by-code.txt": file,
    }


async def test_doctor_finds_and_repairs_modes_inside_the_profile(tmp_path: Path) -> None:
    async with ModelServer() as model:
        program = scripted_program(tmp_path, model)
        media = tmp_path / "profiles" / "default" / "media" / "x"
        media.mkdir(parents=True)
        (media / "picture.png").write_bytes(b"x")
        (media / "picture.png").chmod(0o644)
        seen = await talk(program, "doctor")
        assert "if the profile's folder were open" in seen.out
        await talk(program, "doctor", "--fix")
    assert {mode for mode in _modes(tmp_path / "profiles" / "default").values() if int(mode, 8) & 0o077} == set()
