"""Import of one home into a profile: plan, files, people, jobs and sessions."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import structs

from talaria.app.imports.profile_writer import ProfileWriter
from talaria.app.imports.session_writer import IMPORTED, ImportRecord, SessionWriter, build_record_key
from talaria.app.platforms import list_reachable_platforms
from talaria.app.session.agent_spec import DEFAULT_IDENTITY
from talaria.app.store import open_database
from talaria.contracts.clock import SystemClock
from talaria.contracts.imports import (
    ForeignAgent,
    ForeignHome,
    ForeignJob,
    ForeignSession,
    ImportChoices,
    ImportItem,
    ImportOutcome,
    ImportPlan,
    SkippedItem,
    find_foreign_home,
)
from talaria.contracts.jobs import HOME, JobRequest, JobRequester
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.access import PairedPerson, PairingRules
from talaria.core.errors import Refused, TalariaError
from talaria.core.formatting import pluralize
from talaria.core.ids import new_id
from talaria.importers.claude_code import ClaudeCode
from talaria.importers.codex import Codex
from talaria.importers.hermes import Hermes
from talaria.importers.openclaw import OpenClaw
from talaria.schedule.job_store import JobRules, add_job, resolve_targets
from talaria.schedule.recurrence import find_system_zone
from talaria.sessions.chat_directory import HomeChat, read_home, write_home
from talaria.settings.atomic_files import lock_folder
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profile
from talaria.settings.secrets import list_secret_names, read_secrets

_AGENTS: Mapping[str, Callable[[Path], ForeignAgent]] = {
    "hermes": Hermes,
    "openclaw": OpenClaw,
    "claude-code": ClaudeCode,
    "codex": Codex,
}
_NO_LIMIT = 1_000_000


@contextmanager
def open_importer(
    agent: str,
    path: Path | None,
    profile: Profile,
    environment: Mapping[str, str],
) -> Iterator["ProfileImporter"]:
    """Open the import of a home; raises `Refused` if there is none. Temporary copies are removed at the end."""
    home = (path or find_foreign_home(agent, environment)).expanduser().absolute()
    if not home.is_dir():
        raise Refused(f"There is no folder {home}. Name the one to import: `talaria import {agent} PATH`.")
    foreign = _AGENTS[agent](home)
    try:
        yield ProfileImporter(agent, foreign, profile, environment)
    finally:
        foreign.close()


class ProfileImporter:
    """Import of one home into a profile."""

    def __init__(
        self,
        name: str,
        agent: ForeignAgent,
        profile: Profile,
        environment: Mapping[str, str],
    ) -> None:
        self._name = name
        self._agent = agent
        self._profile = profile
        self._environment = environment
        self._home: ForeignHome | None = None

    def plan(self) -> ImportPlan:
        """Return what would happen; writes nothing to the profile."""
        home = self._survey()
        records = self._read_records()
        files = ProfileWriter(self._profile, self._environment, dry_run=True)
        items = [*files.write(home, self._name, with_keys=True), *self._allow(files, home)]
        items += [ImportItem("people", f"{one.platform}:{one.user_id}", "imported") for one in home.paired]
        items += [ImportItem("jobs", _name_of(job), self._plan_job(job, records)) for job in home.jobs]
        counts = Counter(self._plan_session(session, records) for session in home.sessions)
        items += [ImportItem("sessions", pluralize(n, "session"), outcome, count=n) for outcome, n in counts.items()]
        items += [ImportItem(one.kind, one.name, "skipped", one.reason) for one in home.skipped]
        return ImportPlan(
            agent=self._agent.title,
            home=self._agent.home,
            items=tuple(items),
            messages=sum(session.message_count for session in home.sessions),
            keys=tuple(home.keys),
            people=self._find_candidates(home),
        )

    def run(self, choices: ImportChoices, on_progress: Callable[[int], None]) -> list[ImportItem]:
        """Import everything and return what happened."""
        home = self._survey()
        self._profile.prepare()
        with lock_folder(self._profile.media_folder):
            if choices.owners:
                owners = {"access.owners": list(choices.owners)}
                home = structs.replace(home, settings={**home.settings, **owners})
            files = ProfileWriter(self._profile, self._environment, dry_run=False)
            items = list(files.write(home, self._name, with_keys=choices.with_keys))
            if home.keys and not choices.with_keys:
                items += [ImportItem("keys", name, "skipped", "Keys were not to be copied.") for name in home.keys]
            items += [ImportItem(one.kind, one.name, "skipped", one.reason) for one in home.skipped]
            with open_database(load_settings(self._profile, self._environment), self._profile) as database:
                items += database.write(lambda tx: [_admit(tx, person) for person in home.paired])
                items += self._allow(files, home)
                items += database.write(lambda tx: list(_set_homes(tx, home)))
                items += [self._write_job(database, job, choices) for job in home.jobs]
                settings = load_settings(self._profile, self._environment)
                media = self._profile.media_folder
                writer = SessionWriter(self._name, self._agent, database, settings, media)
                items += writer.write(home.sessions, on_progress)
        return items

    def _survey(self) -> ForeignHome:
        if self._home is None:
            self._home = _fit(self._agent.survey())
        return self._home

    def _read_records(self) -> Mapping[str, ImportRecord]:
        settings = load_settings(self._profile, self._environment)
        if not settings.store.url and not self._profile.database_file.exists():
            return {}
        with open_database(settings, self._profile) as database:
            return database.read(lambda tx: IMPORTED.items(tx, f"{self._name}:"))

    def _plan_session(self, session: ForeignSession, records: Mapping[str, ImportRecord]) -> ImportOutcome:
        record = records.get(build_record_key(self._name, "session", session.key))
        if record is None:
            return "imported"
        return "unchanged" if record.version == session.version else "changed"

    def _find_candidates(self, home: ForeignHome) -> tuple[str, ...]:
        """Return those who may be the owner: the only person allowed on a network where no owner is known."""
        owners = load_settings(self._profile, self._environment).access.owners
        by_network: dict[str, list[str]] = {}
        for person in home.allowed:
            by_network.setdefault(person.partition(":")[0], []).append(person)
        known = {owner.partition(":")[0] for owner in owners}
        return tuple(people[0] for network, people in by_network.items() if len(people) == 1 and network not in known)

    def _allow(self, files: ProfileWriter, home: ForeignHome) -> list[ImportItem]:
        if not home.allowed:
            return []
        settings = ForeignHome(settings={"access.allowed": list(home.allowed)})
        owners = load_settings(self._profile, self._environment).access.owners
        guests = [person for person in home.allowed if person not in owners]
        detail = (
            f"Guests here: {', '.join(guests)}. If one of them is you, add that id to `access.owners`."
            if guests
            else ""
        )
        return [
            structs.replace(item, kind="people", name=", ".join(home.allowed), detail=item.detail and detail)
            for item in files.write(settings, self._name, with_keys=False)
        ]

    def _plan_job(self, job: ForeignJob, records: Mapping[str, ImportRecord]) -> ImportOutcome:
        return "unchanged" if build_record_key(self._name, "job", job.key) in records else "imported"

    def _write_job(self, database: Database, job: ForeignJob, choices: ImportChoices) -> ImportItem:
        settings = load_settings(self._profile, self._environment)
        secrets = read_secrets(self._profile, self._environment)
        zone = settings.cli.time_zone or find_system_zone(self._environment)
        rules = JobRules(zone, tuple(list_reachable_platforms(settings, secrets)))
        key = build_record_key(self._name, "job", job.key)
        paused = bool(job.request.paused) or not choices.start_jobs

        def write(tx: Transaction) -> ImportItem:
            record = IMPORTED.get(tx, key)
            if record is not None:
                is_here = any(one.id == record.id for one in tx.jobs.find())
                detail = "" if is_here else "You removed it here after an earlier import."
                return ImportItem("jobs", _name_of(job), "unchanged" if is_here else "skipped", detail)
            request, detail = _replace_unreachable_targets(tx, structs.replace(job.request, paused=paused), rules)
            added = add_job(tx, request, JobRequester(key=key, everyone=True), rules, SystemClock().now())
            IMPORTED.write(tx, key, ImportRecord(id=added.id))
            state = "It is paused: `talaria cron resume` starts it." if paused else ""
            return ImportItem("jobs", added.name, "imported", " ".join(filter(None, (detail, state))))

        try:
            return database.write(write)
        except TalariaError as error:
            return ImportItem("jobs", _name_of(job), "skipped", str(error))


def _fit(home: ForeignHome) -> ForeignHome:
    """Return a home with its instructions after an identity, and only with keys that something here can use."""
    texts = " ".join(str(server) for server in home.servers.values())
    useful = set(list_secret_names()) | set(re.findall(r"\$\{(\w+)\}", texts))
    useful |= {str(value) for key, value in home.settings.items() if key.endswith(".key")}
    others = [SkippedItem("keys", name, "Talaria doesn't use it.") for name in home.keys if name not in useful]
    keys = {name: value for name, value in home.keys.items() if name in useful}
    persona = home.persona or (f"{DEFAULT_IDENTITY}\n\n{home.instructions}" if home.instructions else "")
    return structs.replace(home, keys=keys, persona=persona, skipped=(*home.skipped, *others))


def _admit(tx: Transaction, person: PairedPerson) -> ImportItem:
    """Admit a person who was paired in the other home; those who had no access there get none here."""
    name = f"{person.platform}:{person.user_id}"
    if tx.pairing.is_paired(person.platform, person.user_id):
        return ImportItem("people", name, "unchanged")
    rules = PairingRules(max_waiting=_NO_LIMIT, per_minute=_NO_LIMIT)
    tx.pairing.refuse(person.platform, person.user_id)
    tx.pairing.offer(person, new_id(), rules)
    tx.pairing.admit(person.platform, person.user_id)
    return ImportItem("people", name, "imported", "Paired.")


def _set_homes(tx: Transaction, home: ForeignHome) -> Iterator[ImportItem]:
    """Make the home chats of the other agent those of this one, on networks that have none."""
    for address in home.home_chats:
        name = f"home chat {address.platform}:{address.chat_id}"
        if read_home(tx, address.platform) is not None:
            yield ImportItem("settings", name, "unchanged", f"{address.platform} has a home chat here.")
        else:
            write_home(tx, HomeChat(address, ""))
            yield ImportItem("settings", name, "imported")


def _name_of(job: ForeignJob) -> str:
    return job.request.name or job.key


def _replace_unreachable_targets(tx: Transaction, request: JobRequest, rules: JobRules) -> tuple[JobRequest, str]:
    """Return a request whose reports go where they can: chats that aren't set up here are replaced by home."""
    reachable: list[str] = []
    lost: list[str] = []
    for target in request.deliver or (HOME,):
        try:
            resolve_targets(tx, (target,), rules.networks)
        except TalariaError:
            lost.append(target)
        else:
            reachable.append(target)
    detail = f"It reports to your home chat, because {', '.join(lost)} can't be reached from here." if lost else ""
    return structs.replace(request, deliver=tuple(reachable) or (HOME,)), detail
