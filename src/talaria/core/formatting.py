"""Format numbers and times for people."""

import os
import re
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from talaria.core.addresses import WEB

if TYPE_CHECKING:  # imported lazily: few people set a zone
    from zoneinfo import ZoneInfo

# Control characters, and those that reverse or break the text around them.
HARMFUL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
# A file of the zone database (RFC 9636): no transitions, one type of local time with offset 0, called UTC.
_UTC_FILE = b"TZif" + bytes(16 + 4 * 4) + b"\0\0\0\1\0\0\0\4" + bytes(6) + b"UTC\0"


def escape_harmful(text: str) -> str:
    """Return the same JSON with harmful characters written as JSON escapes."""
    return re.sub(HARMFUL, lambda found: f"\\u{ord(found[0]):04x}", text)


def find_zone(name: str) -> tzinfo | None:
    """Return the zone of the setting ``cli.time_zone``; ``None`` stands for the system's."""
    return load_zone(name) if name else None


def load_zone(name: str) -> "ZoneInfo":
    """Return a time zone by its exact name; UTC exists even on a machine without time zone data.

    Raises `KeyError`, `ValueError` or `OSError` for an unknown one.
    """
    from io import BytesIO  # noqa: PLC0415 (loaded with zones)
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415 (loaded when a zone is set)

    try:
        return ZoneInfo(name)
    except ZoneInfoNotFoundError:
        if name != "UTC":
            raise
        return ZoneInfo.from_file(BytesIO(_UTC_FILE), key=name)


def describe_os_error(error: OSError) -> str:
    """Return the reason of a failed connection without numbers and addresses, for example `Connection refused`."""
    text = error.strerror or str(error)
    return os.strerror(error.errno) if error.errno and text.startswith("Connect call failed") else text


def format_time(at: datetime, zone: tzinfo | None) -> str:
    """Return a time to the minute, in this zone."""
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M}"


def format_age(at: datetime, now: datetime) -> str:
    """Return the age of a time in one unit; after two months, its date."""
    minutes = int((now - at).total_seconds()) // 60
    if minutes < 1:
        return "just now"
    if minutes < 60:
        return f"{minutes} min ago"
    if minutes < 24 * 60:
        return f"{minutes // 60} h ago"
    days = minutes // (24 * 60)
    if days < 60:
        return f"{days} days ago" if days > 1 else "1 day ago"
    return f"{at:%Y-%m-%d}"


def format_money(microdollars: int) -> str:
    """Return an amount in dollars, with more digits for small amounts; empty for zero."""
    if not microdollars:
        return ""
    dollars = microdollars / 1_000_000
    return f"${dollars:.2f}" if dollars >= 0.01 else f"${dollars:.4f}"


def format_size(characters: int) -> str:
    """Return a size in the unit that fits."""
    if characters < 1000:
        return f"{characters} B"
    if characters < 1_000_000:
        return f"{characters / 1000:.1f} kB"
    return f"{characters / 1_000_000:.1f} MB"


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where needed."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def platform_label(platform: str) -> str:
    """Return the name of a chat network as written in a sentence."""
    if platform == WEB:
        return "the web app"
    return platform[:1].upper() + platform[1:]
