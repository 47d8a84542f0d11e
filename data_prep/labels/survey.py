"""``cprt survey``: photos for people to label, and a rating sheet for each of them (paper 4.1 and appendix D).

As published: 65 photos, 17 people, 10 photos a person, so that two or three people see each. Photos are drawn in the
proportions of the labels' levels. ``OUT/sheets`` has a sheet for each person (docs/files.md); filled in, they are what
``cprt agreement --answers OUT/sheets/*.csv`` reads. No photo is copied: sheets name them by their path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cprt.answers.sheets import assign, check_unfilled
from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.files import write_text
from cprt.provenance import clear, sign, write_run
from cprt.records import read_labels
from cprt.tables import write_csv
from cprt.taxonomy import Taxonomy
from data_prep.pairs.split import draw_holdout


@dataclass
class SurveyArguments:
    labels: str = option("labels.jsonl with the photos to draw from")
    out: str = option("folder to write", writes=("sheets", "photos.csv", "questions.txt"))
    photos: int = option("photos to label", 65, least=1)
    people: int = option("people who label", 17, least=1, most=1000)
    each: int = option("photos for each of them", 10, least=1)
    seed: int = option("seed of the draw and of who gets which photo", 0, least=0)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)

    def __post_init__(self) -> None:
        if self.each > self.photos:
            raise ValueError(f"each: nobody can label {self.each} of {self.photos} photos")
        if self.people * self.each < 2 * self.photos:
            raise ValueError(
                f"{self.people} people with {self.each} photos each cannot see {self.photos} photos twice: agreement "
                "needs two people a photo"
            )


def main(argv: Sequence[str] | None = None) -> None:
    (args,) = parse(SurveyArguments, argv, prog="cprt survey", description=(__doc__ or "").partition("\n")[0])
    taxonomy = Taxonomy.load(args.taxonomy)
    labels = read_labels(args.labels, taxonomy)
    if len(labels) < args.photos:
        raise InputError.at(args.labels, f"has {len(labels)} photos, fewer than the {args.photos} to draw")
    drawn, _ = draw_holdout(labels, args.photos, args.seed)
    rng = np.random.default_rng(args.seed)
    names = [drawn[i].image or drawn[i].id for i in rng.permutation(len(drawn))]  # the draw is in order of severity
    sheets = assign(len(drawn), args.people, args.each, rng)
    photos_of = {f"person{number:02}": own for number, own in enumerate(sheets, start=1)}
    raters = [[person for person, own in photos_of.items() if photo in own] for photo in range(len(drawn))]

    out = Path(args.out)
    check_unfilled(out / "sheets", first=3)
    sign("cprt survey", out / "run.json")
    clear(out / "sheets", ["person*.csv"])
    for person, own in photos_of.items():
        rows = [(person, "human", names[photo], *[""] * len(taxonomy.keys)) for photo in own]
        write_csv(out / "sheets" / f"{person}.csv", ("annotator", "kind", "image", *taxonomy.keys), rows)
    seen_by = [(name, " ".join(group)) for name, group in zip(names, raters, strict=True)]
    write_csv(out / "photos.csv", ("image", "people"), seen_by)
    questions = [f"{attribute.key}: {attribute.question}" for attribute in taxonomy.attributes]
    write_text(out / "questions.txt", _INSTRUCTION + "\n".join(questions) + "\n")
    write_run("cprt survey", out, args, {"labels": args.labels}, seed=args.seed, taxonomy=taxonomy.digest)
    seen = sorted(map(len, raters))
    print(
        f"{out / 'sheets'}: {args.people} sheets of {args.each} photos and {len(taxonomy.keys)} questions, each photo "
        f"on {seen[0]} to {seen[-1]}; filled in, they go to cprt agreement --answers {out / 'sheets'}/*.csv"
    )


_INSTRUCTION = """\
For each photo of your sheet and each question below, write 1 where the answer can clearly be seen or inferred by an
attentive onlooker, 0 where it cannot, 0.5 where you are unsure. Leave a cell empty only if you could not look.

"""


if __name__ == "__main__":
    run(main, "cprt survey")
