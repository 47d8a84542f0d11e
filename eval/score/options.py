"""Options of ``cprt score``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cprt.config import option
from cprt.models.checkpoint import DTYPES
from cprt.prompts import PROMPTS, TARGETS

MODEL = "Qwen/Qwen3-VL-8B-Instruct"
MAX_PIXELS = 512 * 512  # as the recipes train with
# Which score photos are flagged and ordered by, in words.
FLAG_BY = {
    "severe": "the more severe of the score that the model states and that of the attributes it names",
    "stated": "the score that the model states",
    "composed": "the score of the attributes that the model names",
    "expected": "the mean severity of all lists of attributes that the model finds probable",
}


@dataclass
class ScoreArguments:
    paths: list[str] = option("photos, and folders of photos", factory=list, positional=True, metavar="PATH")
    out: str | None = option("NAME.jsonl or NAME.html to write; null: a table only", None)
    model: str = option("checkpoint: a folder or a Hub name; or the endpoint's name", MODEL)
    adapter: str | None = option(
        "folder of a LoRA adapter to put on the model; with base_url, the one that is served as model", None
    )
    model_revision: str | None = option("commit, tag or branch of a Hub model", None)
    base_url: str | None = option("ask this OpenAI-compatible endpoint instead, such as http://127.0.0.1:8000/v1", None)
    api_key_env: str | None = option("environment variable that holds its key", None)
    allow_remote: bool = option("photos may go to an endpoint on another machine", False)
    prompt: str | None = option(
        f"what to ask: {', '.join(PROMPTS)}, or a YAML file; null: as the adapter was trained, else taxonomy", None
    )
    target: str | None = option(
        "what to answer; null: as the adapter was trained, else attributes", None, choices=list(TARGETS)
    )
    structured: bool = option("hold every answer to the form that is asked for, so that each can be read", False)
    flag_above: float | None = option("mark photos with this score or more", None, above=0, most=1)
    flag_by: str | None = option(
        "score to mark by: stated by the model, composed of the attributes it names, the more severe of the two, or "
        "expected over probable lists; null: expected where answers are structured lists of a local model, else severe",
        None,
        choices=list(FLAG_BY),
    )
    until_level: int | None = option(
        "advise what to hide until this level is reached; null: until it is milder", None, least=2, most=4
    )
    until_score: float | None = option("advise until the score is below this", None, above=0, most=1)
    threshold_from: str | None = option(
        "predictions.jsonl on the hold-out: choose flag_above from it", None, made_by="cprt eval"
    )
    threshold_labels: str | None = option("labels.jsonl with the hold-out's truth", None, made_by="cprt pairs")
    recall: float = option("share of the hold-out's level-1 photos to be flagged", 0.9, above=0, most=1)
    population: list[float] = option(
        "shares of levels 1 to 4 among the photos to come, to re-weight precision; none: as labelled", factory=list
    )
    abstain: float | None = option(
        "share of photos to leave to a person, those of which the model is least certain; learnt with threshold_from",
        None,
        above=0,
        most=1,
    )
    thumbnails: bool = option("small pictures in the HTML page", False)
    batch_size: int = option("photos a forward pass; larger is faster and needs memory", 8, least=1)
    concurrency: int = option("requests in flight at an endpoint", 16, least=1)
    max_new_tokens: int = option("longest free answer in tokens; a longer one is cut off and unparsed", 256, least=1)
    max_pixels: int | None = option(
        f"shrink photos to so many pixels; null: as the adapter was trained, else {MAX_PIXELS}", None, least=1
    )
    dtype: str = option("precision of the weights", "auto", choices=list(DTYPES))
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)

    def __post_init__(self) -> None:
        if not self.paths and self.threshold_from is None:
            raise ValueError("name photos, or folders of photos (see --help)")
        if self.out is not None and Path(self.out).suffix not in (".jsonl", ".html"):
            raise ValueError(f"out: {self.out!r} is neither NAME.jsonl nor NAME.html")
        if (self.out or "").endswith(".answers.jsonl"):
            raise ValueError(f"out: {self.out!r} is what kept answers are called; choose another name")
        if self.thumbnails and not (self.out or "").endswith(".html"):
            raise ValueError("thumbnails need --out NAME.html")
        if (self.threshold_from is None) != (self.threshold_labels is None):
            raise ValueError("threshold_from and threshold_labels need each other")
        for name in ("population", "abstain"):
            if getattr(self, name) and self.threshold_from is None:
                raise ValueError(f"{name} goes with threshold_from")
        if self.abstain and self.flag_by not in (None, "expected"):
            raise ValueError("abstain goes with flag_by expected: it says how certain the mean over lists is")
        if self.threshold_from and self.flag_above is not None:
            raise ValueError("flag_above is given, and threshold_from would choose another")
        shares, least = self.population, 1e-6 * sum(self.population)
        if shares and not (
            len(shares) == 4 and shares[0] and all(not share or least <= share <= 1e12 for share in shares)
        ):
            raise ValueError(
                "population: needs four shares, of levels 1 to 4, the first above 0, and each 0 or a millionth of all "
                "of them or more"
            )
