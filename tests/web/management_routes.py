"""Routes of the management pages: those for the owner only, and those for every signed-in person."""

RouteCall = tuple[str, str, object]
ANSWER = {"platform": "telegram", "user_id": "9"}
OWNER_ROUTES: list[RouteCall] = [
    ("GET", "/web/people", None),
    ("POST", "/web/people/approve", ANSWER),
    ("POST", "/web/people/refuse", ANSWER),
    ("POST", "/web/people/revoke", ANSWER),
    ("POST", "/web/browsers/approve", {"code": "ABCDEFGH"}),
    ("POST", "/web/browsers/code", {}),
    ("POST", "/web/api-keys", {"name": "x", "scopes": ["chat"]}),
    ("DELETE", "/web/api-keys/first", {}),
    ("GET", "/web/settings", None),
    ("PATCH", "/web/settings", {"values": {"log.level": "debug"}, "version": ""}),
    ("GET", "/web/settings/file", None),
    ("POST", "/web/settings/file/check", {"text": ""}),
    ("PUT", "/web/settings/file", {"text": "", "version": ""}),
    ("GET", "/web/models", None),
    ("GET", "/web/models/usable", None),
    ("POST", "/web/models/default", {"model": "x"}),
    ("POST", "/web/models/test", {"model": "x"}),
    ("POST", "/web/models/providers", {"provider": "openai", "key": "x"}),
    ("DELETE", "/web/models/keys/OPENAI_API_KEY", {}),
    ("POST", "/web/models/embedded", {}),
    ("GET", "/web/tools", None),
    ("POST", "/web/tools/switch", {"names": ["web"], "on": False}),
    ("GET", "/web/skills/x", None),
    ("PUT", "/web/skills/x", {"text": "x"}),
    ("GET", "/web/skills/x/audit", None),
    ("POST", "/web/skills/x/switch", {"on": False}),
    ("POST", "/web/mcp/x/test", {}),
    ("GET", "/web/hooks/x", None),
    ("PUT", "/web/hooks/x", {"files": {"manifest": "x"}}),
    ("POST", "/web/hooks/x/switch", {"on": False}),
]
SIGNED_IN_ROUTES: list[RouteCall] = [
    ("GET", "/web/memory", None),
    ("POST", "/web/memory", {"kind": "memory", "new": "x"}),
]
