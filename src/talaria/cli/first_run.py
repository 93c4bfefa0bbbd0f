"""First-run screen: keys and local servers found, and the configured model."""

from talaria.cli.services import Services
from talaria.contracts.setup import Discovery
from talaria.core.errors import TalariaError

GUIDE = "`talaria setup` connects models, chat networks and tools; `/help` lists the commands of the chat."

_BUILT_IN = {
    "installed": "The built-in model is installed (simple chat only, no tools).",
    "missing": "The built-in model isn't installed; `talaria model install-embedded` installs it (130 MB).",
    "off": "The built-in model is turned off.",
}
_USING_BUILT_IN = "No API key, sign-in or local server was found, so the built-in model answers."


def describe_first_run(services: Services) -> list[str]:
    """Return up to five lines about what was found and what to do next; never raises.

    The session itself says what to do about a weak model. This blocks, for two seconds if a local server doesn't
    answer: in an event loop, call it in a thread.
    """
    try:
        found = services.setup_probes().discover()
        guide = [] if found.chosen is not None and found.chosen.limits else [GUIDE]
        return [*describe_discovery(found), *guide]
    except (TalariaError, OSError) as error:
        return [f"I couldn't look for models: {str(error).partition(chr(10))[0]}", GUIDE]


def offer_built_in_model(services: Services) -> None:
    """Ask once, before the first chat, whether to install the built-in model if no other model was found."""
    terminal = services.terminal
    try:
        found = services.setup_probes().discover()
        if found.chosen or found.keys or found.servers or found.embedded != "missing":
            return
        terminal.line("No API key and no local model server were found.")
        if terminal.confirm("Install the small built-in model, to try Talaria without a key (130 MB)?"):
            terminal.line(services.models().install_embedded(terminal.note))
    except (TalariaError, OSError) as error:
        terminal.note(str(error))


def describe_discovery(found: Discovery) -> list[str]:
    """Return lines about keys, servers and the configured model, which is not queried."""
    lines = [line for line in (_describe_keys(found), _describe_servers(found)) if line]
    if found.chosen is None:
        trouble = _take_first_sentence(found.trouble) if found.trouble else "No model is configured yet."
        return [*lines, *([] if lines else [_BUILT_IN[found.embedded]]), trouble]
    if found.chosen.limits:
        return [*lines, _USING_BUILT_IN]
    return [*lines, f"Using {found.chosen.provider}:{found.chosen.model}. {found.chosen.why}"]


def _describe_keys(found: Discovery) -> str:
    if not found.keys:
        return ""
    names = ", ".join(f"{key.name} (in {key.source})" for key in found.keys)
    return f"Key{'s' if len(found.keys) > 1 else ''} found: {names}."


def _describe_servers(found: Discovery) -> str:
    running = [
        f"{one.title} is running at {one.base_url} with {_count_models(len(one.models))}" for one in found.servers
    ]
    return f"{'; '.join(running)}." if running else ""


def _count_models(number: int) -> str:
    return "1 model" if number == 1 else f"{number} models"


def _take_first_sentence(text: str) -> str:
    """Return the first sentence of an explanation."""
    return f"{text.partition('. ')[0].rstrip('.')}."
