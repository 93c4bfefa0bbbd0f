"""`talaria setup`: a guided set-up on a terminal, and the same with options for scripts."""

import argparse
from importlib import import_module

from talaria.cli.arguments import MISUSED, completing
from talaria.cli.services import Services
from talaria.cli.setting_up.progress import SECTIONS
from talaria.core.errors import Refused
from talaria.settings.checks import is_web_address

NETWORKS = ("telegram", "discord", "slack", "matrix")

# Each brings in what only it needs.
_GUIDE = "talaria.cli.setting_up.guide"
_UNATTENDED = "talaria.cli.setting_up.unattended"
_MORE = """\
Without options it asks, section by section, and writes each answer at once: it
can be left at any question and goes on there the next time. Keys and tokens are
tried out before they are written.

SOURCE is the name of a variable of the environment, a file, or - for the
standard input. With --non-interactive everything is checked first; if a check
fails, nothing is written and the exit code is 1.

  talaria setup model
  talaria setup --non-interactive --provider openai --key-from OPENAI_API_KEY
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a section, or everything that a script has to say."""
    parser.epilog = _MORE
    parser.add_argument("section", nargs="?", choices=SECTIONS, help="only this section")
    parser.add_argument("--non-interactive", action="store_true", help="ask nothing, take the options below")
    parser.add_argument("--no-check", action="store_true", help="write keys and tokens without trying them out")
    parser.add_argument(
        "--network-url",
        action="append",
        default=[],
        metavar="NETWORK=URL",
        help="check tokens at this address, for example your own Bot API server",
    )
    script = parser.add_argument_group("with --non-interactive")
    script.add_argument("--provider", metavar="NAME", help="who answers; a new name needs --base-url")
    script.add_argument("--model", metavar="NAME", help="the model, as the provider calls it")
    script.add_argument(
        "--base-url", metavar="URL", help="the provider's address, for example http://127.0.0.1:9000/v1"
    )
    completing(script.add_argument("--key-from", metavar="SOURCE", help="the provider's key"), "files")
    for option, what in (
        ("telegram", "the token of a Telegram bot"),
        ("discord", "the token of a Discord bot"),
        ("slack", "the bot token of a Slack app"),
        ("slack-app", "the app-level token of a Slack app"),
        ("matrix", "the access token of a Matrix account"),
    ):
        completing(script.add_argument(f"--{option}-token-from", metavar="SOURCE", help=what), "files")
    script.add_argument("--matrix-homeserver", metavar="URL", help="where that account lives")
    script.add_argument("--toolsets", metavar="NAMES", help="the toolsets that are on, with commas between them")
    script.add_argument("--search-engine", metavar="URL", help="a SearXNG server for web searches; empty: DuckDuckGo")
    script.add_argument("--sandbox", choices=("on", "off"), help="whether commands run in a sandbox")
    script.add_argument("--approval", choices=("ask", "allow-list", "off"), help="when to ask for approval")
    script.add_argument("--json", action="store_true", help="print JSON: checks and written settings")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Guide a person, or do what the options say."""
    problem = _misuse(arguments, services)
    if problem:
        services.terminal.note(f"talaria setup: {problem}\nSee `talaria help setup`.")
        return MISUSED
    arguments.network_url = dict(map(_network_url, arguments.network_url))
    if arguments.non_interactive:
        code: int = import_module(_UNATTENDED).set_up(arguments, services)
        return code
    guided: int = import_module(_GUIDE).guide(
        services, arguments.section, checks=not arguments.no_check, network_urls=arguments.network_url
    )
    return guided


def _misuse(arguments: argparse.Namespace, services: Services) -> str:
    given = [name for name in _SCRIPTED if getattr(arguments, name) not in {None, False}]
    if arguments.non_interactive:
        return "a section is for the guided set-up; leave it out with --non-interactive." if arguments.section else ""
    if given:
        return f"--{given[0].replace('_', '-')} needs --non-interactive."
    if not services.terminal.interactive:
        return "it asks questions, and there is no terminal to answer them; --non-interactive takes options instead."
    return ""


_SCRIPTED = (
    *("provider", "model", "base_url", "key_from", "matrix_homeserver"),
    *(f"{name}_token_from" for name in ("telegram", "discord", "slack", "slack_app", "matrix")),
    *("toolsets", "search_engine", "sandbox", "approval", "json"),
)


def _network_url(text: str) -> tuple[str, str]:
    network, _, url = text.partition("=")
    if network not in NETWORKS or not url or not is_web_address(url):
        raise Refused(f"--network-url is written as NETWORK=URL, with one of {', '.join(NETWORKS)}.")
    return network, url
