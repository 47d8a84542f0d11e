"""``cprt merge``: base and adapter as one model in bfloat16, for engines that take no adapter of its family.

The folder holds safetensors, the adapter's processor and template, and ``run.json``. It is read back and must give the
adapter's logits before it gets its name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.models.adapter import base_of, check_adapter, other_base
from cprt.models.checkpoint import AS_TENSORS, identity
from cprt.prompts import arrange, build
from cprt.provenance import model_digest, run_record
from cprt.records import write_json
from train.publish.files import PROCESSOR

# Of the logits' standard deviation. bfloat16 rounds weights and activations alike, which is worth 0.01 to 0.035.
TOLERANCE = 0.05
_LOGITS = 16  # positions at the end of the row whose logits are compared


@dataclass
class MergeArguments:
    adapter: str = option("output folder of train/sft.py, or one of its checkpoints")
    out: str = option("folder to make; one that is there is not touched", writes=("*",))
    base_model: str | None = option("folder or ORG/NAME of the base; by default what the adapter was trained on", None)
    base_revision: str | None = option("commit of the base; by default the one that the run recorded", None)


def main(argv: Sequence[str] | None = None) -> None:
    (args,) = parse(MergeArguments, argv, prog="cprt merge", description=__doc__)
    out, adapter = Path(args.out), Path(args.adapter)
    if out.exists() or out.is_symlink():
        raise InputError(f"out: {out} is there already; choose another folder")
    check_adapter(adapter)
    base, revision = base_of(adapter, args.base_model, args.base_revision)
    if (other := other_base(adapter, identity(base, revision))) is not None:
        print(f"note: {other}")
    folder = out.with_name(f".{out.name}.partial")
    shutil.rmtree(folder, ignore_errors=True)  # of one that was killed
    try:
        check = merge(base, revision, adapter, folder)
        record = run_record(
            "cprt merge",
            args,
            {"adapter": adapter / "adapter_model.safetensors"},
            base_model=base,
            base_revision=revision,
            adapter=model_digest(adapter),
            check={**check, "tolerance": TOLERANCE},
        )
        write_json(folder / "run.json", record)
        os.rename(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{out}: read back, its logits differ from the adapter's by {check['difference']:.2g} standard deviations "
        f"({TOLERANCE} at most); the adapter changes them by {check['change']:.2g}"
    )


def merge(base: str, revision: str | None, adapter: Path, folder: Path) -> dict[str, float]:
    """Write the merged model to ``folder`` and read it back.

    Returns ``difference`` of its logits to the adapter's and ``change`` of the adapter's to the base's: root mean
    squares over the last positions of one row, in standard deviations of the adapter's logits. Raises InputError where
    the difference is more than ``TOLERANCE``, or half of the change: then bfloat16 has no room for it.
    """
    import torch

    from cprt.models.checkpoint import load_model, load_processor
    from cprt.models.local import LocalModel
    from train.saving import readable_like

    local = LocalModel(base, str(adapter), revision=revision, dtype="bfloat16")
    model, device = local.model, local.device
    inputs = _row(local.processor, local.model_type).to(device, dtype=model.dtype)

    def logits(of: Any) -> torch.Tensor:
        with torch.inference_mode():
            return of(**inputs, logits_to_keep=_LOGITS).logits.float().cpu()

    wanted = logits(model)
    with model.disable_adapter():
        plain = logits(model)
    model.merge_and_unload(safe_merge=True).save_pretrained(folder)
    readable_like(folder / "config.json")
    for name in PROCESSOR:
        if (adapter / name).is_file():
            shutil.copyfile(adapter / name, folder / name)
    del model, local
    load_processor(str(folder))
    merged = logits(load_model(str(folder), dtype="bfloat16").to(device).eval())

    def distance(one: torch.Tensor, other: torch.Tensor) -> float:
        return float((one - other).square().mean().sqrt() / wanted.std())

    found = {"difference": distance(merged, wanted), "change": distance(plain, wanted)}
    if not found["difference"] <= min(TOLERANCE, found["change"] / 2):  # NaN too
        raise InputError(
            f"{adapter}: merged into {base} it gives other logits: they differ by {found['difference']:.2g} standard "
            f"deviations, where the adapter changes them by {found['change']:.2g}"
        )
    return found


def _row(processor: Any, model_type: str) -> Any:
    """One prompt with a picture, as the model is asked."""
    from PIL import Image

    text = processor.apply_chat_template(arrange(build("zero_shot").messages(), model_type), add_generation_prompt=True)
    picture = Image.linear_gradient("L").convert("RGB").resize((96, 64))
    return processor(text=[text], images=[[picture]], **AS_TENSORS)


if __name__ == "__main__":
    run(main, "cprt merge")
