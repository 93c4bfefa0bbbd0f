"""What the first start tells: which keys, servers and models are there, and who answers."""

from talaria.cli.services import Services
from talaria.cli.setting_up.desk import Discovered
from talaria.core.errors import TalariaError

GUIDE = "`talaria setup` guides you through keys, chat networks and tools."

_EMBEDDED = {
    "installed": "The embedded model is installed; it talks a little and uses no tools.",
    "missing": "The embedded model is not installed; `talaria model install-embedded` does it (130 MB).",
    "off": "The embedded model is turned off.",
}


def discoveries(services: Services) -> list[str]:
    """Return at most five lines about what there is; takes a third of a second at most, and never raises.

    It blocks: within a loop, call it in a thread.
    """
    try:
        return [*found_lines(services.setup_desk().discover()), GUIDE]
    except (TalariaError, OSError) as error:
        return [f"It is not clear what there is: {str(error).partition(chr(10))[0]}", GUIDE]


def found_lines(found: Discovered) -> list[str]:
    """Return a line each about keys, servers, the embedded model and who answers."""
    answers = "No model can answer yet." if not found.trouble else _first_sentence(found.trouble)
    if found.chosen is not None:
        answers = f"{found.chosen.provider}:{found.chosen.model} answers now. {found.chosen.why}"
    return [_keys(found), _servers(found), _EMBEDDED[found.embedded], answers]


def _keys(found: Discovered) -> str:
    if not found.keys:
        return "No key of a model provider was found."
    names = ", ".join(f"{key.name} (in {key.place})" for key in found.keys)
    return f"Key{'s' if len(found.keys) > 1 else ''} found: {names}."


def _servers(found: Discovered) -> str:
    if not found.servers:
        return "No model server answers on this machine."
    told = [f"{one.title} answers at {one.base_url} with {_count(len(one.models))}" for one in found.servers]
    return f"{'; '.join(told)}."


def _count(number: int) -> str:
    return "1 model" if number == 1 else f"{number} models"


def _first_sentence(text: str) -> str:
    """Return the beginning of a longer explanation, so that a line stays one."""
    return f"{text.partition('. ')[0].rstrip('.')}."
