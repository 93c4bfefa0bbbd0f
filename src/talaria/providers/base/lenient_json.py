"""Decode JSON from models, replacing invalid Unicode: half an emoji, or bytes that are not UTF-8."""

import re
from typing import TypeVar

import msgspec

from talaria.core.errors import MalformedReply

_T = TypeVar("_T")
_SURROGATES = re.compile(
    rb"(?<!\\)((?:\\\\)*)\\u(?:([dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def decode_json(decoder: "msgspec.json.Decoder[_T]", data: bytes, provider: str) -> _T:
    """Decode a provider's JSON, or raise `MalformedReply`; invalid Unicode becomes U+FFFD."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        repaired = _replace_invalid(data)
        if repaired == data:
            raise MalformedReply(f"{provider}: {error}") from error
    try:
        return decoder.decode(repaired)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedReply(f"{provider}: {error}") from error


def _replace_invalid(data: bytes) -> bytes:
    readable = data.decode(errors="replace").encode()
    return _SURROGATES.sub(_replacement, readable)


def _replacement(match: re.Match[bytes]) -> bytes:
    """Keep a pair of surrogates, replace a single one."""
    return match[0] if match[2] else match[1] + rb"\ufffd"
