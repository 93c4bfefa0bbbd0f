"""What a type alone cannot say about the value of a setting."""

import re
from importlib import import_module
from urllib.parse import urlsplit

_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_PASSWORD_OF_USER = re.compile(r"(?<=://)([^:/@]*):.*@")
_PASSWORD_IN_QUERY = re.compile(r"(?<=password=)[^&]*")


def is_store_url(text: str) -> bool:
    """Whether ``text`` is empty or the address of a PostgreSQL database."""
    try:
        return not text or urlsplit(text).scheme in {"postgresql", "postgres"}
    except ValueError:
        return False


def is_identifier(text: str) -> bool:
    """Whether PostgreSQL takes ``text`` as a name without quotes."""
    return _IDENTIFIER.fullmatch(text) is not None


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


def mask_password(url: str) -> str:
    """The address without its password."""
    return _PASSWORD_IN_QUERY.sub("****", _PASSWORD_OF_USER.sub(r"\1:****@", url))
