"""``cprt eval``: ask a model about every labelled photo -> predictions.jsonl, metrics.json and run.json.

Every answer is kept in ``OUT/answers.jsonl`` as it comes. A run that was killed goes on where it stopped when the same
command is given again; a changed model, adapter, prompt or photo is asked anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from cprt.answers import parse as parse_answer
from cprt.config import parse, run
from cprt.errors import InputError
from cprt.images import check_images, image_root, load_image
from cprt.local import DTYPES, Generation, LocalModel, identity
from cprt.prompts import PROMPTS, TARGETS, Prompt, build
from cprt.provenance import file_digest, model_digest, write_run
from cprt.records import Label, Prediction, read_json, read_labels, write_json, write_jsonl
from cprt.store import AnswerStore, answer_key
from cprt.taxonomy import Taxonomy
from eval.metrics import measure, summary_line


@dataclass
class EvalArguments:
    model: str = field(metadata={"help": "checkpoint: a folder or a Hugging Face Hub name"})
    labels: str = field(metadata={"help": "labels.jsonl with the truth"})
    images: str = field(metadata={"help": "folder that holds images/, or images/ itself"})
    out: str = field(metadata={"help": "folder to write"})
    adapter: str | None = field(default=None, metadata={"help": "folder of a LoRA adapter to put on the model"})
    model_revision: str | None = field(default=None, metadata={"help": "commit, tag or branch of a Hub model"})
    prompt: str = field(default="taxonomy", metadata={"help": "what the model is asked", "choices": list(PROMPTS)})
    target: str = field(default="score", metadata={"help": "what it is to answer", "choices": list(TARGETS)})
    batch_size: int = field(default=16, metadata={"help": "photos a forward pass; larger is faster and needs memory"})
    max_new_tokens: int = field(default=256, metadata={"help": "longest answer; a longer one is cut off and unparsed"})
    max_pixels: int | None = field(
        default=None,
        metadata={"help": "largest photo in pixels after resizing; an adapter brings the cap it was trained with"},
    )
    dtype: str = field(default="auto", metadata={"help": "precision of the weights", "choices": list(DTYPES)})
    limit: int | None = field(default=None, metadata={"help": "only the first so many labels"})
    taxonomy: str | None = field(default=None, metadata={"help": "YAML that extends the published taxonomy"})

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_new_tokens", "max_pixels", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if self.target == "attributes" and self.prompt != "taxonomy":
            raise ValueError("target attributes needs prompt taxonomy, which tells the model the keys")


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt eval``."""
    (args,) = parse(EvalArguments, argv, prog="cprt eval", description=__doc__)
    taxonomy = Taxonomy.load(args.taxonomy)
    prompt = build(args.prompt, args.target, taxonomy)
    labels = read_labels(args.labels, taxonomy)[: args.limit]
    root = image_root(args.images)
    check_images(root, [_image(label, args.labels) for label in labels], decode=False)
    if args.adapter:
        _warn_other_prompt(args.adapter, prompt)

    out = Path(args.out)
    with AnswerStore(out / "answers.jsonl") as store:
        keys, facts = ask(args, prompt, labels, root, store)
        answers = [store[key] for key in keys]
    predictions = [
        _prediction(label, answer, args, prompt, taxonomy) for label, answer in zip(labels, answers, strict=True)
    ]
    write_jsonl(out / "predictions.jsonl", predictions)
    metrics = measure(labels, predictions, taxonomy, file=str(out / "predictions.jsonl"))
    write_json(out / "metrics.json", metrics)
    write_run(out, args, {"labels": args.labels}, taxonomy=taxonomy.digest, prompt=prompt.identity(), **facts)
    print(f"{out}: {summary_line(metrics)}")


def ask(
    args: EvalArguments, prompt: Prompt, labels: Sequence[Label], root: Path, store: AnswerStore
) -> tuple[list[str], dict[str, Any]]:
    """Have every label's photo answered in ``store``; the key of each, and what made the answers."""
    decoding = {"greedy": True, "max_new_tokens": args.max_new_tokens, "dtype": args.dtype,
                "max_pixels": args.max_pixels}  # fmt: skip
    facts: dict[str, Any] = {
        "model": identity(args.model, args.model_revision),
        "adapter": model_digest(args.adapter) if args.adapter else None,
    }
    paths = [root / _image(label, args.labels) for label in labels]
    keys = [answer_key(image=file_digest(path), prompt=prompt.digest, decoding=decoding, **facts) for path in paths]
    todo = {key: path for key, path in zip(keys, paths, strict=True) if key not in store}
    if todo:
        model = LocalModel(args.model, args.adapter, revision=args.model_revision, dtype=args.dtype,
                           max_pixels=args.max_pixels)  # fmt: skip
        facts |= {"revision": model.revision, "dtype": model.dtype, "image_size": dict(model.size)}
        with tqdm(total=len(keys), initial=len(keys) - len(todo), desc="asking", unit="photo") as progress:
            for batch in _batches(todo, args.batch_size):
                store.put(_answer_batch(model, batch, prompt, args.max_new_tokens))
                progress.update(len(batch))
    return keys, facts | {"decoding": decoding, "batch_size": args.batch_size}


def _batches(todo: dict[str, Path], size: int) -> Iterator[list[tuple[str, Path]]]:
    """(key, path) batches of photos of about the same file size: little padding, the largest first to fail early."""
    ordered = sorted(todo.items(), key=lambda item: (-item[1].stat().st_size, item[0]))
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


def _answer_batch(
    model: LocalModel, batch: Sequence[tuple[str, Path]], prompt: Prompt, max_new_tokens: int
) -> list[tuple[str, dict[str, Any]]]:
    """Answers of one batch. A photo that cannot be read is answered with an error, the others go on."""
    images, readable = [], []
    answers: list[tuple[str, dict[str, Any]]] = []
    for key, path in batch:
        try:
            images.append(load_image(path))
            readable.append(key)
        except InputError as error:
            answers.append((key, {"error": str(error)}))
    generations: list[Generation] = []
    if images:
        generations = model.generate(images, prompt.messages(), max_new_tokens)
    answers += [
        (key, {"text": generation.text, "complete": generation.complete})
        for key, generation in zip(readable, generations, strict=True)
    ]
    return answers


def _prediction(
    label: Label, answer: dict[str, Any], args: EvalArguments, prompt: Prompt, taxonomy: Taxonomy
) -> Prediction:
    model = args.model if args.adapter is None else f"{args.model}+{args.adapter}"
    common: dict[str, Any] = {"id": label.id, "model": model, "prompt": prompt.name}
    if "error" in answer:
        return Prediction(**common, status="error", error=answer["error"])
    text = answer["text"]
    if not answer["complete"]:  # "0.71" may be the beginning of "0.719"
        return Prediction(**common, status="unparsed", text=text, error=f"cut off at {args.max_new_tokens} tokens")
    parsed = parse_answer(text, taxonomy)
    return Prediction(
        **common,
        status=parsed.status,
        text=text,
        score=parsed.score,
        level=parsed.level,
        stated_level=parsed.stated_level,
        attributes=None if parsed.attributes is None else list(parsed.attributes),
    )


def _image(label: Label, file: str) -> str:
    if label.image is None:
        raise InputError.at(file, f"is missing for {label.id!r}", field="image")
    return label.image


def _warn_other_prompt(adapter: str, prompt: Prompt) -> None:
    record = Path(adapter) / "run.json"
    if record.is_file():
        trained = read_json(record).get("prompt_sha256", prompt.digest)
        if trained != prompt.digest:
            print(f"note: {adapter} was trained with another prompt than the one asked here")


if __name__ == "__main__":
    run(main, "cprt eval")
