"""Messages and photos -> what a local model is given, made in another thread while the model works on the batch before.

Pillow, tokenizers and torch let go of the interpreter, so that on a card this time is hidden.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from cprt.errors import InputError
from cprt.models.checkpoint import AS_TENSORS, first_line, special_token
from cprt.prompts import Messages, arrange

if TYPE_CHECKING:
    from PIL.Image import Image

T = TypeVar("T")
U = TypeVar("U")

Row = tuple[Messages, "Sequence[Image]"]  # a message's image parts stand where its images go, in order


def read_ahead(work: Callable[[T], U], items: Iterable[T]) -> Generator[U]:
    """What ``work`` makes of each item, in order; the next one is worked on while the caller uses this one.

    No more than these two are in memory. What ``work`` raises is raised in its place.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="ahead") as thread:
        this: Future[U] | None = None
        for item in items:
            following = thread.submit(work, item)
            if this is not None:
                yield this.result()
            this = following
        if this is not None:
            yield this.result()


class Inputs:
    """Rows as tensors on the CPU, padded on the left; for any thread, with a processor of its own, which is for one.

    Qwen's photos are bytes, to be completed on the model's device (``cprt.images.patches``).
    """

    def __init__(self, processor: Any, model_type: str):
        from cprt.images.patches import in_bytes

        self._processor, self._model_type = in_bytes(copy.deepcopy(processor)), model_type
        self._harmless: set[str] = set()  # texts without a special token
        self._lock = Lock()

    def make(self, rows: Sequence[Row]) -> Any:
        """Raises InputError where a row is one that the processor does not take."""
        with self._lock:
            return self._make(rows)

    def _make(self, rows: Sequence[Row]) -> Any:
        processor = self._processor
        parts = [part for messages, _ in rows for message in messages for part in message["content"]]
        said = {part["text"] for part in parts if part["type"] == "text"}
        if (token := special_token(processor, said - self._harmless)) is not None:
            raise InputError(f"what is asked holds {token!r}, which the model takes for something else than text")
        self._harmless |= said
        texts = [
            processor.apply_chat_template(arrange(messages, self._model_type), add_generation_prompt=True)
            for messages, _ in rows
        ]
        images = [list(images) for _, images in rows] if any(images for _, images in rows) else None
        try:
            return processor(text=texts, images=images, **AS_TENSORS)
        except (ValueError, ArithmeticError, RuntimeError) as error:  # such as an aspect ratio above its limit
            raise InputError(f"the model's processor does not take it ({first_line(error)})") from error
