"""What may be wrong with a call."""

from typing import Literal

from msgspec import Struct

DangerKind = Literal[
    "deletion", "device", "system", "history", "credentials", "code", "packages", "privilege", "outside", "start-up",
    "unlisted", "irreversible",
]  # fmt: skip


class Danger(Struct, frozen=True):
    """One reason to ask.

    ``subject`` is the program with its subcommand, or the path, that a rule may speak of. A ``fatal`` one is never
    allowed, whatever the settings say; a ``narrow`` one can be allowed for the very same call only.
    """

    kind: DangerKind
    reason: str
    subject: str = ""
    fatal: bool = False
    narrow: bool = False
