"""``cprt prompts``: every prompt that is used, exactly as it is sent. Nothing is asked.

The photo stands where ``<photo>`` does. A local model's chat template puts its own tokens around the message, and
families whose photos must come first get them first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cprt.annotation import stage1, stage2
from cprt.config import option, parse, run
from cprt.errors import check_name
from cprt.prompts import PROMPTS, Messages, build, digest
from cprt.taxonomy import Taxonomy
from eval.model_inversion.judge.prompts import LAYOUTS, OURS, SUBJECTS


@dataclass
class PromptsArguments:
    only: list[str] = option("names of the prompts to print, as this command prints them; none: all", factory=list)
    prompt: list[str] = option("YAML files with prompts of your own, to see how they are sent", factory=list)
    taxonomy: str | None = option("YAML that extends the published taxonomy", None)


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt prompts``."""
    (args,) = parse(PromptsArguments, argv, prog="cprt prompts", description=__doc__)
    found = dict(prompts(Taxonomy.load(args.taxonomy), args.prompt))
    for name in args.only:
        check_name("only", "prompt", name, found)
    for name, messages in found.items():
        if not args.only or name in args.only:
            print(f"==== {name} (sha256 {digest(messages)[:12]})")
            print(as_text(messages), end="")


def as_text(messages: Messages) -> str:
    """What is sent, each part on lines of its own."""
    parts = [part for message in messages for part in message["content"]]
    return "".join(f"{part['text'] if part['type'] == 'text' else '<photo>'}\n" for part in parts)


def prompts(taxonomy: Taxonomy, own: Sequence[str] = ()) -> Iterator[tuple[str, Messages]]:
    """Name -> messages of every prompt: severity (paper 4.3, Figs 12 to 14), the counterfactual (5.4.1), annotation
    (C.1, Figs 15 and 16) and model inversion.
    """
    for name in PROMPTS:
        yield name, build(name, "score", taxonomy).messages()
    yield "taxonomy-attributes", build("taxonomy", "attributes", taxonomy).messages()
    for name in PROMPTS:
        yield f"{name}-faces-anonymised", build(name, "score", taxonomy, faces_anonymised=True).messages()
    for file in own:
        prompt = build(file, "score", taxonomy)
        yield prompt.name, prompt.messages()
    yield "annotation-stage1", stage1(taxonomy)
    yield "annotation-stage2", stage2("<the answer to stage 1>", taxonomy)
    for kind, subject in SUBJECTS.items():
        for layout in LAYOUTS:
            yield f"model-inversion-{kind}-{layout}", OURS.messages(subject, False, layout, n=4, a_first=True)


if __name__ == "__main__":
    run(main, "cprt prompts")
