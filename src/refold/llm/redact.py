"""Masks secrets before text reaches a summariser, a memory page or a log: keys, tokens, passwords, private keys.

Precision comes first: a hash, an id or a line of code masked by mistake is missing from the summary. A secret must
match a known format, or follow a name that identifies it and not look like a placeholder. Masking is pure, idempotent
and linear, even on adversarial text. Originals are never touched: the ledger keeps them unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from refold.memo import Memo
from refold.patterns import lazy_regex

Check = Callable[[str], bool]
PRIVATE_KEY_CHARS_MAX = 20_000
SECRET_CHARS_MIN = 5
CLEAN_BYTES_MAX = 4_000_000
# The shortest key with a known prefix: a Slack token.
LONG_CHARS_MIN = 15
_BEGIN = lazy_regex(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BODY = lazy_regex(r"(?:[A-Za-z0-9+/=:,. -]|\s|\\[nr])*")
_PLACEHOLDER = lazy_regex(
    r"^[$%<{\[*]|\*{3}|x{4}|\.{3}|…|example|changeme|placeholder|redacted|dummy|your[-_]?|my[-_]?(?:pass|secret|key|token)"
    r"|^(?:none|null|true|false|undefined|string|str|bytes|password\d?|passwd|secret\d?|pass|token)$",
    re.I,
)
_NAME_LIKE = lazy_regex(
    r"^[A-Za-z_]\w*(?:(?:\.|->|::)[A-Za-z_]\w*)+$|^(?:[a-z]+_)*(?:pass|key|token|arg|param|user|pw|value)\w{0,12}\d?$"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of secret. Its pattern runs only where one of ``hints`` occurs; group ``secret`` (or ``bare``) goes.

    ``name``, if set, must match what ends with the group ``word``: the whole name that the value is given.
    ``is_one_word`` holds if the hint belongs to the secret, which has no blank and ``LONG_CHARS_MIN`` characters.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    check: Check | None = None
    name: re.Pattern[str] | None = None
    is_one_word: bool = False


def redact_text(text: str) -> str:
    """Return the text with every secret replaced by ``[redacted: its kind]``."""
    return _mask_all(text, [])


def find_secrets(texts: Iterable[str]) -> frozenset[str]:
    """Return every secret in these texts: out of its context, it could not be recognised."""
    met: list[str] = []
    for text in texts:
        if not _CLEAN.recall(partial(_has_none, text), text):
            _mask_all(text, met)
    return frozenset(secret for secret in met if len(secret) >= SECRET_CHARS_MIN)


# Whether a text has no secret, so that each text is searched once. Secrets themselves are not kept.
_CLEAN: Memo[bool] = Memo(CLEAN_BYTES_MAX)


def _has_none(text: str) -> bool:
    met: list[str] = []
    _mask_all(text, met)
    return not met


def _mask_all(text: str, met: list[str]) -> str:
    if "PRIVATE KEY" in text:
        text = _mask_private_keys(text)
    lowered = text.lower()
    # Most words are too short for a key: dozens of hints are searched only in the others.
    long_words = " ".join([word for word in lowered.split() if len(word) >= LONG_CHARS_MIN])
    for rule in RULES:
        searched = long_words if rule.is_one_word else lowered
        for hint in rule.hints:
            if hint in searched:
                text = rule.pattern.sub(_make_mask(rule, met), text)
                break
    return text


def _make_mask(rule: Rule, met: list[str]) -> Callable[[re.Match[str]], str]:
    def mask(found: re.Match[str]) -> str:
        name = "secret" if found["secret"] is not None else "bare"
        if rule.name is not None and not _is_named(rule.name, found):
            return found[0]
        if rule.check is not None and not rule.check(found[name]):
            return found[0]
        met.append(found[name])
        start, end = found.span(name)
        whole, at = found[0], found.start()
        return f"{whole[: start - at]}[redacted: {rule.kind}]{whole[end - at :]}"

    return mask


def _is_named(name: re.Pattern[str], found: re.Match[str]) -> bool:
    start = max(0, found.start() - _NAME_CHARS_MAX)
    return name.search(found.string[start : found.end("word")]) is not None


def _mask_private_keys(text: str) -> str:
    """Mask from BEGIN to END; a block that was cut off loses what looks like its body."""
    pieces: list[str] = []
    at = 0
    while (begin := _BEGIN.search(text, at)) is not None:
        close = text.find("PRIVATE KEY", begin.end(), begin.end() + PRIVATE_KEY_CHARS_MAX)
        dashes = text.find("-----", close) if close >= 0 else -1
        if close >= 0 and "-----END" in text[begin.end() : close] and 0 <= dashes - close < 20:
            end = dashes + 5
        else:
            body = _KEY_BODY.match(text, begin.end(), begin.end() + PRIVATE_KEY_CHARS_MAX)
            end = body.end() if body else begin.end()
        pieces += [text[at : begin.start()], "[redacted: private key]"]
        at = end
    return "".join([*pieces, text[at:]])


def _is_mixed(secret: str) -> bool:
    """Return whether letters and digits mix as in keys, not as in a name made of words."""
    digits = sum(char.isdigit() for char in secret)
    return digits >= 3 and any(char.isalpha() for char in secret) and not _PLACEHOLDER.search(secret)


def _is_key(secret: str) -> bool:
    """Return whether a value called a key or token looks like one."""
    return len(secret) >= 16 and _is_mixed(secret) and not _NAME_LIKE.match(secret) and len(set(secret)) >= 8


def _is_password(secret: str) -> bool:
    """Return whether a value called a password can be one: a single word is more likely a field or a variable."""
    if _PLACEHOLDER.search(secret) or _NAME_LIKE.match(secret) or "(" in secret:
        return False
    has_letter = any(char.isalpha() for char in secret)
    return has_letter and any(char.isdigit() or char in "!@#%^&*+?~$-" for char in secret)


def _shape(kind: str, hints: str, body: str, check: Check | None = None) -> Rule:
    """Return the rule of a kind that has a known prefix."""
    pattern = lazy_regex(rf"(?<![A-Za-z0-9])(?P<secret>{body})(?![A-Za-z0-9])")
    return Rule(kind, tuple(hints.lower().split()), pattern, check, is_one_word=True)


# In quotes, or unquoted up to the next delimiter of code or prose.
_VALUE = (
    r"""(?:(?P<quote>["'`])(?P<secret>[^"'`\s\\]{%d,200})\\?(?P=quote)|(?P<bare>[^\s"'`,;<>(){}\[\]|\\]{%d,200}))"""
)
_ASSIGN = r"""(?:\\?["'])?\]?\s{0,4}(?:=>|:=|=|:|：)\s{0,4}\\?"""
# A plain set of first letters lets the search skip ahead; case-insensitive words would be tried at every position.
_PASSWORDS = r"[Pp密口](?i:(?<=p)ass(?:word|wd|phrase)|(?<=p)wd|(?<=密)码|(?<=口)令)"
_KEYS = r"[KkSsTt密令](?i:(?<=k)ey(?:[_-]?id)?|(?<=s)ecret|(?<=t)oken|(?<=密)钥|(?<=令)牌)"
_KEY_NAME = lazy_regex(
    r"(?:(?:api|access|secret|signing|private|encryption|account)[_-]?key(?:[_-]?id)?|(?:client|signing|webhook)[_-]?secret"
    r"|(?:auth|access|refresh|bearer)[_-]?token|(?<![a-z])secret|密钥|令牌"
    r"|(?<!page)(?<!page[_-])(?<!next[_-])(?<!sync[_-])(?<!csrf[_-])(?<!cursor[_-])(?<![a-z])token)$",
    re.I,
)
_NAME_CHARS_MAX = 24


def _named(kind: str, hints: tuple[str, ...], word: str, value: str, *, check: Check) -> Rule:
    """Return the rule of a kind that follows a known name."""
    name = _KEY_NAME if kind == "key" else None
    return Rule(kind, hints, lazy_regex(rf"(?P<word>{word}){_ASSIGN}{value}"), check, name)


_PASSWORD_HINTS = ("passw", "passphrase", "pwd", "密码", "口令")
_KEY_HINTS = ("key", "secret", "token", "密钥", "令牌")

RULES = (
    _shape("anthropic key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{20,200}"),
    _shape("api key", "sk-", r"sk-[A-Za-z0-9_-]{20,200}", _is_mixed),
    _shape(
        "api key",
        "gsk_ xai- pplx- nvapi- fw_ tvly-",
        r"(?:gsk_|xai-|pplx-|nvapi-|fw_|tvly-)[A-Za-z0-9_-]{20,200}",
        _is_mixed,
    ),
    _shape("aws key id", "akia asia", r"(?:AKIA|ASIA)[A-Z0-9]{16}"),
    _shape(
        "github token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        r"(?:gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{22,255})",
    ),
    _shape("gitlab token", "glpat- gldt- glrt-", r"gl(?:pat|dt|rt)-[A-Za-z0-9_-]{20,64}"),
    _shape("slack token", "xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,200}", _is_mixed),
    _shape("slack webhook", "hooks.slack.com", r"hooks\.slack\.com/services/[A-Za-z0-9/]{20,100}"),
    _shape("google key", "aiza", r"AIza[A-Za-z0-9_-]{35}"),
    _shape("google token", "ya29.", r"ya29\.[A-Za-z0-9_-]{20,400}"),
    _shape(
        "stripe key",
        "sk_live_ sk_test_ rk_live_ rk_test_ whsec_",
        r"(?:[sr]k_(?:live|test)_|whsec_)[A-Za-z0-9]{16,128}",
    ),
    _shape("hugging face token", "hf_", r"hf_[A-Za-z0-9]{30,64}"),
    _shape("npm token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _shape("package index token", "pypi-ageicHlwa".lower(), r"pypi-AgEIcHlwaS[A-Za-z0-9_-]{40,400}"),
    _shape("sendgrid key", "sg.", r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}"),
    _shape("twilio key", "sk", r"SK[0-9a-f]{32}"),
    _shape("digitalocean token", "_v1_", r"do[oprt]_v1_[0-9a-f]{64}"),
    _shape("databricks token", "dapi", r"dapi[0-9a-f]{32}(?:-\d)?"),
    _shape("shopify token", "shp", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _shape("age key", "age-secret-key-", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    _shape("telegram token", ":aa", r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}"),
    _shape("json web token", "eyj", r"eyJ[A-Za-z0-9_-]{10,4000}\.eyJ[A-Za-z0-9_-]{10,8000}\.[A-Za-z0-9_-]{10,2000}"),
    Rule(
        "password",
        ("://",),
        lazy_regex(r"""://[^\s:/@"'<>]{0,64}:(?P<secret>[^\s@/"'<>]{1,128})@(?=[\w.\[-])"""),
        lambda secret: not _PLACEHOLDER.search(secret),
    ),
    Rule("token", ("bearer",), lazy_regex(r"\bbearer\s{1,4}(?P<secret>[A-Za-z0-9._~+/=-]{16,4000})", re.I), _is_mixed),
    Rule(
        "credentials",
        ("authorization",),
        lazy_regex(r"""authorization["']?\s{0,4}[:=]\s{0,4}["']?basic\s{1,4}(?P<secret>[A-Za-z0-9+/=]{8,400})""", re.I),
    ),
    Rule(
        "token",
        ("token=", "key=", "sig=", "signature=", "password="),
        lazy_regex(
            r"[?&](?:[\w-]{0,20}token|(?:api|access)?[_-]?key|(?:x-amz-)?sig(?:nature)?|password)="
            r"""(?P<secret>[^&\s"'<>)\]]{12,1000})""",
            re.I,
        ),
        _is_mixed,
    ),
    _named("password", _PASSWORD_HINTS, _PASSWORDS, _VALUE % (5, 6), check=_is_password),
    _named("key", _KEY_HINTS, _KEYS, _VALUE % (16, 16), check=_is_key),
    Rule(
        "password",
        _PASSWORD_HINTS,
        lazy_regex(
            rf"(?:{_PASSWORDS})(?:\s{{1,3}}is\s{{1,3}}|\s?[是为]\s?)[\"'`]?(?P<secret>[^\s\"'`，。,;]{{6,64}})", re.I
        ),
        _is_password,
    ),
    Rule(
        "password",
        ("--password", "--passwd", "--token", "--api-key", "--secret"),
        lazy_regex(r"""--(?:password|passwd|token|api-key|secret)\s{1,3}["']?(?P<secret>[^\s"'`]{6,200})"""),
        _is_password,
    ),
    Rule(
        "password",
        ("-u ", "--user "),
        lazy_regex(r"""(?:\s-u|--user)\s{1,3}["']?[A-Za-z_][\w.@-]{0,64}:(?P<secret>[^\s"'`]{5,128})"""),
        _is_password,
    ),
)
