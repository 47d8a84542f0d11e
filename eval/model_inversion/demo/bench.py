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

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn

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
class Made:
    """One reconstruction: its class, file name and kind, whom it shows, and the picture."""

    claims: int
    name: str
    kind: str
    shows: str
    picture: Image.Image


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
        made, sources = _attack(setup, networks[setup.target], people, true, settings, 100 * (number + 1))
        for one in made:
            _save(one.picture, images_folder(out, setup) / str(one.claims) / one.name)
        for one in sources:
            _save(one.picture, out / "sources" / setup.id / str(one.claims) / one.name)
        rows = [(one.name, one.claims, one.kind, one.shows) for one in made]
        write_csv(truth_file(out, setup), ("filename", "class", "kind", "shows"), rows)


def private_folder(out: Path) -> Path:
    return out / "collection" / "AttackSamples" / "Faces" / "private-data"


def images_folder(out: Path, setup: BenchSetup) -> Path:
    return out / "collection" / "AttackSamples" / setup.name / "all-images"


def truth_file(out: Path, setup: BenchSetup) -> Path:
    return out / "truth" / f"{setup.id}.csv"


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
    setup: BenchSetup,
    target: nn.Module,
    people: Sequence[faces.Person],
    true: Sequence[Sequence[Image.Image]],
    settings: Settings,
    stream: int,
) -> tuple[list[Made], list[Made]]:
    """All reconstructions of a set-up, and the natural images that some were made from."""
    counts = dict(zip(KINDS, settings.attacks[setup.attack], strict=True))
    seed = 1000 * settings.seed + stream
    strangers = _Strangers(settings.seed, 1000 * stream)
    classes = {kind: torch.arange(len(people)).repeat_interleave(count) for kind, count in counts.items()}
    others = [strangers.unlike(people[number]) for number in classes["someone else"].tolist()]
    start = stack([picture for _, picture in others]) if others else torch.empty(0, 3, faces.SIZE, faces.SIZE)
    failures = [strangers.rejected(target, number) for number in classes["failure"].tolist()]
    cloudy, steps = clouds(len(classes["nobody"]), faces.SIZE, seed), settings.steps
    pictures = {
        "true": degrade(stack([picture for of_class in true for picture in of_class]), seed),
        "someone else": adversarial(target, start, classes["someone else"], seed=seed, steps=steps),
        "nobody": adversarial(target, cloudy, classes["nobody"], seed=seed + 1, steps=steps),
        "failure": stack([picture for _, picture in failures]),
    }
    shows = {
        "true": [f"private {number}" for number in classes["true"].tolist()],
        "someone else": [f"public {number}" for number, _ in others],
        "nobody": ["nobody"] * len(classes["nobody"]),
        "failure": [f"public {number}" for number, _ in failures],
    }
    made: list[Made] = []
    for kind in KINDS:
        made += _name(kind, unstack(pictures[kind]), classes[kind], shows[kind], target, counts)
    changed = [one for one in made if one.kind == "someone else"]
    return made, [
        replace(one, kind="natural", picture=picture) for (_, picture), one in zip(others, changed, strict=True)
    ]


def _name(
    kind: str,
    pictures: Sequence[Image.Image],
    classes: Tensor,
    shows: Sequence[str],
    target: nn.Module,
    counts: dict[str, int],
) -> list[Made]:
    """Named as in the public collection: number in the class, class, T's prediction and its confidence in the class."""
    with torch.no_grad():  # of what is written, eight bits a channel
        probabilities = target(stack(pictures)).softmax(dim=1)
    before = sum(counts[earlier] for earlier in KINDS[: KINDS.index(kind)])
    made = []
    for row, (picture, claims) in enumerate(zip(pictures, classes.tolist(), strict=True)):
        number = before + row % counts[kind]
        predicted, confidence = int(probabilities[row].argmax()), float(probabilities[row, claims])
        name = f"ID={number}_T={claims}_P={predicted}_CT={confidence:.4f}.png"
        made.append(Made(claims, name, kind, shows[row], picture))
    return made


class _Strangers:
    """People who are not private, each used once."""

    def __init__(self, seed: int, first: int):
        self.seed, self.next = seed, first

    def _draw(self) -> tuple[int, faces.Person, Image.Image]:
        number, self.next = self.next, self.next + 1
        who = faces.person(self.seed, PUBLIC, number)
        return number, who, faces.views(who, self.seed, PUBLIC, number, 0, 1)[0]

    def unlike(self, private: faces.Person) -> tuple[int, Image.Image]:
        """Somebody whose hair style alone shows that it is not ``private``."""
        while True:
            number, who, picture = self._draw()
            if who.style != private.style:
                return number, picture

    def rejected(self, target: nn.Module, claims: int) -> tuple[int, Image.Image]:
        """Somebody whom the target does not take for the class."""
        while True:
            number, _, picture = self._draw()
            with torch.no_grad():
                if int(target(stack([picture])).argmax()) != claims:
                    return number, picture


def _save(picture: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)
