"""Messages, templates and errors of the Cloud API (Graph API v25.0), without I/O."""

import mimetypes
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Button, Content
from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable
from talaria.platforms.content import STARS, convert_markdown, sanitize_text
from talaria.platforms.http_api import ApiAnswer, describe_error, pause_of
from talaria.platforms.whatsapp.incoming import GraphError
from talaria.platforms.whatsapp.settings import WhatsAppSettings

TEXT_LIMIT = 4096
CLOSED_CODE = 131047
_CAPTION = 1024
_MOST_BUTTONS, _BUTTON_TEXT, _BUTTON_LABEL = 3, 1024, 20
_MOST_ROWS, _ROW_TITLE, _ROW_TEXT = 10, 24, 72
_PARAMETER = 900  # the text of a template with its parameter has at most 1024
_MEGABYTE = 1024 * 1024
_LIMITS = {"image": 5 * _MEGABYTE, "video": 16 * _MEGABYTE, "audio": 16 * _MEGABYTE, "document": 100 * _MEGABYTE}
_OFFICE = "application/vnd.openxmlformats-officedocument"
_TYPES = {
    **dict.fromkeys(("image/jpeg", "image/png"), "image"),
    **dict.fromkeys(("video/mp4", "video/3gpp"), "video"),
    **dict.fromkeys(("audio/aac", "audio/amr", "audio/mpeg", "audio/mp4", "audio/ogg"), "audio"),
    **dict.fromkeys(("text/plain", "application/pdf", "application/msword"), "document"),
    **dict.fromkeys(("application/vnd.ms-excel", "application/vnd.ms-powerpoint"), "document"),
    f"{_OFFICE}.wordprocessingml.document": "document",
    f"{_OFFICE}.spreadsheetml.sheet": "document",
    f"{_OFFICE}.presentationml.presentation": "document",
}
_TEXT_TYPES = {"application/json", "application/xml", "application/yaml", "application/toml", "application/javascript"}
_BAD_ACCOUNT = {0, 3, 10, 190, 368, 131005, 131031, 131042, 131045, *range(200, 300)}
_TOO_MANY = {4, 80007, 130429, 131048, 131064, 133016}
_PAIR_LIMIT, _PAIR_PAUSE = 131056, timedelta(seconds=6)
_TEMPORARY = {1, 2, 131000, 131016, 131057, 133004}


class UploadKind(Struct, frozen=True):
    """The ``kind`` of message for a file, and the type of its upload; a link has neither."""

    kind: str = ""
    media_type: str = ""


class SentMessage(Struct, frozen=True):
    """The id of a message in the answer."""

    id: str


class SentMessages(Struct, frozen=True):
    """The answer to a sent message."""

    messages: tuple[SentMessage, ...]


class UploadedMedia(Struct, frozen=True):
    """The answer to an upload."""

    id: str


class MediaLocation(Struct, frozen=True):
    """The address of a file, which works for some minutes."""

    url: str
    mime_type: str = ""
    file_size: int = 0


class _Refusal(Struct, frozen=True):
    error: GraphError = GraphError()


def choose_upload(name: str, media_type: str, size: int) -> UploadKind:
    """Return how WhatsApp takes a file: types that it doesn't know are links, or plain text."""
    given = mimetypes.guess_type(name)[0] or media_type.partition(";")[0]
    if given not in _TYPES and (given.startswith("text/") or given in _TEXT_TYPES):
        given = "text/plain"
    kind = _TYPES.get(given, "")
    return UploadKind(kind, given) if kind and size <= _LIMITS[kind] else UploadKind()


def make_messages(content: Content, media: Sequence[dict[str, Any]], links: Sequence[str]) -> list[dict[str, Any]]:
    """Return the messages of a content with uploaded files; raises `Rejected` for a text that can't be sent."""
    if len(sanitize_text(content.text)) > TEXT_LIMIT:
        raise Rejected(f"a message has at most {TEXT_LIMIT} characters, and this one {len(content.text)}")
    text = convert_markdown(content.text, STARS)
    files = [dict(one) for one in media]
    captioned = files[0] if len(files) == 1 and files[0]["type"] != "audio" and not content.buttons else None
    messages: list[dict[str, Any]] = []
    if captioned is not None and text.strip() and len(text) <= _CAPTION:
        captioned[captioned["type"]] = {**captioned[captioned["type"]], "caption": text}
    elif text.strip():
        messages.append(_interactive(text, content.buttons) if content.buttons else _text(text))
    messages += [*files, *map(_text, links)]
    if not messages:
        raise Rejected("a message without text can't be sent")
    if content.reply_to:
        messages[0]["context"] = {"message_id": content.reply_to}
    return messages


def make_templates(content: Content, settings: WhatsAppSettings) -> list[dict[str, Any]]:
    """Return a text as templates, whose parameters have neither line breaks nor several spaces."""
    labels = " / ".join(button.label for button in content.buttons)
    words = f"{convert_markdown(content.text, STARS)} {f'({labels})' if labels else ''}".split()
    pieces = [""]
    for word in words:
        for part in [word[start : start + _PARAMETER] for start in range(0, len(word), _PARAMETER)]:
            if len(pieces[-1]) + len(part) + 1 > _PARAMETER:
                pieces.append("")
            pieces[-1] = f"{pieces[-1]} {part}".strip()
    if not pieces[0]:
        raise Rejected("a message without text can't be sent")
    return [
        {
            "type": "template",
            "template": {
                "name": settings.template,
                "language": {"code": settings.language},
                "components": [{"type": "body", "parameters": [{"type": "text", "text": piece}]}],
            },
        }
        for piece in pieces
    ]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": {"body": text, "preview_url": False}}


def _interactive(text: str, buttons: Sequence[Button]) -> dict[str, Any]:
    """Return reply buttons if there are few and the text is short, else a list."""
    titles = [_cut(button.label, _BUTTON_LABEL) for button in buttons]
    if len(buttons) <= _MOST_BUTTONS and len(text) <= _BUTTON_TEXT and len(set(titles)) == len(titles):
        replies = [
            {"type": "reply", "reply": {"id": button.value, "title": title}}
            for button, title in zip(buttons, titles, strict=True)
        ]
        return _wrap_interactive("button", text, {"buttons": replies})
    rows = [_row(number, button) for number, button in enumerate(buttons[:_MOST_ROWS], 1)]
    return _wrap_interactive("list", text, {"button": "Choose", "sections": [{"title": "Choices", "rows": rows}]})


def _wrap_interactive(kind: str, text: str, action: dict[str, Any]) -> dict[str, Any]:
    return {"type": "interactive", "interactive": {"type": kind, "body": {"text": text}, "action": action}}


def _row(number: int, button: Button) -> dict[str, str]:
    if len(button.label) <= _ROW_TITLE:
        return {"id": button.value, "title": button.label}
    title = _cut(f"{number}. {button.label}", _ROW_TITLE)
    return {"id": button.value, "title": title, "description": _cut(button.label, _ROW_TEXT)}


def _cut(label: str, length: int) -> str:
    return label if len(label) <= length else f"{label[: length - 1]}…"


def read_code(answer: ApiAnswer) -> int:
    """Return the code of a refusal; -1 if there is none."""
    try:
        return msgspec.json.decode(answer.body, type=_Refusal).error.code
    except msgspec.DecodeError:
        return -1


class WindowClosed(Unreachable):
    """The chat takes only templates until the person writes again."""


def to_error(answer: ApiAnswer) -> PlatformError:
    """Return the error for a refused call."""
    code = read_code(answer)
    if code == CLOSED_CODE:
        return WindowClosed("the chat takes only templates until the person writes again")
    if answer.status == 401 or code in _BAD_ACCOUNT:
        return BadCredentials(f"WhatsApp doesn't accept the account: error {code}")
    if code == _PAIR_LIMIT:
        return SlowDown("too many messages to one person", retry_after=_PAIR_PAUSE, everywhere=False)
    if code in _TOO_MANY or answer.status == 429:
        return pause_of(answer)
    if code in _TEMPORARY or answer.status >= 500:
        return Unreachable(f"WhatsApp failed with {describe_error(answer)}")
    return Rejected(f"WhatsApp refuses it with {describe_error(answer)}")
