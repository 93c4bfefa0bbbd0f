"""Setup of Feishu and Lark: an app with its secret and keys, and the address that Feishu calls."""

from datetime import UTC, datetime

from msgspec import Struct, structs

from talaria.contracts.setup import NetworkSetup, NetworkTrial, SetupQuestion
from talaria.platforms.feishu.settings import PORT, FeishuSettings, read_settings
from talaria.platforms.setup_checks import (
    PLACEHOLDER,
    ProbeRequest,
    TokenCheck,
    TokenRejected,
    UnexpectedAnswer,
    decode_answer,
    endpoint_questions,
    refusals_of,
)

_APP_ID = "FEISHU_APP_ID"
_SECRET = "FEISHU_APP_SECRET"  # noqa: S105 (the name of a secret)
_KEY = "FEISHU_ENCRYPT_KEY"
_TOKEN = "FEISHU_VERIFICATION_TOKEN"  # noqa: S105 (the name of a secret)
SECRETS = {"app_id": _APP_ID, "secret": _SECRET, "encrypt_key": _KEY, "token": _TOKEN}


class _Granted(Struct):
    code: int


def _read(trial: NetworkTrial) -> FeishuSettings:
    secrets = {field: trial.secrets.get(name, "") for field, name in SECRETS.items()}
    return read_settings(trial.account or "feishu", trial.options, secrets)


def _make_request(base: str, trial: NetworkTrial) -> ProbeRequest:
    settings = _read(structs.replace(trial, options={**PLACEHOLDER, **trial.options, "api_url": base}))
    request = settings.token_request
    headers = {"Content-Type": request.content_type}
    return ProbeRequest("POST", request.url(), headers, request.encode(datetime.now(UTC)))


def _check_answer(status: int, body: bytes) -> str:
    if status >= 500:
        raise UnexpectedAnswer
    if decode_answer(body, _Granted).code != 0:
        raise TokenRejected
    return ""


def _find_domain_problem(domain: str) -> str:
    return "" if domain in {"feishu", "lark"} else "The domain is feishu or lark."


_find_problems = refusals_of(_read)

SETUP = NetworkSetup(
    title="Feishu or Lark",
    questions=(
        SetupQuestion(
            name="domain",
            prompt="Domain",
            hint="feishu for open.feishu.cn, lark for open.larksuite.com.",
            default="feishu",
            problem=_find_domain_problem,
        ),
        SetupQuestion(name=_APP_ID, prompt="App ID", hint="On the app's Credentials page: cli_….", public=True),
        SetupQuestion(
            name=_SECRET,
            hint="The App Secret on the same page.",
            check=TokenCheck(
                title="Feishu",
                secret=_SECRET,
                address=lambda trial: _read(structs.replace(trial, options={**PLACEHOLDER, **trial.options})).api,
                request=_make_request,
                owner=_check_answer,
                remedy="Check domain, App ID and App Secret on the Credentials page.",
            ),
        ),
        SetupQuestion(name=_KEY, hint="The Encrypt Key on the page Events & Callbacks, Encryption Strategy."),
        SetupQuestion(name=_TOKEN, hint="The Verification Token on the same page."),
        *endpoint_questions("Feishu", "feishu", PORT),
    ),
    next_step="Start the gateway, then enter the public address as request URL of events and of callbacks.",
    doctor=_find_problems,
)
