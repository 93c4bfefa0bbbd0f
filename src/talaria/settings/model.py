"""Every setting of Talaria itself: its type, its default, its limits and what it does.

``extra`` tells what a type cannot: ``live`` (a running process takes the change over at once), ``check`` and
``expected`` (a test of the value and its words), ``mask`` (how a value that holds a secret is shown).
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from talaria.settings.checks import is_identifier, is_store_url, is_time_zone, mask_password


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of config.toml; every key has a default."""


class Store(Section, frozen=True):
    """Where conversations are kept."""

    url: Annotated[
        str,
        Meta(
            description="The PostgreSQL database to use; empty means the SQLite file in the profile's folder.",
            extra={
                "check": is_store_url,
                "expected": "empty or an address that begins with postgresql://",
                "mask": mask_password,
            },
        ),
    ] = ""
    schema: Annotated[
        str,
        Meta(
            description="The PostgreSQL schema that holds the tables.",
            extra={
                "check": is_identifier,
                "expected": "a name of at most 63 lower-case letters, digits and underscores, no digit first",
            },
        ),
    ] = "talaria"
    busy_timeout_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="How long to wait while another process writes to the store.")
    ] = 5.0
    readers: Annotated[int, Meta(ge=1, le=16, description="How many SQLite connections of one process only read.")] = 2
    connections: Annotated[
        int, Meta(ge=1, le=64, description="How many PostgreSQL connections one process may open.")
    ] = 4


class Cli(Section, frozen=True):
    """How the terminal shows things."""

    color: Annotated[
        Literal["auto", "always", "never"],
        Meta(description="Whether output is coloured; auto means on a terminal only.", extra={"live": True}),
    ] = "auto"
    time_zone: Annotated[
        str,
        Meta(
            description="The time zone in which times are shown; empty means that of the system.",
            extra={
                "live": True,
                "check": is_time_zone,
                "expected": "empty or the name of a time zone, such as Europe/Berlin",
            },
        ),
    ] = ""


class Sessions(Section, frozen=True):
    """How long conversations are kept."""

    prune_after_days: Annotated[
        int,
        Meta(
            ge=1,
            le=36_500,
            description="How many days without a message make a session one that `talaria sessions prune` removes.",
            extra={"live": True},
        ),
    ] = 90


class Doctor(Section, frozen=True):
    """What `talaria doctor` warns about."""

    min_free_megabytes: Annotated[
        int, Meta(ge=0, description="How much free disk space is enough, in megabytes.", extra={"live": True})
    ] = 500


class Log(Section, frozen=True):
    """What is written to the log."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="The least important messages that are still logged.", extra={"live": True}),
    ] = "info"


class Settings(Section, frozen=True):
    """All sections, with their defaults where nothing else was said."""

    store: Store = Store()
    cli: Cli = Cli()
    sessions: Sessions = Sessions()
    doctor: Doctor = Doctor()
    log: Log = Log()
