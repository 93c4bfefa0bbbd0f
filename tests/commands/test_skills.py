"""`/skills`, a command for each skill, and skills that the agent proposes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.commands.command_fixture import ChatClient, open_chat_client
from tests.tools.skills.skill_servers import write_skill

from talaria.commands.command import Author
from talaria.commands.registry import REGISTRY, load_own_commands
from talaria.contracts.skills import SKILL_USAGE
from talaria.core.messages import Text
from talaria.runtime.questions import format_approval_question
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import until

YES, NO = 0, 1


@pytest.fixture
async def client(tmp_path: Path, server: ModelServer) -> AsyncIterator[ChatClient]:
    async with open_chat_client(tmp_path, server, "[tools]\nskill_folders = []\n") as client:
        yield client


def own(client: ChatClient) -> Path:
    return client.application.profile.skills_folder


def load(client: ChatClient) -> None:
    client.commands = (*REGISTRY, *load_own_commands(client.application)[0])


async def test_skills_are_listed_and_shown(client: ChatClient) -> None:
    assert "There are no skills yet" in await client.use("/skills")
    write_skill(own(client), "bake-bread", "Knead it.", "When there is flour.")
    assert await client.use("/skills") == "- `bake-bread`: When there is flour."
    assert await client.use("/skills bake-bread") == "Knead it."
    assert await client.use("/skills fly") == "There is no skill `fly`. Available: bake-bread."
    assert ("bake-bread", "When there is flour.") in await client.offers("skills")
    assert ("disable bake-bread", "When there is flour.") in await client.offers("skills")
    assert await client.use("/skills search FLOUR") == "- `bake-bread`: When there is flour."
    assert "Only the owner" in await client.use("/skills", author=Author("eve", owner=False))


async def test_skill_is_installed_updated_and_removed_after_confirmation(client: ChatClient, tmp_path: Path) -> None:
    write_skill(tmp_path / "source", "bread", "```sh\nmake bread\n```")
    client.surface.answers = [NO]
    assert "`make bread`" in await client.use(f"/skills install {tmp_path / 'source'}")
    assert "There are no skills yet" in await client.use("/skills")
    client.surface.answers = [YES]
    assert "`bread` is installed." in await client.use(f"/skills install {tmp_path / 'source'}")
    assert await client.use("/skills update") == "`bread` is up to date."
    write_skill(tmp_path / "source", "bread", "Use rye.")
    client.surface.answers = [YES]
    assert "+Use rye." in await client.use("/skills update bread")
    assert await client.use("/skills bread") == "Use rye."
    assert (await client.use("/skills disable bread")).startswith("`bread` is off.")
    assert "(off)" in await client.use("/skills")
    client.surface.answers = [YES]
    assert "`bread` is on." in await client.use("/skills enable bread")
    client.surface.answers = [YES]
    assert (await client.use("/skills remove bread")).startswith("Removed `bread`.")
    assert (await client.use("/skills audit")).startswith("Use `/skills`")


async def test_each_skill_is_a_command_that_counts_its_uses(client: ChatClient, server: ModelServer) -> None:
    write_skill(own(client), "bake-bread", "Knead for $1 minutes.", "When there is flour.")
    load(client)
    server.script(Say("Done."), Say("Done."))
    await client.use("/bake-bread with rye")
    await client.active_session.chat.conversation.wait_until_idle()
    sent = server.received[-1].json["messages"][-1]["content"]
    assert "Use the skill bake-bread." in str(sent)
    assert "Knead for $1 minutes." in str(sent)
    assert "The request: with rye" in str(sent)
    await client.use("/bake_bread")
    await client.active_session.chat.conversation.wait_until_idle()
    assert await client.use("/skills") == "- `bake-bread`: When there is flour. Used 2 times."
    assert "Only the owner" in await client.use("/bake-bread", author=Author("eve", owner=False))


async def test_a_skill_never_replaces_another_command(client: ChatClient) -> None:
    (client.application.profile.folder / "commands").mkdir()
    (client.application.profile.folder / "commands" / "deploy.md").write_text("Deploy it.")
    for name in ("help", "deploy", "bread"):
        write_skill(own(client), name, about="A skill.")
    load(client)
    added = [command for command in client.commands if command not in REGISTRY]
    assert [(one.name, one.help) for one in added] == [("deploy", "Deploy it."), ("bread", "Skill: A skill.")]


async def test_an_unconfirmed_skill_is_neither_in_the_prompt_nor_a_command(
    client: ChatClient, server: ModelServer, tmp_path: Path
) -> None:
    write_skill(tmp_path / "source", "bread", about="Bakes secretly.")
    skills = client.application.knowledge.skills
    (change,) = skills.fetch(str(tmp_path / "source"))
    skills.apply(change, enable=False)
    load(client)
    assert "bread" not in [command.name for command in client.commands]
    await client.use("/new")
    await client.say("hi")
    assert "Bakes secretly." not in server.received[-1].body.decode()
    skills.switch("bread", on=True)
    await client.say("still the same conversation")
    assert "Bakes secretly." not in server.received[-1].body.decode()
    await client.use("/new")
    await client.say("hi")
    assert "Bakes secretly." in server.received[-1].body.decode()


async def propose(client: ChatClient, server: ModelServer, answer: str, **arguments: str) -> str:
    """Let the agent change a skill, answer the approval, and return its question."""
    server.script(Say(calls=[Ask("skills", dict(arguments))]), Say("Done."))
    await client.active_session.put(Text("Learn this."))
    questions = client.active_session.chat.questions
    await until(lambda: bool(questions.approvals))
    approval = questions.approvals[0]
    questions.answer(approval.id, answer)
    await client.active_session.chat.conversation.wait_until_idle()
    return format_approval_question(approval, markdown=True)


async def test_the_person_approves_each_skill_that_the_agent_writes(client: ChatClient, server: ModelServer) -> None:
    tea = {"action": "create", "name": "tea", "description": "Makes tea.", "text": "Boil water."}
    question = await propose(client, server, "no, thanks", **tea)
    assert "Allow skills?" in question
    assert "+Boil water." in question
    assert not (own(client) / "tea").exists()
    await propose(client, server, "always", **tea)
    assert "Boil water." in (own(client) / "tea" / "SKILL.md").read_text()
    patch = {"action": "patch", "name": "tea", "old": "Boil water.", "text": "Boil milk."}
    question = await propose(client, server, "once", **patch)
    assert "-Boil water.\n+Boil milk." in question
    await propose(client, server, "once", action="archive", name="tea")
    assert not (own(client) / "tea").exists()


async def test_an_approved_change_leaves_an_installed_skill_enabled(
    client: ChatClient, server: ModelServer, tmp_path: Path
) -> None:
    write_skill(tmp_path / "source", "bread", "Knead.")
    skills = client.application.knowledge.skills
    (change,) = skills.fetch(str(tmp_path / "source"))
    skills.apply(change, enable=True)
    await propose(client, server, "once", action="patch", name="bread", old="Knead.", text="Fold.")
    assert skills.get("bread").is_enabled
    assert "Fold." in skills.text("bread")
    (update,) = [skills.fetch_update("bread")]
    assert update is not None
    assert update.overwrites


async def test_viewing_a_skill_counts_as_use(client: ChatClient, server: ModelServer) -> None:
    write_skill(own(client), "bread", "Knead.")
    server.script(Say(calls=[Ask("skills", {"action": "view", "name": "bread"})]), Say("Done."))
    await client.say("Bake.")
    usage = await client.application.store.read(SKILL_USAGE.items)
    assert usage["bread"].count == 1
