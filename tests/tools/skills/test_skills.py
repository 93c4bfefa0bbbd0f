"""Skills tool: lookup in several folders, progressive viewing and safe writing."""

from pathlib import Path
from typing import Any

import pytest
from tests.tools.tool_calls import call_from

from talaria.contracts.tool import ProposedAction, Tool
from talaria.core.errors import ToolFailed
from talaria.tools.skills.registry import format_index, read_document
from talaria.tools.skills.tool import Skills, SkillsArguments


def write_skill(root: Path, name: str, description: str = "Bakes bread.", body: str = "Knead.") -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: {Path(name).name}\ndescription: {description}\n---\n{body}\n")
    return folder


async def use(roots: list[Path], action: Any, **arguments: str) -> str:
    tool: Tool = Skills(roots)
    return (await tool.run(SkillsArguments(action, **arguments), call_from(roots[0]))).text


def test_front_matter_in_other_styles_is_parsed() -> None:
    text = (
        '---\r\nname: "pdf-forms"\r\nlicense: MIT\r\ndescription: >-\r\n  Fills in\r\n  forms: quickly.\r\n'
        "metadata:\r\n  author: someone\r\n---\r\n# Do\r\n---\r\nit"
    )
    document = read_document(text)
    assert (document.name, document.description) == ("pdf-forms", "Fills in forms: quickly.")
    assert document.body == "# Do\n---\nit"
    assert read_document("no front matter").name == ""


async def test_skill_of_an_earlier_folder_hides_later_ones_of_the_same_name(tmp_path: Path) -> None:
    own, project = tmp_path / "own", tmp_path / "project"
    write_skill(own, "bread", body="Use rye.")
    write_skill(project, "bread", body="Use wheat.")
    write_skill(project, "kitchen/soup", "Cooks soup.")
    write_skill(project, "not valid")
    assert format_index([own, project, tmp_path / "missing"]) == "bread: Bakes bread.\nsoup: Cooks soup."
    assert await use([own, project], "view", name="bread") == "Use rye."
    assert await use([own, project], "list") == "bread: Bakes bread.\nsoup: Cooks soup."


def test_size_of_the_skill_index_is_limited(tmp_path: Path) -> None:
    for number in range(50):
        write_skill(tmp_path, f"skill-{number:02}", "long " * 100)
    text = format_index([tmp_path])
    assert len(text) < 4_100
    assert all(len(line) < 180 for line in text.splitlines())
    assert text.endswith("more: call `skills` with action list")


async def test_view_shows_the_body_and_single_files(tmp_path: Path) -> None:
    folder = write_skill(tmp_path, "bread")
    (folder / "references").mkdir()
    (folder / "references" / "flour.md").write_text("Kinds of flour.")
    assert await use([tmp_path], "view", name="bread") == f"Knead.\n\nFiles in {folder}:\nreferences/flour.md"
    assert await use([tmp_path], "view", name="bread", file="references/flour.md") == "Kinds of flour."
    with pytest.raises(ToolFailed, match="available: bread"):
        await use([tmp_path], "view", name="soup")


async def test_a_created_skill_is_found_and_patched(tmp_path: Path) -> None:
    roots = [tmp_path / "own", tmp_path / "project"]
    await use(roots, "create", name="tea", description="Makes\ntea.", text="Boil water.")
    assert format_index(roots) == "tea: Makes tea."
    patch = {"name": "tea", "old": "Boil water.", "text": "Boil water. Wait."}
    for _ in range(2):
        await use(roots, "patch", **patch)
        assert await use(roots, "view", name="tea") == "Boil water. Wait."
    await use(roots, "patch", name="tea", file="scripts/boil.py", text="print()")
    assert (await use(roots, "view", name="tea")).endswith("scripts/boil.py")
    assert (tmp_path / "own" / "tea" / "scripts" / "boil.py").read_text() == "print()"


async def test_creating_an_existing_skill_does_not_overwrite_it(tmp_path: Path) -> None:
    new = {"name": "tea", "description": "Makes tea.", "text": "Boil water."}
    await use([tmp_path], "create", **new)
    await use([tmp_path], "create", **new)
    with pytest.raises(ToolFailed, match="already"):
        await use([tmp_path], "create", **(new | {"text": "Do not."}))
    with pytest.raises(ToolFailed, match="already"):
        await use([tmp_path], "patch", name="tea", text="all new")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"name": "../tea"}, "not a valid skill name"),
        ({"name": "Tea"}, "not a valid skill name"),
        ({"name": "t" * 65}, "not a valid skill name"),
        ({"description": ""}, "description"),
        ({"description": "d" * 1_025}, "description"),
        ({"text": " "}, "body"),
        ({"text": "t" * 60_001}, "60,000"),
    ],
)
async def test_an_invalid_skill_is_not_created(tmp_path: Path, arguments: dict[str, str], reason: str) -> None:
    valid = {"name": "tea", "description": "Makes tea.", "text": "Boil water."}
    with pytest.raises(ToolFailed, match=reason):
        await use([tmp_path], "create", **(valid | arguments))
    assert list_folders(tmp_path) == []


@pytest.mark.parametrize("file", ["../../secret", "/etc/passwd", "link", "linked/secret", ".", ".."])
@pytest.mark.parametrize("action", ["view", "patch"])
async def test_files_outside_a_skill_are_not_read_or_written(tmp_path: Path, action: str, file: str) -> None:
    folder = write_skill(tmp_path / "skills", "bread")
    (tmp_path / "secret").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(tmp_path)
    with pytest.raises(ToolFailed, match="not inside the skill"):
        await use([tmp_path / "skills"], action, name="bread", file=file, old="secret", text="public")
    assert (tmp_path / "secret").read_text() == "secret"


async def test_patch_that_breaks_the_skill_or_matches_twice_is_refused(tmp_path: Path) -> None:
    write_skill(tmp_path, "bread", body="Knead. Wait. Knead.")
    for old, reason in (("name: bread", "front matter"), ("Knead", "2 times"), ("Fold", "0 times")):
        with pytest.raises(ToolFailed, match=reason):
            await use([tmp_path], "patch", name="bread", old=old, text="x")
    assert await use([tmp_path], "view", name="bread") == "Knead. Wait. Knead."


def test_proposed_actions_describe_reads_and_show_diffs_of_changes(tmp_path: Path) -> None:
    write_skill(tmp_path, "bread", body="Knead.")
    tool = Skills([tmp_path])
    assert tool.proposed_action(SkillsArguments("list")) == ProposedAction("other", "list skills")
    assert tool.proposed_action(SkillsArguments("view", "tea")) == ProposedAction("other", "view skill tea/SKILL.md")
    patch = SkillsArguments("patch", "bread", old="Knead.", text="Fold.")
    proposed = tool.proposed_action(patch)
    assert (proposed.kind, proposed.target[:27]) == ("skill", "patch skill bread/SKILL.md ")
    assert read_diff(tool, patch) == "@@ -3,3 +3,3 @@\n description: Bakes bread.\n ---\n-Knead.\n+Fold."
    assert "+Boil water." in read_diff(
        tool, SkillsArguments("create", "tea", description="Makes tea.", text="Boil water.")
    )
    assert "-Knead." in read_diff(tool, SkillsArguments("archive", "bread"))
    assert read_diff(tool, SkillsArguments("patch", "bread", old="nothing", text="x")) == ""
    other = tool.proposed_action(SkillsArguments("patch", "bread", old="Knead.", text="Bake."))
    assert other.target != proposed.target


def read_diff(tool: Skills, arguments: SkillsArguments) -> str:
    change = tool.proposed_action(arguments).change
    assert change is not None
    return change.diff(call_from(Path("/")).workspace)


async def test_archived_skill_is_not_listed_but_preserved(tmp_path: Path) -> None:
    write_skill(tmp_path, "bread", body="Knead.")
    answer = await use([tmp_path], "archive", name="bread")
    assert await use([tmp_path], "list") == "There are no skills yet."
    assert "Knead." in (Path(answer.removeprefix("Archived bread in ").rstrip(".")) / "SKILL.md").read_text()
    with pytest.raises(ToolFailed, match="no skill 'bread' that can be edited"):
        await use([tmp_path], "archive", name="bread")


def test_skills_of_earlier_folders_have_priority_in_a_full_index(tmp_path: Path) -> None:
    write_skill(tmp_path / "own", "zebra", "long " * 100)
    for number in range(50):
        write_skill(tmp_path / "shared", f"skill-{number:02}", "long " * 100)
    lines = format_index([tmp_path / "own", tmp_path / "shared"]).splitlines()
    assert lines[-2].startswith("zebra:")
    assert lines[:-2] == sorted(lines[:-2])
    assert lines[-1] == f"… and {51 - (len(lines) - 1)} more: call `skills` with action list"


def list_folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()]
