"""Sources of skills: folders, git servers and zip archives, and their checks."""

import io
import stat
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.tools.skills.skill_servers import (
    HEAD,
    Repository,
    serve_files,
    serve_git_daemon,
    serve_git_http,
    write_skill,
)

from talaria.core.errors import ToolFailed
from talaria.tools.skills.records import compute_digest, compute_folder_digest
from talaria.tools.skills.sources import open_source

BREAD = HEAD.format(name="bread", about="Bakes bread.", body="Knead.").encode()


def pack(*members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "git")
    folder = write_skill(repository.work / "skills", "bread", "Knead.", "Bakes bread.")
    (folder / "bake.sh").write_text("#!/bin/sh\n")
    (folder / "bake.sh").chmod(0o755)
    write_skill(repository.work / "skills", "soup")
    (repository.work / "README.md").symlink_to("LICENSE")
    return repository


@pytest.mark.parametrize("serve", [serve_git_daemon, serve_git_http], ids=["daemon", "http"])
def test_skills_of_a_git_server_are_read_at_one_commit(
    repository: Repository, serve: Callable[[Repository], AbstractContextManager[str]]
) -> None:
    first = repository.commit()
    write_skill(repository.work / "skills", "tea")
    second = repository.commit()
    with serve(repository) as address:
        with open_source(address) as source:
            assert source.pin == second
            assert source.find_skill_folders() == ["skills/bread", "skills/soup", "skills/tea"]
            files = source.read_skill("skills/bread")
        with open_source(address, first) as source:
            assert (source.pin, source.ref) == (first, first)
            assert source.find_skill_folders() == ["skills/bread", "skills/soup"]
        with pytest.raises(ToolFailed, match="git failed"), open_source(address, "no-such-branch"):
            pass
    assert files == {"SKILL.md": (BREAD, False), "bake.sh": (b"#!/bin/sh\n", True)}


def test_a_repository_on_a_plain_web_server_is_read(repository: Repository) -> None:
    commit = repository.commit()
    with serve_files(repository.bare.parent) as address, open_source(f"{address}/skills.git") as source:
        assert source.pin == commit
        assert "SKILL.md" in source.read_skill("skills/soup")


def test_links_and_submodules_of_a_repository_are_refused(repository: Repository) -> None:
    (repository.work / "skills" / "soup" / "secret").symlink_to("/etc/passwd")
    repository.commit()
    with open_source(f"file://{repository.bare}") as source:
        assert "SKILL.md" in source.read_skill("skills/bread")
        with pytest.raises(ToolFailed, match="secret is a link"):
            source.read_skill("skills/soup")


@pytest.mark.parametrize("address", ["--upload-pack=touch x", "ext::sh -c touch% x", "/no/such/folder", "nonsense"])
def test_invalid_source_or_ref_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="neither a folder"), open_source(address):
        pass
    with pytest.raises(ToolFailed, match="isn't the name of a branch"), open_source("git://127.0.0.1/x", "--output=x"):
        pass


def test_a_zip_from_a_web_server_is_read_and_pinned(tmp_path: Path) -> None:
    content = pack(("top/bread/SKILL.md", BREAD), ("top/bread/__pycache__/x.pyc", b"\0"), ("top/notes.txt", b"x"))
    with serve_files(tmp_path, {"skills.zip": content}) as address, open_source(f"{address}/skills.zip") as source:
        assert source.find_skill_folders() == ["top/bread"]
        assert source.read_skill("top/bread") == {"SKILL.md": (BREAD, False)}
        assert len(source.pin) == 64
        with pytest.raises(ToolFailed, match="404"), open_source(f"{address}/other.zip"):
            pass


def make_link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (pack(("SKILL.md", BREAD), ("../evil", b"x")), "outside the skill"),
        (pack(("SKILL.md", BREAD), ("/etc/cron.d/evil", b"x")), "outside the skill"),
        (pack(("SKILL.md", BREAD), ("C:\\evil", b"x")), "outside the skill"),
        (pack(("SKILL.md", BREAD), (make_link("link"), b"/etc/passwd")), "is a link"),
        (pack(("SKILL.md", BREAD), ("zeros", b"\0" * 20_000_000)), "more than 10 MB"),
        (pack(("SKILL.md", BREAD), *((f"file-{number}", b"") for number in range(600))), "at most 500"),
        (pack(("SKILL.md", BREAD), *((f"{number}/x", b"") for number in range(20_001))), "20,000"),
        (b"no archive", "isn't a zip file"),
        (pack(("SKILL.md", BREAD))[:-30], "isn't a zip file"),
    ],
    ids=["slip", "absolute", "drive", "link", "bomb", "files", "entries", "text", "truncated"],
)
def test_a_dangerous_or_damaged_zip_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "skill.zip").write_bytes(content)
    with pytest.raises(ToolFailed, match=reason), open_source(str(tmp_path / "skill.zip")) as source:
        source.read_skill("")


def test_zip_with_wrong_sizes_is_refused(tmp_path: Path) -> None:
    content = pack(("SKILL.md", BREAD), ("zeros", b"\0" * 1_000_000))
    size = (1_000_000).to_bytes(4, "little")
    (tmp_path / "skill.zip").write_bytes(content.replace(size, (1_000).to_bytes(4, "little")))
    with (
        pytest.raises(ToolFailed, match=r"damaged|doesn't have the size"),
        open_source(str(tmp_path / "skill.zip")) as one,
    ):
        one.read_skill("")


def test_a_folder_is_read_without_links_and_caches(tmp_path: Path) -> None:
    folder = write_skill(tmp_path, "bread")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_bytes(b"\0")
    with open_source(str(tmp_path)) as source:
        assert list(source.read_skill("bread")) == ["SKILL.md"]
        assert source.pin == ""
    (folder / "up").symlink_to("/etc")
    with open_source(str(tmp_path)) as source, pytest.raises(ToolFailed, match="up is a link"):
        source.read_skill("bread")


def test_nested_skill_belongs_to_the_outer_skill(tmp_path: Path) -> None:
    write_skill(write_skill(tmp_path, "kitchen"), "bread")
    with open_source(str(tmp_path)) as source:
        assert source.find_skill_folders() == ["kitchen"]
        assert sorted(source.read_skill("kitchen")) == ["SKILL.md", "bread/SKILL.md"]


def test_digest_of_a_folder_covers_its_files_modes_and_links(tmp_path: Path) -> None:
    folder = write_skill(tmp_path, "bread")
    (folder / "bake.sh").write_text("#!/bin/sh\n")
    with open_source(str(folder)) as source:
        plain = compute_digest(source.read_skill(""))
    assert compute_folder_digest(folder) == plain
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "bake.pyc").write_bytes(b"\0")
    assert compute_folder_digest(folder) == plain
    (folder / "bake.sh").chmod(0o755)
    changed = compute_folder_digest(folder)
    assert changed != plain
    (folder / "link").symlink_to("/etc/passwd")
    assert compute_folder_digest(folder) not in (plain, changed)
