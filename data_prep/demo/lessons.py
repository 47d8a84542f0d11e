"""What the demo's tiny base learns from: drawings, and questions about them that their making answers.

None of it is the severity task. The things in the drawings go by plain names ("card", "cake"); no question asks for a
severity, a level or an attribute, and no answer names an attribute's key. Only two exercises meet such words at all:
copying, which draws pieces of the whole vocabulary at random, and texts of such random pieces before an image.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image

from data_prep.demo.drawings import GRID, SIGNS, draw

# The things in the drawings go by plain names; the model never learns the attribute keys as words for them.
KEY_OF = {sign.word: key for key, sign in SIGNS.items()}
WORDS = tuple(KEY_OF)

# Figures that depend on all the names in an image, in hundredths: sums, means and extremes.
SPELLING: dict[str, Callable[[list[str]], float]] = {
    "all letters": lambda words: sum(map(len, words)),
    "all vowels": lambda words: sum(letter in "aeiou" for word in words for letter in word),
    "all consonants": lambda words: sum(letter not in "aeiou" for word in words for letter in word),
    "the longest": lambda words: max(map(len, words), default=0),
    "the first initial": lambda words: min((ord(word[0]) - 96 for word in words), default=0),
    "the last ending": lambda words: max((ord(word[-1]) - 96 for word in words), default=0),
    "mean length": lambda words: sum(map(len, words)) / max(1, len(words)),
    "mean initial": lambda words: sum(ord(word[0]) - 96 for word in words) / max(1, len(words)),
    "mean ending": lambda words: sum(ord(word[-1]) - 96 for word in words) / max(1, len(words)),
}
CELLS = [f"{row} {column}" for row in ("top", "middle", "bottom") for column in ("left", "centre", "right")]

# How often each task is set in the two reading lessons. Sorted lists come first and alone: they are what takes
# longest to learn, and numbers or copied text would drown them (each of their tokens costs several times as much).
SORTING = {"alphabet": 75, "grid": 25}
TALKING = {
    "alphabet": 40,
    "spelling": 24,
    "grid": 8,
    "is there": 6,
    "reading": 5,
    "count": 5,
    "copy": 4,
    "at": 4,
    "brightness": 4,
    "where": 2,
    "colour": 1,
}

# Neutral words for the unrelated text before the image.
NOUNS = (
    "river kite lamp garden window engine ladder bottle market blanket forest bridge hammer pocket orange valley "
    "village carpet mirror basket butter candle island kitchen thunder pencil tower wagon meadow pillow copper "
    "harbour"
).split()
ADJECTIVES = (
    "quiet yellow heavy gentle broken early narrow silver distant warm simple rough clever empty modern hidden "
    "steady bright ancient loose"
).split()
VERBS = (
    "carries follows covers finds holds needs turns watches opens leaves keeps paints moves brings shows hides"
).split()


@dataclass(frozen=True)
class Exchange:
    question: str
    answer: str


@dataclass(frozen=True)
class Talk:
    """Exchanges about one drawing, or about none. Only the first message holds the image."""

    task: str
    exchanges: list[Exchange]
    image: int | None = None  # index into the pool
    image_first: bool = True


@dataclass(frozen=True)
class Pool:
    """Drawings with what is true of them. The same pool serves every task: drawing is slower than asking."""

    things: list[dict[int, str]]  # cell -> word
    images: np.ndarray  # (N, size, size, 3) uint8

    @classmethod
    def drawn(cls, count: int, seed: int, size: int = 96) -> Pool:
        words = WORDS
        things, images = [], np.empty((count, size, size, 3), dtype=np.uint8)
        for index in range(count):
            rng = np.random.default_rng([seed, index])
            number = int(rng.integers(0, 8))
            chosen = [words[i] for i in rng.permutation(len(words))[:number]]
            cells = rng.permutation(GRID**2)[:number].tolist()
            file = io.BytesIO()  # photos come as JPEG, and so do the demo's drawings
            draw([KEY_OF[word] for word in chosen], rng, size, cells).save(file, "JPEG", quality=92)
            images[index] = np.asarray(Image.open(file))
            things.append(dict(sorted(zip(cells, chosen, strict=True))))
        return cls(things, images)


def about_image(task: str, pool: Pool, index: int, rng: random.Random) -> Exchange:
    """A question about one drawing that its making answers."""
    things = pool.things[index]
    words = list(things.values())
    some_word = rng.choice(words) if words and rng.random() < 0.6 else rng.choice(WORDS)
    if task == "grid":
        question = rng.choice(["What is in each cell?", "Describe the grid as JSON.", "Write down all nine cells."])
        answer = json.dumps([things.get(cell, "-") for cell in range(GRID**2)])
    elif task in ("reading", "alphabet"):
        if task == "reading":
            question = rng.choice(["List the things in reading order.", "What do you see, row by row? Answer as JSON."])
            listed, counted = words, {}
        else:
            question = rng.choice(["List the things from A to Z.", "Sort what you see by name. Answer as JSON."])
            listed, counted = sorted(words), {"count": len(words)}
        in_object = rng.random() < 0.5
        answer = json.dumps({"things": listed, **counted} if in_object else listed)
        question += " Use an object." if in_object else " Use a list."
    elif task == "at":
        cell = rng.randrange(GRID**2)
        question = f"What is at the {CELLS[cell]}?"
        answer = things.get(cell, "nothing")
    elif task == "where":
        question = f"Where: {some_word}?"
        answer = next((CELLS[cell] for cell, word in things.items() if word == some_word), "nowhere")
    elif task == "is there":
        question, answer = f"Do you see: {some_word}?", "yes" if some_word in words else "no"
    elif task == "count":
        question, answer = "How many things are there?", json.dumps({"count": len(words)})
    elif task == "spelling":
        what, measure = rng.choice(list(SPELLING.items()))
        question, answer = f"Look at the names: {what}?", f'{{"{what.split()[-1]}": {measure(words) / 100:.3f}}}'
    elif task == "brightness":
        question = rng.choice(["How bright is the image, from 0 to 1?", "Rate the brightness. Answer as JSON."])
        answer = f'{{"brightness": {pool.images[index].mean() / 255:.3f}}}'
    else:
        red, green, blue = pool.images[index].mean(axis=(0, 1)) / 255
        question = "Give the mean red, green and blue."
        answer = f'{{"red": {red:.3f}, "green": {green:.3f}, "blue": {blue:.3f}}}'
    return Exchange(question, answer)


def pieces(vocabulary: list[str], rng: random.Random, count: int) -> str:
    """Random pieces of the vocabulary: every row of the tied embeddings has to be learnt, or it caps the logits."""
    return "".join(rng.choices(vocabulary, k=count))


def copying(vocabulary: list[str], rng: random.Random) -> Exchange:
    kind = rng.randrange(4)
    if kind == 0:
        text = pieces(vocabulary, rng, rng.randint(3, 12))
    elif kind == 1:
        text = json.dumps([piece.strip() for piece in rng.choices(vocabulary, k=rng.randint(1, 5))], ensure_ascii=False)
    elif kind == 2:
        entry = {rng.choice(NOUNS): round(rng.random(), 3), rng.choice(ADJECTIVES): rng.randint(1, 99)}
        text = json.dumps(entry)
    else:
        text = " ".join(f"{rng.random():.3f}" for _ in range(rng.randint(1, 4)))
    return Exchange(f"Repeat this: {text}", text)


def draw_talks(tasks: dict[str, int], count: int, pool: Pool, vocabulary: list[str], rng: random.Random) -> list[Talk]:
    """`count` talks whose first exchanges have `tasks` in these proportions; one in ten goes on for another."""
    talks = []
    for _ in range(count):
        task, then = rng.choices(list(tasks), list(tasks.values()), k=2)
        if task == "copy":
            talks.append(Talk(task, [copying(vocabulary, rng)]))
            continue
        index = rng.randrange(len(pool.things))
        exchanges = [about_image(task, pool, index, rng)]
        if then != "copy" and rng.random() < 0.1:
            exchanges.append(about_image(then, pool, index, rng))
        talks.append(Talk(task, exchanges, index, image_first=rng.random() < 0.9))
    return talks


def unrelated_text(rng: random.Random, sentences: int) -> str:
    """Paragraphs and numbered lists about nothing in particular."""

    def noun() -> str:
        return f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"

    lines = []
    for number in range(1, sentences + 1):
        kind = rng.randrange(4)
        if kind == 0:
            lines.append(f"{number}. {rng.choice(NOUNS)}: Is the {noun()} near the {noun()} (e.g., {noun()})?")
        elif kind == 1:
            lines.append(f"The {noun()} {rng.choice(VERBS)} the {noun()}, and the {noun()} {rng.choice(VERBS)} it.")
        elif kind == 2:
            lines.append(f"- {rng.choice(NOUNS)}_{rng.choice(NOUNS)}: {noun()}; {rng.random():.3f}")
        else:
            entry = {rng.choice(NOUNS): rng.choices(NOUNS, k=2), rng.choice(NOUNS): rng.randint(0, 99)}
            lines.append(json.dumps(entry))
    return "\n".join(lines)
