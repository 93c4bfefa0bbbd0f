"""The skills tool: view, create and patch skills."""

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.tools.skills.registry import Document, SkillRegistry


class SkillsArguments(Struct, frozen=True):
    """A skill, and what to do with it."""

    action: Literal["list", "view", "create", "patch"]
    name: str = ""
    file: Annotated[str, Meta(description="Default: SKILL.md")] = ""
    description: Annotated[str, Meta(description="When to use it")] = ""
    old: Annotated[str, Meta(description="Text to replace")] = ""
    text: Annotated[str, Meta(description="Body, or the replacement for old")] = ""


class Skills:
    """Folders with a SKILL.md; new ones go to the first root."""

    name = "skills"
    description = "Instructions for recurring tasks. View a matching one before you start."
    effect = Effect.IDEMPOTENT
    arguments: type[Struct] = SkillsArguments

    def __init__(self, roots: Sequence[Path], disabled: Collection[str] = ()) -> None:
        self._shelf = SkillRegistry(tuple(roots), disabled)

    def proposed_action(self, arguments: SkillsArguments) -> ProposedAction:
        """Describe which file of which skill is read or written."""
        if arguments.action == "list":
            return ProposedAction("other", "list skills")
        return ProposedAction("other", f"{arguments.action} skill {arguments.name}/{arguments.file or 'SKILL.md'}")

    async def run(self, arguments: SkillsArguments, call: Call) -> ToolOutput:
        """Read or write a skill."""
        return ToolOutput(await asyncio.to_thread(self._answer, arguments))

    def _answer(self, arguments: SkillsArguments) -> str:
        match arguments.action:
            case "list":
                return self._all()
            case "view":
                return self._shelf.view(arguments.name, arguments.file)
            case "create":
                description = " ".join(arguments.description.split())
                return self._shelf.create(Document(arguments.name, description, arguments.text.strip()))
            case "patch":
                return self._shelf.patch(arguments.name, arguments.old, arguments.text, arguments.file)

    def _all(self) -> str:
        documents = [skill.document for skill in self._shelf.skills()]
        return "\n".join(f"{one.name}: {one.description}" for one in documents) or "There are no skills yet."
