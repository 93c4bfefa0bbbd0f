"""`talaria cron`: have things done at times that nobody has to remember."""

import argparse
from importlib import import_module
from typing import Any

from talaria.cli.arguments import completing
from talaria.cli.services import Services

_EPILOG = """\
WHEN is once: 'in 30m' or just 30m, 'tomorrow 9:00', '2026-12-24 18:00';
or again and again: 'every 2h', 'every monday 9:00', 'every weekday 8:30',
'every month on the 1st at 9:00', '0 9 * * 1-5' (minute, hour, day, month, weekday).

A gateway starts what is due. Without one let the cron of the system do it:
  * * * * * talaria cron run-due
"""
_ACTIONS = {
    "add": ("changing", "add"),
    "edit": ("changing", "edit"),
    "pause": ("changing", "pause"),
    "resume": ("changing", "resume"),
    "remove": ("changing", "remove"),
    "list": ("showing", "list_jobs"),
    "show": ("showing", "show_job"),
    "history": ("showing", "show_history"),
    "run": ("running", "run_now"),
    "run-due": ("running", "run_due"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list")
    add = actions.add_parser("add", help="schedule a job", epilog=_EPILOG)
    add.add_argument("when", metavar="WHEN", help="when it is due, see below")
    add.add_argument("prompt", metavar="PROMPT", nargs="?", help="the task for the agent; - reads standard input")
    _describe_job(add)
    listing = actions.add_parser("list", help="list jobs, and when they are due next")
    listing.add_argument("--all", action="store_true", help="finished jobs and those of guests too")
    edit = _of_a_job(actions, "edit", "change a job; what is not given stays")
    edit.add_argument("--when", metavar="WHEN", help="when it is due")
    edit.add_argument("--prompt", metavar="PROMPT", help="the task for the agent")
    _describe_job(edit)
    shown = [
        _of_a_job(actions, "show", "show all about a job"),
        _of_a_job(actions, "pause", "let a job rest"),
        _of_a_job(actions, "resume", "let it go on, from its next time"),
        _of_a_job(actions, "remove", "remove a job with its history"),
        _of_a_job(actions, "run", "let a job run now, whatever its schedule says"),
    ]
    history = _of_a_job(actions, "history", "show its latest runs and what they said")
    history.add_argument("--limit", metavar="N", type=int, default=10, help="at most so many (default: 10)")
    due = actions.add_parser("run-due", help="run due jobs and exit; for the system's cron")
    for action in (add, listing, edit, history, due, *shown):
        action.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    module, function = _ACTIONS[arguments.action]
    code: int = getattr(import_module(f"talaria.cli.cron_actions.{module}"), function)(arguments, services)
    return code


def _of_a_job(actions: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=summary)
    parser.add_argument("job", metavar="JOB", help="its id or its name, or a part of it")
    return parser


def _describe_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", metavar="NAME", help="its name (default: the beginning of the prompt)")
    parser.add_argument(
        "--script",
        metavar="LINE",
        help="a line for the shell: its output goes to the agent; without a prompt it is all",
    )
    parser.add_argument("--skill", metavar="SKILL", action="append", help="a skill to begin with; may be repeated")
    parser.add_argument("--model", metavar="MODEL", help="the model that answers, as PROVIDER:NAME")
    completing(parser.add_argument("--folder", metavar="FOLDER", help="where it works"), "folders")
    parser.add_argument(
        "--deliver",
        metavar="TARGET",
        action="append",
        help="where it reports: home (default), nowhere, or as for `talaria send`; may be repeated",
    )
    parser.add_argument("--times", metavar="N", type=int, help="how often it runs; 0: without an end")
    parser.add_argument("--zone", metavar="ZONE", help="the time zone, for example Europe/Berlin (default: yours)")
    parser.add_argument("--catch-up", choices=("once", "never"), help="how to treat missed runs (default: once)")
    parser.add_argument("--dollars", metavar="N", type=float, help="its monthly budget; 0: the one of the settings")
