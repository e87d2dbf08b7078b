"""JAX's default random bits (Threefry 2x32) in NumPy, bit for bit: keys are arrays of two 32-bit words, last axis."""

import numpy as np

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = np.uint32(0x1BD11BDA)


def hashed(keys: np.ndarray, high: np.ndarray, low: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the Threefry 2x32 hash of counters; keys of shape (..., 2) broadcast against them."""
    first, second = keys[..., 0], keys[..., 1]
    schedule = first, second, first ^ second ^ PARITY
    a, b = high + first, low + second
    for block in range(5):
        for rotation in ROTATIONS[block % 2]:
            a = a + b
            b = a ^ (b << np.uint32(rotation) | b >> np.uint32(32 - rotation))
        a = a + schedule[(block + 1) % 3]
        b = b + schedule[(block + 2) % 3] + np.uint32(block + 1)
    return a, b


def counted(keys: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Hash the numbers 0, 1, 2, ... in an array of this shape with each key."""
    count = np.arange(int(np.prod(shape)), dtype=np.uint64).reshape(shape)
    spread = keys.reshape(*keys.shape[:-1], *[1] * len(shape), 2)
    return hashed(spread, (count >> np.uint64(32)).astype(np.uint32), count.astype(np.uint32))


def split(keys: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """As ``jax.random.split`` for each key."""
    return np.stack(counted(keys, shape), axis=-1)


def fold_in(keys: np.ndarray, data: np.ndarray) -> np.ndarray:
    """As ``jax.random.fold_in`` for each key and number."""
    low = np.asarray(data).astype(np.uint32)
    return np.stack(hashed(keys, np.zeros_like(low), low), axis=-1)


def bits(keys: np.ndarray, width: int, shape: tuple[int, ...]) -> np.ndarray:
    """As ``jax.random.bits`` for each key: unsigned numbers of ``width`` bits."""
    high, low = counted(keys, shape)
    if width == 64:
        return high.astype(np.uint64) << np.uint64(32) | low
    return (high ^ low).astype(np.dtype(f"uint{width}"))
