"""SFT that computes the text shared by all samples once per optimiser step. Exact, not an approximation.

Every pair opens with the same policy text, several times as long as the rest of the sample. A decoder computes the
same keys and values for it in every row, so this trainer computes them once and lets every row attend to them:

1. The whole accumulation window is at hand before its first micro-batch: the common prefix is found there.
2. The model runs over the prefix in one row; its keys and values are kept with their graph.
3. Micro-batches run without the prefix, on a read-only cache that hands out [prefix, new]. All but the last attend to
   detached leaves, which collect the gradient of the prefix.
4. The last micro-batch attends to the keys and values themselves, and its loss carries ``sum(kv * leaf.grad)``, whose
   value is taken off again: one backward pass then sends the gradients of all micro-batches through the prefix.
   A backward pass of its own would come after DDP has reduced the gradients, and be lost.

Where FSDP2 shards the weights, a layer's are there only while it runs, and in the backward pass from its output's
gradient on. So the prefix runs through the whole model, whose hooks gather them, and the last loss has its logits times
0: without, nothing would ask for the last layer's weights before its keys' and values' gradients need them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import DistributedType
from transformers import Cache
from trl import SFTTrainer

from cprt.models.prefix_cache import KeysValues, common_prefix, compute_prefix, reading_cache
from train.loading.collator import IGNORED


@dataclass
class Window:
    """One accumulation window: its prefix, and once computed, the keys and values, their leaves, and the logits."""

    prefix: torch.Tensor  # (1, P) token ids
    computed: KeysValues | None = None
    leaves: KeysValues | None = None
    logits: torch.Tensor | None = None  # (1, 1, vocabulary), behind its last token

    @property
    def length(self) -> int:
        return self.prefix.shape[1]


class SharedPrefixTrainer(SFTTrainer):
    """TRL's ``SFTTrainer`` with the shared prefix computed once per optimiser step.

    Takes the plain path wherever sharing was not proved exact; ``plain_reason`` says why, or is None.
    """

    def __init__(self, *args: Any, share: bool = True, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.plain_reason = plain_reason(self) if share else "switched off"
        self._window: Window | None = None
        if self.plain_reason is None:
            for layer in self.model.get_base_model().model.language_model.layers:
                # Without it transformers drops the cache under checkpointing. Ours stores nothing: a replay is exact.
                layer._can_checkpoint_with_cache = True

    def _send_telemetry(self) -> None:
        """Nothing, where the library would tell the Hub of every run: no word of one leaves the machine unasked."""

    def get_batch_samples(self, iterator: Any, num_batches: int, device: Any) -> Any:
        batches, num_items = super().get_batch_samples(iterator, num_batches, device)
        self._window = None
        if self.plain_reason is None and batches:
            length = common_prefix([batch["input_ids"] for batch in batches], self._vision_start())
            for batch in batches:
                # A label is predicted by the token before it, which must therefore be in the rest.
                labelled = (batch["labels"] != IGNORED).any(dim=0).nonzero()
                length = min(length, int(labelled[0, 0]) - 1) if len(labelled) else length
            if self.is_fsdp_enabled:  # each gathers weights in step with the others: all share, or none
                length = int(self.accelerator.gather(torch.tensor([length], device=device)).min())
            if length > 0:
                self._window = Window(batches[0]["input_ids"][:1, :length].to(device))
        return batches, num_items

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        window = self._window
        if window is None or not self.model.training:
            return self._loss(model, inputs, return_outputs, num_items_in_batch)
        last = self.accelerator.sync_gradients
        if window.computed is None:
            with self.accelerator.autocast():
                window.computed, window.logits = compute_prefix(self.model, window.prefix)
            if not last:
                window.leaves = [
                    (keys.detach().requires_grad_(), values.detach().requires_grad_())
                    for keys, values in window.computed
                ]
        attended = window.computed if last else window.leaves
        assert attended is not None
        inputs = self._without_prefix(inputs, reading_cache(attended))
        loss = self._loss(model, inputs, False, num_items_in_batch)
        if last:
            if window.leaves is not None:
                carried = torch.stack(
                    [
                        (computed * leaf.grad).sum()
                        for pair, leaf_pair in zip(window.computed, window.leaves, strict=True)
                        for computed, leaf in zip(pair, leaf_pair, strict=True)
                        if leaf.grad is not None
                    ]
                ).sum()
                loss = loss + (carried - carried.detach())
            if self.is_fsdp_enabled:
                assert window.logits is not None
                loss = loss + 0.0 * window.logits.sum()
            self._window = None  # frees the graph with the backward pass
        return loss

    def _loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool, num_items_in_batch: Any) -> Any:
        """TRL's loss, with logits only from the first label on: where TRL has no kernel it would compute them all.

        Soft labels add their terms (``PairCollator.softened``), each a token's share of the window as the others are.
        """
        inputs = dict(inputs)
        softened = inputs.pop("softened", None)
        labelled = (inputs["labels"] != IGNORED).any(dim=0).nonzero()
        start = max(0, int(labelled[0, 0]) - 1) if len(labelled) else 0

        hidden_BLD: list[torch.Tensor] = []

        def cut(module: Any, args: Any, outputs: Any) -> Any:
            outputs.last_hidden_state = outputs.last_hidden_state[:, start:]
            hidden_BLD.append(outputs.last_hidden_state)
            return outputs

        if return_outputs or not (start or softened):
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        base = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        hook = base.base_model.register_forward_hook(cut)
        try:
            inputs = {**inputs, "labels": inputs["labels"][:, start:]}
            loss = super().compute_loss(model, inputs, False, num_items_in_batch)
        finally:
            hook.remove()
        if softened:
            before = softened["column"] - 1 - start  # a token is predicted by the one before it
            with self.accelerator.autocast():
                logits_MV = base.get_output_embeddings()(hidden_BLD[0][softened["row"], before])
            terms = logits_MV.float().gather(1, softened["token"][:, None])[:, 0] * softened["weight"]
            if num_items_in_batch is None:
                loss = loss + terms.sum() / (inputs["labels"] != IGNORED).sum()
            else:  # of all processes, over which DDP takes the mean of gradients
                loss = loss + terms.sum() * self.accelerator.num_processes / num_items_in_batch
        return loss

    def _without_prefix(self, inputs: dict[str, Any], cache: Cache) -> dict[str, Any]:
        """The batch without its prefix. The attention mask stays whole; positions are those of the whole row."""
        assert self._window is not None
        start = self._window.length
        positions, _ = self.model.get_base_model().model.get_rope_index(
            inputs["input_ids"],
            mm_token_type_ids=inputs["mm_token_type_ids"],
            image_grid_thw=inputs.get("image_grid_thw"),  # a micro-batch without images has none
            attention_mask=inputs["attention_mask"],
        )
        rest = {name: inputs[name][:, start:] for name in ("input_ids", "labels", "mm_token_type_ids")}
        if softened := inputs.get("softened"):
            rest["softened"] = {**softened, "column": softened["column"] - start}
        return {**inputs, **rest, "position_ids": positions[..., start:], "cache": cache}

    def _vision_start(self) -> int:
        return self.model.get_base_model().config.vision_start_token_id


def plain_reason(trainer: Any) -> str | None:
    """Why this run cannot share its prefix, or None when it can. Each case is one that no test has proved exact."""
    args, model = trainer.args, trainer.model
    config = getattr(model, "active_peft_config", None)
    if model.config.model_type != "qwen3_vl":
        return f"{model.config.model_type} is not Qwen3-VL"
    if config is None:
        return "the model has no adapter"
    if config.lora_dropout > 0 or model.config.get_text_config().attention_dropout > 0:
        return "dropout would differ from row to row"
    if args.neftune_noise_alpha:
        return "NEFTune's noise would differ from row to row"
    if not trainer.model_accepts_loss_kwargs:
        return "the loss is divided by the accumulation steps, the carried gradient with it (accepts_loss_kwargs)"
    kind = trainer.accelerator.distributed_type
    sharded = kind == DistributedType.FSDP and trainer.accelerator.is_fsdp2
    if not sharded and kind not in (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU):
        return f"{kind.value} shards the weights"
    if sharded and getattr(model, "is_quantized", False):
        return "the weights are both in four bits and sharded"
    if args.fp16 or trainer.accelerator.mixed_precision == "fp16":
        return "fp16 loss scaling would scale the carried gradient twice"
    if args.gradient_checkpointing and (args.gradient_checkpointing_kwargs or {}).get("use_reentrant"):
        return "reentrant checkpointing loses the prefix's gradient"
    if args.n_gpu > 1:
        return "one process with several GPUs copies the model at every step; use accelerate launch"
    if getattr(model, "is_quantized", False) and not getattr(model, "is_loaded_in_4bit", False):
        return "the model is quantised, and not in four bits by bitsandbytes"  # in 8 bits a row's scale is its batch's
    if args.torch_compile:
        return "torch.compile"
    if args.use_liger_kernel:
        return "Liger's kernels"
    attention = model.config.text_config._attn_implementation
    if attention not in ("sdpa", "eager"):
        return f"attention by {attention}"
    return None
