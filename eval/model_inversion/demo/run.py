"""``python -m eval.model_inversion.demo.run``: the paper's claim on drawn faces, where the truth is known.

A classifier E accepts many reconstructions that do not show the private person. A judge that looks at them rejects
these, and here it can be checked whether it is right.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import yaml

from cprt.config import parse, run
from cprt.files import write_text
from cprt.images import load_image
from cprt.provenance import write_run
from cprt.records import write_json
from cprt.tables import read_csv
from eval.model_inversion.compare import run as compare
from eval.model_inversion.demo import bench, faces
from eval.model_inversion.demo.attacks import clouds
from eval.model_inversion.demo.network_judge import NetworkJudge
from eval.model_inversion.demo.networks import stack
from eval.model_inversion.demo.summary import by_kind, draw, shown, table, verdicts
from eval.model_inversion.metrics.join import Row, write_verdicts
from eval.model_inversion.standard import run as standard

OUT = Path("outputs/demo_mi")
JUDGE_NAME, TRUTH_NAME = "siamese", "truth"
_PURPOSE_QUERY, _PURPOSE_REFERENCE = 0, 1


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo with its full settings. It has no options."""
    parse((), argv, prog="python -m eval.model_inversion.demo.run", description=__doc__)
    run_demo(OUT, bench.Settings())


def run_demo(out: Path, settings: bench.Settings) -> dict[str, Any]:
    """Make the collection, let E, T and the judge look at it, write and print what came of it; returns the summary."""
    started = time.monotonic()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the same figures on every machine with the same libraries
    try:
        shutil.rmtree(out / "collection", ignore_errors=True)  # names of an earlier run's files may differ
        shutil.rmtree(out / "sources", ignore_errors=True)
        bench.make(out, settings)
        write_classifiers(out, settings)
        _classify(out, settings)
        quality = _judge(out, settings)
    finally:
        torch.set_num_threads(threads)
    rows = {setup.id: verdicts(out, setup, JUDGE_NAME) for setup in bench.setups(settings)}
    _compare(out)
    summary = {
        "kinds": by_kind([row for of_setup in rows.values() for row in of_setup]),
        "judge": quality,
        "seconds": round(time.monotonic() - started, 1),
    }
    write_json(out / "summary.json", summary)
    write_run("eval.model_inversion.demo.run", out, asdict(settings), seed=settings.seed)
    last = bench.setups(settings)[-1]
    draw(out / "reconstructions.png", bench.private_folder(out), bench.images_folder(out, last), rows[last.id])
    print(f"\n{table(summary)}\n")
    print(f"The demo took {summary['seconds']:.0f} seconds. FPR is the share that E accepts of what a judge rejects;")
    print("truth is a judge that knows how each picture was made.")
    for path, what in (
        ("reconstructions.png", "what T, E and the judge say of each kind, as pictures"),
        ("compare/compare.html", "all figures, and every false positive to look at"),
        ("collection", "the reconstructions, in the layout of the public collection"),
        ("setups.yaml", "describes them for cprt mi, to ask a vision-language model"),
    ):
        print(f"  {out / path}: {what}")
    print(f"\n{shown(summary)}")
    return summary


# --- E and T, by the command that a user would type ---------------------------------------------------------------


def write_classifiers(out: Path, settings: bench.Settings) -> None:
    """classifiers/, a configuration of ``cprt mi-standard`` for each network."""
    for architecture in (*bench.TARGETS, bench.EVALUATION_MODEL):
        network = {
            "name": architecture.capitalize(),
            "library": "program",
            "architecture": None,
            "weights": str(out / "weights" / f"{architecture}.pt2"),
            "num_classes": settings.classes,
            "classes": "numeric",
            **{"crop": None, "resize": None, "mean": [0.0] * 3, "std": [1.0] * 3},
        }
        content = {"classifier": network, "private": str(bench.private_folder(out)), "clean": str(out / "clean")}
        path = out / "classifiers" / f"{architecture}.yaml"
        _write_yaml(path, f"cprt mi-standard --config {path} --images FOLDER --out FOLDER", content)


def _classify(out: Path, settings: bench.Settings) -> None:
    """standard/, target/ and naturals/, each with ``<set-up>/prediction.csv``."""
    for setup in bench.setups(settings):
        images, sources = bench.images_folder(out, setup), out / "sources" / setup.id
        for folder, architecture, looked_at in (
            ("standard", bench.EVALUATION_MODEL, images),
            ("target", setup.target, images),
            ("naturals", bench.EVALUATION_MODEL, sources),
        ):
            config = out / "classifiers" / f"{architecture}.yaml"
            _run("mi-standard", standard.main, config=config, images=looked_at, out=out / folder / setup.id)


def _compare(out: Path) -> None:
    """The judge beside E in every set-up, and beside both a judge that knows the truth."""
    folders = {name: out / name for name in ("standard", "target", "naturals")}
    shown = {"images": out / "collection" / "AttackSamples", "thumbnails": "true"}  # these people do not exist
    _run("mi-compare", compare.main, runs=out / "judges", **folders, out=out / "compare", **shown)


def _run(name: str, command: Callable[[Sequence[str]], None], **options: Any) -> None:
    words = [word for option, value in options.items() for word in (f"--{option}", str(value))]
    print(f"\n$ cprt {name} {' '.join(words)}", flush=True)
    command(words)


# --- The judge ----------------------------------------------------------------------------------------------------


def _judge(out: Path, settings: bench.Settings) -> dict[str, Any]:
    """judges/, as ``cprt mi`` would write it; returns what is known of the judge."""
    judge = train_judge(settings)
    folder = out / "judges"
    references = {
        str(number): sorted((bench.private_folder(out) / str(number)).iterdir())[: settings.references]
        for number in range(settings.classes)
    }
    shown = torch.stack([stack([load_image(path) for path in paths]) for paths in references.values()])

    def ask(asked: Sequence[tuple[Path, str]]) -> list[Row]:
        """(file, class) -> rows of a judge."""
        similarities = judge.similarities(stack([load_image(path) for path, _ in asked]), shown)
        said = [judge.says(float(row[int(claims)])) for row, (_, claims) in zip(similarities, asked, strict=True)]
        return [(path.name, claims, *words) for (path, claims), words in zip(asked, said, strict=True)]

    clean = [(path, path.parent.name) for path in sorted((out / "clean").glob("*/*.png"))]
    # Each picture once as its own class and once as the next.
    wrong = [(path, str((int(name) + 1) % settings.classes)) for path, name in clean]
    controls = [(kind, *row) for kind, pairs in (("positive", clean), ("negative", wrong)) for row in ask(pairs)]
    for setup in bench.setups(settings):
        images = [(path, path.parent.name) for path in sorted(bench.images_folder(out, setup).glob("*/*.png"))]
        write_verdicts(folder / JUDGE_NAME / setup.id, ask(images), controls)
        truth = [
            (row["filename"], row["class"], f"shows {row['shows']}", "yes" if row["kind"] == "true" else "no")
            for _, row in read_csv(bench.truth_file(out, setup)).rows
        ]
        write_verdicts(folder / TRUTH_NAME / setup.id, truth)
    write_json(folder / "setups.json", [{"id": setup.id, "name": setup.name} for setup in bench.setups(settings)])
    people = f"{settings.judge_people} people in {settings.judge_views} views"
    learnt = {
        "threshold": judge.threshold,
        "learnt_from": f"{people}, none of them private or in the collection",
        "threshold_from": "controls of other people again",
    }
    shown_files = {name: [path.name for path in paths] for name, paths in references.items()}
    config = {"n": settings.references, "layout": "embedding", "seed": settings.seed}
    write_run("cprt mi", folder, config, judge=learnt, references=shown_files)
    # What cprt mi needs to ask a vision-language model about the same collection.
    facts = {"subject": "person", "evaluation_model": bench.EVALUATION_MODEL.capitalize(), "evaluation_crop": "none"}
    content = {"root": str(out / "collection"), "setups": {"Faces": facts}}
    _write_yaml(out / "setups.yaml", f"For cprt mi --setups {out / 'setups.yaml'}", content)
    counts = Counter((row[0], row[-1]) for row in controls)
    return {
        "threshold": judge.threshold,
        "controls": len(clean),
        "hit_rate": counts["positive", "yes"] / len(clean),
        "false_alarm_rate": counts["negative", "yes"] / len(clean),
    }


def train_judge(settings: bench.Settings) -> NetworkJudge:
    """A judge that has seen no person of the collection; its threshold comes from people it did not learn from."""

    def views(group: int, people: int, purpose: int, count: int) -> torch.Tensor:
        who = [faces.person(settings.seed, group, number) for number in range(people)]
        drawn = (faces.views(one, settings.seed, group, n, purpose, count) for n, one in enumerate(who))
        return stack([picture for of_person in drawn for picture in of_person])

    learnt = views(bench.JUDGE, settings.judge_people, _PURPOSE_QUERY, settings.judge_views)
    names = torch.arange(settings.judge_people).repeat_interleave(settings.judge_views)
    # Nobody is one more to be told from everybody.
    nobody = clouds(10 * settings.judge_views, faces.SIZE, seed=1000 * settings.seed + 1)
    pictures = torch.cat([learnt, nobody])
    shown = torch.cat([names, torch.full((len(nobody),), settings.judge_people)])
    judge = NetworkJudge.train(pictures, shown, seed=settings.seed, epochs=settings.judge_epochs)
    people, each = max(8, settings.judge_people // 5), settings.references
    queries = views(bench.THRESHOLD, people, _PURPOSE_QUERY, each)
    references = views(bench.THRESHOLD, people, _PURPOSE_REFERENCE, each).unflatten(0, (people, each))
    similarities = judge.similarities(queries, references)
    same = torch.eye(people, dtype=torch.bool).repeat_interleave(each, dim=0)
    judge.choose_threshold(similarities[same].tolist(), similarities[~same].tolist())
    return judge


def _write_yaml(path: Path, comment: str, content: Mapping[str, Any]) -> None:
    write_text(path, f"# {comment}\n" + yaml.safe_dump(content, sort_keys=False))


if __name__ == "__main__":
    run(main, "demo-mi")
