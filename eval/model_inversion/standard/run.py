"""``cprt mi-standard``: what an evaluation classifier says of reconstructions, and what is usually reported with it.

Reads ``IMAGES/<class>/<file>``, the folder all-images of a set-up, and writes ``OUT/prediction.csv`` (what ``cprt
mi-metrics`` takes for E, or for the target T when it is run with T's weights) and ``OUT/standard.json``: top-1 and
top-5 attack accuracy, confidence, squared feature distance to the nearest private image, FID, PRDC, and the
classifier's own accuracy on clean images. What is undefined is null, and ``undefined`` says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.images import ImageIndex
from cprt.metrics.bootstrap import wilson_interval
from cprt.provenance import sign, write_run
from cprt.records import write_json
from cprt.tables import write_csv
from eval.model_inversion.standard.classifier import Classifier, Outputs
from eval.model_inversion.standard.features import PRDC, frechet_distance, nearest_squared, prdc
from eval.model_inversion.standard.spec import ClassifierSpec, ClassIndex

HEADER = ("filename", "class", "prediction", "top5", "confidence", "predicted_class")


@dataclass
class StandardArguments:
    classifier: dict[str, Any] = option("a mapping, only in the YAML: see configs/mi/standard.yaml")
    images: str = option("folder of reconstructions, CLASS/FILE")
    out: str = option("folder to write", writes=("prediction.csv", "standard.json"))
    private: str | None = option("folder of private images, CLASS/FILE, for distance, FID and PRDC", None)
    clean: str | None = option("folder of private test images, CLASS/FILE, for the classifier's own accuracy", None)
    features: dict[str, Any] | None = option(
        "another network for FID alone, a mapping as classifier; null: the classifier's features", None
    )
    k: int = option("neighbours in PRDC", 3)
    batch_size: int = option("images at a time", 64)

    def __post_init__(self) -> None:
        for name in ("k", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True)
class Files:
    """Images in folders of classes, sorted: ``paths`` and, for each, the ``classes`` entry of its folder."""

    paths: list[Path]
    classes: NDArray[Any]

    @staticmethod
    def read(folder: str) -> Files:
        """Raises InputError for a folder without images and for an image that lies in no class folder."""
        if not Path(folder).is_dir():
            raise InputError.at(folder, "is not a folder of images")
        index = ImageIndex(folder)
        paths = [index.root / path for path in sorted(index.paths)]
        if not paths:
            raise InputError.at(folder, "has no images")
        for path in paths:
            if path.parent.parent != index.start:
                raise InputError.at(path, f"does not lie in {folder}/<class>/")
        return Files(paths, np.asarray([path.parent.name for path in paths], dtype=object))

    def logits(self, index: ClassIndex) -> NDArray[np.int64]:
        """(N,) of the classes that the folders name."""
        return np.asarray([index.logit(name, str(path)) for name, path in zip(self.classes, self.paths, strict=True)])


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt mi-standard``."""
    (args,) = parse(StandardArguments, argv, prog="cprt mi-standard", description=(__doc__ or "").partition("\n")[0])
    spec = ClassifierSpec.read(args.classifier, "classifier")
    other = None if args.features is None else ClassifierSpec.read(args.features, "features")
    images = Files.read(args.images)
    private, clean = (None if folder is None else Files.read(folder) for folder in (args.private, args.clean))
    index = spec.index(None if private is None else sorted(set(private.classes)), "classifier")
    claimed = images.logits(index)

    classifier = Classifier(spec, "classifier")
    seen = classifier.see(images.paths, args.batch_size, "reconstructions")
    of_private = None if private is None else classifier.see(private.paths, args.batch_size, "private images")
    figures = accuracies(seen, claimed)
    nearness, reasons = _nearness(seen, of_private, images, private, claimed, index, args.k)
    if other is not None and private is not None:
        network = Classifier(other, "features")
        sides = [network.see(files.paths, args.batch_size, "features for FID").features for files in (images, private)]
        nearness["fid"], reasons["fid"] = frechet_distance(*sides)
    reasons["top5_accuracy"] = None if figures["top5_accuracy"] is not None else "top 5 of 5 classes or fewer is all"
    own = None
    if clean is not None:
        own = accuracies(classifier.see(clean.paths, args.batch_size, "clean images"), clean.logits(index))
    else:
        reasons["clean"] = "no folder of clean images was given"
    report = {
        **figures,
        **nearness,
        "k": args.k,
        "classes": len(set(images.classes)),
        "undefined": {name: reason for name, reason in reasons.items() if reason},
        "classifier": spec.record() | {"logits": index.names},
        "clean": own,
        "features": None if other is None else other.record(),
    }
    out = Path(args.out)
    sign("cprt mi-standard", out / "run.json")
    _write_predictions(out / "prediction.csv", images, claimed, seen, index)
    write_json(out / "standard.json", report)
    files = {"weights": spec.weights} | ({} if other is None else {"features": other.weights})
    write_run("cprt mi-standard", out, args, files, images={"n": len(images.paths)})
    print(f"{args.out}: {summary_line(report)}")


def accuracies(seen: Outputs, claimed_N: NDArray[np.int64]) -> dict[str, Any]:
    """Top-1 and top-5 accuracy, each with its 95% Wilson interval, and the mean probability of the claimed class.

    A class ties with another where their probabilities are equal; then the lower logit counts as the likelier.
    """
    rank = _ranks(seen, claimed_N)
    n, classes = seen.probabilities.shape
    first, five = int((rank == 0).sum()), int((rank < 5).sum()) if classes > 5 else None
    return {
        "n": n,
        "top1_accuracy": first / n,
        "top5_accuracy": None if five is None else five / n,
        "confidence": float(seen.probabilities[np.arange(n), claimed_N].mean()),
        "ci": {
            "top1_accuracy": wilson_interval(first, n),
            "top5_accuracy": None if five is None else wilson_interval(five, n),
        },
    }


def _ranks(seen: Outputs, claimed_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """(N,) how many classes the classifier finds likelier than the claimed one."""
    order = np.argsort(-seen.probabilities, axis=1, kind="stable")
    return np.argmax(order == claimed_N[:, None], axis=1)


def _nearness(
    seen: Outputs,
    of_private: Outputs | None,
    images: Files,
    private: Files | None,
    claimed_N: NDArray[np.int64],
    index: ClassIndex,
    k: int,
) -> tuple[dict[str, Any], dict[str, str | None]]:
    """Figures that compare features with those of private images, and why some are null."""
    if of_private is None or private is None:
        absent = "no folder of private images was given"
        return (
            dict.fromkeys(("feature_distance", "feature_dimensions", "fid", *PRDC, "prdc_classes")),
            dict.fromkeys(("feature_distance", "fid", "prdc"), absent),
        )
    real_classes = private.logits(index)
    nearest = nearest_squared(seen.features, claimed_N, of_private.features, real_classes)
    near = nearest[~np.isnan(nearest)]
    fid, fid_reason = frechet_distance(seen.features, of_private.features)
    figures, classes, prdc_reason = prdc(seen.features, claimed_N, of_private.features, real_classes, k)
    without = len(nearest) - len(near)
    reason = f"{without} of {len(nearest)} reconstructions are of classes without private images" if without else None
    return (
        {
            "feature_distance": float(near.mean()) if len(near) else None,
            "feature_dimensions": seen.features.shape[1],
            "fid": fid,
            **figures,
            "prdc_classes": classes,
        },
        {"feature_distance": reason, "fid": fid_reason, "prdc": prdc_reason},
    )


def _write_predictions(
    path: Path, images: Files, claimed_N: NDArray[np.int64], seen: Outputs, index: ClassIndex
) -> None:
    rank, names, rows = _ranks(seen, claimed_N), index.names, []
    for row, (file, name) in enumerate(zip(images.paths, images.classes, strict=True)):
        top5 = "" if len(names) <= 5 else "yes" if rank[row] < 5 else "no"
        probabilities = seen.probabilities[row]
        accepted = "yes" if rank[row] == 0 else "no"
        confidence = float(probabilities[claimed_N[row]])
        rows.append((file.name, name, accepted, top5, confidence, names[int(probabilities.argmax())]))
    write_csv(path, HEADER, rows)


def summary_line(report: Mapping[str, Any]) -> str:
    """What matters of a report, in a line."""

    def show(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    own = report["clean"]
    name = report["classifier"]["name"]
    return (
        f"{name} takes {report['top1_accuracy']:.1%} of {report['n']} for the class they claim (top 5 "
        f"{show(report['top5_accuracy'], '.1%')}, confidence {report['confidence']:.3f}); feature distance "
        f"{show(report['feature_distance'], '.2f')}, FID {show(report['fid'], '.2f')}; of clean images "
        f"{show(own and own['top1_accuracy'], '.1%')}"
    )


if __name__ == "__main__":
    run(main, "cprt mi-standard")
