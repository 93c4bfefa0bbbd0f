"""`talaria cron`: manage scheduled jobs."""

import argparse
from collections.abc import Callable
from typing import Any

from talaria.cli.parser import add_completion
from talaria.cli.services import Services

_EPILOG = """\
WHEN is either one time: 'in 30m' or just 30m, 'tomorrow 9:00', '2026-12-24 18:00';
or recurring: 'every 2h', 'every monday 9:00', 'every weekday 8:30',
'every month on the 1st at 9:00', '0 9 * * 1-5' (minute, hour, day, month, weekday).

The gateway starts due jobs. Without a gateway, use the system's cron:
  * * * * * talaria cron run-due
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list")
    add = actions.add_parser("add", help="schedule a job", epilog=_EPILOG)
    add.add_argument("when", metavar="WHEN", help="when to run, see below")
    add.add_argument("prompt", metavar="PROMPT", nargs="?", help="the task for the agent; - reads standard input")
    _add_job_options(add)
    listing = actions.add_parser("list", help="list the jobs and their next runs")
    listing.add_argument("--all", action="store_true", help="include finished jobs and those of guests")
    edit = _add_job_parser(actions, "edit", "change a job; everything not given stays as it is")
    edit.add_argument("--when", metavar="WHEN", help="when to run")
    edit.add_argument("--prompt", metavar="PROMPT", help="the task for the agent")
    _add_job_options(edit)
    job_parsers = [
        _add_job_parser(actions, "show", "show a job in full"),
        _add_job_parser(actions, "pause", "pause a job"),
        _add_job_parser(actions, "resume", "resume a job"),
        _add_job_parser(actions, "remove", "remove a job and its history"),
        _add_job_parser(actions, "run", "run a job now, whatever its schedule"),
    ]
    history = _add_job_parser(actions, "history", "show a job's latest runs and their results")
    history.add_argument("--limit", metavar="N", type=int, default=10, help="at most this many (default: 10)")
    due = actions.add_parser("run-due", help="run due jobs and exit; for the system's cron")
    for action in (add, listing, edit, history, due, *job_parsers):
        action.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    return _find_action(arguments.action)(arguments, services)


def _find_action(name: str) -> Callable[[argparse.Namespace, Services], int]:
    """Return the function of an action; loads only its module, so that `list` stays fast."""
    match name:
        case "run" | "run-due":
            from talaria.cli.commands.cron import run as run_module  # noqa: PLC0415 (loaded with its action)

            return {"run": run_module.run_now, "run-due": run_module.run_due}[name]
        case _:
            from talaria.cli.commands.cron import jobs  # noqa: PLC0415 (loaded with its action)

            actions = {
                "list": jobs.list_jobs,
                "show": jobs.show_job,
                "history": jobs.show_history,
                "add": jobs.add,
                "edit": jobs.edit,
                "pause": jobs.pause,
                "resume": jobs.resume,
                "remove": jobs.remove,
            }
            return actions[name]


def _add_job_parser(actions: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=summary)
    parser.add_argument("job", metavar="JOB", help="id, name or part of the name")
    return parser


def _add_job_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", metavar="NAME", help="name of the job (default: the start of the prompt)")
    parser.add_argument(
        "--script",
        metavar="LINE",
        help="shell command whose output goes to the agent; without a prompt, only the command runs",
    )
    parser.add_argument("--skill", metavar="SKILL", action="append", help="skill to load first; repeatable")
    parser.add_argument("--model", metavar="MODEL", help="model to use, as PROVIDER:NAME")
    add_completion(parser.add_argument("--folder", metavar="FOLDER", help="working folder"), "folders")
    parser.add_argument(
        "--deliver",
        metavar="TARGET",
        action="append",
        help="where to report: home (default), nowhere, or a target as for `talaria send`; repeatable",
    )
    parser.add_argument("--times", metavar="N", type=int, help="how many times to run; 0 means forever")
    parser.add_argument("--zone", metavar="ZONE", help="time zone, for example Europe/Berlin (default: yours)")
    parser.add_argument("--catch-up", choices=("once", "never"), help="how to treat missed runs (default: once)")
    parser.add_argument("--dollars", metavar="N", type=float, help="monthly budget; 0 means the one in the settings")
