"""Validation of Slack blocks: unknown fields, empty texts and excessive lengths are refused."""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from talaria.testing.slack_server.world import MethodError

MOST_BLOCKS = 50

Text: TypeAlias = Annotated[str, Meta(min_length=1)]
Short: TypeAlias = Annotated[str, Meta(min_length=1, max_length=75)]
Paragraph: TypeAlias = Annotated[str, Meta(min_length=1, max_length=3000)]
Address: TypeAlias = Annotated[str, Meta(pattern=r"^(https?://|mailto:)\S", max_length=3000)]


class _Strict(Struct, forbid_unknown_fields=True):
    """A struct that rejects unknown fields."""


class _Style(_Strict):
    bold: bool = False
    italic: bool = False
    strike: bool = False
    code: bool = False


class _TextElement(_Strict, tag="text"):
    text: Text
    style: _Style | None = None


class _Link(_Strict, tag="link"):
    url: Address
    text: str = ""
    style: _Style | None = None


class _Section(_Strict, tag="rich_text_section"):
    elements: list[_TextElement | _Link]


class _Preformatted(_Strict, tag="rich_text_preformatted"):
    elements: Annotated[list[_TextElement | _Link], Meta(min_length=1)]
    border: int = 0


class _Quote(_Strict, tag="rich_text_quote"):
    elements: Annotated[list[_TextElement | _Link], Meta(min_length=1)]


class _List(_Strict, tag="rich_text_list"):
    style: Literal["bullet", "ordered"]
    elements: Annotated[list[_Section], Meta(min_length=1)]
    indent: Annotated[int, Meta(ge=0, le=8)] = 0
    offset: Annotated[int, Meta(ge=0)] = 0


class _RichText(_Strict, tag="rich_text"):
    elements: Annotated[list[_Section | _Preformatted | _Quote | _List], Meta(min_length=1)]
    block_id: str = ""


class _Divider(_Strict, tag="divider"):
    block_id: str = ""


class _Cell(_Strict, tag="raw_text"):
    text: Text


class _Column(_Strict):
    align: Literal["left", "center", "right"] = "left"
    is_wrapped: bool = False


class _Table(_Strict, tag="table"):
    rows: Annotated[list[Annotated[list[_Cell], Meta(min_length=1, max_length=20)]], Meta(min_length=1, max_length=100)]
    column_settings: Annotated[list[_Column], Meta(max_length=20)] = []
    block_id: str = ""


class _Plain(_Strict, tag="plain_text"):
    text: Paragraph
    emoji: bool = True


class _Mrkdwn(_Strict, tag="mrkdwn"):
    text: Paragraph
    verbatim: bool = False


class _Label(_Strict, tag="plain_text"):
    text: Short
    emoji: bool = True


class _TextSection(_Strict, tag="section"):
    text: _Plain | _Mrkdwn
    block_id: str = ""


class _Button(_Strict, tag="button"):
    text: _Label
    action_id: Annotated[str, Meta(min_length=1, max_length=255)]
    value: Annotated[str, Meta(max_length=2000)] = ""
    style: Literal["primary", "danger"] | None = None


class _Option(_Strict):
    text: _Label
    value: Annotated[str, Meta(min_length=1, max_length=150)]


class _Select(_Strict, tag="static_select"):
    action_id: Annotated[str, Meta(min_length=1, max_length=255)]
    options: Annotated[list[_Option], Meta(min_length=1, max_length=100)]
    placeholder: _Label | None = None


class _Actions(_Strict, tag="actions"):
    elements: Annotated[list[_Button | _Select], Meta(min_length=1, max_length=25)]
    block_id: str = ""


Block: TypeAlias = _RichText | _Divider | _Table | _TextSection | _Actions


def check_blocks(blocks: object) -> list[dict[str, Any]]:
    """Return blocks as they are, or refuse them."""
    try:
        read = msgspec.convert(blocks, Annotated[list[Block], Meta(max_length=MOST_BLOCKS)])
    except msgspec.ValidationError as error:
        raise MethodError("invalid_blocks", errors=[str(error)]) from error
    if sum(isinstance(block, _Table) for block in read) > 1:
        raise MethodError("invalid_blocks", errors=["only one table is allowed"])
    names = [one.action_id for block in read if isinstance(block, _Actions) for one in block.elements]
    if len(names) != len(set(names)):
        raise MethodError("invalid_blocks", errors=["an action_id is there twice"])
    return msgspec.convert(blocks, list[dict[str, Any]])


def choices_of(blocks: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return the choices below a message: each label with the value it sends."""
    found = []
    for element in (one for block in blocks if block["type"] == "actions" for one in block["elements"]):
        action = {"action_id": element["action_id"], "type": element["type"]}
        if element["type"] == "button":
            found.append((element["text"]["text"], action | {"value": element.get("value", "")}))
        else:
            found += [(one["text"]["text"], action | {"selected_option": one}) for one in element["options"]]
    return found
