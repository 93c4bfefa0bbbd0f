"""What a type alone cannot say about the value of a setting."""

import re
from importlib import import_module
from urllib.parse import urlsplit

_IDENTIFIER = r"[a-z_][a-z0-9_]{0,62}"
_ID = r"[a-z][a-z0-9_-]*:\S(?:.*\S)?"
_TOOL = r"[A-Za-z][A-Za-z0-9_-]*"
_OF_USER = r"(?<=://)([^:/@]*):.*@"
_IN_QUERY = r"(?<=password=)[^&]*"
_ORIGIN = r"https?://[^\s/?#@]+"
_HOST = r"[A-Za-z0-9.:_-]+"
_HEADER_VALUE = r"(?s)=.*?(?=, [^=,]+=|\Z)"


def is_store_url(text: str) -> bool:
    """Whether ``text`` is empty or the address of a PostgreSQL database."""
    try:
        return not text or urlsplit(text).scheme in {"postgresql", "postgres"}
    except ValueError:
        return False


def is_identifier(text: str) -> bool:
    """Whether PostgreSQL takes ``text`` as a name without quotes."""
    return re.fullmatch(_IDENTIFIER, text) is not None


def is_time_zone(text: str) -> bool:
    """Whether ``text`` is empty or names a time zone this machine knows."""
    if not text:
        return True
    # Few people name a zone; the others do not wait for zoneinfo at each start.
    zones = import_module("zoneinfo")
    try:
        return bool(zones.ZoneInfo(text).key == text)
    except (KeyError, ValueError, OSError):
        return False


def is_web_address(text: str) -> bool:
    """Whether ``text`` is empty or the address of an HTTP server."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return not text or (parts.scheme in {"http", "https"} and bool(parts.hostname))


def name_models(texts: tuple[str, ...]) -> bool:
    """Whether each text names a provider and a model, as in ``openai:gpt-5``."""
    return all(all(text.partition(":")[::2]) for text in texts)


def is_voice_service(text: str) -> bool:
    """Whether ``text`` is empty, ``command``, or names a provider and a model."""
    return text in {"", "command"} or name_models((text,))


def are_ids(texts: tuple[str, ...]) -> bool:
    """Whether each text is an id on a network, as in ``telegram:12345``; the id itself may have colons."""
    return all(re.fullmatch(_ID, text) for text in texts)


def are_names(texts: tuple[str, ...]) -> bool:
    """Whether each text is an id on a network, or could be a person's name."""
    return all(re.fullmatch(_ID, text) or (text.strip() and ":" not in text) for text in texts)


def are_tool_names(texts: tuple[str, ...]) -> bool:
    """Whether each text could be the name of a tool or of a group of tools."""
    return all(re.fullmatch(_TOOL, text) for text in texts)


def are_access_rules(rules: dict[str, tuple[str, ...]]) -> bool:
    """Whether each command has a list of people or of kinds of people."""
    return all(are_names(names) for names in rules.values())


def are_origins(texts: tuple[str, ...]) -> bool:
    """Whether each text is the origin of a page, or stands for all of them."""
    return all(text == "*" or re.fullmatch(_ORIGIN, text) for text in texts)


def are_host_names(texts: tuple[str, ...]) -> bool:
    """Whether each text could be the name or the address of a machine."""
    return all(re.fullmatch(_HOST, text) for text in texts)


def mask_header_values(text: str) -> str:
    """The names of some headers, without their values."""
    return re.sub(_HEADER_VALUE, "=****", text)


def mask_password(url: str) -> str:
    """The address without its password."""
    return re.sub(_IN_QUERY, "****", re.sub(_OF_USER, r"\1:****@", url))
