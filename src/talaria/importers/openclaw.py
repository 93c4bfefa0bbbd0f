"""Home of OpenClaw: ``openclaw.json``, ``.env``, the workspace's files, skills, jobs and the agents' sessions."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from talaria.contracts.imports import ForeignHome, ForeignJob, ForeignSession, ForeignSkill, ForeignTranscript
from talaria.contracts.jobs import HOME, NOWHERE, JobRequest
from talaria.contracts.stores.access import PairedPerson
from talaria.core.errors import Refused
from talaria.core.text_formats import read_assignments
from talaria.importers.foreign_files import (
    ForeignFiles,
    as_list,
    as_table,
    as_text,
    list_columns,
    open_copy,
    split_markdown,
)
from talaria.importers.foreign_settings import convert_server, find_provider, make_provider_name
from talaria.importers.openclaw_sessions import OpenClawSessions

_CONFIGS = ("openclaw.json", "clawdbot.json", "moltbot.json")
_NETWORKS = ("telegram", "discord", "slack", "matrix")
_TOKENS = {
    ("telegram", "botToken"): "TELEGRAM_BOT_TOKEN",
    ("discord", "token"): "DISCORD_BOT_TOKEN",
    ("slack", "botToken"): "SLACK_BOT_TOKEN",
    ("slack", "appToken"): "SLACK_APP_TOKEN",
    ("matrix", "accessToken"): "MATRIX_ACCESS_TOKEN",
    ("matrix", "homeserver"): "MATRIX_HOMESERVER",
}
_PROTOCOLS = {
    "openai-completions": "openai_chat",
    "openai-responses": "openai_responses",
    "anthropic-messages": "anthropic",
}
_MANAGED = ("memory-core:", "heartbeat:", "skill-collection-review:")
_MINUTE = 60_000  # milliseconds


class OpenClaw:
    """One home of OpenClaw with all its agents."""

    title = "OpenClaw"

    def __init__(self, home: Path) -> None:
        self.home = home
        self._files = ForeignFiles(home)
        self._agents: dict[str, OpenClawSessions] = {}
        self._generated: set[str] = set()

    def survey(self) -> ForeignHome:
        """Return everything but the messages; raises `Refused` if this isn't a home of OpenClaw."""
        config_file = next((self.home / name for name in _CONFIGS if (self.home / name).exists()), None)
        if config_file is None and not (self.home / "agents").is_dir():
            raise Refused(f"{self.home} isn't a home of OpenClaw: it has neither openclaw.json nor agents.")
        config = as_table(self._files.read_json("settings", config_file)) if config_file else {}
        keys = self._read_keys(config)
        workspace = self._find_workspace(config)
        state = self._read_state()
        sessions = tuple(self._list_sessions())
        for agent in self._agents.values():
            for fields in agent.read_sign_ins():
                self._read_auth_profile(fields, keys)
        home = ForeignHome(
            sessions=sessions,
            settings=self._read_model(config, keys),
            servers=self._read_servers(config, keys),
            keys=keys,
            persona="\n\n".join(
                filter(None, (self._read_own_text(workspace / name) for name in ("SOUL.md", "IDENTITY.md")))
            ),
            memory=tuple(split_markdown(self._read_own_text(workspace / "MEMORY.md"))),
            facts=tuple(split_markdown(self._read_own_text(workspace / "USER.md"))),
            notes=self._read_notes(workspace),
            skills=tuple(self._list_skills(workspace)),
            jobs=tuple(self._list_jobs(state.get("cron_jobs", []))),
            allowed=tuple(self._list_allowed(config)),
            paired=tuple(self._list_paired(state.get("channel_pairing_allow_entries", []))),
        )
        self._note_the_rest(workspace)
        return structs.replace(home, skipped=tuple(self._files.skipped))

    def read_transcript(self, session: ForeignSession) -> ForeignTranscript:
        """Return the messages of a session."""
        return self._agents[session.key.partition("/")[0]].read(session)

    def close(self) -> None:
        """Remove the copies of the stores."""
        for agent in self._agents.values():
            agent.close()

    def _list_sessions(self) -> Iterator[ForeignSession]:
        for folder in sorted((self.home / "agents").glob("*/")):
            try:
                database = folder / "agent" / "openclaw-agent.sqlite"
                self._agents[folder.name] = OpenClawSessions(folder.name, database, folder / "sessions")
                yield from self._agents[folder.name].list_all()
            except Refused as error:
                self._files.skip("sessions", f"agent {folder.name}", str(error))

    def _read_state(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return the rows of the shared state that matter here, by table."""
        columns = {
            "cron_jobs": "job_json",
            "channel_pairing_allow_entries": "channel_key, entry",
            "workspace_generated_bootstrap_hashes": "sha256",
        }
        database = self.home / "state" / "openclaw.sqlite"
        if not database.is_file():
            return {}
        try:
            copy = open_copy(database)
        except Refused as error:
            self._files.skip("jobs", "state/openclaw.sqlite", str(error))
            return {}
        rows = {
            table: copy.execute(f"SELECT {names} FROM {table}").fetchall()
            for table, names in columns.items()
            if list_columns(copy, table)
        }
        copy.close()
        self._generated = {str(digest) for (digest,) in rows.get("workspace_generated_bootstrap_hashes", [])}
        return rows

    def _find_workspace(self, config: Mapping[str, Any]) -> Path:
        defaults = as_table(as_table(config.get("agents")).get("defaults"))
        chosen = as_text(defaults.get("workspace")) or as_text(as_table(config.get("agent")).get("workspace"))
        path = Path(chosen).expanduser() if chosen else self.home / "workspace"
        return path if path.is_dir() else self.home / "workspace"

    def _read_keys(self, config: Mapping[str, Any]) -> dict[str, str]:
        keys = read_assignments(self._files.read_text("keys", self.home / ".env"))
        variables = as_table(config.get("env"))
        for name, value in {**variables, **as_table(variables.get("vars"))}.items():
            if isinstance(value, str):
                keys[name] = value
        channels = as_table(config.get("channels"))
        for (network, name), ours in _TOKENS.items():
            value = as_text(as_table(channels.get(network)).get(name))
            if value and "${" not in value:
                keys[ours] = value
        for file in sorted((self.home / "agents").glob("*/agent/auth-profiles.json")):
            for fields in as_table(as_table(self._files.read_json("keys", file)).get("profiles")).values():
                self._read_auth_profile(as_table(fields), keys)
        return keys

    def _read_auth_profile(self, fields: Mapping[str, Any], keys: dict[str, str]) -> None:
        provider, key = as_text(fields.get("provider")), as_text(fields.get("key"))
        if fields.get("type") == "api_key" and provider and key:
            keys.setdefault(f"{provider.upper().replace('-', '_')}_API_KEY", key)
        elif provider:
            self._files.skip(
                "keys", f"sign-in to {provider}", "Sign-ins can't be copied: `talaria login` makes new ones."
            )

    def _read_model(self, config: Mapping[str, Any], keys: dict[str, str]) -> dict[str, Any]:
        defaults = as_table(as_table(config.get("agents")).get("defaults"))
        chosen = defaults.get("model")
        primary = as_text(chosen) or as_text(as_table(chosen).get("primary"))
        settings: dict[str, Any] = {}
        accounts: dict[str, str] = {}
        for name, fields in as_table(as_table(config.get("models")).get("providers")).items():
            accounts[name] = self._read_provider(str(name), as_table(fields), keys, settings)
        provider, slash, model = primary.partition("/")
        try:
            if slash:
                settings["model.provider"] = accounts.get(provider) or find_provider(provider)
                settings["model.name"] = model
        except Refused as error:
            self._files.skip("settings", f"model {primary}", str(error))
        if zone := as_text(defaults.get("userTimezone")):
            settings["cli.time_zone"] = zone
        return settings

    def _read_provider(
        self, name: str, fields: Mapping[str, Any], keys: dict[str, str], settings: dict[str, Any]
    ) -> str:
        """Add a provider of the configuration to the settings, and return its name here."""
        try:
            ours = find_provider(name)
        except Refused:
            ours = make_provider_name(name)
        if address := as_text(fields.get("baseUrl")):
            settings[f"providers.{ours}.base_url"] = address
        if protocol := _PROTOCOLS.get(as_text(fields.get("api"))):
            settings[f"providers.{ours}.protocol"] = protocol
        key, secret = as_text(fields.get("apiKey")), f"{ours.upper().replace('-', '_')}_API_KEY"
        reference = re.fullmatch(r"\$\{(\w+)\}", key) or re.fullmatch(r"([A-Z][A-Z0-9_]+)", key)
        if reference:
            secret = reference[1]
        elif key:
            keys[secret] = key
        if key and address:
            settings[f"providers.{ours}.key"] = secret
        return ours

    def _read_servers(self, config: Mapping[str, Any], keys: dict[str, str]) -> dict[str, dict[str, Any]]:
        servers: dict[str, dict[str, Any]] = {}
        for name, fields in as_table(as_table(config.get("mcp")).get("servers")).items():
            try:
                servers[str(name)] = convert_server(str(name), as_table(fields), keys)
            except Refused as error:
                self._files.skip("MCP servers", str(name), str(error))
        return servers

    def _read_own_text(self, file: Path) -> str:
        """Return the text of a file of the workspace; empty if it is still the one that OpenClaw wrote."""
        text = self._files.read_text("memory", file)
        if text and hashlib.sha256(text.encode()).hexdigest() in self._generated:
            self._files.skip("persona", file.name, "It is the text that OpenClaw comes with.")
            return ""
        return text.strip()

    def _read_notes(self, workspace: Path) -> dict[str, str]:
        daily = {f"memory-{file.name}": file for file in sorted((workspace / "memory").glob("*.md"))}
        texts = {name: self._read_own_text(file) for name, file in daily.items()}
        texts |= {name: self._read_own_text(workspace / name) for name in ("AGENTS.md", "TOOLS.md")}
        return {name: text for name, text in texts.items() if text}

    def _list_skills(self, workspace: Path) -> Iterator[ForeignSkill]:
        for root in (workspace / "skills", self.home / "skills"):
            for head in sorted(root.glob("*/SKILL.md")):
                yield ForeignSkill(head.parent.name, head.parent)

    def _list_jobs(self, rows: list[tuple[Any, ...]]) -> Iterator[ForeignJob]:
        older = self._files.read_json("jobs", self.home / "cron" / "jobs.json")
        stored = [as_table(_decode(text)) for (text,) in rows]
        for job in stored or [as_table(one) for one in as_list(as_table(older).get("jobs"))]:
            name = as_text(job.get("name")) or as_text(job.get("id"))
            payload = as_table(job.get("payload"))
            if as_text(job.get("declarationKey")).startswith(_MANAGED) or payload.get("kind") == "heartbeat":
                self._files.skip("jobs", name, "OpenClaw made it for itself.")
                continue
            try:
                yield ForeignJob(as_text(job.get("id")), _to_request(job, payload))
            except Refused as error:
                self._files.skip("jobs", name, str(error))

    def _list_allowed(self, config: Mapping[str, Any]) -> Iterator[str]:
        for network, fields in as_table(config.get("channels")).items():
            for person in (str(one) for one in as_list(as_table(fields).get("allowFrom"))):
                if network not in _NETWORKS:
                    self._files.skip(
                        "people", f"{network}:{person}", f"People on {network} aren't imported; they can pair again."
                    )
                elif person == "*" or person.startswith("accessGroup:"):
                    self._files.skip("people", f"{network}:{person}", "Talaria answers only people that you name.")
                else:
                    yield f"{network}:{person.removeprefix(f'{network}:')}"

    def _list_paired(self, rows: list[tuple[Any, ...]]) -> Iterator[PairedPerson]:
        found = [(str(network), str(person)) for network, person in rows]
        for file in sorted((self.home / "credentials").glob("*-allowFrom.json")):
            network = file.name.split("-", 1)[0]
            entries = self._files.read_json("people", file)
            people = as_list(entries) or as_list(as_table(entries).get("allowFrom"))
            found += [(network, str(person)) for person in people]
        for network, person in dict.fromkeys(found):
            if network in _NETWORKS:
                yield PairedPerson(network, person.removeprefix(f"{network}:"))
            else:
                self._files.skip(
                    "people", f"{network}:{person}", f"People on {network} aren't imported; they can pair again."
                )

    def _note_the_rest(self, workspace: Path) -> None:
        if self._files.read_text("jobs", workspace / "HEARTBEAT.md").strip():
            self._files.skip("jobs", "HEARTBEAT.md", "Copy it to your profile, then set `heartbeat.every`.")


def _to_request(job: Mapping[str, Any], payload: Mapping[str, Any]) -> JobRequest:
    schedule, delivery = as_table(job.get("schedule")), as_table(job.get("delivery"))
    prompt = as_text(payload.get("message")) or as_text(payload.get("text"))
    network, chat = as_text(delivery.get("channel")), as_text(delivery.get("to"))
    target = (
        NOWHERE if delivery.get("mode") == "none" else f"{network}:{chat}" if network in _NETWORKS and chat else HOME
    )
    provider, slash, model = as_text(payload.get("model")).partition("/")
    return JobRequest(
        when=_read_schedule(schedule),
        prompt=prompt,
        name=as_text(job.get("displayName")) or as_text(job.get("name")) or None,
        model=_read_job_model(provider, model) if slash else None,
        script=as_text(payload.get("command")) or None,
        zone=as_text(schedule.get("tz")) or None,
        deliver=(target,),
        paused=job.get("enabled") is False,
    )


def _read_job_model(provider: str, model: str) -> str | None:
    try:
        return f"{find_provider(provider)}:{model}"
    except Refused:
        return None


def _read_schedule(schedule: Mapping[str, Any]) -> str:
    kind = schedule.get("kind")
    if kind == "cron" and (expression := as_text(schedule.get("expr"))):
        fields = expression.split()
        return " ".join(fields[-5:])  # with six fields, the first is seconds
    if kind == "every" and isinstance(every := schedule.get("everyMs"), int):
        if every < _MINUTE:
            raise Refused("It runs more than once a minute.")
        return f"every {every // _MINUTE}m"
    if kind == "at" and (moment := as_text(schedule.get("at"))):
        return moment
    raise Refused(f"Its schedule is of an unknown kind: {kind}.")


def _decode(text: Any) -> Any:
    try:
        return msgspec.json.decode(text) if isinstance(text, str | bytes) else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
