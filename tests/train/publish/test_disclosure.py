"""What is taken out of a record, and what counts as a secret, beyond the cases that ``cprt publish`` is tested with."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from cprt.errors import InputError
from train.publish.disclosure import refuse_private, secret_finder, strip_record

# Names that stand nowhere in what strip_record adds or keeps.
FOLDERS = st.lists(st.from_regex(r"dir_[a-z0-9]{3,8}(\.[a-z]{1,3})?", fullmatch=True), min_size=1, max_size=4)
ROOTS = st.sampled_from(["/", "~/", "./", "../../", "", "C:\\", "\\\\server\\", "file:///"])
PLACES = st.sampled_from(["{}", "--pairs={}", "see {} and {}", "'{}'", "[{}]", "a={};b", "({})"])


@given(FOLDERS, ROOTS, PLACES, st.booleans())
def test_no_folder_of_a_path_survives(folders: list[str], root: str, place: str, spaced: bool):
    """Whatever the root, the place in a text and the depth in the record; the file's own name stays."""
    if spaced and root in ("/", "~/", "./"):
        folders = [f"{name} copy" for name in folders]
        place = "{}" if place not in ("{}", "--pairs={}") else place
    if "\\" in root:  # within a sentence a backslash is taken for what it is in a regular expression
        place = "{}" if place not in ("{}", "--pairs={}") else place
    separator = "\\" if "\\" in root else "/"
    path = root + separator.join([*folders, "file_name.jsonl"])
    value = place.replace("{}", path)
    record: dict[str, Any] = {"a": value, "b": [{"c": [value]}], value: 1}
    text = json.dumps(strip_record(record, "the/base", "ORG/base"))
    assert "file_name.jsonl" in text
    for part in (*folders, "/", "~", "server", "C:"):
        assert part not in text, text


def test_what_is_no_path_stays():
    record = {
        "base": "ORG/base",
        "digest": "ORG/base@0123",
        "regex": r".*language_model\..*\.(q|k|v)_proj",
        "number": 1e-5,
        "none": None,
        "list": ["--learning_rate", "1e-5", True],
        "text": "5.0 GiB at 3 it/s",
    }
    stripped = strip_record(record, "/models/base", "ORG/base")
    assert stripped == {**record, "text": "5.0 GiB at 3 s"}  # a slash is cut, whatever it means: the safe side


def test_the_base_gets_its_public_name_wherever_it_stands_alone():
    record = {"command": ["--model_name_or_path", "/models/base", "--model=/models/base"], "base_model": "/models/base"}
    assert strip_record(record, "/models/base", "ORG/base") == {
        "command": ["--model_name_or_path", "ORG/base", "--model=ORG/base"],
        "base_model": "ORG/base",
    }


HEX = "0123456789abcdef"
B64 = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY1234567890abcdefABCDEF"
MIXED = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"
JWT = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"

# Made-up values in the forms that their services document.
SECRETS = {
    "hugging face": "hf_" + MIXED[:34],
    "hugging face, organisation": "api_org_" + MIXED[:34],
    "openai": "sk-" + MIXED[:20] + "T3BlbkFJ" + MIXED[:20],
    "openai, project": "sk-proj-" + MIXED + "_" + MIXED,
    "anthropic": "sk-ant-api03-" + MIXED + "-" + MIXED,
    "openrouter": "sk-or-v1-" + HEX * 4,
    "aws id": "AKIAIOSFODNN7EXAMPLE",
    "aws, temporary": "ASIAIOSFODNN7EXAMPLE",
    "aws secret, file": "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "aws secret, words": "--aws_secret_access_key wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "aws secret, json": '"SecretAccessKey": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"',
    "aws signature": "https://b.s3.amazonaws.com/x?X-Amz-Signature=" + HEX * 4,
    "azure storage": "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=" + (B64 * 2)[:86] + "==",
    "azure bus": "Endpoint=sb://x.net/;SharedAccessKeyName=Root;SharedAccessKey=" + B64[:43] + "=",
    "azure sas": "https://x.blob.core.windows.net/c?sv=2022-11-02&sig=" + B64[:40] + "%3D",
    "azure client": "abc8Q~" + MIXED[:34],
    "github": "ghp_" + MIXED[:36],
    "github, server": "ghs_" + MIXED[:36],
    "github, fine-grained": "github_pat_" + MIXED[:22] + "_" + MIXED,
    "gitlab": "glpat-" + MIXED[:20],
    "gitlab, runner": "glrt-" + MIXED[:20],
    "gitlab, trigger": "glptt-" + HEX * 2 + HEX[:8],
    "slack bot": "xoxb-123456789012-1234567890123-" + MIXED[:24],
    "slack user": "xoxp-123456789012-123456789012-123456789012-" + HEX * 2,
    "slack app": "xapp-1-A0123456789-1234567890123-" + HEX * 4,
    "slack hook": "https://hooks.slack.com/services/T00000000/B00000000/" + MIXED[:24],
    "npm": "npm_" + MIXED[:36],
    "npm, file": "//registry.npmjs.org/:_authToken=" + "01234567-89ab-cdef-0123-456789abcdef",
    "pypi": "pypi-AgEIcHlwaS5vcmc" + MIXED + MIXED,
    "stripe": "sk_" + "live_" + MIXED[:24],
    "stripe, restricted": "rk_" + "live_" + MIXED[:24],
    "stripe, test": "sk_" + "test_" + MIXED[:24],
    "stripe, hook": "whsec_" + MIXED[:32],
    "jwt": JWT,
    "google": "AIza" + "x1Y2z" * 7,
    "google, client": "GOCSPX-" + MIXED[:28],
    "google, access": "ya29." + MIXED + MIXED,
    "rsa": "-----BEGIN RSA PRIVATE KEY-----",
    "openssh": "-----BEGIN OPENSSH PRIVATE KEY-----",
    "pkcs8": "-----BEGIN PRIVATE KEY-----",
    "pgp": "-----BEGIN PGP PRIVATE KEY BLOCK-----",
    "age": "AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" * 2,
    "sendgrid": "SG." + MIXED[:22] + "." + (MIXED * 2)[:43],
    "twilio": "SK" + HEX * 2,
    "telegram": "123456789:" + MIXED[:35],
    "discord": "M" + MIXED[:23] + "." + MIXED[:6] + "." + MIXED[:27],
    "docker": "dckr_pat_" + MIXED[:27],
    "digitalocean": "dop_v1_" + HEX * 4,
    "databricks": "dapi" + HEX * 2,
    "vault": "hvs." + MIXED[:24],
    "groq": "gsk_" + MIXED,
    "replicate": "r8_" + MIXED[:37],
    "wandb, old": "wandb: " + HEX * 2 + HEX[:8],
    "wandb, variable": "WANDB_API_KEY=" + HEX * 2 + HEX[:8],
    "token beside hex": "token: " + HEX * 2,
    "token beside little hex": "token=" + HEX,
    "token beside letters": "token: " + MIXED[:32],
    "token in quotes": "'token': '" + HEX * 2 + "'",
    "bearer": "Authorization: Bearer abcdefghij0123456789",
    "password": "password: correct-horse",
    "password, json": '"db_password": "correcthorse"',
    "address": "https://me:hunter22@example.org/x",
    "session": "sess-" + MIXED,
    "api-key": "api-key: " + MIXED[:32],
    "passphrase": "passphrase=correct-horse-battery",
    "basic": "Authorization: Basic bWU6aHVudGVyMjI=",
    "netrc": "machine api.wandb.ai login user password hunter22",
    "mongodb": "mongodb+srv://me:hunter22@cluster0.example.net/x",
    "address, no user": "redis://:hunter22@example.org:6379/0",
    "address, token alone": "https://" + MIXED + "@github.com/me/x.git",
    "sentry address": "https://" + HEX * 2 + "@o1.ingest.sentry.io/1",
    "npm, uuid": "_authToken=01234567-89ab-cdef-0123-456789abcdef",
    "gitlab, deploy": "gldt-" + MIXED[:20],
    "gitlab, job": "glcbt-64_" + MIXED[:20],
    "discord hook": "https://discord.com/api/webhooks/123456789012345678/" + MIXED + MIXED[:28],
    "azure devops": "AZURE_DEVOPS_EXT_PAT=" + MIXED + "abcdefgh2345",
    "wandb, command": "wandb login --relogin " + HEX * 2 + HEX[:8],
    "auth beside hex": "auth: " + HEX * 2,
    "docker, file": '"auth": "' + B64[:40] + '="',
    "mailgun": "key-" + HEX * 2,
    "heroku": "HRKU-01234567-89ab-cdef-0123-456789abcdef",
    "variable, password": "DB_PASS=Tr0ub4dor&3",
    "pwd": "pwd=Tr0ub4dor&3",
    "api key, in words": "api key: " + MIXED[:32],
    "encryption key": "ENCRYPTION_KEY=" + B64[:44],
    "cookie": "Cookie: session=" + MIXED,
    "csrf": "csrftoken=" + MIXED[:32],
    "square": "sq0atp-" + MIXED[:22],
    "square, access": "EAAA" + MIXED + MIXED[:20],
    "notion": "secret_" + MIXED + "abc",
    "figma": "figd_" + MIXED,
    "airtable": "pat" + MIXED[:14] + "." + HEX * 4,
    "asana": "1/1234567890123:" + HEX * 2,
    "rubygems": "rubygems_" + HEX * 3,
    "doppler": "dp.pt." + MIXED + "abc",
    "planetscale": "pscale_tkn_" + MIXED + "abc",
    "pulumi": "pul-" + HEX * 2 + HEX[:8],
    "tailscale": "tskey-auth-" + MIXED[:12] + "-" + MIXED[:20],
    "terraform": MIXED[:14] + ".atlasv1." + MIXED + MIXED[:20],
    "runpod": "rpa_" + MIXED,
    "zhipu": HEX * 2 + "." + MIXED[:16],
    "elevenlabs": "sk_" + HEX * 3,
    "jina": "jina_" + HEX * 2 + MIXED[:28],
    "langsmith": "lsv2_pt_" + HEX * 2 + "_" + HEX[:10],
    "pinecone": "pcsk_" + MIXED,
    "sshpass": "sshpass -p hunter22 ssh me@host",
    "mysql": "mysql -u root -phunter22",
    "curl": "curl -u me:hunter22 https://example.org",
}


@pytest.mark.parametrize("name", SECRETS)
def test_what_is_a_secret(name: str):
    """Alone, in a sentence, and behind other text."""
    find = secret_finder()
    for text in (SECRETS[name], f"see {SECRETS[name]} and so on", f"{{# {SECRETS[name]} #}}"):
        assert find(text), text


@pytest.mark.parametrize(
    "text",
    [
        "risk-score-of-the-whole-photo-album-number-one",  # "sk-" inside a word
        "sk-learn-based-classifier-of-photos",
        '"git": "0123456789abcdef0123456789abcdef01234567"',
        '"tokenizer_revision": "0123456789abcdef0123456789abcdef01234567"',
        '"prompt_sha256": "' + "ab" * 32 + '"',
        '"hub_token": "<HUB_TOKEN>"',
        "--hub_token ***",
        '"eos_token": "<|endoftext|>"',
        '"pad_token": "<|finetune_right_pad_id|>"',
        '"mask_token": "reserved_special_token"',
        "https://huggingface.co/ORG/NAME",
        "- password: Credentials visible?",
        "secrets: Are secrets visible (e.g., passwords, access codes)?",
        "0123456789abcdef0123456789abcdef01234567",
        "ab" * 32,
        "lab/xai-explainable-vision-language-models",
        "global-attention-mask-with-many-words",
        "the token is 12 characters long",
        "basic understanding of a scene",
        "Authorization: basic",
        "pass: yes",
        "the session has a cookie: chocolate",
        '"key-value-store-of-attention-heads-number-2"',
        "secret_sharing_between_heads_of_layer_2",
        "jinaai/jina_embeddings_v3_multilingual",
        "the pul-ling of heads-apart-in-layer-2",
        "me@example.org",
        '"bos_token_id": 151643',
        "SCORE_KEY = risk",
    ],
)
def test_what_is_no_secret(text: str):
    assert secret_finder(paths=True)(text) is None


PATHS = [
    "/home/alice/models/base",
    "/Users/alice/base",
    "/root/base",
    "/mnt/disk/base",
    "/data/alice/base",
    "/scratch/alice",
    "/workspace/base",
    "/content/drive/base",
    "/kaggle/input/base",
    "/tmp/run_of_alice",
    "/private/var/folders/x",
    "/Volumes/Disk/base",
    "~/models/base",
    "~alice/base",
    "C:\\Users\\alice\\base",
    "C:/Users/alice/base",
    "d:\\models\\base",
    "\\\\server\\share\\base",
    "file:///home/alice/base",
    "/home//alice/base",
    "/home/jürgen/base",
    "/home2/alice",
    "/global/homes/a/alice",
    "/usr/home/alice/base",
    "backup/home/alice/base",
    "/c/Users/alice/base",
    "/cygdrive/c/base",
    "\\\\wsl$\\Ubuntu\\root",
    "%2Fhome%2Falice%2Fbase",
    "\\/home\\/alice\\/base",
    "/hOmE/alice/base",
    "/data1/alice/base",
    "/scratch2/alice/base",
    "/gscratch/alice",
    "/dev/shm/base",
    "/run/media/alice/base",
    "/raid/alice/base",
    "/ssd1/alice/base",
    "/volume1/alice/base",
    "/teamspace/studios/base",
    "/p/scratch/alice/base",
    "/groups/lab/base",
    "/nobackup/alice/base",
    "/global/cscratch1/base",
    "/models/base",
    "/Library/Caches/base",
    "$HOME/base",
    "${HOME}/base",
    "s3://bucket/base",
    "gs://bucket/base",
    "smb://server/base",
    "alice@gpu01:/models/base",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("place", ["{}", "see {} for more", "path={}", "({})", '"{}"', "x: {}", "{{% set x = '{}' %}}"])
def test_what_is_a_path_of_a_machine(path: str, place: str):
    assert secret_finder(paths=True)(place.format(path)) == "a path of a machine"
    assert secret_finder()(place.format(path)) is None


@pytest.mark.parametrize(
    "text",
    [
        "/home",
        "/think",
        "</tool_call>",
        "https://a.org/home/b",
        "(http://a.org/data/c)",
        "a/b/c",
        "and/or",
        "~/.",
        "1/2",
    ],
)
def test_what_is_no_path_of_a_machine(text: str):
    assert secret_finder(paths=True)(text) is None


def test_a_real_tokenizer_holds_neither(demo_base: Path, tmp_path: Path):
    """Nor do neighbours in a vocabulary, as a list of merges puts them side by side."""
    find = secret_finder(paths=True)
    for path in (*demo_base.glob("*.json"), *demo_base.glob("*.jinja"), demo_base / "model.safetensors"):
        refuse_private(path, path, find)
    vocabulary = list(json.loads((demo_base / "tokenizer.json").read_text())["model"]["vocab"])
    assert len(vocabulary) > 1000 and not [pair for pair in itertools.pairwise(vocabulary) if find(" ".join(pair))]


HOME, SECRET = "/home/alice/base", SECRETS["hugging face"]


@pytest.mark.parametrize("private, kind", [(HOME, "a path of a machine"), (SECRET, "a Hugging Face token")])
@pytest.mark.parametrize(
    "name, content, where",
    [
        ("chat_template.jinja", "a\n{# from %s #}\n", ":2"),
        ("merges.txt", "a b\n%s c\n", ":2"),
        ("processor_config.json", {"deep": [{"note": "read from %s"}]}, ": field 'deep[0].note'"),
        ("tokenizer_config.json", {"extra": {"%s": 1}}, ""),
        ("tokenizer.json", {"model": {"vocab": {"a": 0, "%s": 1}}}, ""),
        ("tokenizer.json", {"model": {"merges": [["a", "b"], ["c", "%s"]]}}, ": field 'model.merges[1][1]'"),
        ("tokenizer.json", {"added_tokens": [{"content": "<%s>"}]}, ": field 'added_tokens[0].content'"),
    ],
)
def test_every_place_of_a_file_is_looked_at(
    tmp_path: Path, private: str, kind: str, name: str, content: Any, where: str
):
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / name).write_text(text.replace("%s", private))
    with pytest.raises(InputError) as caught:
        refuse_private(tmp_path / name, name, secret_finder(paths=True))
    assert str(caught.value) == f"{name}{where}: holds what looks like {kind}; nothing was sent"


@pytest.mark.parametrize("private", [HOME, SECRET])
def test_the_header_of_weights_is_looked_at(tmp_path: Path, private: str):
    tensor = torch.zeros(1)
    for tensors, metadata in (
        ({"a": tensor}, {"note": private}),
        ({"a": tensor}, {private: "x"}),
        ({private: tensor}, {}),
    ):
        save_file(tensors, tmp_path / "a.safetensors", metadata=metadata)
        with pytest.raises(InputError, match="nothing was sent") as caught:
            refuse_private(tmp_path / "a.safetensors", "a", secret_finder(paths=True))
        assert private not in str(caught.value)


def test_a_value_below_its_name(tmp_path: Path):
    (tmp_path / "a.jinja").write_text("{#\ntoken:\n  " + HEX * 2 + "\n#}")
    with pytest.raises(InputError, match="a key of hex digits"):
        refuse_private(tmp_path / "a.jinja", "a", secret_finder())


def test_a_user_without_name_and_home(monkeypatch):
    """As in a container that is run under some number."""
    for name in ("HOME", "USER", "LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert secret_finder(paths=True)("/home/alice/base") == "a path of a machine"
    assert strip_record({"a": "/home/alice/base of alice"}, "x", "y") == {"a": "base of ***"}


def test_what_the_environment_calls_a_secret(monkeypatch, tmp_path: Path):
    """And the token that `hf auth login` keeps, whatever their form."""
    monkeypatch.setenv("MY_SERVICE_KEY", "plainwordsonly")
    monkeypatch.setenv("SHORT_KEY", "words")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    (tmp_path / "token").write_text("other-plain-words")
    find = secret_finder()
    assert find("a plainwordsonly b") == "the value of MY_SERVICE_KEY"
    assert find("a other-plain-words b") == "the value of HF_TOKEN" and find("words") is None
