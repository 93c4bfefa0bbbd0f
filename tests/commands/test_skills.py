"""`/skills`, a command for each skill, and skills that the agent proposes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.commands.command_fixture import Desk, open_desk
from tests.tools.skills.skill_servers import write_skill

from talaria.commands.command import Author
from talaria.commands.registry import REGISTRY, load_own_commands
from talaria.contracts.skills import SKILL_USAGE
from talaria.core.messages import Text
from talaria.runtime.questions import approval_question
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import until

YES, NO = 0, 1


@pytest.fixture
async def desk(tmp_path: Path, server: ModelServer) -> AsyncIterator[Desk]:
    async with open_desk(tmp_path, server, "[tools]\nskill_folders = []\n") as desk:
        yield desk


def own(desk: Desk) -> Path:
    return desk.application.profile.skills_folder


def load(desk: Desk) -> None:
    desk.commands = (*REGISTRY, *load_own_commands(desk.application)[0])


async def test_skills_are_listed_and_shown(desk: Desk) -> None:
    assert "There are no skills yet" in await desk.use("/skills")
    write_skill(own(desk), "bake-bread", "Knead it.", "When there is flour.")
    assert await desk.use("/skills") == "- `bake-bread`: When there is flour."
    assert await desk.use("/skills bake-bread") == "Knead it."
    assert await desk.use("/skills fly") == "There is no skill `fly`. Available: bake-bread."
    assert ("bake-bread", "When there is flour.") in await desk.offers("skills")
    assert ("disable bake-bread", "When there is flour.") in await desk.offers("skills")
    assert await desk.use("/skills search FLOUR") == "- `bake-bread`: When there is flour."
    assert "Only the owner" in await desk.use("/skills", author=Author("eve", owner=False))


async def test_skill_is_installed_updated_and_removed_after_confirmation(desk: Desk, tmp_path: Path) -> None:
    write_skill(tmp_path / "source", "bread", "```sh\nmake bread\n```")
    desk.place.answers = [NO]
    assert "`make bread`" in await desk.use(f"/skills install {tmp_path / 'source'}")
    assert "There are no skills yet" in await desk.use("/skills")
    desk.place.answers = [YES]
    assert "`bread` is installed." in await desk.use(f"/skills install {tmp_path / 'source'}")
    assert await desk.use("/skills update") == "`bread` is up to date."
    write_skill(tmp_path / "source", "bread", "Use rye.")
    desk.place.answers = [YES]
    assert "+Use rye." in await desk.use("/skills update bread")
    assert await desk.use("/skills bread") == "Use rye."
    assert (await desk.use("/skills disable bread")).startswith("`bread` is off.")
    assert "(off)" in await desk.use("/skills")
    desk.place.answers = [YES]
    assert "`bread` is on." in await desk.use("/skills enable bread")
    desk.place.answers = [YES]
    assert (await desk.use("/skills remove bread")).startswith("Removed `bread`.")
    assert (await desk.use("/skills audit")).startswith("Use `/skills`")


async def test_each_skill_is_a_command_that_counts_its_uses(desk: Desk, server: ModelServer) -> None:
    write_skill(own(desk), "bake-bread", "Knead for $1 minutes.", "When there is flour.")
    load(desk)
    server.script(Say("Done."), Say("Done."))
    await desk.use("/bake-bread with rye")
    await desk.active_session.chat.conversation.settled()
    sent = server.received[-1].json["messages"][-1]["content"]
    assert "Use the skill bake-bread." in str(sent)
    assert "Knead for $1 minutes." in str(sent)
    assert "The request: with rye" in str(sent)
    await desk.use("/bake_bread")
    await desk.active_session.chat.conversation.settled()
    assert await desk.use("/skills") == "- `bake-bread`: When there is flour. Used 2 times."
    assert "Only the owner" in await desk.use("/bake-bread", author=Author("eve", owner=False))


async def test_a_skill_never_replaces_another_command(desk: Desk) -> None:
    (desk.application.profile.folder / "commands").mkdir()
    (desk.application.profile.folder / "commands" / "deploy.md").write_text("Deploy it.")
    for name in ("help", "deploy", "bread"):
        write_skill(own(desk), name, about="A skill.")
    load(desk)
    added = [command for command in desk.commands if command not in REGISTRY]
    assert [(one.name, one.help) for one in added] == [("deploy", "Deploy it."), ("bread", "Skill: A skill.")]


async def test_an_unconfirmed_skill_is_neither_in_the_prompt_nor_a_command(
    desk: Desk, server: ModelServer, tmp_path: Path
) -> None:
    write_skill(tmp_path / "source", "bread", about="Bakes secretly.")
    skills = desk.application.knowledge.skills
    (change,) = skills.fetch(str(tmp_path / "source"))
    skills.apply(change, enable=False)
    load(desk)
    assert "bread" not in [command.name for command in desk.commands]
    await desk.use("/new")
    await desk.say("hi")
    assert "Bakes secretly." not in server.received[-1].body.decode()
    skills.switch("bread", on=True)
    await desk.say("still the same conversation")
    assert "Bakes secretly." not in server.received[-1].body.decode()
    await desk.use("/new")
    await desk.say("hi")
    assert "Bakes secretly." in server.received[-1].body.decode()


async def propose(desk: Desk, server: ModelServer, answer: str, **arguments: str) -> str:
    """Let the agent change a skill, answer the approval, and return its question."""
    server.script(Say(calls=[Ask("skills", dict(arguments))]), Say("Done."))
    await desk.active_session.put(Text("Learn this."))
    questions = desk.active_session.chat.questions
    await until(lambda: bool(questions.approvals))
    approval = questions.approvals[0]
    questions.answer(approval.id, answer)
    await desk.active_session.chat.conversation.settled()
    return approval_question(approval, markdown=True)


async def test_the_person_approves_each_skill_that_the_agent_writes(desk: Desk, server: ModelServer) -> None:
    tea = {"action": "create", "name": "tea", "description": "Makes tea.", "text": "Boil water."}
    question = await propose(desk, server, "no, thanks", **tea)
    assert "Allow skills?" in question
    assert "+Boil water." in question
    assert not (own(desk) / "tea").exists()
    await propose(desk, server, "always", **tea)
    assert "Boil water." in (own(desk) / "tea" / "SKILL.md").read_text()
    patch = {"action": "patch", "name": "tea", "old": "Boil water.", "text": "Boil milk."}
    question = await propose(desk, server, "once", **patch)
    assert "-Boil water.\n+Boil milk." in question
    await propose(desk, server, "once", action="archive", name="tea")
    assert not (own(desk) / "tea").exists()


async def test_an_approved_change_leaves_an_installed_skill_enabled(
    desk: Desk, server: ModelServer, tmp_path: Path
) -> None:
    write_skill(tmp_path / "source", "bread", "Knead.")
    skills = desk.application.knowledge.skills
    (change,) = skills.fetch(str(tmp_path / "source"))
    skills.apply(change, enable=True)
    await propose(desk, server, "once", action="patch", name="bread", old="Knead.", text="Fold.")
    assert skills.get("bread").is_enabled
    assert "Fold." in skills.text("bread")
    (update,) = [skills.fetch_update("bread")]
    assert update is not None
    assert update.overwrites


async def test_viewing_a_skill_counts_as_use(desk: Desk, server: ModelServer) -> None:
    write_skill(own(desk), "bread", "Knead.")
    server.script(Say(calls=[Ask("skills", {"action": "view", "name": "bread"})]), Say("Done."))
    await desk.say("Bake.")
    usage = await desk.application.store.read(SKILL_USAGE.items)
    assert usage["bread"].count == 1
