"""Read and write a SKILL.md: a few named lines between two ``---``, then Markdown."""

import re

from msgspec import Struct

from talaria.core.errors import ToolFailed
from talaria.core.front_matter import split_front_matter

SIZE_LIMIT = 60_000  # characters of one file
DESCRIPTION_LIMIT = 1_024
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Document(Struct, frozen=True):
    """A skill as it is written down; ``body`` is what to do."""

    name: str
    description: str
    body: str


def read_document(text: str) -> Document:
    """Return what a SKILL.md says; a field that is missing is empty."""
    fields, body = split_front_matter(text)
    return Document(fields.get("name", ""), " ".join(fields.get("description", "").split()), body)


def write_document(document: Document) -> str:
    """Return the text of a SKILL.md."""
    return f"---\nname: {document.name}\ndescription: {document.description}\n---\n\n{document.body.strip()}\n"


def check_document(text: str, name: str) -> None:
    """Raise `ToolFailed` unless this is a SKILL.md that can be found and used under this name."""
    document = read_document(text)
    check_name(name)
    if document.name != name:
        raise ToolFailed(f"the SKILL.md must begin with front matter that says `name: {name}`")
    if not document.description or len(document.description) > DESCRIPTION_LIMIT:
        raise ToolFailed(f"a skill needs a description of at most {DESCRIPTION_LIMIT:,} characters: when is it of use?")
    if not document.body:
        raise ToolFailed("a skill needs a body: what is to be done")
    check_size(text)


def check_name(name: str) -> None:
    """Raise `ToolFailed` unless this can be the name of a skill, and of its folder."""
    if len(name) > 64 or not _NAME.fullmatch(name):
        raise ToolFailed(f"{name!r} is no name for a skill: small letters, digits and single hyphens, 64 at most")


def check_size(text: str) -> None:
    """Raise `ToolFailed` for a file that is too long to be read in one go."""
    if len(text) > SIZE_LIMIT:
        raise ToolFailed(f"that is {len(text):,} characters; at most {SIZE_LIMIT:,} fit into a file of a skill")
