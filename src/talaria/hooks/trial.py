"""Try a hook out, as it would be called, and wait for what becomes of it."""

import time
from collections.abc import Mapping

from talaria.core.errors import Refused
from talaria.hooks.handlers import Happening, make_handler
from talaria.hooks.line import Line, Report
from talaria.hooks.samples import sample_event, sample_facts
from talaria.hooks.shelf import Hook

_GRACE = 5.0


def try_out(hook: Hook, event: str, environment: Mapping[str, str]) -> Report:
    """Let a hook handle a made-up event, its first one where none is named, and return what became of it."""
    event = event or sample_event(hook.manifest)
    facts = sample_facts(event)
    if not hook.manifest.hears(event):
        raise Refused(f"The hook {hook.manifest.name} does not listen for {event}: {' '.join(hook.manifest.events)}.")
    reports: list[Report] = []
    line = Line(hook, make_handler(hook, environment), reports.append)
    line.put(Happening(event, facts))
    line.finish(time.monotonic() + hook.manifest.timeout_seconds + _GRACE)
    if not reports:
        raise Refused(f"The hook {hook.manifest.name} could not be started.")
    return reports[0]
