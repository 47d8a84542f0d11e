"""Drawn faces: who somebody is stays, circumstances change, and the seed decides both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eval.model_inversion.demo.faces import SIZE, STYLES, Person, View, person, render, views

PLAIN = View(
    right=0,
    down=0,
    turn=0,
    yaw=0,
    scale=1,
    smile=0,
    mouth_open=0,
    eyes_open=1,
    glasses=1,
    hair_length=1,
    background=(10, 200, 30),
    gain=1,
    light_right=0,
    light_down=0,
    noise=0,
    seed=0,
)


def test_the_seed_decides_who_and_how():
    assert person(0, 1, 2) == person(0, 1, 2)
    assert len({person(seed, group, number) for seed in (0, 1) for group in (0, 1) for number in range(20)}) == 80
    one, again = (views(person(0, 0, 0), 0, 0, 0, 0, 3) for _ in range(2))
    assert [image.tobytes() for image in one] == [image.tobytes() for image in again]
    other_purpose = views(person(0, 0, 0), 0, 0, 0, 1, 3)
    assert not {image.tobytes() for image in one} & {image.tobytes() for image in other_purpose}
    more = views(person(0, 0, 0), 0, 0, 0, 0, 5)  # no view depends on how many there are
    assert [image.tobytes() for image in more[:3]] == [image.tobytes() for image in one]


def test_a_plain_view_shows_the_colours_of_the_person():
    for number in range(10):
        who = replace(person(3, 0, number), style="short", beard=False)
        pixels = np.asarray(render(who, PLAIN)).astype(float)
        assert pixels.shape == (SIZE, SIZE, 3)
        assert pixels[0, 0] == pytest.approx(PLAIN.background, abs=1)
        cheek = pixels[round((0.54 + 0.08) * SIZE), round((0.5 + 0.15) * SIZE)]
        top = pixels[round((0.54 - who.height * 0.9) * SIZE), SIZE // 2]
        assert cheek == pytest.approx(who.skin, abs=2)
        assert top == pytest.approx(who.hair, abs=2)


@pytest.mark.parametrize("style", STYLES)
def test_every_style_is_drawn_and_none_like_another(style: str):
    who = person(0, 0, 5)
    mine = np.asarray(render(replace(who, style=style), PLAIN)).astype(int)
    for other in set(STYLES) - {style}:
        different = np.abs(mine - np.asarray(render(replace(who, style=other), PLAIN))).max(axis=2) > 20
        assert different.mean() > 0.02, other


def test_views_of_one_person_differ_less_than_people():
    """In the middle of the face, in the mean over views: what a judge can go by."""
    means = [
        np.mean([np.asarray(view)[12:56, 16:48] for view in views(person(0, 0, n), 0, 0, n, purpose, 12)], axis=0)
        for n in range(8)
        for purpose in (0, 1)
    ]
    distances = np.asarray([[np.abs(a - b).mean() for b in means] for a in means])
    nearest = (distances + np.eye(16) * 1e9).argmin(axis=1)
    assert (nearest // 2 == np.arange(16) // 2).all()


def test_persons_and_views_cover_their_ranges():
    rng = np.random.default_rng(0)
    people = [Person.draw(rng) for _ in range(200)]
    assert {who.style for who in people} == set(STYLES)
    assert 0.2 < np.mean([who.beard for who in people]) < 0.4
    assert 0.1 < np.mean([View.draw(rng).glasses < 0.2 for _ in range(200)]) < 0.3
