"""What a model in training says about photos that it does not train on: the figures that a loss does not show."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.utils import gather_object
from tqdm import tqdm

from cprt.answers import parse as parse_answer
from cprt.answers.structure import structure
from cprt.errors import InputError
from cprt.images import load_image
from cprt.metrics.bootstrap import Floats, mean_interval
from cprt.metrics.severity import bias, level_accuracy, mae, pearson, spearman
from cprt.models.decoding.scores import summarise
from cprt.models.inputs import Row, read_ahead
from cprt.models.local import LocalModel
from cprt.records import Pair, read_pairs
from cprt.scoring import levels_of
from cprt.taxonomy import Taxonomy

# Figures by which a checkpoint can be chosen, and whether more of it is better. Rank correlation is not among them: on
# so few photos it picks the worse of two judges a third of the time, mean absolute error a tenth.
GREATER_IS_BETTER = {"mae": False, "expected_mae": False}
_SCORE = re.compile(r'"(\w+)": [01]\.[0-9]{3}\}$')  # how an answer ends
_ENOUGH = 8  # scores from which on a constant is no accident


@dataclass(frozen=True)
class HoldOut:
    """A fixed sample of the hold-out. Its photos stay where they are: only scores leave this module.

    Attributes:
        pairs: with level and score, which are the truth here.
        batch_size: photos that are asked at once.
        max_new_tokens: longer answers count as unparsed.
        expected: also take the expected score of each answer, which costs a pass over the tree of all scores.
        structured: answers are held to their form, so that each can be read.
        samples: the first answers of the last measurement, in the model's words.
    """

    pairs: Sequence[Pair]
    root: Path
    batch_size: int
    max_new_tokens: int
    taxonomy: Taxonomy
    expected: bool = False
    structured: bool = False
    samples: list[str] = field(default_factory=list)

    @staticmethod
    def read(data: Any, args: Any, root: Path) -> HoldOut:
        """``holdout_size`` rows of holdout.jsonl, the same whatever the run's seed. Raises InputError.

        Args:
            data, args: DataArguments and TRL's SFTConfig.
        """
        file = Path(data.pairs) / "holdout.jsonl"
        if file.is_file() and not file.stat().st_size:
            raise InputError.at(
                file, "is empty: make pairs anew with a smaller --size, or train with --eval_strategy no"
            )
        pairs = read_pairs(file)
        for pair in pairs:
            if pair.score is None or pair.level is None:
                raise InputError.at(file, f"is missing for {pair.id!r}, so nothing can be measured", field="score")
        if len(pairs) > data.holdout_size:
            pairs = random.Random(0).sample(pairs, data.holdout_size)
        taxonomy = Taxonomy.load(data.taxonomy)
        expected = args.metric_for_best_model == "expected_mae"
        rows = args.per_device_eval_batch_size
        return HoldOut(pairs, root, rows, data.max_new_tokens, taxonomy, expected, data.structured)

    def measure(self, model: Any, processor: Any, process: int = 0, processes: int = 1) -> dict[str, Any]:
        """Figures of greedy answers, the same in every process; each asks its share. What is undefined is None.

        ``coverage`` is the share of answers that hold a score; the others are over those. ``spread`` is the standard
        deviation of the scores, ``distinct`` the number of different ones: a judge that has collapsed has 0 and 1.
        ``willing`` of structured answers is the mean share of their probability that the free model gives them.
        ``mae_interval`` and ``expected_mae_interval`` are 95% bootstrap intervals over photos.
        """
        training = model.training
        model.eval()
        try:
            mine = [(index, self.pairs[index]) for index in range(process, len(self.pairs), processes)]
            found = self._ask(LocalModel.around(model, processor), mine, silent=process > 0)
        finally:
            model.train(training)
        answers = {index: scores for index, *scores in (gather_object(found) if processes > 1 else found)}
        read = [index for index in range(len(self.pairs)) if answers[index][0] is not None]
        truth = np.array([self.pairs[index].score for index in read], dtype=float)
        levels = np.array([self.pairs[index].level for index in read], dtype=int)
        said = np.array([answers[index][0] for index in read], dtype=float)
        known = [index for index in range(len(self.pairs)) if answers[index][1] is not None]
        expected = np.array([abs(answers[index][1] - self.pairs[index].score) for index in known], dtype=float)
        willing = [share for _, _, share in answers.values() if share is not None]
        of_structured = {"willing": float(np.mean(willing)) if willing else None}
        of_expected = {"expected_mae": _mean(expected), "expected_mae_interval": mean_interval(expected)}
        return {
            "n": len(self.pairs),
            "coverage": len(read) / len(self.pairs),
            "pearson": pearson(truth, said),
            "spearman": spearman(truth, said),
            "mae": mae(truth, said),
            "mae_interval": mean_interval(abs(said - truth)),
            "bias": bias(truth, said),
            "level_accuracy": level_accuracy(levels, levels_of(said, self.taxonomy)),
            "spread": float(said.std()) if len(said) else None,
            "distinct": len(set(said.tolist())),
            **(of_expected if self.expected else {}),
            **(of_structured if self.structured else {}),
        }

    def _ask(self, model: LocalModel, rows: Sequence[tuple[int, Pair]], silent: bool) -> list[tuple[Any, ...]]:
        """(index, score read, expected score, willingness) of each row."""
        # An answer is {"KEY": SCORE}, or has its attributes before that.
        answer = self.pairs[0].completion[-1]["content"][0]["text"]
        stated = _SCORE.search(answer)
        score_key = stated[1] if stated else "score"
        alone = f'{{"{score_key}": '
        lead_in = (alone if answer.startswith(alone) else "") if self.expected else None
        target = "score" if answer.startswith(alone) else "attributes"
        guess = structure(target, self.taxonomy, score_key, in_order=False)
        # Without its keys, since nobody asks here how probable each list of them is.
        form = replace(structure(target, self.taxonomy, score_key), keys=()) if self.structured else None
        found: list[tuple[Any, ...]] = []
        self.samples.clear()
        batches = [rows[start : start + self.batch_size] for start in range(0, len(rows), self.batch_size)]

        def prepare(batch: Sequence[tuple[int, Pair]]) -> tuple[list[Row], Any]:
            asked: list[Row] = [
                (pair.prompt, [load_image(self.root / path) for path in pair.images]) for _, pair in batch
            ]
            return asked, model.prepare(asked)

        with tqdm(total=len(rows), desc="asking the hold-out", unit="photo", leave=False, disable=silent) as progress:
            for batch, (asked, prepared) in zip(batches, read_ahead(prepare, batches), strict=True):
                answers = model.generate(asked, self.max_new_tokens, lead_in, None, form, guess, prepared)
                for (index, _), said in zip(batch, answers, strict=True):
                    text = said.text or ""
                    score = parse_answer(text, self.taxonomy, score_key).score if said.complete else None
                    expected = summarise(said.distribution or {}).mean if score is not None else None
                    found.append((index, score, expected, said.willing))
                    self.samples.append(text)
                progress.update(len(batch))
        return found


def _mean(errors: Floats) -> float | None:
    return float(errors.mean()) if len(errors) else None


def check_learnt(figures: Mapping[str, Any], samples: Sequence[str] = ()) -> None:
    """Raise InputError when a finished run gives no score at all, or the same one whatever the photo.

    Args:
        samples: answers of which a few are shown.
    """
    scored = round((figures["n"] or 0) * (figures["coverage"] or 0))
    shown = "; ".join(repr(text if len(text) <= 80 else f"{text[:80]}...") for text in samples[:3])
    if not scored:
        raise InputError(
            "no answer on the hold-out holds a score: the adapter has not learnt the format in so few steps, "
            f"or at this learning rate. It says: {shown}"
        )
    if scored >= _ENOUGH and figures["distinct"] == 1:
        raise InputError(
            f"all {scored} scores on the hold-out are the same: the adapter has not learnt to look. It says: {shown}"
        )
