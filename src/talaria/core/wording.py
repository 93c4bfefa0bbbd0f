"""Figures and times as people read them."""

from datetime import datetime, tzinfo
from importlib import import_module


def find_zone(name: str) -> tzinfo | None:
    """Return the zone of the setting ``cli.time_zone``; ``None`` stands for that of the system."""
    # Few people name a zone; the others do not wait for zoneinfo at each start.
    zone: tzinfo | None = import_module("zoneinfo").ZoneInfo(name) if name else None
    return zone


def clock_time(at: datetime, zone: tzinfo | None) -> str:
    """Return a moment to the minute, in this zone."""
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M}"


def ago(at: datetime, now: datetime) -> str:
    """Return how long ago a moment was, in one unit; after two months the day."""
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


def money(microdollars: int) -> str:
    """Return an amount in dollars, with more digits where it is small; nothing for nothing."""
    if not microdollars:
        return ""
    dollars = microdollars / 1_000_000
    return f"${dollars:.2f}" if dollars >= 0.01 else f"${dollars:.4f}"


def size(characters: int) -> str:
    """Return a size of text in the unit that fits."""
    if characters < 1000:
        return f"{characters} B"
    if characters < 1_000_000:
        return f"{characters / 1000:.1f} kB"
    return f"{characters / 1_000_000:.1f} MB"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it belongs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def platform_label(platform: str) -> str:
    """Return the name of a chat network as it is written in a sentence."""
    return platform[:1].upper() + platform[1:]
