"""Home of Hermes Agent: ``config.yaml``, ``.env``, ``SOUL.md``, memories, skills, cron jobs and ``state.db``."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from talaria.contracts.imports import ForeignHome, ForeignJob, ForeignSession, ForeignSkill, ForeignTranscript
from talaria.contracts.jobs import HOME, NOWHERE, JobRequest
from talaria.contracts.stores.access import PairedPerson
from talaria.core.addresses import Address
from talaria.core.errors import Refused
from talaria.core.text_formats import read_assignments
from talaria.importers.foreign_files import ForeignFiles, as_list, as_table, as_text, read_time
from talaria.importers.foreign_settings import convert_server, find_provider, make_provider_name
from talaria.importers.hermes_sessions import HermesSessions

_MARKS = ("state.db", "config.yaml", "SOUL.md", "memories", "cron")
_STANDARD_SOULS = {  # digests of the texts that Hermes itself writes
    "2765a846e1bb371d78d3b93b403dfb0f8d1ba1a9895edb5f608367abfe81194d",
    "82fa3438d86f8b95c6e96be89d853c8b561b3e6973ed61c90e70e0231dd24a7e",
    "6bc146a50e8fe3bd555e89a77e93af1f781cece8cf549f0d7a02ee2389811c72",
}
_NETWORKS = ("telegram", "discord", "slack", "matrix")
_OTHER_NETWORKS = ("whatsapp", "signal", "email", "sms", "mattermost", "feishu", "dingtalk", "wecom", "bluebubbles")
_RENAMED_KEYS = {"GLM_API_KEY": "ZAI_API_KEY", "Z_AI_API_KEY": "ZAI_API_KEY"}
_APPROVAL_MODES = {"manual": "ask", "smart": "ask", "off": "off"}
_EFFORTS = {"none", "minimal", "low", "medium", "high"}
_KEY = re.compile(r"[A-Z][A-Z0-9_]*_(API_KEY|TOKEN|SECRET|PASSWORD|HOMESERVER|ACCESS_KEY(_ID)?|KEY)")


class Hermes:
    """One home of Hermes; a profile of Hermes is a home of its own."""

    title = "Hermes"

    def __init__(self, home: Path) -> None:
        self.home = home
        self._files = ForeignFiles(home)
        self._sessions: HermesSessions | None = None

    def survey(self) -> ForeignHome:
        """Return everything but the messages; raises `Refused` if this isn't a home of Hermes."""
        if not any((self.home / name).exists() for name in _MARKS):
            raise Refused(f"{self.home} isn't a home of Hermes: it has neither state.db nor config.yaml.")
        config = as_table(self._files.read_yaml("settings", self.home / "config.yaml"))
        variables = read_assignments(self._files.read_text("keys", self.home / ".env"))
        keys = {_RENAMED_KEYS.get(name, name): value for name, value in variables.items() if _KEY.fullmatch(name)}
        servers = self._read_servers(config, keys)
        home = ForeignHome(
            sessions=tuple(self._list_sessions()),
            settings=self._read_settings(config, keys),
            servers=servers,
            keys=keys,
            persona=self._read_persona(),
            personalities=_read_personalities(config),
            memory=self._read_memory("MEMORY.md"),
            facts=self._read_memory("USER.md"),
            skills=tuple(self._list_skills()),
            jobs=tuple(self._list_jobs()),
            allowed=tuple(self._list_allowed(variables)),
            paired=tuple(self._list_paired()),
            home_chats=tuple(_list_home_chats(variables)),
        )
        self._note_the_rest(config)
        return structs.replace(home, skipped=tuple(self._files.skipped))

    def read_transcript(self, session: ForeignSession) -> ForeignTranscript:
        """Return the messages of a session."""
        assert self._sessions is not None, "the home is surveyed first"
        return self._sessions.read(session)

    def close(self) -> None:
        """Remove the copy of the store."""
        if self._sessions is not None:
            self._sessions.close()

    def _list_sessions(self) -> Iterator[ForeignSession]:
        if not (self.home / "state.db").exists():
            return
        try:
            self._sessions = HermesSessions(self.home / "state.db")
            yield from self._sessions.list_all()
        except Refused as error:
            self._files.skip("sessions", "state.db", str(error))

    def _read_settings(self, config: Mapping[str, Any], keys: dict[str, str]) -> dict[str, Any]:
        settings = self._read_model(config, keys)
        agent, approvals = as_table(config.get("agent")), as_table(config.get("approvals"))
        turns = agent.get("max_turns")
        if isinstance(turns, int) and 1 <= turns <= 1000:
            settings["agent.max_iterations"] = turns
        if (effort := as_text(agent.get("reasoning_effort")).lower()) in _EFFORTS:
            settings["model.effort"] = effort
        if zone := as_text(config.get("timezone")):
            settings["cli.time_zone"] = zone
        if mode := _APPROVAL_MODES.get(as_text(approvals.get("mode")).lower()):
            settings["approval.mode"] = mode
        self._read_networks(config, settings)
        return settings

    def _read_networks(self, config: Mapping[str, Any], settings: dict[str, Any]) -> None:
        chats = {"telegram": "allowed_chats", "discord": "allowed_channels", "slack": "allowed_channels"}
        for network, name in {**chats, "matrix": "allowed_rooms"}.items():
            section = as_table(config.get(network))
            if found := [str(one) for one in _split_list(section.get(name))]:
                settings[f"platforms.{network}.chats"] = found

    def _read_model(self, config: Mapping[str, Any], keys: dict[str, str]) -> dict[str, Any]:
        model = config.get("model")
        fields = {"default": model} if isinstance(model, str) else as_table(model)
        name = as_text(fields.get("default")) or as_text(fields.get("model")) or as_text(fields.get("name"))
        provider, address = as_text(fields.get("provider")), as_text(fields.get("base_url"))
        settings: dict[str, Any] = {}
        try:
            if provider in {"custom", ""} and address:
                ours = make_provider_name("custom")
                settings[f"providers.{ours}.base_url"] = address
                if (key := as_text(fields.get("api_key"))) and key.lower() != "none" and "${" not in key:
                    keys["CUSTOM_API_KEY"] = key
                    settings[f"providers.{ours}.key"] = "CUSTOM_API_KEY"
            elif provider in {"", "auto"}:
                ours = ""
            else:
                ours = find_provider(provider)
                if address:
                    settings[f"providers.{ours}.base_url"] = address
        except Refused as error:
            self._files.skip("settings", f"model.provider {provider}", str(error))
            return {}
        if ours:
            settings["model.provider"] = ours
        if name:
            settings["model.name"] = name
        return settings

    def _read_servers(self, config: Mapping[str, Any], keys: dict[str, str]) -> dict[str, dict[str, Any]]:
        servers: dict[str, dict[str, Any]] = {}
        for name, fields in as_table(config.get("mcp_servers")).items():
            try:
                servers[str(name)] = convert_server(str(name), as_table(fields), keys)
            except Refused as error:
                self._files.skip("MCP servers", str(name), str(error))
        return servers

    def _read_persona(self) -> str:
        text = self._files.read_text("persona", self.home / "SOUL.md").strip()
        if text and hashlib.sha256(text.encode()).hexdigest() in _STANDARD_SOULS:
            self._files.skip("persona", "SOUL.md", "It is the text that Hermes comes with.")
            return ""
        return text

    def _read_memory(self, name: str) -> tuple[str, ...]:
        text = self._files.read_text("memory", self.home / "memories" / name)
        lines = "\n".join("§" if line.strip() == "§" else line for line in text.splitlines())
        return tuple(entry.strip() for entry in f"\n{lines}\n".split("\n§\n") if entry.strip())

    def _list_skills(self) -> Iterator[ForeignSkill]:
        """Yield the skills of the person, without those that Hermes brings along unchanged."""
        root = self.home / "skills"
        manifest = self._files.read_text("skills", root / ".bundled_manifest")
        bundled = dict(line.split(":", 1) for line in manifest.splitlines() if ":" in line)
        unchanged = 0
        for head in sorted(root.rglob("SKILL.md")):
            folder = head.parent
            if any(part.startswith(".") for part in folder.relative_to(root).parts):
                continue
            if folder.name in bundled and bundled[folder.name].strip() in {"", _digest_folder(folder)}:
                unchanged += 1
                continue
            yield ForeignSkill(folder.name, folder)
        if unchanged:
            self._files.skip("skills", f"{unchanged} skills", "Hermes brings them along; you have not changed them.")

    def _list_jobs(self) -> Iterator[ForeignJob]:
        content = self._files.read_json("jobs", self.home / "cron" / "jobs.json")
        for entry in as_list(content) or as_list(as_table(content).get("jobs")):
            job = as_table(entry)
            name = as_text(job.get("name")) or as_text(job.get("id"))
            try:
                yield ForeignJob(as_text(job.get("id")), self._to_request(job))
            except Refused as error:
                self._files.skip("jobs", name, str(error))

    def _to_request(self, job: Mapping[str, Any]) -> JobRequest:
        schedule, repeat = as_table(job.get("schedule")), as_table(job.get("repeat"))
        times, done = repeat.get("times"), repeat.get("completed")
        left = max(1, times - (done if isinstance(done, int) else 0)) if isinstance(times, int) else None
        skills = [one for one in as_list(job.get("skills")) if isinstance(one, str)]
        model = _read_job_model(job)
        return JobRequest(
            when=_read_schedule(schedule),
            prompt=as_text(job.get("prompt")),
            name=as_text(job.get("name")) or None,
            skills=tuple(skills) or None,
            model=model or None,
            folder=as_text(job.get("workdir")) or None,
            script=self._find_script(job),
            times=left if schedule.get("kind") != "once" else None,
            deliver=tuple(_read_targets(job)),
            paused=job.get("enabled") is False or job.get("state") == "paused",
        )

    def _find_script(self, job: Mapping[str, Any]) -> str | None:
        script = as_text(job.get("script"))
        if not script:
            return None
        path = Path(script).expanduser()
        path = path if path.is_absolute() else self.home / "scripts" / script
        return f"{'python3' if path.suffix == '.py' else 'sh'} {path}" if path.is_file() else script

    def _list_allowed(self, variables: Mapping[str, str]) -> Iterator[str]:
        for network in _NETWORKS:
            for person in _split_list(variables.get(f"{network.upper()}_ALLOWED_USERS")):
                if person == "*":
                    self._files.skip("people", f"everyone on {network}", "Talaria answers only people that you name.")
                else:
                    yield f"{network}:{person}"
        others = [name for name in _OTHER_NETWORKS if variables.get(f"{name.upper()}_ALLOWED_USERS")]
        for name in others:
            self._files.skip("people", f"people on {name}", f"People on {name} aren't imported; they can pair again.")

    def _list_paired(self) -> Iterator[PairedPerson]:
        for folder in (self.home / "platforms" / "pairing", self.home / "pairing"):
            for file in sorted(folder.glob("*-approved.json")):
                network = file.name.removesuffix("-approved.json")
                for user_id, fields in as_table(self._files.read_json("people", file)).items():
                    person = as_table(fields)
                    if network in _NETWORKS:
                        since = read_time(person.get("approved_at"))
                        yield PairedPerson(network, str(user_id), as_text(person.get("user_name")), since)
                    else:
                        self._files.skip(
                            "people",
                            f"{network}:{user_id}",
                            f"People on {network} aren't imported; they can pair again.",
                        )

    def _note_the_rest(self, config: Mapping[str, Any]) -> None:
        """Record what has no place in Talaria."""
        skip = self._files.skip
        if (self.home / "auth.json").exists():
            skip("keys", "auth.json", "Sign-ins can't be copied: `talaria login` makes new ones.")
        for folder in sorted((self.home / "profiles").glob("*/")):
            name = folder.name
            reason = f"Create a profile for it, then run `talaria -p {name} import hermes {folder}`."
            skip("settings", f"profile {name}", reason)
        if config.get("command_allowlist"):
            skip("settings", "command_allowlist", "Talaria asks again; `approval.allowed` lists what it needn't ask.")
        if as_table(config.get("quick_commands")):
            skip("commands", "quick_commands", "Write them as custom commands: docs/how-to/write-slash-commands.md.")
        for name in ("hooks", "plugins"):
            if any((self.home / name).glob("*")) or as_table(config.get(name)):
                skip("settings", name, f"The {name} of Hermes are programs for Hermes only.")


def _read_personalities(config: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    sections = (as_table(config.get("personalities")), as_table(as_table(config.get("agent")).get("personalities")))
    for name, value in (item for section in sections for item in section.items()):
        text = as_text(value) or as_text(as_table(value).get("system_prompt")) or as_text(as_table(value).get("prompt"))
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", str(name)).strip("-")
        if text and plain:
            found[plain] = text
    return found


def _read_schedule(schedule: Mapping[str, Any]) -> str:
    kind = schedule.get("kind")
    if kind == "interval" and isinstance(schedule.get("minutes"), int):
        return f"every {schedule['minutes']}m"
    if kind == "cron" and (expression := as_text(schedule.get("expr"))):
        return " ".join(expression.split()[:5])
    if kind == "once" and (moment := as_text(schedule.get("run_at"))):
        return moment
    raise Refused(f"Its schedule is of an unknown kind: {kind}.")


def _read_job_model(job: Mapping[str, Any]) -> str:
    model, provider = as_text(job.get("model")), as_text(job.get("provider"))
    if not model or not provider:
        return model
    try:
        return f"{find_provider(provider)}:{model}"
    except Refused:
        return ""


def _read_targets(job: Mapping[str, Any]) -> Iterator[str]:
    origin = as_table(job.get("origin"))
    for target in _split_list(job.get("deliver")) or ["origin"]:
        if target == "local":
            yield NOWHERE
        elif target != "origin":
            yield target
        elif origin.get("platform") in _NETWORKS and origin.get("chat_id"):
            thread = f":{origin['thread_id']}" if origin.get("thread_id") else ""
            yield f"{origin['platform']}:{origin['chat_id']}{thread}"
        else:
            yield HOME


def _list_home_chats(variables: Mapping[str, str]) -> Iterator[Address]:
    for network in _NETWORKS:
        chat = variables.get(f"{network.upper()}_HOME_CHANNEL") or variables.get(f"{network.upper()}_HOME_ROOM")
        if chat:
            private = network == "telegram" and not chat.startswith("-")
            thread = variables.get(f"{network.upper()}_HOME_CHANNEL_THREAD_ID", "")
            yield Address(network, chat, "private" if private else "thread" if thread else "group", thread)


def _split_list(value: Any) -> list[str]:
    if isinstance(value, str):
        return [one.strip() for one in value.split(",") if one.strip()]
    return [str(one) for one in as_list(value)]


def _digest_folder(folder: Path) -> str:
    """Return the digest that Hermes notes for a skill it brings along."""
    digest = hashlib.md5(usedforsecurity=False)
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            digest.update(str(file.relative_to(folder)).encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()
