"""The first screen: which keys and local servers were found, and which model is configured."""

from talaria.cli.services import Services
from talaria.cli.setting_up.desk import Discovered
from talaria.core.errors import TalariaError

GUIDE = "`talaria setup` connects models, chat networks and tools."

_BUILT_IN = {
    "installed": "The built-in model is installed (simple chat only, no tools).",
    "missing": "The built-in model is not installed; `talaria model install-embedded` does it (130 MB).",
    "off": "The built-in model is turned off.",
}
_USING_BUILT_IN = "Using the built-in model, because no API key or local server was found."


def discoveries(services: Services) -> list[str]:
    """Return at most five lines about what was found; takes a third of a second at most, and never raises.

    It blocks: within a loop, call it in a thread.
    """
    try:
        return [*found_lines(services.setup_desk().discover()), GUIDE]
    except (TalariaError, OSError) as error:
        return [f"I couldn't look for models: {str(error).partition(chr(10))[0]}", GUIDE]


def found_lines(found: Discovered) -> list[str]:
    """Return a line each about keys, servers and the model that is configured; nobody was asked whether it answers."""
    lines = [line for line in (_keys(found), _servers(found)) if line]
    if found.chosen is None:
        trouble = _first_sentence(found.trouble) if found.trouble else "No model is configured yet."
        return [*lines, *([] if lines else [_BUILT_IN[found.embedded]]), trouble]
    if found.chosen.limits:
        return [*lines, _USING_BUILT_IN]
    return [*lines, f"Using {found.chosen.provider}:{found.chosen.model}. {found.chosen.why}"]


def _keys(found: Discovered) -> str:
    if not found.keys:
        return ""
    names = ", ".join(f"{key.name} (in {key.place})" for key in found.keys)
    return f"Key{'s' if len(found.keys) > 1 else ''} found: {names}."


def _servers(found: Discovered) -> str:
    running = [f"{one.title} is running at {one.base_url} with {_count(len(one.models))}" for one in found.servers]
    return f"{'; '.join(running)}." if running else ""


def _count(number: int) -> str:
    return "1 model" if number == 1 else f"{number} models"


def _first_sentence(text: str) -> str:
    """Return the beginning of a longer explanation, so that a line stays one."""
    return f"{text.partition('. ')[0].rstrip('.')}."
