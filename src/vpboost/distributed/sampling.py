"""Rows of a process in shares: how some are set aside, and a sample of those of all processes."""

import hashlib
import json
from typing import Any, NamedTuple

import jax
import numpy as np

from ..estimators.parts import Part, hold_out
from ..estimators.resuming import mark_of
from ..numerics.devices import halved, n_shares
from ..numerics.processes import exchange, exchange_arrays, exchange_facts
from ..tables.frames import Table

#: Numbers of a sample of inputs, at the most.
MOST_NUMBERS = 1 << 24


class Held(NamedTuple):
    """Rows that this process holds, in shares."""

    part: Part
    ends: list[int]  #: of the shares
    first: int  #: the number of the first share, among those of all processes

    def shares(self) -> list[tuple[int, int, int]]:
        """Return number, first row and end of each share."""
        return [(self.first + i, *ends) for i, ends in enumerate(zip([0, *self.ends], self.ends, strict=False))]

    def take(self, rows: list[np.ndarray]) -> "Held":
        """Return some rows of each share."""
        kind = np.int32 if self.part.n_rows < 2**31 else np.int64  # kept as long as the fit takes
        chosen = [(begin + some).astype(kind) for (_, begin, _), some in zip(self.shares(), rows, strict=True)]
        return Held(
            self.part.take(np.concatenate(chosen)), np.cumsum([len(some) for some in rows]).tolist(), self.first
        )


def in_shares(part: Part) -> Held:
    """Return rows of this process in its shares."""
    shares = n_shares(jax.device_count()) // jax.device_count() * jax.local_device_count()
    return Held(part, halved(part.n_rows, shares), jax.process_index() * shares)


def set_aside(held: Held, fraction: float, seed: int, keep_classes: bool) -> tuple[Held, Held]:
    """Return rows to train on and about this fraction of each share set aside."""
    kept, aside = [], []
    for share, begin, end in held.shares():
        target, groups = held.part.target[begin:end], np.arange(end - begin)
        found = None if end - begin < 2 else hold_out(target, groups, fraction, [seed, share], keep_classes)  # type: ignore[arg-type]
        rows = (groups, groups[:0]) if found is None else found
        kept.append(rows[0])
        aside.append(rows[1])
    return held.take(kept), held.take(aside)


def spare_one(held: Held) -> tuple[Held, Held]:
    """Return rows to train on and the last one, set aside."""
    sizes = [end - begin for _, begin, end in held.shares()]
    last = max(i for i, n in enumerate(sizes) if n)
    kept = [np.arange(n - (i == last)) for i, n in enumerate(sizes)]
    aside = [np.arange(n)[n - 1 :] if i == last else np.arange(0) for i, n in enumerate(sizes)]
    return held.take(kept), held.take(aside)


def sample(held: Held, most: int, seed: int) -> Part:
    """Return some rows of all processes, the same for all; each share counts as much as it has rows."""
    width = int(np.prod(held.part.inputs.shape[1:]))
    each = max(min(most, MOST_NUMBERS // max(width, 1)) // n_shares(jax.device_count()), 1)
    rows, scales = [], []
    for share, begin, end in held.shares():
        n = end - begin
        rows.append(np.sort(np.random.default_rng([seed, share, 1]).permutation(n)[:each]))
        scales.append(np.full(len(rows[-1]), n / max(len(rows[-1]), 1)))
    some = held.take(rows).part
    weight = np.concatenate(exchange_arrays(np.asarray(some.weight, float) * np.concatenate(scales)))
    target = np.concatenate(exchange_arrays(np.ascontiguousarray(some.target)))
    return Part(all_inputs(some.inputs), target, weight / weight.max())


def all_inputs(inputs: Any) -> Any:
    """Return the inputs of all processes."""
    if not isinstance(inputs, Table):
        return np.concatenate(exchange_arrays(np.asarray(inputs[:], np.float64)))
    numbers = np.concatenate(exchange_arrays(inputs.numbers))
    texts = [json.loads(part) for part in exchange(json.dumps([t.tolist() for t in inputs.texts.values()]).encode())]
    columns = zip(inputs.texts, zip(*texts, strict=True), strict=True) if inputs.texts else ()
    joined = {j: np.array([name for part in parts for name in part], object) for j, parts in columns}
    return Table(inputs.kinds, numbers, joined)


def fingerprint(sets: list[Held]) -> str:
    """Return a mark of encoded rows of all processes, the same for any number of them."""
    marks = [[mark_of(one.part.take(np.arange(begin, end))) for _, begin, end in one.shares()] for one in sets]
    told = exchange_facts(marks)
    in_order = [mark for i in range(len(sets)) for one in told for mark in one[i]]
    return hashlib.sha256("".join(map(str, in_order)).encode()).hexdigest()
