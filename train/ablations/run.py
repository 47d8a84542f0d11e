"""``cprt ablate``: a recipe in several variants and seeds, trained, evaluated and compared by one command.

The YAML names a recipe of ``train/sft.py`` and its variants: a name, and the options in which each differs. A variant
is trained with every seed into ``OUT/VARIANT/seed-N``; ``cprt eval`` asks all adapters about the labelled photos
(``OUT/eval``), and ``cprt compare`` puts them side by side (``OUT/compare``), with the mean and spread of each variant
over its seeds. Each step is a command that is printed as one would type it. After a kill the same command goes on: what
is trained is left as it is if its options are still the same, a training that has a checkpoint is resumed from it.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from cprt.config import check_values, option, parse, run
from cprt.errors import InputError
from cprt.files import read_yaml, write_text
from cprt.provenance import sign, write_run
from cprt.records import read_object
from train.checkpoints import checkpoints

_SET_HERE = ("seed", "output_dir", "resume_from_checkpoint", "overwrite")
_SCRIPT = Path(__file__).parents[1] / "sft.py"


@dataclass
class AblateArguments:
    recipe: str = option("YAML of train/sft.py that every variant starts from")
    out: str = option("folder to write", writes=("eval.yaml",))
    variants: list[dict[str, Any]] = option(
        "a list of mappings: name, and the options of the recipe that differ; only in the YAML",
        factory=list,
        filled=True,
    )
    seeds: list[int] = option("each variant is trained with each of them", factory=lambda: [0, 1, 2])
    labels: str | None = option("labels.jsonl to evaluate on; none: only train", None)
    images: str | None = option("folder that holds images/ of these labels, or images/ itself", None)
    evaluation: dict[str, Any] = option("further options of cprt eval, only in the YAML", factory=dict)
    launch: list[str] = option("what starts a training", factory=lambda: ["accelerate", "launch"], filled=True)
    dry_run: bool = option("print the commands and run none", False)

    def __post_init__(self) -> None:
        names = [row.get("name") for row in self.variants]
        for name in names:
            if not isinstance(name, str) or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
                raise ValueError(f"variants: name {name!r} is not a name of letters, digits, '.', '_' and '-'")
            if names.count(name) > 1:
                raise ValueError(f"variants: {name!r} is there twice")
        for row in self.variants:
            for key in _SET_HERE:
                if key in row:
                    raise ValueError(f"variants: {key} is set for each training here, and not by {row['name']}")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ValueError("seeds must be different whole numbers, 0 or more")
        if self.variants and len(self.variants) * len(self.seeds) < 2:
            raise ValueError("one variant with one seed leaves nothing to compare")
        if (self.labels is None) != (self.images is None):
            raise ValueError("labels and images go together")


@dataclass(frozen=True)
class Training:
    """One variant with one seed. ``options`` are those in which it differs from the recipe."""

    name: str
    folder: Path
    options: dict[str, Any]

    def finished(self, recipe: str) -> bool:
        """Whether its record says that its adapter was saved and read back. Raises InputError for another adapter."""
        record = self.folder / "run.json"
        found = read_object(record) if record.is_file() else {}
        if "result" not in found:
            return False
        if _options(found["command"]) != _options(self.command([], recipe)):
            raise InputError(f"{self.folder}: was trained with other options ({record}); choose another --out")
        return True

    def command(self, launch: Sequence[str], recipe: str) -> list[str]:
        """As it is typed; a training that has a checkpoint goes on from it."""
        options = {**self.options, "output_dir": str(self.folder)}
        if checkpoints(self.folder):
            options["resume_from_checkpoint"] = "last"
        words = [word for name, value in options.items() for word in (f"--{name}", *_words(value))]
        return [*launch, "train/sft.py", "--config", recipe, *words]


def main(argv: Sequence[str] | None = None, start: Callable[[list[str]], int] | None = None) -> None:
    """Command line of ``cprt ablate``. ``start`` runs a command and gives its exit status; None: in a process."""
    (args,) = parse(AblateArguments, argv, prog="cprt ablate", description=(__doc__ or "").partition("\n")[0])
    print("holding the variants to the options of train/sft.py ...", flush=True)  # its libraries take seconds to import
    base = _check_recipes(args)
    out, start = Path(args.out), start or _start
    planned = trainings(args)
    if not args.dry_run:
        sign("cprt ablate", out / "run.json", keep=True)
        out.mkdir(parents=True, exist_ok=True)
        if args.labels is not None:
            write_text(out / "eval.yaml", yaml.safe_dump(evaluation(args, planned, base), sort_keys=False))
    for training in planned:
        if training.finished(args.recipe):
            print(f"{training.folder}: is trained")
            continue
        try:
            _do(training.command(args.launch, args.recipe), args.dry_run, start)
        except SystemExit:
            if not training.finished(args.recipe):
                raise
            print(f"{training.folder}: is saved, but has not learnt what it should; the others go on")
    if args.labels is not None:
        _do(["cprt", "eval", "--config", str(out / "eval.yaml")], args.dry_run, start)
        runs = [str(out / "eval" / training.name) for training in planned]
        compared = ["--labels", args.labels, "--out", str(out / "compare")]
        _do(["cprt", "compare", "--runs", *runs, *compared], args.dry_run, start)
    if not args.dry_run:
        write_run("cprt ablate", out, args, {"recipe": args.recipe})


def trainings(args: AblateArguments) -> list[Training]:
    """Every variant with every seed, in order."""
    return [
        Training(
            f"{row['name']}-seed-{seed}",
            Path(args.out) / row["name"] / f"seed-{seed}",
            {key: value for key, value in row.items() if key != "name"} | {"seed": seed},
        )
        for row in args.variants
        for seed in args.seeds
    ]


def evaluation(args: AblateArguments, planned: Sequence[Training], base: str) -> dict[str, Any]:
    """The options of ``cprt eval``: every adapter on its base, asked as it was trained."""
    bases = {row["name"]: row.get("model_name_or_path", base) for row in args.variants}
    models = [
        {"name": training.name, "model": bases[training.folder.parent.name], "adapter": str(training.folder)}
        for training in planned
    ]
    asked = {name: args.evaluation[name] for name in args.evaluation if name in _OF_MODEL}
    others = {name: value for name, value in args.evaluation.items() if name not in _OF_MODEL}
    data = {"labels": args.labels, "images": args.images, "out": str(Path(args.out) / "eval")}
    return {**data, **others, "models": [{**row, "max_new_tokens": 256, **asked} for row in models]}


_OF_MODEL = ("max_new_tokens", "batch_size", "dtype", "max_pixels")


def _check_recipes(args: AblateArguments) -> str:
    """Every option that varies is one of a recipe's and has its type; returns the base. Raises InputError."""
    content = read_yaml(args.recipe)
    if not isinstance(content, dict) or not isinstance(content.get("model_name_or_path"), str):
        raise InputError.at(args.recipe, "is not a recipe of train/sft.py (model_name_or_path is missing)")
    from trl import ModelConfig, SFTConfig

    from train.options import DataArguments

    for row in args.variants:
        values = {key: (value, None) for key, value in row.items() if key != "name"}
        check_values(values, (DataArguments, ModelConfig, SFTConfig), f"variants: {row['name']}")
    base: str = content["model_name_or_path"]
    return base


def _words(value: Any) -> list[str]:
    """A value of YAML as the words of a command line."""
    if isinstance(value, dict):
        return [json.dumps(value)]
    values = value if isinstance(value, list) else [value]
    return [str(one).lower() if isinstance(one, bool) or one is None else str(one) for one in values]


def _options(command: Sequence[str]) -> dict[str, Sequence[str]]:
    """Option -> its words, of all that decide what is trained."""
    starts = [place for place, word in enumerate(command) if word.startswith("--")]
    given = {command[start]: command[start + 1 : end] for start, end in pairwise([*starts, len(command)])}
    return {name: words for name, words in given.items() if name not in ("--output_dir", "--resume_from_checkpoint")}


def _do(command: list[str], dry_run: bool, start: Callable[[list[str]], int]) -> None:
    print(f"\n$ {shlex.join(command)}", flush=True)
    if not dry_run and (status := start(command)):
        raise SystemExit(status)


def _start(command: list[str]) -> int:
    """Run a command in a process of the same interpreter, whatever is first on the search path."""
    module = {"cprt": "cprt.cli", "accelerate": "accelerate.commands.accelerate_cli"}.get(command[0])
    first = [command[0]] if module is None else [sys.executable, "-m", module]
    rest = [str(_SCRIPT) if word == "train/sft.py" else word for word in command[1:]]
    return subprocess.run([*first, *rest]).returncode


if __name__ == "__main__":
    run(main, "cprt ablate")
