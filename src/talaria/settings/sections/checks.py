"""Checks of setting values that a type cannot express, and masks for secrets."""

import re
from ipaddress import ip_address
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
    """Return whether ``text`` is empty or the URL of a PostgreSQL database."""
    try:
        return not text or urlsplit(text).scheme in {"postgresql", "postgres"}
    except ValueError:
        return False


def is_identifier(text: str) -> bool:
    """Return whether ``text`` is a PostgreSQL identifier that needs no quotes."""
    return re.fullmatch(_IDENTIFIER, text) is not None


def is_time_zone(text: str) -> bool:
    """Return whether ``text`` is empty or a time zone known to this machine."""
    if not text:
        return True
    from talaria.core.formatting import load_zone  # noqa: PLC0415 (loaded when a zone is set; few people set one)

    try:
        return load_zone(text).key == text
    except (KeyError, ValueError, OSError):
        return False


def is_web_address(text: str) -> bool:
    """Return whether ``text`` is empty or the address of an HTTP server."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return not text or (parts.scheme in {"http", "https"} and bool(parts.hostname))


def are_engine_addresses(addresses: dict[str, str], engines: tuple[str, ...]) -> bool:
    """Return whether each key is one of ``engines`` and each value the address of an HTTP server."""
    return all(name in engines and bool(address) and is_web_address(address) for name, address in addresses.items())


def are_model_names(texts: tuple[str, ...]) -> bool:
    """Return whether each text names a provider and a model, for example ``openai:gpt-5``."""
    return all(all(text.partition(":")[::2]) for text in texts)


def is_voice_service(text: str) -> bool:
    """Return whether ``text`` is empty, ``command``, or names a provider and a model."""
    return text in {"", "command"} or are_model_names((text,))


def is_pattern(text: str) -> bool:
    """Return whether ``text`` is a regular expression."""
    try:
        return re.compile(text) is not None
    except re.error:
        return False


def are_ids(texts: tuple[str, ...]) -> bool:
    """Return whether each text is a network id, for example ``telegram:12345``; ids may contain colons."""
    return all(re.fullmatch(_ID, text) for text in texts)


def are_names(texts: tuple[str, ...]) -> bool:
    """Return whether each text is a network id or a possible name of a person."""
    return all(re.fullmatch(_ID, text) or (text.strip() and ":" not in text) for text in texts)


def are_tool_names(texts: tuple[str, ...]) -> bool:
    """Return whether each text is a possible name of a tool or toolset."""
    return all(re.fullmatch(_TOOL, text) for text in texts)


def are_access_rules(rules: dict[str, tuple[str, ...]]) -> bool:
    """Return whether each command has a list of people or kinds of people."""
    return all(are_names(names) for names in rules.values())


def are_origins(texts: tuple[str, ...]) -> bool:
    """Return whether each text is a web origin, or stands for all of them."""
    return all(text == "*" or re.fullmatch(_ORIGIN, text) for text in texts)


def are_host_names(texts: tuple[str, ...]) -> bool:
    """Return whether each text is a possible host name or address."""
    return all(re.fullmatch(_HOST, text) for text in texts)


def are_addresses(texts: tuple[str, ...]) -> bool:
    """Return whether each text is an IP address."""
    try:
        return all(ip_address(text) for text in texts)
    except ValueError:
        return False


def mask_header_values(text: str) -> str:
    """Return the names of headers, without their values."""
    return re.sub(_HEADER_VALUE, "=****", text)


def mask_password(url: str) -> str:
    """Return a URL with its password masked."""
    return re.sub(_IN_QUERY, "****", re.sub(_OF_USER, r"\1:****@", url))


def are_absolute_paths(texts: tuple[str, ...]) -> bool:
    """Return whether each text is an absolute path, or one in the home directory."""
    return all(text.startswith(("/", "~/")) and "\0" not in text for text in texts)


def are_host_patterns(texts: tuple[str, ...]) -> bool:
    """Return whether each text is a host name or an address; a name may start with ``*.``."""
    return all(re.fullmatch(r"(\*\.)?[A-Za-z0-9._-]+|[0-9a-fA-F:]+", text) for text in texts)


def is_image_name(text: str) -> bool:
    """Return whether ``text`` can be the name of a container image."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*", text) is not None


def is_ssh_target(text: str) -> bool:
    """Return whether ``text`` is empty or a host for ssh, optionally with a user; never an option."""
    return re.fullmatch(r"([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_][A-Za-z0-9_.:-]*|", text) is not None
