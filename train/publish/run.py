"""``cprt publish``: put a trained adapter on the Hugging Face Hub, with a card of ours and only files on a list.

Every file is copied and checked before anything is sent; then each branch is one commit, read back and compared. After
a failure the same command goes on: what is there already is not sent again. The token is the one that `hf auth login`
keeps, or HF_TOKEN.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.files import write_text
from cprt.models.adapter import recorded_prompt
from cprt.models.address import is_address, is_loopback
from cprt.provenance import file_digest
from cprt.records import inside, write_json
from cprt.taxonomy import Taxonomy
from train.publish.card import model_card
from train.publish.disclosure import refuse_private, secret_finder, strip_record
from train.publish.facts import DATA, Measured, facts, find_paper_row
from train.publish.files import HUB_NAME, WRITTEN, Source
from train.publish.upload import Tree, upload

_NAME = (r"(?!refs/)[A-Za-z0-9](?:[\w/-]|\.(?!\.))*", "a name")  # of a branch, a commit or a licence


@dataclass
class PublishArguments:
    adapter: str = option("output folder of train/sft.py, or one of its checkpoints")
    repo: str = option("ORG/NAME on the Hub; made if it is not there", matches=HUB_NAME)
    base_model: str | None = option(
        "ORG/NAME of the base on the Hub; needed where the run read it from a folder", None, matches=HUB_NAME
    )
    base_revision: str | None = option(
        "commit of the base; by default the one that the run recorded", None, matches=_NAME
    )
    data: str = option("what it was tuned and measured on, for the card", "other", choices=list(DATA))
    metrics: str | None = option("metrics.json of this adapter; without it the card says that it is unmeasured", None)
    paper_row: str = option("the paper's row beside them: a key of train/publish/facts.yaml, auto or none", "auto")
    license: str | None = option(
        "licence identifier; by default it follows from base and data, or is 'other'", None, matches=_NAME
    )
    checkpoints: bool = option("also publish every checkpoint-* as a branch", False)
    revision: str = option("branch for the adapter itself", "main", matches=_NAME)
    private: bool = option("false: everybody may see it", True)
    dry_run: bool = option("show the exact files and the card, send nothing", False)
    endpoint: str | None = option("address of the Hub; by default HF_ENDPOINT or the Hub's", None)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)

    def __post_init__(self) -> None:
        if self.checkpoints and self.revision.startswith("checkpoint-"):
            raise ValueError(f"revision: {self.revision} is the branch of a checkpoint")
        if self.paper_row not in ("auto", "none", *facts()["paper"]):
            raise ValueError(f"paper_row: {self.paper_row!r} is not one of auto, none, {', '.join(facts()['paper'])}")
        endpoint = self.endpoint or os.environ.get("HF_ENDPOINT")
        if endpoint and not (is_address(endpoint) and (endpoint.lower().startswith("https:") or is_loopback(endpoint))):
            raise ValueError("endpoint: must be https://HOST, or http:// on this machine, with no user in it")


def main(argv: Sequence[str] | None = None) -> None:
    (args,) = parse(PublishArguments, argv, prog="cprt publish", description=__doc__)
    with tempfile.TemporaryDirectory(prefix="cprt-publish-") as stage:
        trees = prepare(args, Path(stage))
        if args.dry_run:
            _show(args, trees)
        else:
            upload(trees, args.repo, private=args.private, endpoint=args.endpoint)


def prepare(args: PublishArguments, stage: Path) -> list[Tree]:
    """Stage every branch under ``stage``, checked. Raises InputError; nothing has been sent by then."""
    source = Source.read(Path(args.adapter))
    taxonomy = Taxonomy.load(args.taxonomy)
    measured = Measured.read(Path(args.metrics), source.folder, taxonomy) if args.metrics else None
    if args.data == "other":
        print("note: the card will not describe the data; --data vispr or --data drawings does")
    trees = [_stage(args, source, args.revision, measured, taxonomy, stage)]
    if args.checkpoints:
        checkpoints = source.checkpoints()
        if not checkpoints:
            raise InputError(f"{source.folder}: has no checkpoint-* folders")
        for folder in checkpoints:
            trees.append(_stage(args, Source.read(folder), folder.name, None, taxonomy, stage))
    return trees


def _stage(
    args: PublishArguments, source: Source, branch: str, measured: Measured | None, taxonomy: Taxonomy, stage: Path
) -> Tree:
    base = source.base(args.base_model, args.base_revision)
    if base.is_llama and not args.repo.partition("/")[2].startswith("Llama"):
        raise InputError(
            f"repo: {args.repo}: Llama's licence asks that the name of a model derived from {base.name} "
            'begin with "Llama"'
        )
    folder = stage / branch.replace("/", "__")
    left_out = source.stage(folder, base)
    refuse_private(source.record_path, source.record_path, secret_finder())  # its paths are taken out below
    record = strip_record(source.record, base.trained_as, base.name)
    if source.step is not None:
        record["result"] = {"steps": source.step}  # what the run reports of its end is not this checkpoint's
    write_json(folder / "run.json", record)
    row = args.paper_row
    if row == "auto":
        row = find_paper_row(base.name, inside(record, "result").get("steps")) or "none"
    card = model_card(
        source,
        base,
        record,
        repo=args.repo,
        branch=branch,
        data=args.data,
        license=args.license,
        paper_row=row,
        measured=measured,
        prompt=recorded_prompt(record, taxonomy),
    )
    write_text(folder / "README.md", card)
    find = secret_finder(paths=True)
    for path in sorted(folder.iterdir()):  # every file that is sent, as it is sent
        refuse_private(path, path.name if path.name in WRITTEN else source.folder / path.name, find)
    return Tree(branch, folder, left_out)


def _show(args: PublishArguments, trees: Sequence[Tree]) -> None:
    print(f"{args.repo} ({'private' if args.private else 'public'})")
    for tree in trees:
        print(f"\nbranch {tree.branch}")
        for path in tree.files:
            print(f"  {path.name:<28} {path.stat().st_size:>13,} bytes  sha256 {file_digest(path)}")
        print(f"  stays here: {', '.join(tree.left_out) or 'nothing'}")
    print(f"\nREADME.md of branch {trees[0].branch}:\n\n{(trees[0].folder / 'README.md').read_text()}")
    print("dry run: nothing was sent")


if __name__ == "__main__":
    run(main, "cprt publish")
