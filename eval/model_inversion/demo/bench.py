"""A collection of reconstructions whose truth is known, in the layout of the public one, with the classifiers it needs.

Private people are drawn, a target T and an evaluation model E are trained on them, and each set-up (attack x target)
gets reconstructions of three kinds: true ones (new pictures of the private person, spoiled), Type-I adversarial ones
(somebody with other hair, or nobody at all, changed until T accepts it) and failures (somebody else, whom T rejects).
E has no part in making any of them. Files below ``OUT``::

    collection/AttackSamples/Faces/private-data/<class>/               what T and E were trained on; references
    collection/AttackSamples/Faces/<attack>/OtherFaces/<target>/all-images/<class>/ID=.._T=.._P=.._CT=...png
    clean/<class>/             other pictures of the private people
    sources/<set-up>/<class>/  what the adversarial ones of other people were made from: natural images
    truth/<set-up>.csv         filename, class, kind, shows
    weights/<network>.pt2      programs of torch.export
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import torch
from PIL import Image
from torch import nn

from cprt.tables import write_csv
from eval.model_inversion.demo import faces
from eval.model_inversion.demo.attacks import adversarial, clouds, degrade
from eval.model_inversion.demo.networks import save, stack, train_classifier, unstack

EVALUATION_MODEL, TARGETS = "residual", ("plain", "wide")
KINDS = ("true", "someone else", "nobody", "failure")  # the two in the middle are adversarial
# Groups of people, and purposes of views: no two share a person or a view.
PRIVATE, PUBLIC, JUDGE, THRESHOLD = range(4)
_TRAINING, _CLEAN, _FIRST_ATTACK = 0, 1, 2


@dataclass(frozen=True)
class Settings:
    """How much of everything; smaller in tests. ``attacks`` gives each attack its reconstructions a class by kind."""

    seed: int = 0
    classes: int = 12
    views: int = 20  # to train on, a class
    clean: int = 6  # to test on, a class
    epochs: int = 12
    steps: int = 60  # of an adversarial attack
    judge_people: int = 300
    judge_views: int = 8
    judge_epochs: int = 12
    references: int = 4  # that the judge sees, as in the paper
    attacks: dict[str, tuple[int, int, int, int]] = field(
        default_factory=lambda: {"Faithful": (5, 1, 1, 1), "Adversarial": (1, 4, 2, 1)}
    )


@dataclass(frozen=True)
class BenchSetup:
    """One attack on one target."""

    attack: str
    target: str

    @property
    def name(self) -> str:
        """As folders of the public collection."""
        return f"Faces/{self.attack}/OtherFaces/{self.target.capitalize()}"

    @property
    def id(self) -> str:
        """As ``cprt mi`` calls it."""
        return self.name.lower().replace("/", "_")


def setups(settings: Settings) -> list[BenchSetup]:
    return [BenchSetup(attack, target) for attack in settings.attacks for target in TARGETS]


def private_folder(out: Path) -> Path:
    return out / "collection" / "AttackSamples" / "Faces" / "private-data"


def images_folder(out: Path, setup: BenchSetup) -> Path:
    return out / "collection" / "AttackSamples" / setup.name / "all-images"


def truth_file(out: Path, setup: BenchSetup) -> Path:
    return out / "truth" / f"{setup.id}.csv"


def make(out: Path, settings: Settings) -> None:
    """Write everything but verdicts."""
    people = [faces.person(settings.seed, PRIVATE, number) for number in range(settings.classes)]

    def private(purpose: int, count: int) -> list[list[Image.Image]]:
        return [faces.views(who, settings.seed, PRIVATE, number, purpose, count) for number, who in enumerate(people)]

    training, clean = private(_TRAINING, settings.views), private(_CLEAN, settings.clean)
    for folder, pictures in ((private_folder(out), training), (out / "clean", clean)):
        for number, of_class in enumerate(pictures):
            for view, picture in enumerate(of_class):
                _save(picture, folder / str(number) / f"view_{view:02}.png")
    networks = _train(out, training, settings)
    for number, setup in enumerate(setups(settings)):
        true = private(_FIRST_ATTACK + number, settings.attacks[setup.attack][0])
        shown = [picture for of_class in true for picture in of_class]
        _attack(out, setup, networks[setup.target], people, shown, settings, 100 * (number + 1))


def _train(out: Path, training: Sequence[Sequence[Image.Image]], settings: Settings) -> dict[str, nn.Module]:
    """Targets and evaluation model, each of its own architecture and seed, on the same pictures as in the paper."""
    pictures = torch.cat([stack(of_class) for of_class in training])
    labels = torch.arange(len(training)).repeat_interleave(settings.views)
    networks = {}
    for number, architecture in enumerate((*TARGETS, EVALUATION_MODEL)):
        seed = 10 * settings.seed + number
        networks[architecture] = train_classifier(architecture, pictures, labels, seed=seed, epochs=settings.epochs)
        save(networks[architecture], out / "weights" / f"{architecture}.pt2")
    return networks


def _attack(
    out: Path,
    setup: BenchSetup,
    target: nn.Module,
    people: Sequence[faces.Person],
    true: Sequence[Image.Image],
    settings: Settings,
    stream: int,
) -> None:
    """Write all reconstructions of a set-up, what they show, and the natural images that some were made from.

    They are named as in the public collection: number in the class, class, T's prediction, its confidence in the class.
    """
    counts = dict(zip(KINDS, settings.attacks[setup.attack], strict=True))
    claimed = {kind: [number for number in range(len(people)) for _ in range(n)] for kind, n in counts.items()}
    strangers = _strangers(settings.seed, 1000 * stream)
    # The hair style alone shows that it is somebody else.
    others = [next(one for one in strangers if one[1].style != people[c].style) for c in claimed["someone else"]]
    failures = [next(one for one in strangers if not _accepts(target, one[2], c)) for c in claimed["failure"]]
    seed, steps = 1000 * settings.seed + stream, settings.steps
    start, cloudy = stack([picture for *_, picture in others]), clouds(len(claimed["nobody"]), faces.SIZE, seed)
    someone, nobody = (torch.tensor(claimed[kind]) for kind in ("someone else", "nobody"))
    pictures = {
        "true": degrade(stack(true), seed),
        "someone else": adversarial(target, start, someone, seed=seed, steps=steps),
        "nobody": adversarial(target, cloudy, nobody, seed=seed + 1, steps=steps),
        "failure": stack([picture for *_, picture in failures]),
    }
    shows = {
        "true": [f"private {number}" for number in claimed["true"]],
        "someone else": [f"public {number}" for number, *_ in others],
        "nobody": ["nobody"] * len(claimed["nobody"]),
        "failure": [f"public {number}" for number, *_ in failures],
    }
    rows, numbers = [], Counter[int]()
    for kind in KINDS:
        images = unstack(pictures[kind])
        with torch.no_grad():  # of what is written, eight bits a channel
            probabilities = target(stack(images)).softmax(dim=1)
        for place, (image, claims) in enumerate(zip(images, claimed[kind], strict=True)):
            predicted, confidence = int(probabilities[place].argmax()), float(probabilities[place, claims])
            name = f"ID={numbers[claims]}_T={claims}_P={predicted}_CT={confidence:.4f}.png"
            numbers[claims] += 1
            rows.append((name, claims, kind, shows[kind][place]))
            _save(image, images_folder(out, setup) / str(claims) / name)
            if kind == "someone else":
                _save(others[place][2], out / "sources" / setup.id / str(claims) / name)
    write_csv(truth_file(out, setup), ("filename", "class", "kind", "shows"), rows)


def _strangers(seed: int, first: int) -> Iterator[tuple[int, faces.Person, Image.Image]]:
    """People who are not private, each once: number, who it is, a picture."""
    for number in count(first):
        who = faces.person(seed, PUBLIC, number)
        yield number, who, faces.views(who, seed, PUBLIC, number, 0, 1)[0]


def _accepts(target: nn.Module, picture: Image.Image, claims: int) -> bool:
    with torch.no_grad():
        return int(target(stack([picture])).argmax()) == claims


def _save(picture: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)
