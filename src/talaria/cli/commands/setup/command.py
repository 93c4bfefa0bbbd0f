"""`talaria setup`: interactive setup, or setup by options for scripts."""

import argparse
from typing import Any

from talaria.cli.commands.setup.wizard_state import SECTIONS
from talaria.cli.parser import USAGE_ERROR, add_completion
from talaria.cli.services import Services
from talaria.contracts.setup import NetworkSetup, SetupQuestion
from talaria.core.errors import Refused
from talaria.settings.sections.checks import is_web_address

_EPILOG = """\
Without options, it asks section by section and saves each answer immediately, so
you can leave at any question and continue there later. Keys and tokens are
checked before they are saved.

SOURCE is the name of an environment variable, a file, or - for standard input.
For --chat, an answer that isn't secret is given directly; --list-networks shows
the names, and which are secret.
With --non-interactive, everything is checked first; if a check fails, nothing is
saved and the exit code is 1.

  talaria setup model
  talaria setup --non-interactive --provider openai --key-from OPENAI_API_KEY
  talaria setup --non-interactive --chat TELEGRAM_BOT_TOKEN=token.txt
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the section argument and the options for scripts."""
    parser.epilog = _EPILOG
    parser.add_argument("section", nargs="?", choices=SECTIONS, help="only this section")
    parser.add_argument("--non-interactive", action="store_true", help="don't ask; use the options below")
    parser.add_argument("--no-check", action="store_true", help="save keys and tokens without checking them")
    parser.add_argument(
        "--network-url",
        action="append",
        default=[],
        metavar="NETWORK=URL",
        help="check tokens at this address, for example your own Bot API server",
    )
    parser.add_argument(
        "--list-networks", action="store_true", help="list the chat networks and what each of them needs"
    )
    script = parser.add_argument_group("with --non-interactive")
    script.add_argument("--provider", metavar="NAME", help="model provider; a new name needs --base-url")
    script.add_argument("--model", metavar="NAME", help="model, as the provider calls it")
    script.add_argument(
        "--base-url", metavar="URL", help="the provider's address, for example http://127.0.0.1:9000/v1"
    )
    add_completion(script.add_argument("--key-from", metavar="SOURCE", help="the provider's key"), "files")
    script.add_argument(
        "--chat",
        action="append",
        default=[],
        metavar="NAME=SOURCE",
        help="an answer for a chat network, for example TELEGRAM_BOT_TOKEN=token.txt",
    )
    script.add_argument("--toolsets", metavar="NAMES", help="toolsets that are on, separated by commas")
    script.add_argument(
        "--search-engine", metavar="NAME", help="engine for web searches, or the address of a SearXNG server"
    )
    add_completion(script.add_argument("--search-key-from", metavar="SOURCE", help="the search engine's key"), "files")
    script.add_argument("--sandbox", choices=("auto", "on", "off"), help="when commands run in a sandbox")
    script.add_argument("--approval", choices=("ask", "allow-list", "off"), help="when to ask for approval")
    script.add_argument("--json", action="store_true", help="print the checks and saved settings as JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Run the interactive setup, or apply the options."""
    if arguments.list_networks:
        return _list_networks(arguments, services)
    problem = _find_misuse(arguments, services)
    if problem:
        services.terminal.note(f"talaria setup: {problem}\nSee `talaria help setup`.")
        return USAGE_ERROR
    arguments.network_url = dict(map(_parse_network_url, arguments.network_url))
    if arguments.non_interactive:
        from talaria.cli.commands.setup.non_interactive import run_non_interactive  # noqa: PLC0415 (loaded for scripts)

        return run_non_interactive(arguments, services)
    from talaria.cli.commands.setup.wizard import run_wizard  # noqa: PLC0415 (loaded for the interactive setup)

    return run_wizard(services, arguments.section, checks=not arguments.no_check, network_urls=arguments.network_url)


def _list_networks(arguments: argparse.Namespace, services: Services) -> int:
    networks, ready = services.networks().setups(), services.networks().names()
    if arguments.json:
        services.terminal.json([_as_data(name, one, is_ready=name in ready) for name, one in networks.items()])
        return 0
    for name, network in networks.items():
        services.terminal.line(f"{name}: {network.title}{', set up' if name in ready else ''}")
        for question in network.questions:
            answer = question.name if question.is_secret else f"{name}.{question.name}"
            services.terminal.line(f"  {answer}{_note(question)}: {question.hint}")
    return 0


def _note(question: SetupQuestion) -> str:
    notes = {"secret": question.is_secret and not question.public, "optional": not question.required}
    listed = ", ".join(note for note, applies in notes.items() if applies)
    return f" ({listed})" if listed else ""


def _as_data(name: str, network: NetworkSetup, *, is_ready: bool) -> dict[str, Any]:
    questions = [
        {
            "name": one.name if one.is_secret else f"{name}.{one.name}",
            "secret": one.is_secret and not one.public,
            "required": one.required,
            "default": one.default or None,
            "hint": one.hint,
        }
        for one in network.questions
    ]
    return {"network": name, "title": network.title, "set_up": is_ready, "questions": questions}


def _find_misuse(arguments: argparse.Namespace, services: Services) -> str:
    script_options = [name for name in _SCRIPT_OPTIONS if getattr(arguments, name) not in (None, False, [])]
    if arguments.non_interactive:
        return (
            ("sections are for interactive setup; leave SECTION out with --non-interactive.")
            if arguments.section
            else ""
        )
    if script_options:
        return f"--{script_options[0].replace('_', '-')} needs --non-interactive."
    if not services.terminal.interactive:
        return "it asks questions, but there is no terminal to answer them; use --non-interactive with options instead."
    return ""


_SCRIPT_OPTIONS = (
    *("provider", "model", "base_url", "key_from", "chat"),
    *("toolsets", "search_engine", "search_key_from", "sandbox", "approval", "json"),
)


def _parse_network_url(text: str) -> tuple[str, str]:
    network, _, url = text.partition("=")
    if not network or not url or not is_web_address(url):
        raise Refused("--network-url must be NETWORK=URL, for example telegram=http://127.0.0.1:8081.")
    return network, url
