"""The model card of a published adapter: ours, never TRL's. What it is, what made it, how good it is, how to use it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cprt.numbers import is_number
from cprt.prompts import Prompt, arrange
from train.publish.facts import FIGURES, Measured, facts, part
from train.publish.files import Base, Source

_VLLM_RANKS = (64, 128, 256, 320, 512)  # of those that vLLM takes as --max-lora-rank


@dataclass(frozen=True)
class Card:
    """What the card of one branch is written from. ``record`` is the stripped run record."""

    repo: str
    branch: str
    base: Base
    source: Source
    record: Mapping[str, Any]
    data: str
    license: str | None
    paper_row: str | None
    measured: Measured | None
    prompt: Prompt | None

    def text(self) -> str:
        """The whole README.md, metadata first."""
        sections = [
            self._head(),
            self._results(),
            self._data(),
            self._recipe(),
            self._prompt(),
            self._peft(),
            self._vllm(),
            _LIMITS,
        ]
        return f"---\n{self._metadata()}\n---\n\n" + "\n\n".join(section.strip() for section in sections) + "\n"

    # --- Metadata ----------------------------------------------------------------------------------------------------

    def _metadata(self) -> str:
        from huggingface_hub import EvalResult, ModelCardData

        results = None
        if self.measured is not None:
            test = facts()["data"][self.data]["test"]
            results = [
                EvalResult(
                    task_type="image-text-to-text",
                    task_name="privacy severity of photos",
                    dataset_type=test["type"],
                    dataset_name=test["name"],
                    dataset_split=test.get("split"),
                    dataset_args={"rows": self.measured.n, "rows_with_a_score": self.measured.statuses.get("ok")},
                    metric_type=name,
                    metric_name=FIGURES.get(name, "Coverage"),
                    metric_value=value,
                    metric_args={"interval_95": self.measured.intervals.get(name)},
                )
                for name, value in self.measured.figures.items()
                if value is not None  # an undefined figure has no place here; the table shows it as a dash
            ]
        license_name, _ = self._license()
        return ModelCardData(
            base_model=self.base.name,
            base_model_relation="adapter",
            library_name="peft",
            pipeline_tag="image-text-to-text",
            license=license_name,
            language="en",
            datasets=facts()["data"][self.data].get("datasets"),
            tags=["lora", "privacy", "vlm-as-a-judge", "cprt"],
            model_name=self._name if results else None,  # of the model-index
            eval_results=results,
        ).to_yaml()

    @property
    def _name(self) -> str:
        return self.repo.partition("/")[2]

    @property
    def _known_base(self) -> dict[str, str] | None:
        name = self.base.name.partition("/")[2]
        return next((row for row in facts()["bases"] if re.match(row["name"], name)), None)

    def _license(self) -> tuple[str, str]:
        """The licence's identifier on the Hub and a sentence about it."""
        base = self._known_base
        data = facts()["data"][self.data].get("license")
        own = self.license or (base["license"] if base and self.base.is_llama else data if base and data else "other")
        title = base["title"] if base else "its own, see its page"
        return own, f"The base's licence: {title}. This adapter: `{own}`."

    # --- Sections ----------------------------------------------------------------------------------------------------

    def _head(self) -> str:
        revision = f"revision `{self.base.revision}`" if self.base.revision else "revision not recorded"
        digest = self.base.digest
        folder = f"; the run read it from a folder with digest `{digest}`" if digest and "@" not in digest else ""
        lines = [
            f"# {self._name}",
            "A LoRA adapter that turns a vision-language model into a privacy judge: it scores from 0 to 1 how severe "
            "the privacy risk of a photo is, by the taxonomy of "
            "[Compositional Privacy Risk (arXiv:2603.21573)](https://arxiv.org/abs/2603.21573). An independent "
            "implementation, not the authors' model.",
            f"Base model: [{self.base.name}](https://huggingface.co/{self.base.name}), {revision}{folder}.",
        ]
        if self.base.is_llama:
            lines.append(f"**Built with Llama.** {(self._known_base or {}).get('notice', '')}".strip())
        if self.source.step is not None:
            lines.append(f"This is the checkpoint after step {self.source.step} of its run.")
        return "\n\n".join(lines)

    def _results(self) -> str:
        measured, row = self.measured, facts()["paper"].get(self.paper_row)
        if measured is None:
            return (
                "## Results\n\nNot measured: nothing is known of how well this adapter judges; `cprt eval` measures it."
            )
        test = facts()["data"][self.data]["test"]
        head = ["", "this adapter", "95% interval"]
        if row:
            head.append(f"paper: {row['model']} + SFT, {row['steps']} steps")
        lines = [_row(head), _row(["---"] * len(head))]
        for name, title in (*FIGURES.items(), ("coverage", "Coverage")):
            cells = [title, _show(measured.figures[name]), _interval(measured.intervals.get(name))]
            lines.append(_row([*cells, _show(row.get(name))] if row else cells))
        said = [
            f"Measured on {measured.n:,} photos ({test['name']}). "
            + ", ".join(f"{status}: {count}" for status, count in measured.statuses.items())
            + ". Quality is over "
            "the photos that got a score, coverage is their share. A dash is a figure that is undefined or not "
            "given. Bias is the mean of prediction minus truth.",
            "The record beside the metrics names this very adapter by its digest."
            if measured.is_own
            else "Nothing beside the metrics says which adapter they are of: the publisher gave the file.",
        ]
        trained = self.record.get("prompt_sha256")
        if measured.prompt and trained and measured.prompt != trained:
            said.append("It was asked with another prompt than the one it was tuned with.")
        if row:
            said.append(
                "The paper's row is Table 6 of arXiv:2603.21573, on its 6,736 test photos, asked with the "
                "authors' prompts; its inter- and intra-level pairs are curated, ours are all pairs: another "
                "protocol."
            )
            if test.get("rows") != measured.n:
                said.append("**These are not the paper's test photos: the columns cannot be compared.**")
        else:
            said.append("The paper has no row for this base.")
        return "\n".join(["## Results", "", *lines, "", " ".join(said)])

    def _data(self) -> str:
        pairs = part(self.record, "inputs", "pairs").get("sha256")
        digest = f" The file of training pairs has SHA-256 `{_plain(pairs)}`." if pairs else ""
        return (
            f"## Data and licences\n\n{facts()['data'][self.data]['tuned_on'].strip()}{digest}\n\n{self._license()[1]}"
        )

    def _recipe(self) -> str:
        data, model, trainer = (part(self.record, "config", name) for name in ("data", "model", "trainer"))
        lora, packages = self.source.config, part(self.record, "packages")
        rows = {
            "optimiser steps": part(self.record, "result").get("steps"),
            "pairs a step": data.get("global_batch_size"),
            "learning rate": trainer.get("learning_rate"),
            "schedule": trainer.get("lr_scheduler_type"),
            "warm-up steps": trainer.get("warmup_steps"),
            "optimiser": trainer.get("optim"),
            "weight decay": trainer.get("weight_decay"),
            "gradient clipping": trainer.get("max_grad_norm"),
            "LoRA rank": lora.get("r"),
            "LoRA alpha": lora.get("lora_alpha"),
            "LoRA dropout": lora.get("lora_dropout"),
            "LoRA modules": lora.get("target_modules"),
            "precision": model.get("dtype"),
            "largest photo in pixels": data.get("max_pixels"),
            "seed": self.record.get("seed"),
            "made with": ", ".join(
                [f"cprt {self.record.get('cprt')} ({self.record.get('git')})"]
                + [
                    f"{name} {packages[name]}"
                    for name in ("trl", "peft", "transformers", "torch")
                    if packages.get(name)
                ]
            ),
        }
        lines = [_row(["", ""]), _row(["---", "---"])]
        lines += [_row([name, f"`{_plain(value)}`"]) for name, value in rows.items() if value is not None]
        intro = "LoRA with TRL, the loss on the answer alone. `run.json` holds every option."
        return "\n".join(["## Recipe", "", intro, "", *lines])

    def _prompt(self) -> str:
        if self.prompt is None:
            digest = _plain(self.record.get("prompt_sha256"))
            return (
                "## Prompt\n\nIt was tuned with a prompt of its own (digest "
                f"`{digest}`), which this card does not have; with another its scores mean little."
            )
        return (
            f"## Prompt\n\nThe prompt that it was tuned with: `cprt.prompts.build({self.prompt.name!r}, "
            f"{self.prompt.target!r})`. With another its scores mean little.\n\n```python\n"
            f'POLICY = """\\\n{_quoted(self.prompt.policy)}"""\n'
            f'QUESTION = """{_quoted(self.prompt.question)}"""\n```'
        )

    def _peft(self) -> str:
        base = f', revision="{self.base.revision}"' if self.base.revision else ""
        own = f', revision="{self.branch}"' if self.branch != "main" else ""
        return f"""## Load it with PEFT

```python
import torch
from peft import PeftModel
from PIL import Image, ImageOps
from transformers import AutoModelForImageTextToText, AutoProcessor

BASE, ADAPTER = "{self.base.name}", "{self.repo}"
processor = AutoProcessor.from_pretrained(ADAPTER{own})  # with the pixel cap of training
model = AutoModelForImageTextToText.from_pretrained(BASE{base}, dtype="auto", device_map="auto")
model = PeftModel.from_pretrained(model, ADAPTER{own}).eval()

photo = ImageOps.exif_transpose(Image.open("photo.jpg")).convert("RGB")
messages = [{{"role": "user", "content": [
{self._content()}
]}}]
text = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
inputs = processor(text=[text], images=[[photo]], add_special_tokens=False, return_tensors="pt")
inputs = inputs.to(model.device, dtype=model.dtype)
with torch.inference_mode():
    output = model.generate(**inputs, max_new_tokens=256, do_sample=False)
print(processor.batch_decode(output[:, inputs["input_ids"].shape[1]:], skip_special_tokens=True)[0])
```"""

    def _content(self) -> str:
        """The parts of the message, in the order that the base's family wants."""
        if self.prompt is None:
            return '    {"type": "image"}, {"type": "text", "text": PROMPT},'
        family = str(self.source.processor.get("processor_class", "")).removesuffix("Processor").lower()
        (message,) = arrange(self.prompt.messages(), family)
        lines = []
        for piece in message["content"]:
            if piece["type"] == "image":
                lines.append('    {"type": "image"},')
            else:
                name = "POLICY" if piece["text"] == self.prompt.policy else "QUESTION"
                lines.append(f'    {{"type": "text", "text": {name}}},')
        return "\n".join(lines)

    def _vllm(self) -> str:
        config, title = self.source.config, "## Serve it with vLLM\n\n"
        if config.get("use_dora") or config.get("modules_to_save"):
            return (
                title
                + "vLLM serves neither DoRA nor whole modules beside LoRA: merge this adapter into the base first."
            )
        patterns = config.get("rank_pattern") or {}
        rank = max([config.get("r") or 0, *patterns.values()])
        taken = next((size for size in _VLLM_RANKS if size >= rank), rank)
        own = f" --revision {self.branch}" if self.branch != "main" else ""
        base = f" --revision {self.base.revision}" if self.base.revision else ""
        cap = part(self.record, "config", "data").get("max_pixels")
        shrink = f" vLLM does not read the pixel cap: send photos of at most {cap:,} pixels." if is_number(cap) else ""
        return f"""{title}```bash
hf download {self.repo}{own} --local-dir {self._name}
vllm serve {self.base.name}{base} --enable-lora --max-lora-rank {taken} \\
    --lora-modules {self._name}=./{self._name} --chat-template {self._name}/chat_template.jinja
```

Ask for the model `{self._name}` with the message above, temperature 0.{shrink}"""


_LIMITS = """## Limits and misuse

The score is a model of risk, not a legal finding: all attributes of a level count the same, and CPRT-Bench's
labels come from models that agreed, where people agree with one another on 87.4% of labels (paper 4.1). It misses
things. Scores from another prompt, base or photo size are other scores.

It is meant for finding photos that a person should look at, for warning people before they share, and for comparing
judges. It is not meant for identifying, profiling or excluding anybody, for looking for photos that expose people, or
as the only safeguard. Ask before you judge photos of others, and judge them where they are: nothing has to leave your
machine."""


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _show(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _interval(interval: list[float] | None) -> str:
    return "-" if interval is None else f"[{interval[0]:.3f}, {interval[1]:.3f}]"


def _plain(value: Any) -> str:
    """Within backticks, in a table's cell."""
    return " ".join(str(value).replace("`", "'").replace("|", "\\|").split())


def _quoted(text: str) -> str:
    """Within three double quotes."""
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
