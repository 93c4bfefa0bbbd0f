"""The skills tool: view skills, and propose new ones and changes, which the person approves."""

import asyncio
import hashlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from talaria.contracts.store import Store
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput, Workspace
from talaria.core.errors import ToolFailed
from talaria.tools.skills.registry import HEAD, Document, SkillRegistry, write_document

if TYPE_CHECKING:  # loaded with the first change
    from talaria.tools.skills.editor import SkillEditor

_ID_LENGTH = 8


class SkillsArguments(Struct, frozen=True):
    """A skill, and what to do with it."""

    action: Literal["list", "view", "create", "patch", "archive"]
    name: str = ""
    file: Annotated[str, Meta(description="Default: SKILL.md")] = ""
    description: Annotated[str, Meta(description="When to use it")] = ""
    old: Annotated[str, Meta(description="Text to replace")] = ""
    text: Annotated[str, Meta(description="Body, or the replacement for old")] = ""


class ProposedSkill(Struct, frozen=True):
    """A proposed change of a skill; implements `FileChange`."""

    editor: "SkillEditor"
    arguments: SkillsArguments

    def diff(self, workspace: Workspace) -> str:
        """Return the change as a unified diff; empty if it can't be made, which the call then reports."""
        arguments = self.arguments
        try:
            match arguments.action:
                case "create":
                    return _diff_texts("", write_document(_make_document(arguments)))
                case "patch":
                    return _diff_texts(
                        *self.editor.preview_patch(arguments.name, arguments.old, arguments.text, arguments.file)
                    )
                case _:
                    return _diff_texts(self.editor.read_source(arguments.name), "")
        except ToolFailed:
            return ""


class Skills:
    """Folders with a SKILL.md; new ones go to the first root. Without a ``store``, uses aren't counted."""

    name = "skills"
    description = "Instructions for recurring tasks. View a matching one before you start."
    effect = Effect.IDEMPOTENT
    arguments: type[Struct] = SkillsArguments

    def __init__(self, roots: Sequence[Path], disabled: Collection[str] = (), store: Store | None = None) -> None:
        self._registry = SkillRegistry(tuple(roots), disabled)
        self._store = store

    def proposed_action(self, arguments: SkillsArguments) -> ProposedAction:
        """Describe which file of which skill is read or written."""
        match arguments.action:
            case "list":
                return ProposedAction("other", "list skills")
            case "view":
                return ProposedAction("other", f"view skill {arguments.name}/{arguments.file or HEAD}")
            case action:
                # the id makes the approval of one change differ from that of the next
                change_id = hashlib.sha256(repr(arguments).encode()).hexdigest()[:_ID_LENGTH]
                target = f"{action} skill {arguments.name}/{arguments.file or HEAD} (change {change_id})"
                return ProposedAction("skill", target, change=ProposedSkill(self._editor, arguments))

    async def run(self, arguments: SkillsArguments, call: Call) -> ToolOutput:
        """Read or write a skill."""
        output = await asyncio.to_thread(self._answer, arguments)
        if arguments.action == "view" and not arguments.file and self._store is not None:
            from talaria.contracts.skills import count_use  # noqa: PLC0415 (loaded with the first skill)

            await self._store.write(lambda tx: count_use(tx, arguments.name))
        return output

    def _answer(self, arguments: SkillsArguments) -> ToolOutput:
        match arguments.action:
            case "list":
                return ToolOutput(self._list())
            case "view":
                return ToolOutput(self._registry.view(arguments.name, arguments.file))
            case "create":
                document = _make_document(arguments)
                return ToolOutput(self._editor.create(document), diff=_diff_texts("", write_document(document)))
            case "patch":
                before, after = self._editor.preview_patch(
                    arguments.name, arguments.old, arguments.text, arguments.file
                )
                done = self._editor.patch(arguments.name, arguments.old, arguments.text, arguments.file)
                return ToolOutput(done, diff=_diff_texts(before, after))
            case "archive":
                return ToolOutput(f"Archived {arguments.name} in {self._editor.archive(arguments.name)}.")

    @property
    def _editor(self) -> "SkillEditor":
        from talaria.tools.skills.editor import SkillEditor  # noqa: PLC0415 (loaded with the first change)

        return SkillEditor(self._registry)

    def _list(self) -> str:
        documents = [skill.document for skill in self._registry.list_skills()]
        return "\n".join(f"{one.name}: {one.description}" for one in documents) or "There are no skills yet."


def _make_document(arguments: SkillsArguments) -> Document:
    return Document(arguments.name, " ".join(arguments.description.split()), arguments.text.strip())


def _diff_texts(before: str, after: str) -> str:
    from talaria.core.text_diff import diff_texts  # noqa: PLC0415 (loaded with the first change)

    return diff_texts(before, after)
