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
from eval.model_inversion.standard.classifier import Classifier, open_classifier
from eval.model_inversion.standard.extraction import StudentSpec, train_student
from eval.model_inversion.standard.features import EVALUATION_MODEL, LITERATURE, PRDC, Features, distance, nearness
from eval.model_inversion.standard.outputs import Outputs, StoredOutputs, accuracies, ranks
from eval.model_inversion.standard.spec import ClassifierSpec, by_content

HEADER = ("filename", "class", "prediction", "top5", "confidence", "predicted_class")
Logits = NDArray[np.int64]  # (N,): which one is the claimed class's
_NEAR = ("feature_dimensions", "fid", *PRDC, "prdc_classes")


@dataclass
class StandardArguments:
    classifier: dict[str, Any] = option("a mapping, only in the YAML: see configs/mi/standard.yaml")
    images: str = option("folder of reconstructions, CLASS/FILE")
    out: str = option("folder to write", writes=("prediction.csv", "standard.json"))
    layout: str = option("how images lie there, by the tool that wrote them", "classes", choices=list(LAYOUTS))
    claims: str | None = option("prediction.csv of the target on them (natural ones): each is tried as it says", None)
    private: str | None = option("folder of private images, CLASS/FILE, for distance, FID and PRDC", None)
    clean: str | None = option("folder of private test images, CLASS/FILE, for the classifier's own accuracy", None)
    # These as classifier: mappings, only in the YAML.
    features: dict[str, Any] | None = option("ImageNet's Inception, for FID and PRDC as the literature has them", None)
    embedding: dict[str, Any] | None = option("another network for the feature distance, as FaceNet in PPA", None)
    student: dict[str, Any] | None = option("a network to train, for the knowledge-extraction score", None)
    k: int = option("neighbours in PRDC", 3, least=1)
    batch_size: int = option("images at a time", 64, least=1)


@dataclass(frozen=True)
class Image:
    """An image, the class that it is tried as, and what rows call it."""

    path: Path
    claims: str
    name: str


def read_images(folder: str, layout: str = "classes") -> list[Image]:
    """Images in folders of classes, sorted. Raises InputError where there are none, or one lies in no class folder."""
    if not Path(folder).is_dir():
        raise InputError.at(folder, "is not a folder of images")
    return [Image(path, name, path.name) for name, path in find_images(Path(folder), layout)]


def tried_as_predicted(images: Sequence[Image], predictions: str) -> list[Image]:
    """The same images as the classes that another classifier predicted for them, from its prediction.csv.

    Raises InputError for an image that it says nothing of.
    """
    predicted = {
        f"{row['class']}/{row['filename']}": row["predicted_class"]
        for _, row in read_csv(predictions).need(("filename", "class", "predicted_class"))
    }
    names = [f"{image.claims}/{image.name}" for image in images]
    for name in names:
        if name not in predicted:
            raise InputError.at(predictions, f"has no row for {name}")
    return [Image(image.path, predicted[name], name) for image, name in zip(images, names, strict=True)]


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt mi-standard``."""
    (args,) = parse(StandardArguments, argv, prog="cprt mi-standard", description=(__doc__ or "").partition("\n")[0])
    spec = ClassifierSpec.read(args.classifier, "classifier")
    networks = (("features", args.features), ("embedding", args.embedding))
    others = {name: ClassifierSpec.read(row, name) for name, row in networks if row is not None}
    student = None if args.student is None else StudentSpec.read(args.student, "student")
    images = read_images(args.images, args.layout)
    if args.claims is not None:
        images = tried_as_predicted(images, args.claims)
    private, clean = (None if folder is None else read_images(folder) for folder in (args.private, args.clean))
    if private is None and (others or student):
        raise InputError(f"{', '.join([*others, *(['student'] if student else [])])}: needs --private")
    index = spec.index(None if private is None else {image.claims for image in private}, "classifier")

    def see(network: Classifier | StoredOutputs, images: Sequence[Image], what: str) -> tuple[Outputs, Logits]:
        claimed_N = np.asarray([index.logit(image.claims, str(image.path)) for image in images])
        return network.see([image.path for image in images], args.batch_size, what), claimed_N

    def features_of(network: Classifier | StoredOutputs, images: Sequence[Image], what: str) -> Features:
        seen, claimed_N = see(network, images, what)
        return Features(seen.features, claimed_N)

    classifier = open_classifier(spec, "classifier")
    seen, claimed_N = see(classifier, images, "reconstructions")
    figures = accuracies(seen, claimed_N)
    near: dict[str, Any] = dict.fromkeys(("feature_distance", *_NEAR))
    beside: dict[str, Any] = {"literature": None, "embedding": None, "extraction": None}
    reasons: dict[str, str | None]
    if private is None:
        reasons = dict.fromkeys(("feature_distance", "fid", "prdc"), "no folder of private images was given")
    else:
        fake, real = Features(seen.features, claimed_N), features_of(classifier, private, "private images")
        near["feature_distance"], reason = distance(fake, real)
        found = nearness(fake, real, EVALUATION_MODEL, args.k)
        near |= {name: found[name] for name in _NEAR}
        reasons = {"feature_distance": reason} | {note.split()[0].lower(): note for note in found["notes"]}
        for name, other in others.items():
            network = open_classifier(other, name, features_only=True)
            fake, real = (features_of(network, files, f"features for {name}") for files in (images, private))
            if name == "features":
                beside["literature"] = nearness(fake, real, LITERATURE, args.k) | {"network": other.record()}
            else:
                apart, note = distance(fake, real)
                beside[name] = {"feature_distance": apart, "note": note, "network": other.record()}
    if student is not None:
        learner = train_student(student, [image.path for image in images], claimed_N, len(index.logits), "student")
        beside["extraction"] = {
            "student": asdict(student) | by_content(student.weights),
            "private": None,
            "clean": None,
        }
        for name, files in (("private", private), ("clean", clean)):
            if files is not None:
                attacked = _attacked(files, {image.claims for image in images})
                beside["extraction"][name] = accuracies(*see(learner, attacked, f"{name} images, student"))
    if "features" not in others:
        reasons["literature"] = "no ImageNet Inception was given (features)"
    reasons["top5_accuracy"] = None if figures["top5_accuracy"] is not None else "top 5 of 5 classes or fewer is all"
    if clean is None:
        reasons["clean"] = "no folder of clean images was given"
    report = {
        **figures,
        **near,
        "convention": EVALUATION_MODEL,
        "k": args.k,
        "classes": len({image.claims for image in images}),
        **beside,
        "undefined": {name: reason for name, reason in reasons.items() if reason},
        "classifier": spec.record() | {"logits": index.names},
        "clean": None if clean is None else accuracies(*see(classifier, clean, "clean images")),
    }
    out = Path(args.out)
    sign("cprt mi-standard", out / "run.json")
    _write_predictions(out / "prediction.csv", images, claimed_N, seen, index.names)
    write_json(out / "standard.json", report)
    inputs = {"weights": spec.weights, "student": None if student is None else student.weights}
    inputs |= {name: other.weights for name, other in others.items()}
    write_run("cprt mi-standard", out, args, inputs, images={"n": len(images)})
    first, *more = lines(report)
    print("\n  ".join([f"{args.out}: {first}", *more]))


def _attacked(images: Sequence[Image], classes: set[str]) -> list[Image]:
    """Those of some classes. Raises InputError where there are none."""
    kept = [image for image in images if image.claims in classes]
    if not kept:
        raise InputError(f"{images[0].path.parent.parent}: has no images of the attacked classes")
    return kept


def _write_predictions(
    path: Path, images: Sequence[Image], claimed_N: Logits, seen: Outputs, names: Sequence[str]
) -> None:
    rows = []
    for image, claimed, rank, of_classes in zip(
        images, claimed_N, ranks(seen, claimed_N), seen.probabilities, strict=True
    ):
        top5 = "" if len(names) <= 5 else "yes" if rank < 5 else "no"
        accepted, predicted = "yes" if rank == 0 else "no", names[int(of_classes.argmax())]
        rows.append((image.name, image.claims, accepted, top5, float(of_classes[claimed]), predicted))
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
