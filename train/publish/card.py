"""The model card of an adapter: ours, never TRL's or PEFT's. The text is ``card.md.jinja``; here is what it is told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cprt.models.adapter import recorded_digests, recorded_prompt
from cprt.prompts import Prompt, arrange
from cprt.records import inside, with_texts
from cprt.taxonomy import Taxonomy
from train.publish.facts import FIGURES, Measured, facts
from train.publish.files import Base, Source

_TEMPLATE = Path(__file__).with_name("card.md.jinja")
_VLLM_RANKS = (64, 128, 256, 320, 512)  # of those that vLLM takes as --max-lora-rank


def model_card(
    source: Source,
    base: Base,
    record: Mapping[str, Any],
    *,
    repo: str,
    branch: str = "main",
    data: str = "other",
    license: str | None = None,
    paper_row: str | None = None,
    measured: Measured | None = None,
    prompt: Prompt | None = None,
) -> str:
    """The whole README.md, metadata first, from the run ``record`` as it is published.

    ``repo``: ORG/NAME on the Hub; of an adapter that stays here, its folder's name.
    """
    from huggingface_hub import ModelCard, ModelCardData

    about = facts()["data"][data]
    name = base.name.partition("/")[2]
    known = next((row for row in facts()["bases"] if re.match(row["name"], name)), None)
    folder = repo.rpartition("/")[2]
    if license is None:  # what is derived from Llama stays under its licence; else the data decides
        license = (known["license"] if base.is_llama else about.get("license")) if known else None
    metadata = ModelCardData(
        base_model=base.name,
        base_model_relation="adapter",
        library_name="peft",
        pipeline_tag="image-text-to-text",
        license=license or "other",
        language="en",
        datasets=about.get("datasets"),
        tags=["lora", "privacy", "vlm-as-a-judge", "cprt"],
        model_name=folder if measured else None,  # of the model-index
        eval_results=_eval_results(measured, about["test"]) if measured else None,
    )
    told = {
        "repo": repo,
        "folder": folder,
        "branch": branch,
        "base": vars(base),
        "license": metadata.license,
        "step": source.step,
        "measured": measured and vars(measured),
        "trained_prompts": recorded_digests(record),
        "pairs_digest": inside(record, "inputs", "pairs").get("sha256"),
        "recipe": _recipe(source, record),
        "message": _message(prompt, source.family),
        "lora": source.config,
        "family": source.family,
        "rank": _vllm_rank(source.config),
        "cap": inside(source.processor, "image_processor").get("size"),
    }
    ours = {
        "known_base": known,
        "data": about,
        "figures": FIGURES,
        "paper": facts()["paper"].get(paper_row),
        "prompt": prompt and {**vars(prompt), "policy": _quoted(prompt.policy), "question": _quoted(prompt.question)},
    }
    return str(ModelCard.from_template(metadata, str(_TEMPLATE), **with_texts(told, _one_line), **ours)) + "\n"


def local_card(folder: Path, taxonomy: Taxonomy) -> str:
    """The card of an adapter where it was trained, which calls the base as the run did. Raises InputError."""
    source = Source.read(folder)
    base = source.base(source.config.get("base_model_name_or_path"), None)
    prompt = recorded_prompt(source.record, taxonomy)
    return model_card(source, base, source.record, repo=folder.resolve().name, prompt=prompt)


def _eval_results(measured: Measured, test: Mapping[str, Any]) -> list[Any]:
    from huggingface_hub import EvalResult

    return [
        EvalResult(
            task_type="image-text-to-text",
            task_name="privacy severity of photos",
            dataset_type=test["type"],
            dataset_name=test["name"],
            dataset_split=test.get("split"),
            dataset_args={"rows": measured.n, "rows_with_a_score": measured.statuses.get("ok")},
            metric_type=name,
            metric_name=FIGURES[name],
            metric_value=value,
            metric_args={"interval_95": measured.intervals.get(name)},
        )
        for name, value in measured.figures.items()
        if value is not None  # an undefined figure has no place here; the table shows it as a dash
    ]


def _recipe(source: Source, record: Mapping[str, Any]) -> dict[str, Any]:
    data, model, trainer = (inside(record, "config", name) for name in ("data", "model", "trainer"))
    packages = inside(record, "packages")
    libraries = [f"{name} {packages[name]}" for name in ("trl", "peft", "transformers", "torch") if packages.get(name)]
    return {
        "optimiser steps": inside(record, "result").get("steps"),
        "adapter of step": inside(record, "result").get("step"),
        "pairs a step": data.get("global_batch_size"),
        "learning rate": trainer.get("learning_rate"),
        "schedule": trainer.get("lr_scheduler_type"),
        "warm-up steps": trainer.get("warmup_steps"),
        "optimiser": trainer.get("optim"),
        "weight decay": trainer.get("weight_decay"),
        "gradient clipping": trainer.get("max_grad_norm"),
        "LoRA rank": source.config.get("r"),
        "LoRA alpha": source.config.get("lora_alpha"),
        "LoRA dropout": source.config.get("lora_dropout"),
        "LoRA modules": source.config.get("target_modules"),
        "precision": model.get("dtype"),
        "largest photo in pixels": data.get("max_pixels"),
        "seed": record.get("seed"),
        "made with": ", ".join([f"cprt {record.get('cprt')} ({record.get('git')})", *libraries]),
    }


def _message(prompt: Prompt | None, family: str) -> list[str | None]:
    """The message's texts by their names in the card, None for the photo, in the order that the base's family wants."""
    if prompt is None:
        return [None, "PROMPT"]
    names = {prompt.policy: "POLICY", prompt.question: "QUESTION"}
    return [names.get(piece.get("text")) for piece in arrange(prompt.messages(), family)[0]["content"]]


def _vllm_rank(config: Mapping[str, Any]) -> int:
    rank = max([config["r"], *(value for value in inside(config, "rank_pattern").values() if isinstance(value, int))])
    return next((size for size in _VLLM_RANKS if size >= rank), rank)


def _one_line(text: str) -> str:
    """A text as it can stand in a sentence, a table's cell or between backticks: it ends no line or cell."""
    return " ".join(text.replace("`", "'").replace("|", "\\|").split())


def _quoted(text: str) -> str:
    """Within three double quotes of Python, within a fenced block."""
    text = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"').replace("```", "\\x60``")
    return text[:-1] + '\\"' if text.endswith('"') else text
