"""`talaria skills`: list, show, search, install, update, remove, audit, enable and disable skills."""

import argparse
from collections.abc import Callable, Mapping, Sequence

from talaria.cli.parser import add_completion
from talaria.cli.services import Services
from talaria.commands.skills import describe_change, format_audit
from talaria.contracts.skills import SKILL_USAGE, SkillChange, SkillInfo
from talaria.core.errors import Refused
from talaria.core.formatting import find_zone, format_time

_EPILOG = """\
Skills are folders with a SKILL.md. They are read from the profile, from trusted
projects and from the folders in the setting tools.skill_folders; the first of a
name wins. A skill that you install stays off until you have confirmed what it
would run, and goes off again if its files change.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list")
    listed = actions.add_parser("list", help="list all skills")
    show = actions.add_parser("show", help="show the instructions and files of a skill")
    search = actions.add_parser("search", help="find skills by words, here or in a source")
    search.add_argument("words", nargs="*", metavar="WORD", help="words that a skill must contain")
    search.add_argument("--in", dest="source", metavar="SOURCE", default="", help="a folder, git address or zip file")
    install = actions.add_parser("install", help="install from a folder, a git address or a zip file")
    install.add_argument("source", metavar="SOURCE", help="a folder, or the address of a git repository or zip file")
    install.add_argument("names", nargs="*", metavar="NAME", help="the skills to install, if the source has several")
    install.add_argument("--ref", metavar="REF", default="", help="branch, tag or commit of a git repository")
    install.add_argument("--all", action="store_true", help="install every skill of the source")
    update = actions.add_parser("update", help="fetch installed skills again, and show what changes")
    update.add_argument("names", nargs="*", metavar="NAME", help="the skills to update; default: all installed ones")
    remove = actions.add_parser("remove", help="remove skills of the profile")
    audit = actions.add_parser("audit", help="show what skills would run and which tools they want")
    enable = actions.add_parser("enable", help="show skills to the agent")
    disable = actions.add_parser("disable", help="hide skills from the agent")
    add_completion(show.add_argument("names", nargs=1, metavar="NAME", help="the skill"), "skills")
    for action in (remove, audit, enable, disable):
        add_completion(action.add_argument("names", nargs="+", metavar="NAME", help="the skills"), "skills")
    for action in (install, update, remove, enable):
        action.add_argument("--yes", action="store_true", help="don't ask")
    for action in (listed, show, search, audit):
        action.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    return _ACTIONS[arguments.action](arguments, services) or 0


def _list(arguments: argparse.Namespace, services: Services) -> None:
    with services.open_database() as database:
        usage = database.read(SKILL_USAGE.items)
    _show_list(services.tools().skills().list(usage), services, json=arguments.json)


def _show_list(skills: Sequence[SkillInfo], services: Services, *, json: bool) -> None:
    if json:
        services.terminal.json(skills)
        return
    zone, styled = find_zone(services.settings().cli.time_zone), services.terminal.style
    rows = [
        (
            one.name,
            styled("on", "green") if one.is_enabled else styled("off", "dim"),
            one.root,
            one.uses,
            format_time(one.last_used, zone) if one.last_used else "",
            one.about,
        )
        for one in skills
    ]
    if rows:
        services.terminal.table(("SKILL", "STATE", "FROM", "USES", "LAST USED", "FOR"), rows)
    else:
        services.terminal.note("There are no skills. `talaria skills install SOURCE` installs some.")
    for one in skills:
        if one.problem:
            services.terminal.note(f"{one.name} ({one.root}): {one.problem}")
        elif not one.command:
            services.terminal.note(f"{one.name} has no slash command: /{one.name} is another command.")


def _show(arguments: argparse.Namespace, services: Services) -> None:
    skills, name = services.tools().skills(), arguments.names[0]
    info, text = skills.get(name), skills.text(name)
    if arguments.json:
        services.terminal.json({"skill": info, "text": text})
        return
    services.terminal.document(f"{text}\n")
    if info.origin is not None:
        pin = f", pinned at {info.origin.pin}" if info.origin.pin else ""
        services.terminal.note(f"From {info.origin.source}{pin}. SHA-256 of its files: {info.digest}.")
    if info.problem:
        services.terminal.note(info.problem)


def _search(arguments: argparse.Namespace, services: Services) -> int:
    query = " ".join(arguments.words)
    if not arguments.source:
        if not query:
            raise Refused("Type words to search for, or name a source with --in.")
        found = services.tools().skills().search(query)
        if found or arguments.json:
            _show_list(found, services, json=arguments.json)
        else:
            services.terminal.note(
                f"No skill contains “{query}”. `--in SOURCE` searches a folder, git address or zip file."
            )
        return 0 if found else 1
    offers = [
        one
        for one in services.tools().skills().list_offers(arguments.source)
        if all(word in f"{one.name} {one.about}".lower() for word in query.lower().split())
    ]
    if arguments.json:
        services.terminal.json(offers)
    else:
        services.terminal.table(("SKILL", "PATH", "FOR"), [(one.name, one.path, one.about) for one in offers])
        if not offers:
            services.terminal.note(f"{arguments.source} has no such skill.")
        for one in offers:
            if one.problem:
                services.terminal.note(f"{one.name} can't be installed. {one.problem}")
    return 0 if offers else 1


def _install(arguments: argparse.Namespace, services: Services) -> int:
    skills = services.tools().skills()
    changes = skills.fetch(arguments.source, arguments.names, ref=arguments.ref, every=arguments.all)
    code = 0
    for change in changes:
        _print_change(change, services)
        if change.previous is not None:
            code |= _replace(change, services, yes=arguments.yes)
            continue
        enable = arguments.yes or services.terminal.confirm(f"Enable {change.name}?")
        skills.apply(change, enable=enable)
        if enable:
            services.terminal.line(f"{change.name} is installed. New conversations know it.")
        else:
            services.terminal.line(f"{change.name} is installed, and off until you confirm it.")
            services.terminal.note(f"`talaria skills enable {change.name}` does that.")
    return code


def _update(arguments: argparse.Namespace, services: Services) -> int:
    skills = services.tools().skills()
    code = 0
    for name in arguments.names or [one.name for one in skills.list() if one.origin is not None]:
        try:
            change = skills.fetch_update(name)
        except Refused as error:
            if arguments.names:
                raise
            services.terminal.note(str(error))
            code = 1
            continue
        if change is None:
            services.terminal.line(f"{name} is up to date.")
        else:
            _print_change(change, services)
            code |= _replace(change, services, yes=arguments.yes)
    return code


def _replace(change: SkillChange, services: Services, *, yes: bool) -> int:
    """Replace an installed version after a question; return the exit code."""
    if not yes and not services.terminal.interactive:
        raise Refused(f"Nobody can be asked about {change.name} here. Run it in a terminal, or add --yes.")
    if not yes and not services.terminal.confirm(f"Update {change.name}?"):
        services.terminal.line(f"{change.name} is left as it was.")
        return 1
    services.tools().skills().apply(change, enable=True)
    services.terminal.line(f"{change.name} is updated. New conversations know it.")
    return 0


def _print_change(change: SkillChange, services: Services) -> None:
    services.terminal.markdown(describe_change(change))
    if change.diff:
        services.terminal.document(f"{change.diff}\n\n")


def _remove(arguments: argparse.Namespace, services: Services) -> int:
    for name in arguments.names:
        services.tools().skills().get(name)
        if not arguments.yes and not services.terminal.confirm(f"Remove the skill {name}?"):
            services.terminal.note(f"{name} is left as it was. Add --yes to remove it without a question.")
            return 1
        services.terminal.line(services.tools().skills().remove(name))
    return 0


def _audit(arguments: argparse.Namespace, services: Services) -> None:
    audits = {name: services.tools().skills().audit(name) for name in arguments.names}
    if arguments.json:
        services.terminal.json(audits)
        return
    for name, audit in audits.items():
        services.terminal.markdown(f"**{name}**: {format_audit(audit)}")


def _enable(arguments: argparse.Namespace, services: Services) -> int:
    skills = services.tools().skills()
    for name in arguments.names:
        if skills.get(name).origin is not None and not arguments.yes:
            services.terminal.markdown(f"**{name}**: {format_audit(skills.audit(name))}")
            if not services.terminal.confirm(f"Enable {name}?"):
                services.terminal.note(f"{name} stays off. Add --yes to enable it without a question.")
                return 1
        effect = skills.switch(name, on=True)
        services.terminal.line(f"{name} is on. {effect}")
    return 0


def _disable(arguments: argparse.Namespace, services: Services) -> None:
    for name in arguments.names:
        effect = services.tools().skills().switch(name, on=False)
        services.terminal.line(f"{name} is off. {effect}")


_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Services], int | None]] = {
    "list": _list,
    "show": _show,
    "search": _search,
    "install": _install,
    "update": _update,
    "remove": _remove,
    "audit": _audit,
    "enable": _enable,
    "disable": _disable,
}
