"""Search tool on real files, with and without ripgrep."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.tools.tool_calls import call_from

from talaria.core.errors import ToolFailed
from talaria.tools.files.search import SearchFiles, SearchFilesArguments

RIPGREP = shutil.which("rg")


class Search:
    """A folder to search."""

    def __init__(self, folder: Path, ripgrep: str | None) -> None:
        self.folder = folder
        self._tool = SearchFiles(ripgrep=ripgrep)

    async def find(self, pattern: str, **options: Any) -> list[str]:
        output = await self._tool.run(SearchFilesArguments(pattern, **options), call_from(self.folder))
        return output.text.splitlines()


@pytest.fixture(params=["ripgrep", "python"])
def search(request: pytest.FixtureRequest, tmp_path: Path) -> Search:
    if request.param == "ripgrep" and RIPGREP is None:
        pytest.skip("ripgrep (rg) is not installed here")
    (tmp_path / ".gitignore").write_text("*.log\nbuild/\n")
    for name, content in {
        "a.py": "import os\nVALUE = 1\nprint(VALUE)\n",
        "sub/b.py": "from a import VALUE\n",
        "sub/c.txt": "value\nVALUE-5-text\n",
        "x.log": "VALUE\n",
        "build/y.py": "VALUE\n",
        ".github/w.yml": "VALUE: 1\n",
        ".env": "VALUE=hush\n",
        ".ssh/config": "VALUE=hush\n",
        "bin.dat": "VALUE\0\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    return Search(tmp_path, RIPGREP if request.param == "ripgrep" else None)


@pytest.mark.slow
async def test_lines_are_found_with_file_and_number(search: Search) -> None:
    assert await search.find("VALUE") == [
        ".github/w.yml:1:VALUE: 1", "a.py:2:VALUE = 1", "a.py:3:print(VALUE)", "sub/b.py:1:from a import VALUE",
        "sub/c.txt:2:VALUE-5-text",
    ]  # fmt: skip


@pytest.mark.slow
async def test_search_can_be_restricted_by_a_glob(search: Search) -> None:
    assert await search.find("VALUE", glob="*.py", path="sub") == ["b.py:1:from a import VALUE"]


@pytest.mark.slow
async def test_context_lines_are_shown(search: Search) -> None:
    assert await search.find("= 1", context=1) == ["a.py-1-import os", "a.py:2:VALUE = 1", "a.py-3-print(VALUE)"]


@pytest.mark.slow
async def test_result_limit_is_applied_and_reported(search: Search) -> None:
    lines = await search.find("VALUE", limit=2)
    assert lines[-1] == "[first 2 results; narrow the search, or raise limit]"
    assert len(lines) == 3


@pytest.mark.slow
async def test_named_file_is_searched_even_if_it_is_ignored(search: Search) -> None:
    assert await search.find("VALUE", path="x.log") == ["x.log:1:VALUE"]


@pytest.mark.slow
async def test_search_without_results_does_not_fail(search: Search) -> None:
    assert await search.find("no such text") == ["Nothing found."]


@pytest.mark.slow
async def test_inline_flag_ignores_case(search: Search) -> None:
    assert "sub/c.txt:1:value" in await search.find("(?i)^value$")


@pytest.mark.slow
async def test_invalid_expression_and_missing_folder_fail(search: Search) -> None:
    with pytest.raises(ToolFailed):
        await search.find("(")
    with pytest.raises(ToolFailed):
        await search.find("x", path="nowhere")


@pytest.mark.slow
async def test_pattern_that_looks_like_an_option_is_searched(search: Search) -> None:
    assert await search.find("-5-") == ["sub/c.txt:2:VALUE-5-text"]
    assert await search.find("--files") == ["Nothing found."]


@pytest.mark.slow
async def test_search_stops_at_the_limit_in_a_large_file(search: Search) -> None:
    (search.folder / "big.txt").write_text("VALUE\n" * 800_000)
    assert len(await search.find("VALUE", limit=10)) == 11


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.py", ["a.py", "sub/b.py"]),
        ("sub/*", ["sub/b.py", "sub/c.txt"]),
        ("s*", ["sub/"]),
        ("**/*.txt", ["sub/c.txt"]),
        ("nothing*", ["Nothing found."]),
    ],
)
async def test_files_are_found_by_name(search: Search, pattern: str, names: list[str]) -> None:
    assert await search.find(pattern, target="names") == names


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)+$", "(.*)*(.*)*x", "a*a*a*a*a*a*a*a*a*b"])
async def test_patterns_take_linear_time(search: Search, pattern: str) -> None:
    """Python's `re` module would never finish with these patterns."""
    (search.folder / "poison.txt").write_text("a" * 100_000 + "!\n")
    assert await search.find(pattern, path="poison.txt") == ["Nothing found."]


@pytest.mark.slow
@pytest.mark.parametrize("glob", ["*a" * 60 + "b", "**/" * 60 + "b"])
async def test_globs_take_linear_time(search: Search, glob: str) -> None:
    folder = search.folder.joinpath(*["a" * 100] * 10)
    folder.mkdir(parents=True)
    (folder / ("a" * 200)).write_text("needle")
    (search.folder / ".gitignore").write_text(f"{glob}\n")
    assert await search.find(glob, target="names") == ["Nothing found."]
    (found,) = await search.find("needle", glob="a*")
    assert found.endswith("a:1:needle")


@pytest.mark.slow
async def test_a_pattern_with_lookaround_is_refused(search: Search) -> None:
    with pytest.raises(ToolFailed):
        await search.find("(?=a)")
