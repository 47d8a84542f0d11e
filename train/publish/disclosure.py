"""What must not leave with an adapter: secrets and paths, which stop everything, and traces of people in a record."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path, PureWindowsPath
from typing import Any
from urllib.parse import unquote

from cprt.errors import InputError
from cprt.files import read_text
from cprt.records import parse_json

# Beside the formats that detect-secrets knows: those that it does not, and what only the name before it gives away.
_NAME = (
    r"(?i:password|passwd|passphrase|secret|api[_ -]?key|access[_-]?key|(?:hub|access|auth|refresh)_token"
    r"|connection_?string)"
    r"[\w.-]*"
)
_SECRETS = {
    "a Hugging Face token": r"\b(?:hf|api_org)_[A-Za-z0-9]{20,}",
    "an API key (sk-...)": r"\b(?:sk|sess)-(?=[\w-]*\d)[\w-]{20,}",
    "an AWS key": r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b|X-Amz-Signature=[0-9a-f]{64}",
    "an AWS secret key": r"(?i:secret|access_?key)[\w.-]*[\"'\s:=,]{1,6}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])",
    "an Azure key": (
        r"(?:AccountKey|SharedAccessKey)=[\w+/=-]{30,}|[?&]sig=[\w%+/=-]{30,}|\b[\w~.-]{3}\dQ~[\w~.-]{31,34}"
    ),
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{22,})",
    "a Google key": r"\bAIza[\w-]{35}|\bGOCSPX-[\w-]{28}|\bya29\.[\w-]{20,}",
    "a Slack token": r"\bxox[a-z](?:\.xox[a-z])?-[\w-]{10,}|\bxapp-\d-[\w-]{10,}",
    "a Stripe key": r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|\bwhsec_[\w+/=-]{24,}",
    "a JSON Web Token": r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}",
    "a private key": r"BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY|PuTTY-User-Key-File-\d|\bAGE-SECRET-KEY-1[0-9A-Z]{20,}",
    "a token of a service": (
        r"\b(?:npm_|pypi-|gl(?:pat|rt|dt|ft|ptt|cbt|soat|imt|agent|oas|ffct)-|dckr_[po]at_|do[opr]_v1_"
        r"|dapi(?=[0-9a-f]{32})|gsk_|r8_|pplx-|xai-|nvapi-|fw_|wandb_v1_|KGAT_|hv[sbr]\.|glsa_|glc_"
        r"|shp(?:at|ca|pa|ss)_|ntn_|lin_api_|PMAK-|NRAK-"
        r"|sntry[su]_|sbp_|ATATT3|rubygems_|pul-(?=[0-9a-f]{40}\b)|pn[ub]_|pscale_\w{2,5}_|tskey-|fig[du]_|HRKU-|rpa_"
        r"|dp\.(?:pt|st|ct|sa|scim|audit)\.|jina_(?=[0-9a-f]{32})|lsv2_|pcsk_|f[mo][12]_|cio(?=\w{32}\b)|sq0[a-z]{3}-"
        r"|oy2(?=[a-z0-9]{43}\b)|EAAA(?=\w{56})|key-(?=[0-9a-f]{32}\b)|pa-(?=[\w-]{43}\b)|a[ks]-(?=\w{22}\b)"
        r"|sk_(?=[0-9a-f]{40})|secret_(?=[A-Za-z0-9]{43}\b)|pat\w{14}\.|\w{14}\.atlasv1\.|s\.(?=\w{24}\b))"
        r"(?=[\w=-]*\d)[\w=-]{20,}"
        r"|\b[0-9a-f]{32}\.\w{16}\b|\b\d/\d{10,}:[0-9a-f]{32}\b|discord(?:app)?\.com/api/webhooks/\d+/[\w-]{30,}"
    ),
    "a bearer header": r"(?i:\bbearer)\s+[\w.~+/=-]{16,}|(?i:authorization[\"']?\s*[:=]\s*[\"']?basic)\s+[\w+/=]{8,}",
    "a password in an address": r"\b\w+://(?:[^/\s:@\"']*:[^/\s@\"']+|[\w.~%-]{20,})@",
    "a password in a command": (
        r"(?i:\blogin\s+\S+\s+password)\s+\S{6,}|\bsshpass\s+-p\s*\S{4,}|\bmysql\b.*\s-p(?=\S*\d)\S{6,}"
        r"|\bcurl\b.*\s(?:-u|--user)[= ]\s*\S+:\S{4,}"
    ),
    "a cookie": (
        r"(?i:\bcookie)[\"']?\s*:\s*[\"']?[\w.-]+=[^\s;]{16,}"
        r"|(?i:\b(?:session_?id|sessid|csrf_?token|_authToken))[\"']?\s*[:=]\s*[\"']?(?=\S*\d)[\w%.-]{16,}"
    ),
    "a value under the name of a variable": (
        r"\b(?:[A-Z][A-Z0-9]*_)+(?:KEY|TOKEN|SECRET|PASS|PASSWORD|PAT|CREDENTIALS?)[\"']?\s*[:=]\s*[\"']?"
        r"(?=[^\s\"'<*]*\d)[^\s\"'<*]{8,}"
    ),
    # Hashes are everywhere, and W&B's older keys are 40 hex digits: only the name beside them tells.
    "a key of hex digits": (
        r"(?i:(?:key|wandb(?: login)?(?: --\w+)*|(?<![a-z])(?:token|auth)|secret|passw(?:or)?d|credential)"
        r"(?![a-z])[\w.-]*)[\"'\s:=,>]{1,6}[0-9a-fA-F]{16,}\b"
    ),
    "a value under a secret's name": (
        rf"{_NAME}(?:[\"']\s*:\s*[\"']|\s*=\s*[\"']?)[^\s\"'<*]{{8,}}"
        rf"|{_NAME}\s*:\s*(?=[A-Za-z]*[^A-Za-z\s\"'<*?.,;)])[^\s\"'<*]{{8,}}"  # in prose a word may follow
        r"|(?i:(?<![a-z])(?:token|auth))[\"']?\s*[:=]\s*[\"']?(?=[A-Za-z0-9+/=-]*\d)(?=[0-9+/=-]*[A-Za-z])"
        r"[A-Za-z0-9+/=-]{20,}"
        r"|(?i:(?<![a-z])(?:pwd|pass))[\"']?\s*[:=]\s*[\"']?(?=[^\s\"'<*]*\d)[^\s\"'<*]{8,}"
    ),
}
_SECRET = re.compile("|".join(f"(?P<s{number}>{pattern})" for number, pattern in enumerate(_SECRETS.values())))
_SHORTEST = 12  # no pattern fits less; most of a vocabulary's 300,000 texts are shorter

# Of detect-secrets: guesses from entropy or words, which a digest or a vocabulary fits, and patterns that words fit.
_GUESSES = (
    "ArtifactoryDetector Base64HighEntropyString HexHighEntropyString IbmCloudIamDetector IPPublicDetector "
    "KeywordDetector SoftlayerDetector"
).split()

# A path below a folder that holds people's files. Vocabularies know the folders' names, none goes on below them.
_PRIVATE_PATH = re.compile(
    r"/(?i:homes?\d*|Users)/+[\w.@~+-]"
    r"|(?<![\w.])/(?:root|mnt|media|volumes?|data|datasets|[gl]?scratch|localscratch|workspaces?|content|kaggle|tmp|var"
    r"|private|srv|afs|nfs|efs|fsx?|pfs|lustre|gpfs|beegfs|ceph|mmfs|dbfs|databricks|export|net|nas|work|projects?|groups?"
    r"|storage|cluster|opt|shared?|cygdrive|users?|u|run|dev/shm|teamspace|ssd|hdd|nvme|raid|disk|local|jupyter|notebooks?"
    r"|repos?|checkpoints|cache|models?|rds|ptmp|glade|uufs|nobackup|dss|Volumes|Library|Applications|p/(?:scratch|project)"
    r"|n/holy\w*|global/\w+)\d*/+[\w.@~+-]"
    r"|(?<![\w/~])~[\w.-]*/[\w.-]*\w"
    r"|(?<![A-Za-z])[A-Za-z]:(?:\\|/(?!/))+[\w .-]+[\\/]"
    r"|\\\\[\w$.-]{2,}\\[\w$.-]{2,}"
    r"|\b(?:file|smb|s3|gs|hdfs|wasbs?|abfss?|dbfs|ssh|sftp):/+\w|\b[\w.-]+@[\w.-]+:/?[\w.-]+/|\$\{?(?:HOME|USERPROFILE)\b"
)
_ADDRESS = re.compile(r"\bhttps?://[^\s\"'<>()]*")

# Options that say where a run took place or who ran it, and those that could hold a token.
_DROPPED = re.compile(
    r"output_dir|logging_dir|run_name|wandb|project|user|user_?name|host|host_?name|hub_\w+|trackio_\w+"
    r"|(\w+_)?(token|password|secret|key)"
)
_HOME = re.compile(r"(?:/home/|/Users/|[A-Za-z]:\\Users\\)([^/\\\s\"']+)")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]|\\\\")

Finder = Callable[[str], str | None]


def refuse_private(path: Path, name: str | Path, find: Finder) -> None:
    """Raise InputError if a file to publish holds what ``find`` finds, in whatever of it can hold text.

    It says in which line or field, calling the file ``name``, and never shows what was found.
    """
    if path.suffix == ".safetensors":
        with open(path, "rb") as file:  # the rest are numbers
            text = file.read(int.from_bytes(file.read(8), "little")).decode()
    else:
        text = read_text(path)
    places: list[tuple[str, int | None, str]]  # a piece, and its line or field
    if path.suffix in (".json", ".safetensors"):
        places = [(piece, None, field) for field, piece in pieces(parse_json(text, name))]
    else:
        places = [(line, number, "") for number, line in enumerate(text.split("\n"), start=1)]
        places.append((text, None, ""))  # a value may stand on the line below its name
    for piece, line, field in places:
        if kind := find(piece):
            shown = None if find(field) or find(field.replace(".", " ")) else field  # a key can be what was found
            raise InputError.at(name, f"holds what looks like {kind}; nothing was sent", line, shown)


def secret_finder(*, paths: bool = False) -> Finder:
    """A function that says what kind of secret a text seems to hold, or with ``paths`` that it holds a path; else None.

    The Hub's token and whatever else the environment calls a token, key, secret or password count.
    """
    from huggingface_hub import get_token

    kinds = list(_SECRETS)
    own = {name: value for name, value in os.environ.items() if re.search(r"(TOKEN|KEY|SECRET|PASSWORD)$", name)}
    own = {name: value for name, value in {"HF_TOKEN": get_token() or "", **own}.items() if len(value) >= 8}
    home = _home() if len(Path(_home()).parts) > 2 else None

    def find(text: str) -> str | None:
        if len(text) >= _SHORTEST:
            if found := _SECRET.search(text):
                return kinds[int(str(found.lastgroup)[1:])]
            for detector in _detectors():
                if next(detector.analyze_string(text), None):
                    return f"a secret ({detector.secret_type})"
        if paths and ("/" in text or "\\" in text or "%" in text):
            # As an address, or JSON within a text, writes it; what follows a host's name is none of a machine.
            plain = _ADDRESS.sub("", unquote(text).replace("\\/", "/"))
            if _PRIVATE_PATH.search(plain) or (home and home in plain):
                return "a path of a machine"
        return next((f"the value of {name}" for name, value in own.items() if value in text), None)

    return find


@cache
def _detectors() -> list[Any]:
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    known: Any = get_mapping_from_secret_type_to_class()
    return [kind() for kind in known.values() if kind.__name__ not in _GUESSES]


def pieces(content: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """(dotted field, text) for every key and text in JSON, a text with its dotted name or the list item before it."""
    if isinstance(content, dict):
        for key, value in content.items():
            below = f"{field}.{key}" if field else key
            yield below, key
            if isinstance(value, str):
                yield below, f'"{below}": "{value}"'
            else:
                yield from pieces(value, below)
    elif isinstance(content, list):
        before = ""
        for number, value in enumerate(content):
            if isinstance(value, str):
                yield f"{field}[{number}]", f"{before} {value}"
                before = value
            else:
                yield from pieces(value, f"{field}[{number}]")
    elif isinstance(content, str):
        yield field, content


def strip_record(record: dict[str, Any], base: str, published_base: str) -> dict[str, Any]:
    """``run.json`` as it may be shown: paths become file names; where and by whom it was run is gone.

    ``base``, as the run called it, perhaps a folder, becomes ``published_base``.
    """
    people = _people(record)

    def text(value: str) -> str:
        if value in (base, published_base):
            return published_base
        if value.startswith(f"{published_base}@"):  # its digest: name and revision
            return value
        option, equals, rest = value.partition("=")
        if equals and option.startswith("--"):
            return f"{option}={text(rest)}"
        value = _file_name(value)
        for name in people:
            value = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", "***", value, flags=re.IGNORECASE)
        return value

    def strip(content: Any) -> Any:
        if isinstance(content, dict):
            return {text(key): strip(value) for key, value in content.items() if not _DROPPED.fullmatch(key.lower())}
        if isinstance(content, list):
            return [strip(value) for value in _without_dropped_options(content)]
        return text(content) if isinstance(content, str) else content

    return strip(record)


def _file_name(value: str) -> str:
    """``value`` with every path in it cut down to its last part."""
    if _DRIVE.match(value):
        return PureWindowsPath(value).name
    if re.match(r"/|~|\.{1,2}/|file:", value):  # a path as a whole, spaces included
        return value.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^\s\"'=,;()|]*/[^\s\"'=,;()|]*", lambda found: found[0].rstrip("/").rpartition("/")[2], value)


def _without_dropped_options(words: list[Any]) -> list[Any]:
    """A command line without the options that are not shown, and without their values."""
    kept, dropping = [], False
    for word in words:
        if is_option := isinstance(word, str) and word.startswith("--"):
            dropping = _DROPPED.fullmatch(word[2:].partition("=")[0].lower().replace("-", "_")) is not None
        if not dropping:
            kept.append(word)
        dropping = dropping and not (is_option and "=" in word)
    return kept


def _home() -> str:
    """The user's folder; "~" where the system knows none, as in a container that runs under any number."""
    return os.path.expanduser("~")


def _people(record: Any) -> list[str]:
    """Names of users and hosts: of this machine, and those that home folders in the record give away."""
    names = {Path(_home()).name, socket.gethostname(), socket.gethostname().partition(".")[0]}
    with contextlib.suppress(OSError, KeyError, ImportError):  # a container without a user list
        names.add(getpass.getuser())
    for _, piece in pieces(record):
        names |= set(_HOME.findall(piece))
    return sorted((name for name in names if len(name) >= 3 and name != "localhost"), key=len, reverse=True)
