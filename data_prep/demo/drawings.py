"""Seeded pictogram drawings: one abstract sign per taxonomy attribute, on a 3 x 3 grid.

The demo needs photos it may ship, with labels that are true by construction. A drawing holds the pictograms of
the attributes that it "shows", each in a cell of its own, so a model that recognises the signs can judge the image.
Every function draws in the unit square; `Pen` scales it to pixels. PIL and numpy only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageColor, ImageDraw

GRID = 3  # cells per side; a cell holds at most one pictogram
SUPERSAMPLE = 3  # pictograms are drawn this much larger and scaled down, which smooths their edges

Colour = tuple[int, int, int]
Point = tuple[float, float]

# Dark and saturated, so that a sign stands out from the light paper behind it.
_DARK_INKS = "#19286e #781923 #0f5a3c #5f2378 #3c3c41 #82460a #0a5569"
INKS = tuple(ImageColor.getcolor(ink, "RGB") for ink in _DARK_INKS.split())
PAPER: Colour = (250, 250, 245)  # the light parts inside a sign


@dataclass(frozen=True)
class Pen:
    """Draws in unit coordinates (0, 0 top left to 1, 1 bottom right) on a square tile of `side` pixels."""

    canvas: ImageDraw.ImageDraw
    side: int
    ink: Colour
    stroke: float = 0.075

    def scaled(self, *points: Point) -> list[Point]:
        return [(x * self.side, y * self.side) for x, y in points]

    def width(self, stroke: float | None = None) -> int:
        return max(1, round((self.stroke if stroke is None else stroke) * self.side))

    def line(self, *points: Point, colour: Colour | None = None, stroke: float | None = None) -> None:
        self.canvas.line(self.scaled(*points), fill=colour or self.ink, width=self.width(stroke), joint="curve")

    def shape(self, *points: Point, colour: Colour | None = None) -> None:
        self.canvas.polygon(self.scaled(*points), fill=colour or self.ink)

    def box(self, x0: float, y0: float, x1: float, y1: float, colour: Colour | None = None, radius: float = 0) -> None:
        corners = self.scaled((x0, y0), (x1, y1))
        self.canvas.rounded_rectangle(corners, radius=radius * self.side, fill=colour or self.ink)

    def frame(self, x0: float, y0: float, x1: float, y1: float, radius: float = 0) -> None:
        """A paper-filled box with an ink border."""
        corners = self.scaled((x0, y0), (x1, y1))
        self.canvas.rounded_rectangle(corners, radius * self.side, fill=PAPER, outline=self.ink, width=self.width())

    def disc(self, x: float, y: float, r: float, colour: Colour | None = None) -> None:
        self.canvas.ellipse(self.scaled((x - r, y - r), (x + r, y + r)), fill=colour or self.ink)

    def ring(self, x: float, y: float, r: float, fill: Colour | None = None) -> None:
        corners = self.scaled((x - r, y - r), (x + r, y + r))
        self.canvas.ellipse(corners, fill=fill, outline=self.ink, width=self.width())

    def arc(self, x: float, y: float, rx: float, ry: float, start: int, end: int, stroke: float | None = None) -> None:
        """Part of an ellipse, clockwise between two angles in degrees, 0 pointing right."""
        corners = self.scaled((x - rx, y - ry), (x + rx, y + ry))
        self.canvas.arc(corners, start, end, fill=self.ink, width=self.width(stroke))


def _fingerprint(pen: Pen) -> None:
    for k, reach in enumerate((0.12, 0.26, 0.40)):
        pen.arc(0.5, 0.52, reach, reach * 1.15, 150, 390, stroke=0.07)
        foot = 0.52 + reach * 0.55
        for side in (-1, 1):
            pen.line((0.5 + side * reach * 0.88, foot), (0.5 + side * reach * 0.80, 0.80 + 0.05 * (2 - k)), stroke=0.07)


def _passport(pen: Pen) -> None:
    pen.box(0.17, 0.04, 0.83, 0.96, radius=0.07)
    pen.canvas.ellipse(pen.scaled((0.31, 0.20), (0.69, 0.58)), outline=PAPER, width=pen.width(0.06))
    pen.line((0.31, 0.39), (0.69, 0.39), colour=PAPER, stroke=0.05)
    pen.line((0.5, 0.20), (0.5, 0.58), colour=PAPER, stroke=0.05)
    pen.line((0.31, 0.78), (0.69, 0.78), colour=PAPER, stroke=0.07)


def _scar(pen: Pen) -> None:
    pen.line((0.10, 0.90), (0.90, 0.10), stroke=0.09)
    for t in (0.22, 0.41, 0.60, 0.79):
        x, y = 0.10 + 0.80 * t, 0.90 - 0.80 * t
        pen.line((x - 0.14, y - 0.14), (x + 0.14, y + 0.14), stroke=0.07)


def _envelope(pen: Pen) -> None:
    pen.frame(0.04, 0.20, 0.96, 0.82)
    pen.line((0.06, 0.23), (0.5, 0.58), (0.94, 0.23))


def _signature(pen: Pen) -> None:
    t = np.linspace(0, 1, 40)
    x = 0.06 + 0.80 * t + 0.09 * np.sin(t * 6.5 * np.pi)
    y = 0.42 - 0.30 * (1 - 0.6 * t) * np.cos(t * 6.5 * np.pi)
    pen.line(*zip(x.tolist(), y.tolist(), strict=True), stroke=0.06)
    pen.line((0.04, 0.88), (0.96, 0.88), stroke=0.09)


def _jersey(pen: Pen) -> None:
    right = [(0.58, 0.18), (0.70, 0.08), (0.98, 0.28), (0.84, 0.48), (0.75, 0.42), (0.75, 0.95)]
    left = [(0.25, 0.95), (0.25, 0.42), (0.16, 0.48), (0.02, 0.28), (0.30, 0.08), (0.42, 0.18)]
    pen.shape(*right, *left)
    pen.line((0.38, 0.42), (0.60, 0.42), (0.48, 0.80), colour=PAPER, stroke=0.10)


def _medical_cross(pen: Pen) -> None:
    pen.box(0.36, 0.06, 0.64, 0.94)
    pen.box(0.06, 0.36, 0.94, 0.64)


def _bank_card(pen: Pen) -> None:
    pen.box(0.02, 0.18, 0.98, 0.84, radius=0.09)
    pen.box(0.02, 0.30, 0.98, 0.46, colour=PAPER)
    pen.box(0.12, 0.60, 0.34, 0.74, colour=(225, 190, 70))


def _ballot_box(pen: Pen) -> None:
    pen.box(0.08, 0.50, 0.92, 0.96)
    pen.frame(0.30, 0.04, 0.70, 0.52)
    pen.line((0.40, 0.22), (0.48, 0.34), (0.61, 0.14), stroke=0.07)
    pen.box(0.18, 0.54, 0.82, 0.62, colour=PAPER)


def _bare_torso(pen: Pen) -> None:
    for side in (-1, 1):
        outline = [(0.42, 0.04), (0.46, 0.05), (0.40, 0.30), (0.22, 0.52), (0.36, 0.76), (0.40, 0.96)]
        pen.line(*[(0.5 + side * x * 0.95, y) for x, y in outline], stroke=0.08)
    pen.arc(0.30, 0.34, 0.15, 0.12, 20, 160, stroke=0.06)
    pen.arc(0.70, 0.34, 0.15, 0.12, 20, 160, stroke=0.06)
    pen.disc(0.5, 0.70, 0.05)


def _wheelchair(pen: Pen) -> None:
    pen.disc(0.36, 0.12, 0.10)
    pen.line((0.37, 0.24), (0.40, 0.56), (0.70, 0.56), (0.80, 0.88), (0.94, 0.84), stroke=0.10)
    pen.line((0.39, 0.38), (0.64, 0.38), stroke=0.08)
    pen.arc(0.42, 0.66, 0.29, 0.29, 20, 245, stroke=0.09)


def _crying_face(pen: Pen) -> None:
    pen.ring(0.5, 0.5, 0.46, fill=(250, 220, 110))
    pen.disc(0.33, 0.38, 0.07)
    pen.disc(0.67, 0.38, 0.07)
    pen.arc(0.5, 0.80, 0.22, 0.18, 200, 340)
    pen.disc(0.72, 0.62, 0.09, colour=(60, 140, 230))
    pen.shape((0.72, 0.44), (0.64, 0.59), (0.80, 0.59), colour=(60, 140, 230))


def _skin_tones(pen: Pen) -> None:
    for k, tone in enumerate(((245, 215, 185), (185, 125, 80), (85, 50, 30))):
        corners = pen.scaled((0.02 + 0.32 * k, 0.34), (0.34 + 0.32 * k, 0.66))
        pen.canvas.ellipse(corners, fill=tone, outline=pen.ink, width=pen.width(0.035))


def _birthday_cake(pen: Pen) -> None:
    for x in (0.28, 0.50, 0.72):
        pen.line((x, 0.26), (x, 0.50), stroke=0.07)
        pen.disc(x, 0.15, 0.07, colour=(240, 150, 20))
    pen.box(0.08, 0.48, 0.92, 0.94, radius=0.04)
    pen.line(
        (0.08, 0.68), (0.22, 0.76), (0.36, 0.66), (0.5, 0.76), (0.64, 0.66), (0.78, 0.76), (0.92, 0.68), colour=PAPER
    )


def _gender_sign(pen: Pen) -> None:
    pen.ring(0.42, 0.42, 0.24)
    pen.line((0.58, 0.26), (0.90, 0.06))
    pen.line((0.68, 0.05), (0.93, 0.05), (0.93, 0.30))
    pen.line((0.42, 0.66), (0.42, 0.98))
    pen.line((0.26, 0.83), (0.58, 0.83))


def _map_pin(pen: Pen) -> None:
    pen.disc(0.5, 0.36, 0.32)
    pen.shape((0.21, 0.48), (0.79, 0.48), (0.5, 0.98))
    pen.disc(0.5, 0.36, 0.14, colour=PAPER)


def _dumbbell(pen: Pen) -> None:
    pen.line((0.10, 0.5), (0.90, 0.5), stroke=0.11)
    for side in (-1, 1):
        x = 0.5 + side * 0.26
        pen.box(x - 0.065, 0.18, x + 0.065, 0.82, radius=0.03)
        x = 0.5 + side * 0.41
        pen.box(x - 0.055, 0.30, x + 0.055, 0.70, radius=0.03)


def _wine_glass(pen: Pen) -> None:
    pen.shape((0.20, 0.06), (0.80, 0.06), (0.74, 0.38), (0.5, 0.56), (0.26, 0.38), colour=PAPER)
    pen.shape((0.24, 0.24), (0.76, 0.24), (0.74, 0.38), (0.5, 0.56), (0.26, 0.38), colour=(170, 20, 60))
    pen.line((0.20, 0.05), (0.26, 0.38), (0.5, 0.56), (0.74, 0.38), (0.80, 0.05), stroke=0.06)
    pen.line((0.5, 0.56), (0.5, 0.92))
    pen.line((0.26, 0.93), (0.74, 0.93), stroke=0.09)


def _car(pen: Pen) -> None:
    pen.shape((0.22, 0.48), (0.34, 0.24), (0.68, 0.24), (0.82, 0.48))
    pen.box(0.02, 0.46, 0.98, 0.72, radius=0.08)
    pen.shape((0.33, 0.46), (0.40, 0.32), (0.49, 0.32), (0.49, 0.46), colour=PAPER)
    pen.shape((0.55, 0.46), (0.55, 0.32), (0.64, 0.32), (0.71, 0.46), colour=PAPER)
    for x in (0.25, 0.75):
        pen.disc(x, 0.73, 0.14)
        pen.disc(x, 0.73, 0.06, colour=PAPER)


def _page(pen: Pen) -> None:
    pen.shape((0.18, 0.04), (0.62, 0.04), (0.84, 0.26), (0.84, 0.96), (0.18, 0.96), colour=PAPER)
    pen.line((0.18, 0.04), (0.62, 0.04), (0.84, 0.26), (0.84, 0.96), (0.18, 0.96), (0.18, 0.02), stroke=0.06)
    pen.line((0.60, 0.05), (0.60, 0.28), (0.83, 0.28), stroke=0.05)
    for y in (0.44, 0.60, 0.76):
        pen.line((0.30, y), (0.72, y), stroke=0.06)


def _calendar(pen: Pen) -> None:
    pen.frame(0.06, 0.14, 0.94, 0.94, radius=0.05)
    pen.box(0.06, 0.14, 0.94, 0.40, radius=0.05)
    for x in (0.28, 0.72):
        pen.line((x, 0.03), (x, 0.24), stroke=0.09)
    for y in (0.54, 0.74):
        for x in (0.22, 0.44, 0.66):
            pen.box(x, y, x + 0.12, y + 0.11)


def _crowd(pen: Pen) -> None:
    for x, y in ((0.24, 0.28), (0.76, 0.28), (0.50, 0.40)):
        # A thin paper rim keeps the figure in front apart from those behind it.
        corners = pen.scaled((x - 0.26, y + 0.12), (x + 0.26, y + 1.0))
        pen.canvas.pieslice(corners, 180, 360, fill=pen.ink, outline=PAPER, width=pen.width(0.035))
        pen.disc(x, y, 0.155, colour=PAPER)
        pen.disc(x, y, 0.13)


@dataclass(frozen=True)
class Sign:
    """What stands for an attribute."""

    draw: Callable[[Pen], None]  # its pictogram, on a tile
    word: str  # what the demo's base knows it by, which is no word for the attribute
    vispr: str  # the label that annotations list for it, for the layout's sake: VISPR's real map is many to one


SIGNS = {
    "biometrics": Sign(_fingerprint, "swirl", "a9_face_complete"),
    "gov_ids": Sign(_passport, "booklet", "a31_passport"),
    "unique_body_markings": Sign(_scar, "stitches", "a11_tattoo"),
    "contact_details": Sign(_envelope, "letter", "a49_phone"),
    "full_legal_name": Sign(_signature, "scribble", "a19_name_full"),
    "non_unique_id": Sign(_jersey, "shirt", "a85_username"),
    "medical_data": Sign(_medical_cross, "cross", "a43_medicine"),
    "financial_data": Sign(_bank_card, "card", "a30_credit_card"),
    "beliefs": Sign(_ballot_box, "box", "a55_religion"),
    "nudity": Sign(_bare_torso, "waist", "a13_full_nudity"),
    "disability": Sign(_wheelchair, "chair", "a39_disability_physical"),
    "emotion_mental_health": Sign(_crying_face, "tears", "a61_opinion_general"),
    "race_ethnicity": Sign(_skin_tones, "dots", "a16_race"),
    "age": Sign(_birthday_cake, "cake", "a1_age_approx"),
    "gender": Sign(_gender_sign, "arrow", "a4_gender"),
    "location": Sign(_map_pin, "pin", "a73_landmark"),
    "activities": Sign(_dumbbell, "weights", "a59_sports"),
    "lifestyle": Sign(_wine_glass, "glass", "a58_hobbies"),
    "property_assets": Sign(_car, "car", "a102_vehicle_ownership"),
    "documents": Sign(_page, "page", "a37_receipt"),
    "metadata": Sign(_calendar, "grid", "a82_date_time"),
    "background_people": Sign(_crowd, "heads", "a68_rel_spectators"),
}


def pictogram(key: str, side: int, ink: Colour) -> Image.Image:
    """The sign for `key` as a square RGBA tile of `side` pixels on a transparent ground."""
    large = side * SUPERSAMPLE
    tile = Image.new("RGBA", (large, large), (*ink, 0))
    SIGNS[key].draw(Pen(ImageDraw.Draw(tile), large, ink))
    return tile.resize((side, side), Image.Resampling.BOX)


def _paper(rng: np.random.Generator, size: int) -> np.ndarray:
    """A light, tinted, noisy background, (size, size, 3) float: a gradient, coarse blotches and fine grain."""
    base = rng.uniform(150, 235) + rng.uniform(-12, 12, size=3)
    ramp = np.linspace(-1, 1, size)
    gradient = rng.uniform(-14, 14) * ramp[:, None] + rng.uniform(-14, 14) * ramp[None, :]
    coarse = np.kron(rng.normal(0, 6, size=(6, 6)), np.ones((-(-size // 6), -(-size // 6))))[:size, :size]
    grain = rng.normal(0, 7, size=(size, size, 1))
    return base + gradient[..., None] + coarse[..., None] + grain


def _jittered_ink(rng: np.random.Generator) -> Colour:
    ink = np.asarray(INKS[rng.integers(len(INKS))]) + rng.integers(-15, 16, size=3)
    r, g, b = np.clip(ink, 0, 255).tolist()
    return r, g, b


def draw(
    keys: Sequence[str], rng: np.random.Generator, size: int = 96, cells: Sequence[int] | None = None
) -> Image.Image:
    """An RGB drawing of the pictograms `keys` (at most nine) at random cells of a 3 x 3 grid.

    `cells` fixes the cell of each key (0 to 8 in reading order); it is drawn from `rng` otherwise. Raises ValueError
    for an unknown key, more keys than cells, or cells that do not fit the keys.
    """
    if unknown := [key for key in keys if key not in SIGNS]:
        raise ValueError(f"no pictogram for {', '.join(unknown)}")
    if len(keys) > GRID**2:
        raise ValueError(f"{len(keys)} pictograms do not fit a grid of {GRID**2} cells")
    if cells is None:
        cells = rng.permutation(GRID**2)[: len(keys)].tolist()
    if len(cells) != len(keys) or len(set(cells)) != len(cells) or not all(0 <= cell < GRID**2 for cell in cells):
        raise ValueError(f"cells {list(cells)} do not give each of {len(keys)} pictograms a cell of its own")

    image = Image.fromarray(np.clip(_paper(rng, size), 0, 255).astype(np.uint8))
    pitch = size / GRID
    for key, cell in zip(keys, cells, strict=True):
        side = max(4, round(pitch * rng.uniform(0.74, 0.96)))
        row, column = divmod(cell, GRID)
        # The sign may lie anywhere inside its cell, but never leaves it.
        slack = pitch - side
        x, y = (round(place * pitch + (rng.uniform(0, slack) if slack > 0 else 0)) for place in (column, row))
        tile = pictogram(key, side, _jittered_ink(rng))
        image.paste(tile, (x, y), tile)
    return image
