"""Mutate model files and load them: each must give the very same model, or a ModelFileError that says why not.

    python tests/fuzz_model_files.py --count 10000

Half of the mutants get a fresh checksum, so that what lies behind it is reached; such a file may also load as another
sound model, which then predicts finite numbers for ordinary rows. Checkpoints are mutated in the same way: a fit goes
on from one, or says in a CheckpointError why not. A load that takes longer than five seconds, needs a gigabyte more
memory, raises anything else or has more than 1,000 characters to say fails.
"""

import argparse
import hashlib
import json
import random
import resource
import signal
import struct
import sys
import tempfile
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from vpboost import MLP, ConvNet, ModelFileError, VPBoostClassifier, VPBoostRegressor
from vpboost.callbacks import Checkpoint
from vpboost.estimators.loading import from_bytes
from vpboost.featurizers import SomeColumns, with_bias
from vpboost.files.checkpoint import CheckpointError, read_checkpoint, read_facts
from vpboost.files.container import NO_DIGEST, pack, unpack

#: Numbers that files should not hold where scales, weights and the like are.
NUMBERS = (0.0, -1.0, 1.0, 5e-324, -1e-310, 1e-300, 1e30, -3e38, 1e300, -1e308, 1.7e308)
ABSURD = (
    *(0, -1, 1, 2, 7, 255, 2**31 - 1, 2**31, 2**48, 2**63, 2**64 - 1, 10**30, 10**400, 1e308, 0.5, True, None, [], {}),
    *("", "x", "(1,2", "f2", "|O", "<U999999999", "\x1b[31m", "MLP", "custom", "auto", "float64"),
)
HOSTILE = (
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"__metadata__":{"vpboost":"{}"}}',
    b'{"__metadata__":{"vpboost":"[1]"}}',
    b'{"a":1,"a":2}',
    b"9" * 10_000,
    b'{"x":NaN}',
    b"\xff\xfe\x00",
    b'"\\ud800"',
    b"null",
)


def samples():
    """Small models of several kinds, as bytes, each with what it predicts."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    X[::7, 1] = np.nan
    images = rng.normal(size=(40, 10, 9))
    small_convnet = partial(ConvNet, kernels=(3, 2), pools=(2, 2), channels=(2, 3), strides=(2, 1))
    quick = {"n_estimators": 2, "max_steps": 2, "width": 3}
    models = [
        VPBoostRegressor(**quick, encoding="spline", max_features=0.5).fit(X, X[:, 0]),
        VPBoostRegressor(**quick, featurizer="rbf", encoding="quantile").fit(X, np.stack([X[:, 0], X[:, 2]], axis=1)),
        VPBoostClassifier(**quick, featurizer="resnet", depth=1).fit(X, np.array(["a", "b", "c"])[np.arange(60) % 3]),
        VPBoostClassifier(n_estimators=2, max_steps=2, featurizer=small_convnet).fit(
            images, images.mean(axis=(1, 2)) > 0
        ),
        VPBoostRegressor(**quick, loss="poisson", dtype="float64").fit(X, np.exp(X[:, 0])),
        VPBoostClassifier(**{**quick, "width": 4}, featurizer="bspline", dtype="float64").fit(X, X[:, 0] > 0),
        VPBoostRegressor(**quick, featurizer="fourier").fit(X, 1e6 * X[:, 0]),
    ]
    assert all(model.best_iteration_ > 0 for model in models)
    inputs = [X, X, X, images, X, X, X]
    with tempfile.TemporaryDirectory() as folder:
        for i, (model, x) in enumerate(zip(models, inputs, strict=True)):
            model.save_model(f"{folder}/{i}")
            yield Path(f"{folder}/{i}").read_bytes(), x, model.predict(x)


def sealed(data):
    """The same bytes with a fresh checksum where the old one stands."""
    begin = data.find(b'checksum\\":\\"')
    if begin < 0:
        return data
    begin += len(b'checksum\\":\\"')
    blank = data[:begin] + NO_DIGEST.encode() + data[begin + 64 :]
    return data[:begin] + hashlib.sha256(blank).hexdigest().encode() + data[begin + 64 :]


def with_header(data, header):
    """The file with another header, its length set right."""
    (length,) = struct.unpack("<Q", data[:8])
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def flip_bits(rng, data):
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8, 64))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(rng, data):
    return data[: rng.randrange(len(data))]


def pad(rng, data):
    place = rng.choice((len(data), rng.randrange(len(data))))
    return data[:place] + bytes(rng.randrange(256) for _ in range(rng.choice((1, 8, 1000)))) + data[place:]


def absurd_length(rng, data):
    return struct.pack("<Q", rng.choice((0, 1, 7, 2**20, 2**31, 2**40, 2**63, 2**64 - 1, len(data)))) + data[8:]


def hostile_json(rng, data):
    return with_header(data, rng.choice(HOSTILE))


def hostile_description(rng, data):
    header = json.dumps({"__metadata__": {"vpboost": rng.choice(HOSTILE).decode("latin-1")}}).encode()
    return with_header(data, header)


def places(value):
    """Every (container, key) within a JSON value."""
    items = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [(value, key) for key, _ in items] + [place for _, inner in items for place in places(inner)]


def edit(rng, value):
    """Change, drop or swap something inside a JSON object."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        found = places(value)
        if not found:
            return
        container, key = rng.choice(found)
        act = rng.randrange(4)
        if act == 0:
            container[key] = rng.choice(ABSURD)
        elif act == 1:
            del container[key]
        elif act == 2:
            other, other_key = rng.choice(found)
            container[key] = json.loads(
                json.dumps(other.get(other_key) if isinstance(other, dict) else other[other_key])
            )
        elif isinstance(container, dict):
            container[str(rng.choice(ABSURD))] = container[key]


def edited_header(rng, data):
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    edit(rng, header)
    return with_header(data, json.dumps(header, separators=(",", ":")).encode())


def edited_description(rng, data):
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    content = json.loads(header["__metadata__"]["vpboost"])
    digest = content.pop("checksum")
    edit(rng, content)
    content = {"checksum": digest, **content} if isinstance(content, dict) else content
    header["__metadata__"]["vpboost"] = json.dumps(content, separators=(",", ":"))
    return with_header(data, json.dumps(header, separators=(",", ":")).encode())


def absurd_numbers(rng, data):
    """Put finite but absurd numbers, or the other truth value, into an array: one place, one row, or all of it."""
    content, arrays = unpack(data, "model")
    for _ in range(rng.choice((1, 1, 2))):
        array = arrays[rng.choice(sorted(name for name in arrays if arrays[name].size))]
        value = rng.choice(NUMBERS) if array.dtype.kind == "f" else rng.choice((0, 1))
        flat = array.reshape(-1)
        begin = rng.randrange(flat.size)
        end = rng.choice((begin + 1, begin + array.shape[-1] if array.ndim else 1, flat.size))
        with np.errstate(all="ignore"):
            flat[0 if end == flat.size else begin : end] = value
    return pack(content, arrays)


def bad_numbers(rng, data):
    (length,) = struct.unpack("<Q", data[:8])
    changed = bytearray(data)
    place = 8 + length + 4 * rng.randrange((len(data) - 8 - length) // 4)
    changed[place : place + 4] = struct.pack("<f", rng.choice((float("nan"), float("inf"), -1.0, 0.0, 1e38)))
    return bytes(changed)


def rearranged(rng, data):
    """Change the description and the arrays' shapes and numbers, and pack them again as a well-formed file."""
    content, arrays = unpack(data, "model")
    if rng.random() < 0.5:
        edit(rng, content)
    for _ in range(rng.choice((1, 2, 4))):
        name = rng.choice(sorted(arrays))
        array, act = arrays[name], rng.randrange(6)
        if act == 0:
            arrays[name] = np.zeros(rng.choice(((), (0,), (0, 2**40), (1, 2**32, 0), (3, 0, 5), (2, 2))), array.dtype)
        elif act == 1:
            arrays[name] = array.reshape(-1)
        elif act == 2:
            with np.errstate(all="ignore"):
                arrays[name] = array.astype(rng.choice(("f4", "f8", "i8", "?")))
        elif act == 3:
            arrays[name] = np.concatenate([array.reshape(-1)] * 2)
        elif act == 4 and array.size:
            arrays[name] = array.copy()
            absurd = 1e30 if array.dtype.kind == "f" else 9
            arrays[name].reshape(-1)[rng.randrange(array.size)] = rng.choice((0, 1, -1, absurd))
        else:
            arrays[str(rng.choice(ABSURD))] = arrays.pop(name)
    return pack(content, arrays)


def splice(rng, data, other):
    here, there = rng.randrange(len(data)), rng.randrange(len(other))
    return data[:here] + other[there:]


MUTATIONS = (
    *(flip_bits, cut, pad, absurd_length, hostile_json, hostile_description),
    *(edited_header, edited_description, edited_description, bad_numbers, rearranged, rearranged),
    *(absurd_numbers, absurd_numbers),
)
PACKED = (rearranged, absurd_numbers)  # with a right checksum in any case


class TooSlow(BaseException):
    """Loading takes too long. No Exception, so that nothing catches it on the way."""


def too_slow(*_):
    raise TooSlow


def fuzz(count, seed):
    """Load so many mutants; return how many ended how."""
    rng, sound, outcomes = random.Random(seed), list(samples()), Counter()
    signal.signal(signal.SIGALRM, too_slow)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i in range(count):
        data, x, expected = rng.choice(sound)
        mutation = rng.choice((*MUTATIONS, splice))
        mutant = splice(rng, data, rng.choice(sound)[0]) if mutation is splice else mutation(rng, data)
        resealed = mutation in PACKED or rng.random() < 0.5
        mutant = sealed(mutant) if resealed else mutant
        signal.alarm(5)
        try:
            model = from_bytes(mutant, f"mutant {i}")
            with np.errstate(all="ignore"):  # sound numbers may still be huge
                predicted = model.predict(x) if x.shape[1:] == shape_of(model) else None
                check_finite(model, x, predicted)
            if not resealed or mutant == data:
                assert predicted is not None
                assert np.array_equal(predicted, expected), f"mutant {i} by {mutation.__name__} predicts otherwise"
            outcomes["loaded"] += 1
        except ModelFileError as error:
            require_short(error)
            outcomes["refused"] += 1
        except Exception as error:
            raise AssertionError(f"mutant {i} by {mutation.__name__}, resealed: {resealed}: {error!r}") from error
        except TooSlow:
            raise AssertionError(f"mutant {i} by {mutation.__name__} takes too long") from None
        finally:
            signal.alarm(0)
        outcomes[mutation.__name__] += 1
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    assert grown < 1 << 20, f"memory grew by {grown} KiB"
    return outcomes


def require_short(error):
    """Raise an error for messages that repeat a file."""
    if len(str(error)) >= 1000:
        raise AssertionError(f"a long message: {str(error)[:200]}...")


def check_finite(model, x, predicted):
    """Raise an error for predictions that are not finite though the learners see ordinary numbers."""
    if predicted is None or model.target_scaler_.kind == "log":
        return
    predicted = model.predict_proba(x) if hasattr(model, "classes_") else predicted
    ordinary = np.abs(model.input_encoder_.transform(x)).reshape(len(x), -1).max(axis=1) < 1e4
    assert np.isfinite(predicted[ordinary]).all(), "predictions are not finite"


def fuzz_checkpoints(count, seed, folder):
    """Go on from so many mutants of a checkpoint; return how many ended how."""
    rng, outcomes, path = random.Random(seed), Counter(), Path(folder) / "checkpoint"
    X = np.random.default_rng(0).normal(size=(40, 3))
    options = {"max_steps": 2, "width": 3, "max_features": 0.5, "engine": "numpy"}
    VPBoostRegressor(**options, n_estimators=3, callbacks=[Checkpoint(path, every=1)]).fit(X, X[:, 0])
    data, row = path.read_bytes(), jnp.zeros(3)
    learner = with_bias(partial(SomeColumns, factory=partial(MLP, width=3), fraction=0.5))(jax.random.key(0), row[None])
    signal.signal(signal.SIGALRM, too_slow)
    for i in range(count):
        mutation = rng.choice(MUTATIONS)
        mutant = mutation(rng, data)
        path.write_bytes(sealed(mutant) if mutation in PACKED or rng.random() < 0.5 else mutant)
        signal.alarm(5)
        try:
            read_facts(path), read_checkpoint(path, learner, row, 1)
            VPBoostRegressor(**options, n_estimators=4).fit(X, X[:, 0], resume_from=path)
            outcomes["resumed"] += 1
        except CheckpointError as error:
            require_short(error)
            outcomes["refused"] += 1
        except Exception as error:
            if "loss has NaN or infinite derivatives" not in str(error):  # of huge but finite numbers
                raise AssertionError(f"checkpoint {i} by {mutation.__name__}: {error!r}") from error
            outcomes["gave up"] += 1
        except TooSlow:
            raise AssertionError(f"checkpoint {i} by {mutation.__name__} takes too long") from None
        finally:
            signal.alarm(0)
    return outcomes


def shape_of(model):
    """The shape of one row of a model's inputs."""
    return (model.n_features_in_,) if len(model.input_encoder_.shape_) == 1 else model.input_encoder_.shape_


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", ConvergenceWarning)  # fits are short
    print(dict(fuzz(options.count, options.seed)), file=sys.stdout)
    with tempfile.TemporaryDirectory() as folder:
        print("checkpoints:", dict(fuzz_checkpoints(options.count // 4, options.seed, folder)))
