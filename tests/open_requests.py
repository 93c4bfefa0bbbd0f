"""Changes to the request that opens a session, by the names of all its fields."""

from typing import Any

from msgspec import structs

from talaria.runtime.open_session import OpenRequest, ResumeSession, SurfaceInfo
from talaria.runtime.turns import TurnOptions


def change_request(request: OpenRequest, **changes: Any) -> OpenRequest:
    """Return the request with fields of it, of its surface or of its turns changed; ``resume`` names a session."""
    if "resume" in changes:
        changes["session"] = ResumeSession(changes.pop("resume"))
    surface = {name: changes.pop(name) for name in SurfaceInfo.__struct_fields__ if name in changes}
    turns = {name: changes.pop(name) for name in TurnOptions.__struct_fields__ if name in changes}
    return structs.replace(
        request,
        surface=structs.replace(request.surface, **surface),
        turns=structs.replace(request.turns, **turns),
        **changes,
    )
