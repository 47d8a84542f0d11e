"""``cprt mi-standard``: what an evaluation classifier says of reconstructions, and what is usually reported with it.

``OUT/prediction.csv`` is what ``cprt mi-metrics`` takes for E, or for the target T when it is run with T's weights;
``OUT/standard.json`` has accuracies, confidence, squared feature distance to the nearest private image, FID and PRDC by
two conventions (``features.py``) and the knowledge-extraction score. What is undefined is null: ``undefined`` says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.pages.words import show
from cprt.provenance import sign, write_run
from cprt.records import write_json
from cprt.tables import read_csv, write_csv
from eval.model_inversion.collection.layouts import LAYOUTS, find_images
from eval.model_inversion.standard.accuracy import accuracies, ranks
from eval.model_inversion.standard.classifier import Classifier, Outputs
from eval.model_inversion.standard.extraction import StudentSpec, train_student
from eval.model_inversion.standard.features import EVALUATION_MODEL, LITERATURE, PRDC, Features, distance, nearness
from eval.model_inversion.standard.spec import ClassifierSpec, ClassIndex

HEADER = ("filename", "class", "prediction", "top5", "confidence", "predicted_class")
_NEAR = ("feature_dimensions", "fid", *PRDC, "prdc_classes")


@dataclass
class StandardArguments:
    classifier: dict[str, Any] = option("a mapping, only in the YAML: see configs/mi/standard.yaml")
    images: str = option("folder of reconstructions, CLASS/FILE")
    out: str = option("folder to write", writes=("prediction.csv", "standard.json"))
    layout: str = option("how images lie there, by the tool that wrote them", "classes", choices=list(LAYOUTS))
    claims: str | None = option(
        "prediction.csv of the target on the same images (natural ones): each is tried as the class that it predicted",
        None,
    )
    private: str | None = option("folder of private images, CLASS/FILE, for distance, FID and PRDC", None)
    clean: str | None = option("folder of private test images, CLASS/FILE, for the classifier's own accuracy", None)
    features: dict[str, Any] | None = option(
        "ImageNet's Inception for FID and PRDC as the literature has them, a mapping as classifier", None
    )
    embedding: dict[str, Any] | None = option(
        "another network for the feature distance, such as FaceNet in PPA, a mapping as classifier", None
    )
    student: dict[str, Any] | None = option(
        "a network to train on the reconstructions for the knowledge-extraction score: see configs/mi/standard.yaml",
        None,
    )
    k: int = option("neighbours in PRDC", 3, least=1)
    batch_size: int = option("images at a time", 64, least=1)


@dataclass(frozen=True)
class Files:
    """Images in folders of classes, sorted: ``paths``, the ``classes`` they are tried as, and what rows call them."""

    paths: list[Path]
    classes: NDArray[Any]
    names: list[str]

    @staticmethod
    def read(folder: str, layout: str = "classes") -> Files:
        """Raises InputError for a folder without images and for an image that lies in no class folder."""
        if not Path(folder).is_dir():
            raise InputError.at(folder, "is not a folder of images")
        found = find_images(Path(folder), layout)
        classes = np.asarray([name for name, _ in found], dtype=object)
        return Files([path for _, path in found], classes, [path.name for _, path in found])

    def tried_as(self, predictions: str) -> Files:
        """The same images as the classes that another classifier predicted for them, from its prediction.csv.

        Raises InputError for an image that it says nothing of.
        """
        predicted = {
            (row["class"], row["filename"]): row["predicted_class"]
            for _, row in read_csv(predictions).need(("filename", "class", "predicted_class"))
        }
        keys = [(name, path.name) for path, name in zip(self.paths, self.classes, strict=True)]
        names = ["/".join(key) for key in keys]
        for key, name in zip(keys, names, strict=True):
            if key not in predicted:
                raise InputError.at(predictions, f"has no row for {name}")
        return Files(self.paths, np.asarray([predicted[key] for key in keys], dtype=object), names)

    def of_classes(self, names: set[str]) -> Files:
        """Those of some classes. Raises InputError where there are none."""
        kept = [row for row, name in enumerate(self.classes) if name in names]
        if not kept:
            raise InputError(f"{self.paths[0].parent.parent}: has no images of the attacked classes")
        return Files([self.paths[row] for row in kept], self.classes[kept], [self.names[row] for row in kept])

    def logits(self, index: ClassIndex) -> NDArray[np.int64]:
        """(N,) of the classes that the folders name."""
        return np.asarray([index.logit(name, str(path)) for name, path in zip(self.classes, self.paths, strict=True)])


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt mi-standard``."""
    (args,) = parse(StandardArguments, argv, prog="cprt mi-standard", description=(__doc__ or "").partition("\n")[0])
    spec = ClassifierSpec.read(args.classifier, "classifier")
    others = {
        name: ClassifierSpec.read(row, name)
        for name, row in (("features", args.features), ("embedding", args.embedding))
        if row is not None
    }
    student = None if args.student is None else StudentSpec.read(args.student, "student")
    images = Files.read(args.images, args.layout)
    if args.claims is not None:
        images = images.tried_as(args.claims)
    private, clean = (None if folder is None else Files.read(folder) for folder in (args.private, args.clean))
    if private is None and (others or student):
        raise InputError(f"{', '.join([*others, *(['student'] if student else [])])}: needs --private")
    index = spec.index(None if private is None else sorted(set(private.classes)), "classifier")
    claimed = images.logits(index)

    classifier = Classifier.open(spec, "classifier")
    seen = classifier.see(images.paths, args.batch_size, "reconstructions")
    figures = accuracies(seen, claimed)
    reasons: dict[str, str | None] = {}
    near: dict[str, Any] = dict.fromkeys(("feature_distance", *_NEAR))
    beside: dict[str, Any] = {"literature": None, "embedding": None}
    extraction = own = None
    if private is not None:
        real = Features(
            classifier.see(private.paths, args.batch_size, "private images").features, private.logits(index)
        )
        fake = Features(seen.features, claimed)
        near["feature_distance"], reasons["feature_distance"] = distance(fake, real)
        found = nearness(fake, real, EVALUATION_MODEL, args.k)
        near |= {name: found[name] for name in _NEAR}
        reasons |= {note.split()[0].lower(): note for note in found["notes"]}  # FID and PRDC
        for name, other in others.items():
            network = Classifier.open(other, name, features_only=True)
            fake, real = (
                Features(
                    network.see(files.paths, args.batch_size, f"features for {name}").features, files.logits(index)
                )
                for files in (images, private)
            )
            beside |= _in_features_of(other, name, fake, real, args.k)
        if student is not None:
            extraction = _extraction(student, images, claimed, private, clean, index, args)
    else:
        reasons = dict.fromkeys(("feature_distance", "fid", "prdc"), "no folder of private images was given")
    if "features" not in others:
        reasons["literature"] = "no ImageNet Inception was given (features)"
    reasons["top5_accuracy"] = None if figures["top5_accuracy"] is not None else "top 5 of 5 classes or fewer is all"
    if clean is not None:
        own = accuracies(classifier.see(clean.paths, args.batch_size, "clean images"), clean.logits(index))
    else:
        reasons["clean"] = "no folder of clean images was given"
    report = {
        **figures,
        **near,
        "convention": EVALUATION_MODEL,
        "k": args.k,
        "classes": len(set(images.classes)),
        **beside,
        "extraction": extraction,
        "undefined": {name: reason for name, reason in reasons.items() if reason},
        "classifier": spec.record() | {"logits": index.names},
        "clean": own,
    }
    out = Path(args.out)
    sign("cprt mi-standard", out / "run.json")
    _write_predictions(out / "prediction.csv", images, claimed, seen, index)
    write_json(out / "standard.json", report)
    files = {"weights": spec.weights} | {name: other.weights for name, other in others.items()}
    write_run("cprt mi-standard", out, args, files, images={"n": len(images.paths)})
    first, *more = lines(report)
    print("\n  ".join([f"{args.out}: {first}", *more]))


def _in_features_of(spec: ClassifierSpec, name: str, fake: Features, real: Features, k: int) -> dict[str, Any]:
    """``literature`` or ``embedding`` of the report: what another network's features say."""
    if name == "features":
        return {"literature": nearness(fake, real, LITERATURE, k) | {"network": spec.record()}}
    apart, reason = distance(fake, real)
    return {name: {"feature_distance": apart, "note": reason, "network": spec.record()}}


def _extraction(
    spec: StudentSpec,
    images: Files,
    claimed_N: NDArray[np.int64],
    private: Files,
    clean: Files | None,
    index: ClassIndex,
    args: StandardArguments,
) -> dict[str, Any]:
    """Accuracy of a student of the reconstructions on private images of the attacked classes, and on clean ones."""
    student = train_student(spec, images.paths, claimed_N, len(index.names), "student")
    found: dict[str, Any] = {"student": asdict(spec)}
    for name, files in (("private", private), ("clean", clean)):
        found[name] = None
        if files is not None:
            attacked = files.of_classes(set(images.classes))
            seen = student.see(attacked.paths, args.batch_size, f"{name} images, student")
            found[name] = accuracies(seen, attacked.logits(index))
    return found


def _write_predictions(
    path: Path, images: Files, claimed_N: NDArray[np.int64], seen: Outputs, index: ClassIndex
) -> None:
    rank, names, rows = ranks(seen, claimed_N), index.names, []
    for row, (file, name) in enumerate(zip(images.names, images.classes, strict=True)):
        top5 = "" if len(names) <= 5 else "yes" if rank[row] < 5 else "no"
        probabilities = seen.probabilities[row]
        accepted = "yes" if rank[row] == 0 else "no"
        confidence = float(probabilities[claimed_N[row]])
        rows.append((file, name, accepted, top5, confidence, names[int(probabilities.argmax())]))
    write_csv(path, HEADER, rows)


def lines(report: Mapping[str, Any]) -> list[str]:
    """What matters of a report, each figure of nearness with its convention."""

    def near(of: Mapping[str, Any]) -> str:
        return f"FID {show(of['fid'], form='.2f')}, " + ", ".join(f"{name} {show(of[name])}" for name in PRDC)

    own, literature, face = report["clean"], report["literature"], report["embedding"]
    name = report["classifier"]["name"]
    found = [
        f"{name} takes {report['top1_accuracy']:.1%} of {report['n']} for the class they claim "
        f"(top 5 {show(report['top5_accuracy'], form='.1%')}, confidence {report['confidence']:.3f}), of clean images "
        f"{show(own and own['top1_accuracy'], form='.1%')}",
        f"features of {name}: distance {show(report['feature_distance'], form='.2f')}, {near(report)}",
    ]
    if face is not None:
        found.append(f"features of {face['network']['name']}: distance {show(face['feature_distance'], form='.4f')}")
    if literature is None:
        found.append("literature's convention (ImageNet Inception, pool3): not computed, no features were given")
    else:
        found.append(f"literature's convention, features of {literature['network']['name']}: {near(literature)}")
    if report["extraction"] is not None:
        of = report["extraction"]
        scores = [f"{of[name]['top1_accuracy']:.1%} of {name} images" for name in ("private", "clean") if of[name]]
        found.append(f"knowledge extraction: a student of the reconstructions knows {', '.join(scores)}")
    return found


if __name__ == "__main__":
    run(main, "cprt mi-standard")
