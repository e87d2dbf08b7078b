"""Slow, plain NumPy versions of the paper's formulas: what the library is tested against."""

import numpy as np


def featurizer_matrix(features):
    """A_θ(x_i) = z_iᵀ ⊗ I_K for every sample is built by the caller; this returns the function of z_i and K."""

    def matrix(z, n_outputs):
        return np.kron(z[None, :], np.eye(n_outputs))

    return [lambda k, z=z: matrix(z, k) for z in np.asarray(features)]


def explicit_reduced(features, weight, gradient, hessian):
    """ḡ and H̄ as sums over samples of A_iᵀ g_i and A_iᵀ H_i A_i with the explicit featurizer matrix."""
    n_outputs = gradient.shape[1]
    size = features.shape[1] * n_outputs
    g_bar, h_bar = np.zeros(size), np.zeros((size, size))
    for build, w, g, h in zip(featurizer_matrix(features), weight, gradient, hessian, strict=True):
        a = build(n_outputs)
        g_bar += w * a.T @ g
        h_bar += w * a.T @ h @ a
    return g_bar, h_bar


def central_difference(function, x, step=1e-5):
    """Derivative of ``function`` (any output shape) with respect to the flat vector x, last axis first differences."""
    columns = []
    for j in range(len(x)):
        up, down = x.copy(), x.copy()
        up[j] += step
        down[j] -= step
        columns.append((np.asarray(function(up)) - np.asarray(function(down))) / (2 * step))
    return np.stack(columns, axis=-1)
