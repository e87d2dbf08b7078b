"""Predictive distributions: what ``predict_dist`` returns, one law for each row, and for each output where several are.

They are those of :mod:`scipy.stats` with the methods that predictions need. Parameters are arrays of one shape,
``(n_rows,)`` or ``(n_rows, n_outputs)``, which all results have, too.
"""

import abc
import dataclasses
from typing import Any

import jax
import numpy as np
from scipy import special, stats

from .checks import check_between, check_count
from .predictor import moments

#: Laws whose parameters are shown one by one, at the most.
FEW = 10


class Distribution(abc.ABC):
    """A law for each row; subclasses say which, as one of :mod:`scipy.stats`."""

    @property
    @abc.abstractmethod
    def law(self) -> Any:
        """The same as a frozen distribution of :mod:`scipy.stats`."""

    def mean(self) -> np.ndarray:
        """Return the means."""
        return np.array(moments(type(self).__name__, vars(self))[0])

    def std(self) -> np.ndarray:
        """Return the standard deviations."""
        return np.array(moments(type(self).__name__, vars(self))[1])

    def quantile(self, q: Any) -> np.ndarray:
        """Return quantiles; of several levels ``q``, along a first axis."""
        levels = np.asarray(q, float)
        if not ((levels >= 0) & (levels <= 1)).all():
            raise ValueError(f"q must lie in [0, 1], got {q!r}")
        return np.asarray(self.law.ppf(levels.reshape(*levels.shape, *[1] * self._n_axes())))

    def interval(self, coverage: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of central intervals with this probability."""
        check_between("coverage", coverage, 0, 1, "in (0, 1)")
        low, high = self.quantile([(1 - coverage) / 2, (1 + coverage) / 2])
        return low, high

    def cdf(self, y: Any) -> np.ndarray:
        """Return the probabilities of at most ``y``."""
        return np.asarray(self.law.cdf(self._at(y)))

    def logpdf(self, y: Any) -> np.ndarray:
        """Return the logarithms of the density, of counts those of the probability, at ``y``."""
        return np.asarray(self.law.logpdf(self._at(y)))

    def sample(self, n: int = 1, random_state: Any = None) -> np.ndarray:
        """Return ``n`` random draws along a first axis, by a seed, a generator of NumPy or a key of JAX."""
        if isinstance(random_state, jax.Array):
            random_state = np.random.default_rng(np.asarray(jax.random.key_data(random_state)))
        return self.law.rvs(size=(check_count("n", n), *self._shape()), random_state=random_state)

    @abc.abstractmethod
    def crps(self, y: Any) -> np.ndarray:
        """Return the continuous ranked probability score ∫(F(t) − [t ≥ y])²dt, in the units of y; lower is better."""

    def _at(self, y: Any) -> np.ndarray:
        """Return where laws are evaluated, as numbers; a column of them beside a row of laws would be all pairs."""
        y, shape = np.asarray(y, float), self._shape()
        if y.shape == (*shape, 1) and shape not in ((), (1,)):
            raise ValueError(f"y must have the shape of the laws, {shape}, got {y.shape}; give y.ravel() or y[..., 0]")
        return y

    def __repr__(self) -> str:
        """Return parameters, or their ranges where they are many."""
        shape, name = self._shape(), type(self).__name__
        if np.prod(shape) <= FEW:
            return f"{name}({', '.join(f'{key}={value!r}' for key, value in vars(self).items())})"
        ranges = [f"{key} from {np.min(value):.4g} to {np.max(value):.4g}" for key, value in vars(self).items()]
        return f"<{name} laws of shape {shape}: {', '.join(ranges)}>"

    def _shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(*map(np.shape, vars(self).values()))

    def _n_axes(self) -> int:
        return len(self._shape())

    def __len__(self) -> int:
        return self._shape()[0]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Normal(Distribution):
    """Normal laws.

    Parameters
    ----------
    loc, scale : array
        Means and standard deviations.

    Examples
    --------
    >>> law = Normal(np.array([0.0, 10.0]), np.array([1.0, 2.0]))
    >>> law.quantile([0.5, 0.975]).round(2).tolist()
    [[0.0, 10.0], [1.96, 13.92]]
    """

    loc: np.ndarray
    scale: np.ndarray

    @property
    def law(self) -> Any:
        """The same as a frozen distribution of :mod:`scipy.stats`."""
        return stats.norm(self.loc, self.scale)

    def crps(self, y: Any) -> np.ndarray:
        """Return the continuous ranked probability score."""
        z = (self._at(y) - self.loc) / self.scale
        unit = z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)
        return np.asarray(self.scale * unit)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LogNormal(Distribution):
    """Laws of positive numbers whose logarithms are normal.

    Parameters
    ----------
    loc, scale : array
        Means and standard deviations of the logarithms.

    Examples
    --------
    >>> LogNormal(np.array([0.0]), np.array([1.0])).quantile(0.5).tolist()
    [1.0]
    """

    loc: np.ndarray
    scale: np.ndarray

    @property
    def law(self) -> Any:
        """The same as a frozen distribution of :mod:`scipy.stats`."""
        return stats.lognorm(self.scale, scale=np.exp(self.loc))

    def crps(self, y: Any) -> np.ndarray:
        """Return the continuous ranked probability score."""
        y = self._at(y)
        z = (np.log(y) - self.loc) / self.scale
        below = stats.norm.cdf(z - self.scale) + stats.norm.cdf(self.scale / np.sqrt(2)) - 1
        return np.asarray(y * (2 * stats.norm.cdf(z) - 1) - 2 * self.mean() * below)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class StudentT(Distribution):
    """Student's t: like normal laws, with heavier tails.

    Parameters
    ----------
    df, loc, scale : array
        Degrees of freedom (more than 2), locations and scales.

    Examples
    --------
    >>> StudentT(np.array([4.0]), np.array([1.0]), np.array([2.0])).std().round(3).tolist()
    [2.828]
    """

    df: np.ndarray
    loc: np.ndarray
    scale: np.ndarray

    @property
    def law(self) -> Any:
        """The same as a frozen distribution of :mod:`scipy.stats`."""
        return stats.t(self.df, self.loc, self.scale)

    def crps(self, y: Any) -> np.ndarray:
        """Return the continuous ranked probability score."""
        z, df = (self._at(y) - self.loc) / self.scale, np.asarray(self.df)
        ratio = np.exp(special.betaln(0.5, df - 0.5) - 2 * special.betaln(0.5, df / 2))
        spread = 2 * stats.t.pdf(z, df) * (df + z**2) / (df - 1) - 2 * np.sqrt(df) / (df - 1) * ratio
        return np.asarray(self.scale * (z * (2 * stats.t.cdf(z, df) - 1) + spread))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Gamma(Distribution):
    """Gamma laws of positive numbers.

    Parameters
    ----------
    mu, shape : array
        Means, and shapes: the variance is mu² / shape.

    Examples
    --------
    >>> Gamma(np.array([6.0]), np.array([4.0])).std().tolist()
    [3.0]
    """

    mu: np.ndarray
    shape: np.ndarray

    @property
    def law(self) -> Any:
        """The same as a frozen distribution of :mod:`scipy.stats`."""
        return stats.gamma(self.shape, scale=self.mu / self.shape)

    def crps(self, y: Any) -> np.ndarray:
        """Return the continuous ranked probability score."""
        y = self._at(y)
        above = stats.gamma(self.shape + 1, scale=self.mu / self.shape).cdf(y)
        spread = self.mu / self.shape * np.exp(-special.betaln(0.5, self.shape))
        return np.asarray(y * (2 * self.cdf(y) - 1) - self.mu * (2 * above - 1) - spread)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class NegativeBinomial(Distribution):
    """Negative binomial laws of counts.

    Parameters
    ----------
    mu, size : array
        Means, and sizes r: the variance is mu + mu² / r.

    Examples
    --------
    >>> NegativeBinomial(np.array([2.0]), np.array([4.0])).std().round(3).tolist()
    [1.732]
    """

    mu: np.ndarray
    size: np.ndarray

    @property
    def law(self) -> Any:
        """The same as a frozen distribution of :mod:`scipy.stats`."""
        return stats.nbinom(self.size, self.size / (self.size + self.mu))

    def logpdf(self, y: Any) -> np.ndarray:
        """Return the logarithms of the probabilities of ``y``."""
        return np.asarray(self.law.logpmf(self._at(y)))

    def crps(self, y: Any) -> np.ndarray:
        """Return the continuous ranked probability score E|X − y| − E|X − X'| / 2, by quadrature."""
        y, p, more = self._at(y), self.size / (self.size + self.mu), self.size + 1
        below = self.mu * stats.nbinom.cdf(np.floor(y) - 1, more, p)  # the mean, of counts up to y only
        distance = y * (2 * self.law.cdf(y) - 1) + self.mu - 2 * below
        return np.asarray(distance - self.mu / p * half_mean_distance(self.mu, self.size))


#: Nodes and weights of quadrature on [0, 1], and laws at once.
NODES, WEIGHTS = (part.astype(float) for part in np.polynomial.legendre.leggauss(100))
NODES, WEIGHTS = (NODES + 1) / 2, WEIGHTS / 2
LAWS_AT_ONCE = 4096


def half_mean_distance(mu: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return E|X − X'| / 2 of negative binomial laws in units of their variance μ/p.

    It is ₂F₁(r + 1, 1/2; 2; −w), w = 4(1 − p)/p², which is (4/π) ∫ cos²t (1 + w sin²t)^(−r−1) dt over [0, π/2]; with
    sinh v = √w sin t, the integrand falls off like e^(−(2r + 1)v) and is smooth in the root of what is left of v.

    >>> half_mean_distance(np.array([1e-6]), np.array([1e6])).round(5).tolist()
    [1.0]
    """
    shape = np.broadcast_shapes(np.shape(mu), np.shape(size))
    mu, size = (np.broadcast_to(part, shape).ravel()[:, None] for part in (mu, size))
    found = []
    for start in range(0, len(mu), LAWS_AT_ONCE):
        r, m = (part[start : start + LAWS_AT_ONCE] for part in (size, mu))
        w = np.maximum(4 * (m / r) * (1 + m / r), np.finfo(float).tiny)  # of no counts at all, it goes to one
        falls = np.arccosh(np.exp(np.minimum(45 / (2 * r + 1), 700)))  # to nothing
        end = np.minimum(np.arcsinh(np.sqrt(w)), falls)
        v = end * (1 - NODES**2)
        log_cosh = v + np.log1p(np.exp(-2 * v)) - np.log(2)
        cosine = np.sqrt(np.maximum(1 - np.sinh(v) ** 2 / w, 0.0))
        terms = cosine * np.exp(-(2 * r + 1) * log_cosh) * 2 * NODES * WEIGHTS
        found.append(4 / np.pi * end[:, 0] / np.sqrt(w[:, 0]) * terms.sum(axis=1))
    return np.concatenate([*found, np.zeros(0)]).reshape(shape)
