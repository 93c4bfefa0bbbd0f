"""Search engines of a profile: their accounts in order, and checks of them."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta

from msgspec import structs

from talaria.contracts.setup import ProbeResult, SearchEngineOffer
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profile
from talaria.settings.secrets import read_secrets
from talaria.settings.sections.tools import WebSettings
from talaria.tools.web.search import EngineAccount, EngineFailed, SearchChain, SearchOptions

FindSecret = Callable[[str], str | None]
_TRIAL_QUERY = "weather"


def list_engine_accounts(web: WebSettings, find_secret: FindSecret) -> list[EngineAccount]:
    """Return the engines to ask, in order: those of the settings, or else all that can be used."""
    from talaria.tools.web.engines import ENGINES  # noqa: PLC0415 (loaded with the first search)

    accounts = [_build_account(name, web, find_secret) for name in web.engines or ENGINES]
    return accounts if web.engines else [one for one in accounts if not ENGINES[one.name].find_gap(one)]


def _build_account(name: str, web: WebSettings, find_secret: FindSecret) -> EngineAccount:
    """Return an engine with the key and the address that it has in a profile."""
    from talaria.tools.web.engines import ENGINES  # noqa: PLC0415 (loaded with the first search)

    engine = ENGINES[name]
    return EngineAccount(
        name,
        key=next(filter(None, map(find_secret, engine.key_names)), ""),
        url=web.addresses.get(name, ""),
        engine_id=web.google_engine_id if engine.needs_engine_id else "",
    )


def open_search(web: WebSettings, find_secret: FindSecret) -> SearchChain:
    """Return the engines of a profile, for searches; its keys are read for each search."""
    options = SearchOptions(web.search_seconds, timedelta(minutes=web.cache_minutes))
    return SearchChain(lambda: list_engine_accounts(web, find_secret), options)


class ProfileSearch:
    """Implementation of `SearchProbes` for one profile."""

    def __init__(self, profile: Profile, environment: Mapping[str, str]) -> None:
        self._profile = profile
        self._environment = environment

    def engines(self) -> tuple[SearchEngineOffer, ...]:
        """Return every engine, those in use first and in their order."""
        from talaria.tools.web.engines import ENGINES  # noqa: PLC0415 (loaded for checks)

        web, find_secret = self._load()
        used = [account.name for account in list_engine_accounts(web, find_secret)]
        return tuple(
            SearchEngineOffer(
                name=name,
                title=ENGINES[name].title,
                key_name=next(iter(ENGINES[name].key_names), ""),
                gap=ENGINES[name].find_gap(account),
                has_key=bool(account.key),
                used=name in used,
            )
            for name in dict.fromkeys([*used, *ENGINES])
            for account in [_build_account(name, web, find_secret)]
        )

    def try_engine(self, engine: str, key: str = "") -> ProbeResult:
        """Send a query to an engine; the result never contains its key."""
        if not key.isascii() or not key.isprintable() or " " in key:
            return ProbeResult("refused", "A key has no spaces or line breaks. Copy it again.")
        web, find_secret = self._load()
        known = _build_account(engine, web, find_secret)
        return asyncio.run(_try_account(structs.replace(known, key=key or known.key), web.search_seconds))

    def _load(self) -> tuple[WebSettings, FindSecret]:
        settings = load_settings(self._profile, self._environment)
        return settings.web, read_secrets(self._profile, self._environment).get


async def _try_account(account: EngineAccount, seconds: float) -> ProbeResult:
    from talaria.tools.web.engines import ENGINES  # noqa: PLC0415 (loaded for checks)

    title, chain = ENGINES[account.name].title, SearchChain(lambda: [account], SearchOptions(seconds))
    try:
        await chain.ask(account, _TRIAL_QUERY, 1)
    except EngineFailed as error:
        return ProbeResult(error.outcome, f"{title} can't be used: {error}.")
    finally:
        await chain.close()
    return ProbeResult("right", f"{title} answers.")
