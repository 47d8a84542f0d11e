"""Files of a Hugging Face dataset repository at one commit, checked before they get their names.

The library speaks to the address in HF_ENDPOINT, where that is set.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.files import is_safe_path
from cprt.provenance import file_digest
from cprt.services.hub import limit_patience, reason
from cprt.values import SHA256, complaint, ruled
from data_prep.transfer.fetch import is_address


@dataclass(frozen=True)
class HubFiles:
    """Files of a dataset repository. ``files`` maps names to the SHA-256 that each must have, None where unknown.

    A ``revision`` that is no commit (a branch, a tag) is looked up once; the record then holds the commit.
    """

    repo: str = ruled(matches=(r"\S+", "a name"))
    revision: str = ruled(matches=(r"\S+", "a name"))
    files: dict[str, str | None] = ruled()

    def __post_init__(self) -> None:
        if not self.files:
            raise InputError.at("labels", "must map file names to a sha256 or null", field="files")
        for name, sha256 in self.files.items():
            if not is_safe_path(name) or name.startswith("."):
                raise InputError.at("labels", f"{name!r} is not a file name", field="files")
            if wrong := complaint(sha256, {"matches": SHA256}):
                raise InputError.at("labels", wrong, field=f"files.{name}")


def missing(wanted: HubFiles, out: Path, record: Mapping[str, Any]) -> list[str]:
    """The files that are not in ``out`` as ``record`` says they were fetched."""
    kept = record.get("files", {}) if _same_source(wanted, record) else {}
    absent = []
    for name, sha256 in wanted.files.items():
        digest = kept[name]["sha256"] if name in kept and (out / name).is_file() else None
        if digest is None or sha256 not in (None, digest) or file_digest(out / name) != digest:
            absent.append(name)
    return absent


def fetch_hub_files(wanted: HubFiles, names: list[str], out: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """Fetch ``names`` into ``out`` and return the new record: repo, revision, commit, size and digest of every file.

    A file that was recorded for the same commit before must be the same again. Raises InputError.
    """
    endpoint = os.environ.get("HF_ENDPOINT")
    if endpoint and not is_address(endpoint):  # not shown: it may hold a password
        raise InputError("HF_ENDPOINT is no address: it must be http(s)://HOST[:PORT] without a user or password")
    from httpx2 import HTTPError
    from huggingface_hub import hf_hub_download

    limit_patience()
    known = dict(record.get("files", {})) if _same_source(wanted, record) else {}
    commit = record["commit"] if known else None
    stage = out / ".hub.partial"  # the library keeps its notes there: they are not ours to leave behind
    try:
        for name in names:
            try:
                if commit is None:
                    commit = hf_hub_download(
                        wanted.repo, name, repo_type="dataset", revision=wanted.revision, local_dir=stage, dry_run=True
                    ).commit_hash
                path = hf_hub_download(wanted.repo, name, repo_type="dataset", revision=commit, local_dir=stage)
            except (OSError, ValueError, HTTPError) as error:
                raise InputError(f"{wanted.repo}@{commit or wanted.revision}: {name}: {reason(error)}") from error
            digest = file_digest(path)
            expected = wanted.files[name] or known.get(name, {}).get("sha256")
            if expected is not None and digest != expected:
                raise InputError(f"{wanted.repo}@{commit}: {name}: SHA-256 is {digest}, expected {expected}")
            known[name] = {"size": Path(path).stat().st_size, "sha256": digest}
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, out / name)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return {"repo": wanted.repo, "revision": wanted.revision, "commit": commit, "files": known}


def _same_source(wanted: HubFiles, record: Mapping[str, Any]) -> bool:
    return (record.get("repo"), record.get("revision")) == (wanted.repo, wanted.revision)
