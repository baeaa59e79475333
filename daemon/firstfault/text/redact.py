"""Cover credentials in evidence before it leaves the process; what is covered keeps its kind, its length and a short hash.

The hash lets two people see that they speak of the same secret. Hashes of commits and files, UUIDs, communicator ids and addresses
survive: they are evidence. Repeats are bounded and nothing looks back over them, so that any line is read in linear time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from firstfault.text.linear import Pattern

MAX_TEXT = 262_144  # characters; longer evidence is cut before it is shown anyway

_QUOTE = r"""['"\\]{0,4}"""
_NAME = (
    r"(?:[\w.-]{0,40}[_.-])?(?:password|passwd|passphrase|pwd|secret|secret[_-]?key|api[_-]?key|apikey|access[_-]?key|auth[_-]?token|access[_-]?token"
    r"|refresh[_-]?token|client[_-]?secret|private[_-]?key|credentials?|token|bearer)"
)
# words that follow such a name without being a secret: switches, types, counts, file names, placeholders
_HARMLESS = re.compile(
    r"(?i)(?:true|false|none|null|nil|yes|no|on|off|required|missing|invalid|expired|not|is|was|unset|set|empty|undefined|str|string|int|bytes"
    r"|optional|default|redacted|hidden|unknown|disabled|enabled|\*+|x{3,}|\.{2,}|<[^>]{0,60}>|\[.{0,60}|\{.{0,60}|\d{1,12}(?:\.\d{1,12})?"
    r"|\$\{?\w{1,60}\}?|os\.environ.{0,60}|getenv.{0,60}|[\w./-]{0,200}/[\w./-]{0,200})[)\],;.]{0,4}"
)

# (kind, text without which the pattern cannot match, pattern); the group "s" is covered, everything without one
PATTERNS: tuple[tuple[str, str, str], ...] = (
    ("private-key", "PRIVATE KEY", r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[\s\S]{0,16384}?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)"),
    ("aws-key-id", "A", r"\b(?P<s>(?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z2-7]{16})\b"),
    ("aws-secret", "aws", r"(?i)aws.{0,30}?(?:secret|key).{0,30}?[=:\s'\"]{1,6}(?P<s>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"),
    ("gcp-key", "AIza", r"\b(?P<s>AIza[A-Za-z0-9_-]{35})\b"),
    ("gcp-token", "ya29.", r"\b(?P<s>ya29\.[A-Za-z0-9_-]{20,400})"),
    ("azure-key", "AccountKey=", r"AccountKey=(?P<s>[A-Za-z0-9+/]{40,100}={0,2})"),
    ("azure-sas", "sig=", r"[?&]sig=(?P<s>[A-Za-z0-9%+/=]{20,200})"),
    ("hugging-face", "hf_", r"\b(?P<s>(?:hf|api_org)_[A-Za-z0-9]{20,60})\b"),
    ("github", "gh", r"\b(?P<s>gh[pousr]_[A-Za-z0-9]{30,255})\b"),
    ("github", "github_pat_", r"\b(?P<s>github_pat_[A-Za-z0-9_]{22,255})\b"),
    ("gitlab", "glpat-", r"\b(?P<s>glpat-[A-Za-z0-9_-]{20,64})"),
    ("wandb", "andb", r"(?i)w(?:and|&)b.{0,60}?(?P<s>\b[0-9a-f]{40}\b)"),
    ("wandb", "WANDB", r"WANDB.{0,60}?(?P<s>\b[0-9a-f]{40}\b)"),
    ("slack", "xox", r"\b(?P<s>xox[abeoprs]-[A-Za-z0-9-]{10,250})"),
    ("slack-hook", "hooks.slack.com", r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<s>[A-Za-z0-9_/-]{20,120})"),
    ("openai", "sk-", r"(?:^|[^\w-])(?P<s>sk-(?:proj-|svcacct-|admin-|ant-|or-)?[A-Za-z0-9_-]{20,250})"),
    ("nvidia", "nvapi-", r"\b(?P<s>nvapi-[A-Za-z0-9_-]{40,120})"),
    ("npm", "npm_", r"\b(?P<s>npm_[A-Za-z0-9]{36})\b"),
    ("pypi", "pypi-", r"\b(?P<s>pypi-[A-Za-z0-9_-]{50,250})"),
    ("stripe", "_live_", r"\b(?P<s>[rs]k_live_[A-Za-z0-9]{20,120})\b"),
    ("jwt", "eyJ", r"\b(?P<s>eyJ[A-Za-z0-9_-]{8,4000}\.eyJ[A-Za-z0-9_-]{4,4000}\.[A-Za-z0-9_-]{8,4000})"),
    ("url-password", "://", r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s/@:'\"<>]{0,120}:(?P<s>[^\s/@'\"<>]{1,250})@"),
    ("url-user", "://", r"\bhttps?://(?P<s>[A-Za-z0-9_-]{20,250})@"),
    (
        "authorization", "uthorization",
        r"(?i)authorization['\"]{0,2}\s{0,3}[:=]\s{0,3}['\"]{0,2}(?:basic|bearer|token)\s{1,3}(?P<s>[^\s'\",;]{8,4000})",
    ),
    ("bearer", "earer ", r"(?i)\bbearer (?P<s>[A-Za-z0-9._~+/-]{20,4000}={0,2})"),
)  # fmt: skip
_ASSIGNED = re.compile(
    rf"(?i)(?<![\w/]){_NAME}{_QUOTE}\s{{0,3}}(?:=|:(?!:))\s{{0,3}}{_QUOTE}(?P<s>[^\s'\"\\,;&)\]}}]{{3,400}})"
    rf"|--?{_NAME}[ =]['\"]?(?P<o>[^\s'\"-][^\s'\"]{{5,400}})"
)
_ASSIGNED_WORDS = ("pass", "pwd", "secret", "key", "token", "credential", "bearer", "PASS", "PWD", "SECRET", "KEY", "TOKEN", "Pass", "Key")
_ASSIGNED_WORDS += ("Secret", "Token", "CREDENTIAL", "Bearer", "BEARER")
# A line that is read while it is written may end within a secret: what begins like one and is cut off.
_CUT = re.compile(
    r"(?:^|[^\w-])(?P<s>(?:gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|nvapi-|npm_|pypi-|ya29\.|AIza|AKIA|ASIA|eyJ|[rs]k_live_)[\w.-]{4,4000}"
    r"|(?:hf|api_org)_(?=[A-Za-z]{0,20}[A-Z0-9])[A-Za-z0-9]{6,60}|sk-(?=[\w-]{0,24}\d)[\w-]{8,250})\Z"
    r"|[Ww](?:and|&|AND)[Bb].{0,60}?\b(?P<w>[0-9a-f]{8,39})\Z"
)
# What every text with a secret holds, in ASCII: one look instead of fifty at each line of evidence, of which hardly any holds one.
_SUSPECT = Pattern(
    r"(?i:PRIVATE KEY|aws|authorization|andb|w&b|pass|pwd|secret|key|token|credential|bearer)|A(?:KIA|SIA|ROA|IDA|BIA|CCA)|AIza|ya29\.|sig="
    r"|hf_|api_org_|gh[pousr]_|github_pat_|glpat-|xox|hooks\.slack|sk-|nvapi-|npm_|pypi-|_live_|eyJ|://"
)
_MOST_CUT = 4096  # characters of the end of a text that are looked at for it
_COMPILED = tuple((kind, hint, re.compile(pattern)) for kind, hint, pattern in PATTERNS)
COVERED = "[redacted"  # how everything that stands for a secret begins


def cover(kind: str, secret: str) -> str:
    """Return what stands for a secret: its kind, its length, and six digits of its SHA-256."""
    digest = hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()[:6]
    return f"{COVERED} {kind}, {len(secret)} characters, #{digest}]"


def _with(kind: str, match: re.Match[str], name: str | int) -> str:
    whole, start = match[0], match.start()
    begin, end = match.span(name)
    return whole[: begin - start] + cover(kind, match[name]) + whole[end - start :]


def _replacer(kind: str) -> tuple[Callable[[re.Match[str]], str], list[int]]:
    count = [0]

    def replace(match: re.Match[str]) -> str:
        group: str | int = "s" if "s" in match.re.groupindex else 0
        if COVERED in match[group]:
            return match[0]
        count[0] += 1
        return _with(kind, match, group)

    return replace, count


def _assigned(match: re.Match[str]) -> str | None:
    """Cover `password=...`, unless what follows is a switch, a number, a path or a placeholder."""
    group = "s" if match["s"] is not None else "o"
    secret = match[group]
    if _HARMLESS.fullmatch(secret) or secret.startswith(COVERED):
        return None
    if "token" in match[0].lower() and group == "s" and not _looks_random(secret):
        return None  # tokens are what language models count: "token: hello", "tokens=4096", "pad_token=<pad>"
    return _with("secret", match, group)


def _looks_random(text: str) -> bool:
    return len(text) >= 12 and any(char.isdigit() for char in text) and any(char.isalpha() for char in text)


def redact(text: str) -> tuple[str, int]:
    """Cover the credentials of a text; return it and how many were covered."""
    text = text[:MAX_TEXT]
    return (text, 0) if text.isascii() and _SUSPECT.search(text) is None else _redacted(text)


def _redacted(text: str) -> tuple[str, int]:
    total = 0
    for kind, hint, pattern in _COMPILED:
        if hint in text:
            replace, count = _replacer(kind)
            text = pattern.sub(replace, text)
            total += count[0]
    if any(word in text for word in _ASSIGNED_WORDS):
        text, more = _redact_assigned(text)
        total += more
    found = _CUT.search(text, max(0, len(text) - _MOST_CUT)) if len(text) > 8 and " " not in text[-8:] else None
    if found is not None:
        name = "s" if found["s"] is not None else "w"
        return text[: found.start(name)] + cover("cut-off", found[name]), total + 1
    return text, total


def _redact_assigned(text: str) -> tuple[str, int]:
    count = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal count
        covered = _assigned(match)
        if covered is None:
            return match[0]
        count += 1
        return covered

    return _ASSIGNED.sub(replace, text), count
