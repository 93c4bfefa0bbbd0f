"""What an agent that is opened now would be made of."""

import hashlib

import msgspec
from msgspec import Struct

from talaria.contracts.provider import Effort


class AgentParts(Struct, frozen=True, kw_only=True):
    """What an agent is made of and cannot be changed on it; effort and callbacks can, and are not here."""

    model: str
    provider: str
    base_url: str = ""
    api_mode: str = ""
    api_key: str = ""
    toolsets: tuple[str, ...] = ()
    extras: str = ""

    def signature(self) -> str:
        """Return a digest of all of it, the same in every process; the key is in it as a hash of the whole."""
        key = hashlib.sha256(self.api_key.encode()).hexdigest()
        parts = (self.model, self.provider, self.base_url, self.api_mode, key, sorted(self.toolsets), self.extras)
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


class Prospect(Struct, frozen=True):
    """The agent that a conversation would get now; ``effort`` can be changed on one that is there."""

    signature: str
    effort: Effort = ""
