"""Branches of files to the Hub: each is one commit, compared with the Hub's checksums before and after."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt.errors import InputError
from cprt.services.hub import limit_patience, may_pass, reason
from train.publish.disclosure import secret_finder
from train.publish.files import PUBLISHED


@dataclass(frozen=True)
class Tree:
    """One branch, staged: ``folder`` holds exactly what it will hold. ``left_out`` is what stays on this machine."""

    branch: str
    folder: Path
    left_out: list[str]

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.iterdir())


def upload(trees: Sequence[Tree], repo: str, *, private: bool, endpoint: str | None = None) -> None:
    """Make the repository and commit every tree to its branch.

    Raises InputError with the Hub's reason. The same call then goes on: what is there already is not sent again.
    """
    from httpx2 import HTTPError
    from huggingface_hub import HfApi, get_token

    if get_token() is None:
        raise InputError("there is no Hub token: log in with `hf auth login`, or set HF_TOKEN")
    limit_patience()
    api = HfApi(endpoint=endpoint)
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        is_private = api.repo_info(repo).private
        if private and not is_private:
            raise InputError(f"{repo} is there already and public: --private false publishes to it all the same")
        if is_private and not private:
            print(f"note: {repo} is there already and private, and stays so")
        for tree in trees:
            if tree.branch != "main":
                api.create_branch(repo, branch=tree.branch, exist_ok=True)
            print(f"{api.endpoint}/{repo}/tree/{tree.branch}: {_commit(api, repo, tree)}", flush=True)
    except InputError:
        raise
    except (OSError, ValueError, RuntimeError, HTTPError) as error:
        if isinstance(error, RuntimeError):  # while weights are sent: the library leaves its progress bar open
            print(file=sys.stderr)
        why = reason(error)
        why = type(error).__name__ if secret_finder()(why) else why
        again = "; run the same command again to go on" if may_pass(error) else ""
        raise InputError(f"{repo}: {why}{again}") from error


def _commit(api: Any, repo: str, tree: Tree) -> str:
    """One commit that makes the branch hold the tree, unless it does; says which. Others' files are left alone."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    def compare() -> Any:
        return api.verify_repo_checksums(repo, revision=tree.branch, local_dir=tree.folder)

    there = compare()
    others = set(there.missing_paths) - {".gitattributes"}  # on the Hub, not here
    foreign = sorted(others - PUBLISHED)
    note = f" (it also holds {', '.join(foreign)}, not from cprt)" if foreign else ""
    if not (there.mismatches or there.extra_paths or others & PUBLISHED):
        return f"unchanged{note}"
    operations: list[Any] = [CommitOperationAdd(path.name, path) for path in tree.files]
    operations += [CommitOperationDelete(name) for name in sorted(others & PUBLISHED)]
    done = api.create_commit(repo, operations, commit_message=f"cprt publish: {tree.branch}", revision=tree.branch)
    there = compare()
    if there.mismatches or there.extra_paths:
        raise RuntimeError(f"branch {tree.branch} does not hold what was sent")
    return f"{len(tree.files)} files, commit {done.oid[:12]}{note}"
