"""Read what a client says: words or items become messages of a conversation."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeVar

import msgspec
from msgspec import Raw, Struct, structs

from talaria.api.pictures import Pictures
from talaria.api.problems import Problem, unsupported
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import Image, Message, Part, Text, ToolCall, ToolResult

_MOST_ITEMS = 10_000
Fetch = Callable[[str], Raw | None]
T = TypeVar("T")


class Said(Struct, frozen=True):
    """What a client says: ``message`` is answered, ``history`` stands before it, ``instructions`` above all.

    ``items`` is the same as it is shown again. Pictures are as the client gave them: see `illustrated`.
    """

    message: Message
    history: tuple[Message, ...] = ()
    instructions: str = ""
    items: tuple[Raw, ...] = ()


class _Kind(Struct):
    type: str = "message"
    role: str = ""
    id: str | None = None


class _TextPart(Struct, tag="input_text"):
    text: str


class _OutputPart(Struct, tag="output_text"):
    text: str


class _SummaryPart(Struct, tag="text"):
    text: str


class _RefusalPart(Struct, tag="refusal"):
    refusal: str


class _ImagePart(Struct, tag="input_image"):
    image_url: str | None = None
    file_id: str | None = None


class _FilePart(Struct, tag="input_file"):
    filename: str | None = None


_Content = _TextPart | _OutputPart | _SummaryPart | _RefusalPart | _ImagePart | _FilePart


class _Spoken(Struct):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[_Content]


class _Call(Struct):
    call_id: str
    name: str
    arguments: str


class _CallOutput(Struct):
    call_id: str
    output: str | list[_Content]


class _ServerCall(Struct):
    id: str
    name: str
    arguments: str
    output: str | None = None


class _Shown(Struct):
    """A message of a person as it is shown again."""

    id: str
    role: str
    content: list[dict[str, str]]
    type: str = "message"
    status: str = "completed"


_encode = msgspec.json.Encoder().encode


def read_input(given: str | Sequence[Raw] | None, fetch: Fetch, param: str = "input") -> Said:
    """Return what is said, or raise a `Problem`; ``fetch`` finds the item that an earlier answer gave this id."""
    if given is None:
        raise Problem(
            f"`{param}` is missing: there is nothing to answer.", param=param, code="missing_required_parameter"
        )
    if isinstance(given, str):
        return Said(_message("user", _not_empty([Text(given)], param)), items=(_shown_text(given),))
    if len(given) > _MOST_ITEMS:
        raise Problem(f"`{param}` may have {_MOST_ITEMS:,} items at most.", param=param, code="invalid_value")
    return _said([_read(item, f"{param}[{number}]", fetch) for number, item in enumerate(given)], given, param)


def _said(read: list[Sequence[Message]], given: Sequence[Raw], param: str) -> Said:
    messages = [message for item in read for message in item]
    instructions = "\n\n".join(message.text for message in messages if message.role == "system")
    spoken = [message for message in messages if message.role != "system"]
    last: list[Part] = []
    while spoken and spoken[-1].role == "user":
        last[:0] = spoken.pop().parts
    if not last:
        raise Problem(f"The last item of `{param}` is no message of a user.", param=param, code="invalid_value")
    shown = tuple(_with_id(item) for item in given)
    return Said(_message("user", _not_empty(last, param)), tuple(spoken), instructions, shown)


def _not_empty(parts: list[Part], param: str) -> list[Part]:
    if not any(
        isinstance(part, Image) or (isinstance(part, Text) and part.text.replace("\0", "").strip()) for part in parts
    ):
        raise Problem(f"`{param}` is empty: there is nothing to answer.", param=param, code="invalid_value")
    return parts


def _read(item: Raw, place: str, fetch: Fetch) -> Sequence[Message]:
    kind = _decoded(item, _Kind, place)
    match kind.type:
        case "message":
            return [_spoken(_decoded(item, _Spoken, place), place)]
        case "item_reference":
            found = fetch(kind.id or "")
            if found is None:
                raise Problem(f"There is no item `{(kind.id or '')[:64]}`.", param=place, code="item_not_found")
            return _read(found, place, lambda _: None)
        case "mcp_call":
            call = _decoded(item, _ServerCall, place)
            return [_called(call.id, call.name, call.arguments), _answered(call.id, call.output or "")]
        case "function_call":
            asked = _decoded(item, _Call, place)
            return [_called(asked.call_id, asked.name, asked.arguments)]
        case "function_call_output":
            answer = _decoded(item, _CallOutput, place)
            words = answer.output if isinstance(answer.output, str) else _words(answer.output)
            return [_answered(answer.call_id, words)]
        case "reasoning":
            return []
        case other:
            raise unsupported(place, f"Items of the type `{other[:64]}` are not understood here.")


def _spoken(spoken: _Spoken, place: str) -> Message:
    content = [_TextPart(spoken.content)] if isinstance(spoken.content, str) else spoken.content
    if spoken.role == "assistant":
        return _message("assistant", (Text(_words(content)),))
    if spoken.role != "user":
        return _message("system", (Text(_words(content)),))
    return _message("user", [_part(part, f"{place}.content[{number}]") for number, part in enumerate(content)])


def _part(part: _Content, place: str) -> Part:
    match part:
        case _ImagePart(image_url=address):
            if address is None:
                raise unsupported(f"{place}.file_id", "Files are not kept here: give the picture in `image_url`.")
            return Image(address)
        case _FilePart():
            raise unsupported(place, "Files are not taken here: give pictures as `input_image`, and texts as words.")
        case _RefusalPart(words):
            return Text(words)
        case _:
            return Text(part.text)


def instructed(words: str) -> Message:
    """Return what the agent is told in the middle of a conversation, whose beginning stays as it is."""
    return _message("system", (Text(words),))


async def illustrated(messages: Sequence[Message], pictures: Pictures, session_id: SessionId) -> tuple[Message, ...]:
    """Return the messages with their pictures as files of a conversation; nothing else may stand in a transcript."""
    return tuple([await _illustrated(message, pictures, session_id) for message in messages])


async def _illustrated(message: Message, pictures: Pictures, session_id: SessionId) -> Message:
    parts = [
        await pictures.take_in(part.source, session_id) if isinstance(part, Image) else part for part in message.parts
    ]
    return structs.replace(message, parts=tuple(parts))


def _words(content: Iterable[_Content]) -> str:
    texts = (part.refusal if isinstance(part, _RefusalPart) else getattr(part, "text", "") for part in content)
    return "\n".join(text for text in texts if text)


def _called(call_id: str, name: str, arguments: str) -> Message:
    return _message("assistant", (ToolCall(call_id, name, arguments),))


def _answered(call_id: str, text: str) -> Message:
    return _message("tool", (ToolResult(call_id, text),))


def _message(role: Literal["user", "assistant", "system", "tool"], parts: Iterable[Part]) -> Message:
    return Message(role=role, parts=tuple(parts), at=datetime.now(UTC))


def _decoded(item: Raw, kind: type[T], place: str) -> T:
    try:
        return msgspec.json.decode(item, type=kind)
    except msgspec.MsgspecError as error:
        sentence, _, where = str(error).partition(" - at `$")
        at = place + where.rstrip("`")
        raise Problem(f"`{at}` does not fit: {sentence}.", param=at, code="invalid_value") from error


def _shown_text(text: str) -> Raw:
    return Raw(_encode(_Shown(f"msg_{new_id()}", "user", [{"type": "input_text", "text": text}])))


def _with_id(item: Raw) -> Raw:
    """Return an item with an id, and with words as a list of parts, as clients want to read it again."""
    fields = msgspec.json.decode(item)
    kind = fields.setdefault("type", "message")
    fields["id"] = fields.get("id") or f"{'msg' if kind == 'message' else 'item'}_{new_id()}"
    if kind == "message":
        fields.setdefault("status", "completed")
        if isinstance(fields.get("content"), str):
            part = "output_text" if fields.get("role") == "assistant" else "input_text"
            fields["content"] = [{"type": part, "text": fields["content"]}]
    return Raw(_encode(fields))
