"""How probable a local model finds every list of attributes, and so every attribute, under the form of an answer.

At each decision the model says how probable every later key is, and the end of the list. An option's probability is
that of its tokens, as the tokenizer cuts them, over that of all options there. A list's is the product over its
decisions. There are 2^22 lists, but few that a model believes in: the search takes the most probable beginnings first.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from cprt.models.decoding.lookahead import Reading, TokenTree, look_ahead

ENOUGH = 0.999  # of the probability, in lists that were found
LEAST = 1e-5  # a less probable list, or beginning of one, is left aside
WIDTH = 8  # beginnings looked at in one pass
PASSES = 8

Encode = Callable[[str], Sequence[int]]
Beginning = tuple[int, ...]  # of a list: places of keys, rising
Step = tuple[tuple[int, ...], int]  # tokens behind the lead-in, and the one after them

_OPEN, _CLOSE = '{"attributes": [', '], "level": '


class ListTokens:
    """How the tokenizer cuts lists of ``keys``: the ``lead``, and the tokens from a key (or the start) to each option.

    An option is a later key or the end, ``len(keys)``. What tokens a key gets depends on the key before it alone.
    """

    def __init__(self, keys: Sequence[str], encode: Encode):
        self._keys, self._encode = keys, encode
        self.end = len(keys)
        self.lead = self._settled([])
        self._steps: dict[int, dict[int, tuple[int, ...]]] = {}

    def steps(self, beginning: Beginning) -> dict[int, tuple[int, ...]]:
        """Option -> its tokens behind the beginning."""
        last = beginning[-1] if beginning else -1
        if last not in self._steps:
            before = [self._keys[last]] if beginning else []
            done = len(self._settled(before))
            options = {key: self._settled([*before, self._keys[key]]) for key in range(last + 1, self.end)}
            options[self.end] = self._shared(*(_listed(before) + f"{_CLOSE}{level}" for level in (1, 4)))
            self._steps[last] = {option: tuple(tokens[done:]) for option, tokens in options.items()}
        return self._steps[last]

    def path(self, beginning: Beginning) -> tuple[int, ...]:
        """All tokens of a beginning behind ``lead``."""
        steps = (self.steps(beginning[:place])[key] for place, key in enumerate(beginning))
        return tuple(token for step in steps for token in step)

    def _settled(self, keys: Sequence[str]) -> list[int]:
        """The tokens of a list's beginning that are the same whether it ends or goes on."""
        return self._shared(_listed(keys) + f"{_CLOSE}1", _listed([*keys, self._keys[-1]]))

    def _shared(self, *texts: str) -> list[int]:
        encoded = zip(*map(self._encode, texts), strict=False)
        return [tokens[0] for tokens in takewhile(lambda tokens: len(set(tokens)) == 1, encoded)]


def _listed(keys: Sequence[str]) -> str:
    return _OPEN + ", ".join(map(json.dumps, keys))


@dataclass
class Search:
    """The lists of one photo: those ``found`` with their probabilities, and the ``open`` beginnings of others.

    The probability of a beginning is that of all lists that begin so.
    """

    tokens: ListTokens
    found: dict[Beginning, float] = field(default_factory=dict)
    open: dict[Beginning, float] = field(default_factory=lambda: {(): 1.0})

    @property
    def next(self) -> list[Beginning]:
        """The beginnings to look at next; none where enough is found."""
        if math.fsum(self.found.values()) >= ENOUGH:
            return []
        return [one for one in heapq.nlargest(WIDTH, self.open, key=self.open.__getitem__) if self.open[one] >= LEAST]

    def wanted(self, beginnings: Iterable[Beginning]) -> list[Step]:
        """The steps that tell how probable the options of ``beginnings`` are, each once."""
        options = (step for one in beginnings for steps in self._options(one).values() for step in steps)
        return list(dict.fromkeys(options))

    def take(self, beginning: Beginning, known: Mapping[Step, float]) -> None:
        """Go on from a beginning that is open. ``known``: log probabilities of what was ``wanted`` of it."""
        shares: dict[int, float] = {}  # of the most probable option, so that none of a long key vanishes
        options = self._options(beginning)
        written = {option: math.fsum(known[step] for step in steps) for option, steps in options.items()}
        most = max(written.values())
        for option, steps in sorted(options.items(), key=lambda item: -len(item[1])):
            longer = (shares[other] for other in shares if options[other][: len(steps)] == steps)
            # A key that another begins with is not that other.
            shares[option] = max(0.0, math.exp(written[option] - most) - math.fsum(longer))
        total = math.fsum(shares.values())
        probability = self.open.pop(beginning)
        for option, share in shares.items():
            if option == self.tokens.end:
                self.found[beginning] = probability * share / total
            else:
                self.open[*beginning, option] = probability * share / total

    def probable(self, keys: Sequence[str]) -> dict[str, float]:
        """What was found, the most probable first, as keys with commas between; at least one list."""
        ordered = sorted(self.found.items(), key=lambda item: -item[1])
        return {
            ",".join(keys[key] for key in one): probability
            for place, (one, probability) in enumerate(ordered)
            if probability >= LEAST or place == 0
        }

    def _options(self, beginning: Beginning) -> dict[int, list[Step]]:
        path = self.tokens.path(beginning)
        return {
            option: [(path + tokens[:place], token) for place, token in enumerate(tokens)]
            for option, tokens in self.tokens.steps(beginning).items()
        }


class ListReader:
    """Distributions over lists of one model, whose tokenizer ``encode`` is of."""

    def __init__(self, encode: Encode):
        self._encode = encode
        self._tokens: dict[tuple[str, ...], ListTokens] = {}

    def distributions(self, reading: Reading, keys: tuple[str, ...], answers: Sequence[str]) -> list[dict[str, float]]:
        """For each row, the lists that were found and their probabilities; a list is its keys with commas between.

        Those in the ``answers``, each of the form of ``cprt.answers.structure``, are looked at first.
        """
        if keys not in self._tokens:
            self._tokens[keys] = ListTokens(keys, self._encode)
        tokens = self._tokens[keys]
        searches = [Search(tokens) for _ in answers]
        stated = [tuple(map(keys.index, json.loads(answer)["attributes"])) for answer in answers]
        chosen = [[one[:length] for length in range(len(one) + 1)] for one in stated]
        for _ in range(PASSES):
            self._look(reading, searches, chosen)
            chosen = [search.next for search in searches]
            if not any(chosen):
                break
        return [search.probable(keys) for search in searches]

    def _look(self, reading: Reading, searches: Sequence[Search], chosen: Sequence[Sequence[Beginning]]) -> None:
        """One pass: go on from the ``chosen`` beginnings of every search, the shorter ones first."""
        wanted = [search.wanted(beginnings) for search, beginnings in zip(searches, chosen, strict=True)]
        trees = [TokenTree([before for before, _ in of_row]) for of_row in wanted]
        leads = [search.tokens.lead for search in searches]
        logits = look_ahead(reading, leads, trees)
        for search, beginnings, steps, tree, of_row in zip(searches, chosen, wanted, trees, logits, strict=True):
            nodes, following = [tree.nodes[before] for before, _ in steps], [token for _, token in steps]
            of_tree = of_row.float()
            values = (of_tree[nodes, following] - of_tree.logsumexp(-1)[nodes]).tolist()
            known = dict(zip(steps, values, strict=True))
            for one in beginnings:
                search.take(one, known)
