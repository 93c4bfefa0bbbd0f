"""Reading, writing and listing real files."""

import os
from pathlib import Path

import msgspec
import pytest
from tests.tools.tool_calls import call_from

from talaria.contracts.tool import Call, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.tools.files.edit import WriteFile, WriteFileArguments
from talaria.tools.files.read import ListFiles, ListFilesArguments, ReadFile, ReadFileArguments
from talaria.tools.output import MASK
from talaria.tools.workspace import LocalWorkspace

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


def call_in(folder: Path) -> Call:
    return msgspec.structs.replace(call_from(folder), workspace=LocalWorkspace(folder, {}))


async def read(folder: Path, path: str, *, first_line: int = 1, limit: int = 1000, numbers: bool = False) -> ToolOutput:
    return await ReadFile().run(ReadFileArguments(path, first_line, limit, numbers), call_in(folder))


async def write(folder: Path, path: str, content: str) -> str:
    return (await WriteFile().run(WriteFileArguments(path, content), call_in(folder))).text


async def tree(folder: Path, path: str = ".", *, depth: int = 2, limit: int = 200) -> list[str]:
    output = await ListFiles().run(ListFilesArguments(path, depth, limit), call_in(folder))
    return output.text.splitlines()


async def test_short_file_is_read_completely(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeffone\r\ntwö\r\n".encode())
    assert (await read(tmp_path, "a.txt")).text == "one\ntwö"


async def test_lines_can_be_selected_and_numbered(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    text = (await read(tmp_path, "a.txt", first_line=4, limit=2, numbers=True)).text
    assert text == "    4\tline 4\n    5\tline 5\n[lines 4-5 of 10; continue with first_line=6]"
    assert (await read(tmp_path, "a.txt", first_line=9)).text == "line 9\nline 10"


async def test_long_file_is_cut_at_a_line_and_can_be_continued(tmp_path: Path) -> None:
    lines = [f"{n:05} " + "x" * 94 for n in range(2000)]
    (tmp_path / "long.txt").write_text("\n".join(lines))
    text, collected, first = "[continue with first_line=1]", [], 1
    while "continue with first_line=" in text:
        first = int(text.rpartition("first_line=")[2].rstrip("]"))
        text = (await read(tmp_path, "long.txt", first_line=first)).text
        assert len(text) < 41_000
        collected += [line for line in text.splitlines() if not line.startswith("[")]
    assert collected == lines


async def test_a_long_line_is_cut(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("y" * 100_000 + "\nnext\n")
    text = (await read(tmp_path, "a.txt")).text
    assert text.endswith("[… 98,000 more characters]\nnext")


async def test_other_encodings_are_readable(tmp_path: Path) -> None:
    (tmp_path / "utf16.txt").write_text("grüße\nzwei\n", encoding="utf-16")
    (tmp_path / "latin.txt").write_bytes("grün".encode("latin-1"))
    assert (await read(tmp_path, "utf16.txt")).text == "grüße\nzwei"
    assert (await read(tmp_path, "latin.txt")).text == "grün"


async def test_image_file_is_returned_as_an_image(tmp_path: Path) -> None:
    (tmp_path / "a.dat").write_bytes(PNG)
    output = await read(tmp_path, "a.dat")
    assert [(image.source, image.media_type) for image in output.images] == [(str(tmp_path / "a.dat"), "image/png")]


@pytest.mark.parametrize(("content", "description"), [(b"\x1f\x8b\0", "gzip data"), (b"\1\0\2", "binary data")])
async def test_type_of_a_binary_file_is_reported(tmp_path: Path, content: bytes, description: str) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    assert f"is {description}" in (await read(tmp_path, "a.bin")).text


async def test_unreadable_path_fails_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one\n")
    os.mkfifo(tmp_path / "pipe")
    for path, hint in [("note.txt", "Similar names: notes.txt"), (".", "is a folder"), ("pipe", "pipe or a socket"),
                       ("a\0b", "null"), ("notes.txt/x", "Not a directory")]:  # fmt: skip
        with pytest.raises(ToolFailed, match=hint):
            await read(tmp_path, path)
    with pytest.raises(ToolFailed, match="has 1 line; there is no line 5"):
        await read(tmp_path, "notes.txt", first_line=5)


async def test_empty_file_is_reported_as_empty(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    assert (await read(tmp_path, "a.txt")).text == "(the file is empty)"


async def test_a_masked_secret_cannot_be_written_back(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("token hunter2000\n")
    with pytest.raises(ToolFailed, match="a secret that you can't see"):
        await write(tmp_path, "a.txt", f"token {MASK}")
    assert (tmp_path / "a.txt").read_text() == "token hunter2000\n"


async def test_writing_creates_folders_and_reports_sizes(tmp_path: Path) -> None:
    assert await write(tmp_path, "a/b/c.txt", "hé\nx") == f"Created {tmp_path}/a/b/c.txt: 5 bytes, 2 lines."
    assert await write(tmp_path, "a/b/c.txt", "") == f"Replaced {tmp_path}/a/b/c.txt: 5 → 0 bytes, 0 lines."
    assert await write(tmp_path, "a/b/c.txt", "x\n") == f"Replaced {tmp_path}/a/b/c.txt: 0 → 2 bytes, 1 line."


async def test_writing_preserves_mode_and_link_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    real, link = tmp_path / "real.sh", tmp_path / "link.sh"
    real.write_text("old")
    real.chmod(0o751)
    link.symlink_to("real.sh")
    await write(tmp_path, "link.sh", "new")
    assert (link.is_symlink(), real.read_text(), real.stat().st_mode & 0o777) == (True, "new", 0o751)
    assert sorted(os.listdir(tmp_path)) == ["link.sh", "real.sh"]  # noqa: PTH208 - only the names are needed


async def test_writing_to_an_invalid_path_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in ("file/below", ".", "a\0b"):
        with pytest.raises(ToolFailed):
            await write(tmp_path, path, "x")


async def test_folder_is_listed_as_a_tree(tmp_path: Path) -> None:
    (tmp_path / "src" / "deep" / "deeper").mkdir(parents=True)
    (tmp_path / "src" / "a.py").write_text("x" * 2048)
    (tmp_path / "b.txt").write_text("hi")
    assert await tree(tmp_path) == [f"{tmp_path}/", "  b.txt  2 B", "  src/", "    a.py  2.0 KB", "    deep/"]
    assert (await tree(tmp_path, depth=3))[-1] == "      deeper/"
    assert await tree(tmp_path, limit=1) == [
        f"{tmp_path}/", "  b.txt  2 B", "[… more entries: raise limit, or list a subfolder]",
    ]  # fmt: skip


async def test_ignored_files_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("# note\n*.log\n!keep.log\n/build\ntmp/\ndocs/**/out.txt\n[ab]?.dat\n")
    for name in ("a.log", "keep.log", "build", "sub/build", "sub/a.log", "tmp/x", "docs/p/q/out.txt", "docs/in.txt",
                 "a1.dat", "c1.dat", "node_modules/x"):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    shown = {line.split("  ")[-2].strip() or line for line in await tree(tmp_path, depth=5) if " B" in line}
    assert shown == {".gitignore", "keep.log", "build", "in.txt", "c1.dat"}
    assert [line for line in await tree(tmp_path, "sub") if "log" in line] == []


async def test_listing_a_file_or_missing_folder_fails(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(ToolFailed, match="not a folder"):
        await tree(tmp_path, "a")
    with pytest.raises(ToolFailed, match="doesn't exist"):
        await tree(tmp_path, "b")
