"""Seeded drawings of faces: people who do not exist, each in as many views as wanted.

A ``Person`` holds what stays the same between two pictures of somebody, a ``View`` what changes: light, pose,
expression, hair that falls differently, glasses, background, the camera's noise. Whether two drawings show the same
person is therefore known by construction. PIL and numpy only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

SIZE = 64  # pixels, as the smallest images of the public collection
_SUPERSAMPLE = 3  # drawn this much larger and scaled down, which smooths edges

Colour = tuple[float, ...]
Point = tuple[float, float]

_SKINS = ((255, 224, 196), (241, 194, 155), (224, 172, 125), (186, 130, 88), (141, 90, 58), (92, 58, 40))
_HAIRS = ((28, 24, 24), (84, 50, 30), (150, 92, 40), (222, 184, 100), (176, 62, 28), (168, 168, 172))
_EYES = ((70, 45, 25), (50, 110, 60), (60, 110, 180), (110, 110, 115))
STYLES = ("bald", "short", "parted", "bob", "long", "curly", "mohawk")


def _measure(low: float, high: float) -> Any:
    """A field that is drawn evenly from a range."""
    return field(metadata={"range": (low, high)})


def _drawn(kind: type, rng: np.random.Generator) -> dict[str, Any]:
    """All measures of a class in their order."""
    return {one.name: rng.uniform(*one.metadata["range"]) for one in fields(kind) if one.metadata}


@dataclass(frozen=True)
class Person:
    """What makes somebody: lengths in units of the picture's side, colours 0 to 255, angles in radians."""

    skin: Colour
    hair: Colour
    iris: Colour
    style: str
    beard: bool
    width: float = _measure(0.215, 0.30)  # half the width of the head
    height: float = _measure(0.29, 0.36)  # half its height
    jaw: float = _measure(1.6, 3.5)  # exponent of the lower half's outline: 1.6 is pointed, 3.5 is square
    eye_gap: float = _measure(0.085, 0.135)  # from the middle of the face to an eye
    eye_size: float = _measure(0.028, 0.052)
    eye_height: float = _measure(-0.08, 0.0)
    brow_thickness: float = _measure(0.012, 0.045)
    brow_tilt: float = _measure(-0.45, 0.45)
    nose_length: float = _measure(0.06, 0.15)
    nose_width: float = _measure(0.025, 0.075)
    mouth_width: float = _measure(0.06, 0.14)
    lip: float = _measure(0.012, 0.04)
    mouth_height: float = _measure(0.16, 0.21)

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Person:
        """Somebody new."""

        def colour(palette: tuple[tuple[int, int, int], ...]) -> Colour:
            base = np.asarray(palette[rng.integers(len(palette))]) * rng.uniform(0.93, 1.07, 3)
            return tuple(base.clip(0, 255).tolist())

        skin, hair = colour(_SKINS), colour(_HAIRS)
        while max(abs(a - b) for a, b in zip(skin, hair, strict=True)) < 50:  # else nobody sees where hair begins
            hair = colour(_HAIRS)
        iris, style, beard = colour(_EYES), STYLES[rng.integers(len(STYLES))], bool(rng.random() < 0.3)
        return cls(skin, hair, iris, style, beard, **_drawn(cls, rng))


@dataclass(frozen=True)
class View:
    """One picture's circumstances: nothing of it tells who it is."""

    background: Colour
    seed: int
    right: float = _measure(-0.05, 0.05)
    down: float = _measure(-0.04, 0.04)
    turn: float = _measure(-0.16, 0.16)  # of the head in the picture's plane, radians
    yaw: float = _measure(-0.04, 0.04)  # sideways shift of eyes, nose and mouth, as when the head turns
    scale: float = _measure(0.92, 1.08)
    smile: float = _measure(-1, 1)
    mouth_open: float = _measure(-1, 1)  # closed below 0
    eyes_open: float = _measure(0.5, 1)
    glasses: float = _measure(0, 1)  # worn below 0.2
    hair_length: float = _measure(0.85, 1.15)
    gain: float = _measure(0.8, 1.15)
    light_right: float = _measure(-0.25, 0.25)  # brightness gradient
    light_down: float = _measure(-0.15, 0.15)
    noise: float = _measure(2, 8)  # standard deviation, 0 to 255

    @classmethod
    def draw(cls, rng: np.random.Generator) -> View:
        """New circumstances."""
        return cls(tuple(rng.uniform(60, 230, 3).tolist()), **_drawn(cls, rng), seed=int(rng.integers(2**31)))


def person(seed: int, group: int, number: int) -> Person:
    """Person ``number`` of a group of people; no two groups share anybody."""
    return Person.draw(np.random.default_rng([seed, 1, group, number]))


def views(who: Person, seed: int, group: int, number: int, purpose: int, count: int) -> list[Image.Image]:
    """``count`` pictures of a person; no two purposes (training, references, ...) share a view."""
    rngs = (np.random.default_rng([seed, 2, group, number, purpose, view]) for view in range(count))
    return [render(who, View.draw(rng)) for rng in rngs]


def render(who: Person, view: View) -> Image.Image:
    """An RGB drawing of ``SIZE`` x ``SIZE`` pixels."""
    side = SIZE * _SUPERSAMPLE
    image = Image.new("RGB", (side, side), _rgb(view.background))
    _Head(ImageDraw.Draw(image), side, who, view).draw()
    pixels = np.asarray(image.resize((SIZE, SIZE), Image.Resampling.LANCZOS), dtype=np.float64)
    across = np.linspace(-1, 1, SIZE)
    light = view.gain * (1 + view.light_right * across[None, :] + view.light_down * across[:, None])
    pixels = pixels * light[..., None] + np.random.default_rng(view.seed).normal(0, view.noise, pixels.shape)
    return Image.fromarray(pixels.clip(0, 255).round().astype(np.uint8))


class _Head:
    """Draws in coordinates of the head: the origin is the middle of the face, y points down, a side is 1."""

    def __init__(self, canvas: ImageDraw.ImageDraw, side: int, who: Person, view: View):
        self.canvas, self.side, self.who, self.view = canvas, side, who, view

    def draw(self) -> None:
        self._hair_behind()
        self._neck()
        self._face()
        self._hair_in_front()
        for sign in (-1, 1):
            self._eye(sign)
        self._nose()
        self._mouth()
        if self.view.glasses < 0.2:
            self._glasses()

    # --- shapes in head coordinates

    def _place(self, points: Iterable[Point]) -> list[Point]:
        cos, sin = math.cos(self.view.turn), math.sin(self.view.turn)
        x0, y0 = 0.5 + self.view.right, 0.54 + self.view.down
        scale = self.view.scale
        return [
            ((x0 + scale * (x * cos - y * sin)) * self.side, (y0 + scale * (x * sin + y * cos)) * self.side)
            for x, y in points
        ]

    def _shape(self, points: Iterable[Point], colour: Colour) -> None:
        self.canvas.polygon(self._place(points), fill=_rgb(colour))

    def _line(self, points: Iterable[Point], colour: Colour, width: float) -> None:
        self.canvas.line(self._place(points), fill=_rgb(colour), width=max(1, round(width * self.side)), joint="curve")

    def _oval(self, x: float, y: float, rx: float, ry: float, colour: Colour) -> None:
        self._shape(((x + rx * math.cos(a), y + ry * math.sin(a)) for a in _angles()), colour)

    def _outline(self, grow: float = 1.0) -> list[Point]:
        """The head: an ellipse above, a superellipse below, squarer with a larger ``jaw``."""
        points = []
        for angle in _angles():
            cos, sin = math.cos(angle), math.sin(angle)
            power = 2 / self.who.jaw if sin > 0 else 1.0
            x = math.copysign(abs(cos) ** power, cos)
            y = math.copysign(abs(sin) ** (power if sin > 0 else 1.0), sin)
            points.append((x * self.who.width * grow, y * self.who.height * grow))
        return points

    # --- parts

    def _hair_behind(self) -> None:
        who, length = self.who, self.view.hair_length
        wide = who.width * 1.22
        if who.style == "bob":
            self._shape(_box(-wide, -0.25, wide, 0.14 * length), who.hair)
        elif who.style == "long":
            self._shape(_box(-wide, -0.25, wide, 0.40 * length), who.hair)
        elif who.style == "curly":
            for angle in np.linspace(-math.pi - 0.4, 0.4, 11):
                x, y = wide * math.cos(angle), -0.05 + who.height * math.sin(angle)
                self._oval(x, y, 0.085 * length, 0.085 * length, who.hair)
        elif who.style == "mohawk":
            self._shape(_box(-0.06, -who.height - 0.09 * length, 0.06, 0), who.hair)

    def _neck(self) -> None:
        self._shape(_box(-0.11, 0.1, 0.11, 0.6), _shade(self.who.skin, 0.85))

    def _face(self) -> None:
        who = self.who
        for sign in (-1, 1):
            self._oval(sign * who.width, 0.0, 0.035, 0.06, _shade(who.skin, 0.9))
        self._shape(self._outline(), who.skin)
        if who.beard:
            self._shape([(x, y) for x, y in self._outline() if y > 0.05], _mix(who.hair, who.skin, 0.75))
            self._oval(self.view.yaw, who.mouth_height, who.mouth_width * 1.15, 0.055, who.skin)

    def _hair_in_front(self) -> None:
        who = self.who
        cap = [(x * 1.05, y * 1.06) for x, y in self._outline()]
        line = {"short": -0.17, "bob": -0.13, "long": -0.19, "curly": -0.16}.get(who.style)
        if line is not None:
            self._shape([(x, y) for x, y in cap if y < line * self.view.hair_length], who.hair)
        elif who.style == "parted":
            side = 0.03 * self.view.hair_length  # down to the ear on one side, off the forehead on the other
            over = [(x, y) for x, y in cap if y < (side if x < 0 else -0.19)]
            over += [(who.width * 0.3, -0.2), (-who.width * 0.72, -0.12), (-who.width * 0.8, side)]
            self._shape(over, who.hair)
        elif who.style == "mohawk":
            self._shape(_box(-0.06, -who.height - 0.05, 0.06, -who.height + 0.1), who.hair)

    def _eye(self, sign: int) -> None:
        who, view = self.who, self.view
        x, y, size = sign * who.eye_gap + view.yaw, who.eye_height, who.eye_size
        self._oval(x, y, size * 1.35, size * view.eyes_open, (250, 250, 250))
        iris = size * 0.75
        self._oval(x + view.yaw * 0.2, y, iris, min(iris, size * view.eyes_open), who.iris)
        self._oval(x + view.yaw * 0.2, y, iris * 0.45, iris * 0.45, (10, 10, 10))
        half, lift = 0.055, math.tan(who.brow_tilt) * 0.055 * sign
        brow = y - size - 0.035
        self._line([(x - half, brow - lift), (x + half, brow + lift)], _shade(who.hair, 0.8), who.brow_thickness)

    def _nose(self) -> None:
        who, yaw = self.who, self.view.yaw * 1.4
        top, tip = who.eye_height + 0.03, who.eye_height + 0.03 + who.nose_length
        triangle = [(yaw * 0.7, top), (yaw - who.nose_width, tip), (yaw + who.nose_width, tip)]
        self._shape(triangle, _shade(who.skin, 0.78))

    def _mouth(self) -> None:
        who, view = self.who, self.view
        mouth_open, xs = max(0.0, view.mouth_open), np.linspace(-1, 1, 9)
        curve = [(view.yaw + who.mouth_width * x, who.mouth_height + 0.03 * view.smile * (1 - 2 * x * x)) for x in xs]
        thick = who.lip * (1 + 0.9 * mouth_open)
        upper = [(x, y - thick * (1 - a * a)) for (x, y), a in zip(curve, xs, strict=True)]
        lower = [(x, y + thick * (1 - a * a)) for (x, y), a in zip(curve, xs, strict=True)]
        self._shape([*upper, *reversed(lower)], (178, 64, 70))
        if mouth_open > 0.2:
            middle = who.mouth_height + 0.02 * view.smile
            self._oval(view.yaw, middle, who.mouth_width * 0.55, thick * 0.45, (60, 15, 20))

    def _glasses(self) -> None:
        y, yaw, radius = self.who.eye_height, self.view.yaw, 0.07
        for x in (yaw - self.who.eye_gap, yaw + self.who.eye_gap):
            ring = [(x + radius * math.cos(a), y + radius * math.sin(a)) for a in _angles()]
            self._line(ring, (30, 30, 35), 0.013)
        self._line([(yaw - 0.03, y), (yaw + 0.03, y)], (30, 30, 35), 0.013)


def _angles() -> list[float]:
    return np.linspace(-math.pi, math.pi, 49).tolist()


def _box(x0: float, y0: float, x1: float, y1: float) -> list[Point]:
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


def _shade(colour: Colour, factor: float) -> Colour:
    return tuple(part * factor for part in colour)


def _mix(one: Colour, other: Colour, share: float) -> Colour:
    return tuple(share * a + (1 - share) * b for a, b in zip(one, other, strict=True))


def _rgb(colour: Colour) -> tuple[int, ...]:
    return tuple(round(min(max(part, 0), 255)) for part in colour)
