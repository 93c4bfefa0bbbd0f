"""`/skills`: what the agent has learned to do."""

from collections.abc import Sequence

from talaria.commands.command import Command, Errand


async def run(errand: Errand) -> None:
    """List the skills, or show one."""
    if errand.words:
        errand.place.show(errand.house.knowledge.skill(errand.words))
        return
    lines = [f"- `{skill.name}`: {skill.about}" for skill in errand.house.knowledge.skills()]
    errand.place.show("\n".join(lines) or "There are no skills yet: ask the agent to write down how something is done.")


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return every skill."""
    return [(skill.name, skill.about) for skill in errand.house.knowledge.skills()]


COMMAND = Command(
    name="skills",
    category="Abilities",
    help="Show the skills of the agent, or one of them.",
    hint="[name]",
    who="owner",
    run=run,
    reads=True,
    offers=offers,
)
