/* What dense layers are made of: vectors of numbers, products of matrices whose rows lie last, activations.
 *
 * Files that include this are compiled for each precision and for vectors of some sizes (see hatch_build.py):
 * REAL, REAL_BITS  the numbers;  BYTES  of a vector;  NAMED(name)  the name of a function of that variant.
 */
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "flush.h"

#define LANES (BYTES / (REAL_BITS / 8))
/* Units and vectors of rows of which a product is computed at once, and the same of sums over rows: as many as there are
 * registers for. */
#define UNITS (BYTES == 64 ? 8 : 4)
#define VECTORS 2
#define LEFT (BYTES == 64 ? 4 : 2)
#define RIGHT 4
#define TILE 512
#define SHARES 16
#define DOUBLE (REAL_BITS == 64)
#define ROOT(x) (DOUBLE ? sqrt(x) : sqrtf(x))

enum { TANH, SILU, RELU };

typedef REAL vec __attribute__((vector_size(BYTES), aligned(REAL_BITS / 8), may_alias));
#if DOUBLE
typedef int64_t whole __attribute__((vector_size(BYTES)));
#define MANTISSA 52
#else
typedef int32_t whole __attribute__((vector_size(BYTES)));
#define MANTISSA 23
#endif
#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const REAL *p) { return *(const vec *)p; }
INLINE void store(REAL *p, vec v) { *(vec *)p = v; }
INLINE vec all(REAL a) { return a - (vec){0}; }
INLINE vec choose(whole which, vec a, vec b) { return (vec)((which & (whole)a) | (~which & (whole)b)); }

#if LANES == 16
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#elif LANES == 8
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
#elif LANES == 4
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#else
#define EVEN 0, 2
#define ODD 1, 3
#endif

/* Returns the sums of the lanes of as many vectors as each has lanes, in their order. */
INLINE vec lane_sums(vec *v) {
    for (int m = LANES / 2; m; m /= 2)
        for (int i = 0; i < m; i++)
            v[i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], EVEN) +
                   __builtin_shufflevector(v[2 * i], v[2 * i + 1], ODD);
    return v[0];
}

INLINE REAL sum_of(vec v) {
    REAL parts[LANES];
    store(parts, v);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) parts[i] += parts[i + half];
    return parts[0];
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* A matrix whose rows, of so many numbers, are a stride apart. */
typedef struct {
    REAL *at;
    int64_t stride;
} Rows;

INLINE void product_of(int n_units, Rows in, const REAL *weights, const REAL *bias, int64_t n_in, Rows out) {
    vec sums[UNITS][VECTORS];
    for (int j = 0; j < n_units; j++)
        for (int r = 0; r < VECTORS; r++) sums[j][r] = all(bias ? bias[j] : 0);
    for (int64_t i = 0; i < n_in; i++) {
        vec x[VECTORS];
        for (int r = 0; r < VECTORS; r++) x[r] = load(in.at + i * in.stride + r * LANES);
        for (int j = 0; j < n_units; j++)
            for (int r = 0; r < VECTORS; r++) sums[j][r] += weights[j * n_in + i] * x[r];
    }
    for (int j = 0; j < n_units; j++)
        for (int r = 0; r < VECTORS; r++) store(out.at + j * out.stride + r * LANES, sums[j][r]);
}

/* out[j] = bias[j] + sum over i of weights[j][i] in[i] */
static void product(Rows in, const REAL *weights, const REAL *bias, int64_t n_in, int64_t n_out, int64_t rows, Rows out) {
    for (int64_t r = 0; r < rows; r += VECTORS * LANES) {
        Rows from = {in.at + r, in.stride}, to = {out.at + r, out.stride};
        int64_t j = 0;
#define PRODUCTS(n_units)                                                                                         \
    for (; j + n_units <= n_out; j += n_units, to.at += n_units * to.stride)                                      \
        product_of(n_units, from, weights + j * n_in, bias ? bias + j : 0, n_in, to);
        PRODUCTS(UNITS)
        PRODUCTS(UNITS / 2)
        PRODUCTS(1)
    }
}

INLINE void outer_of(int n_left, int n_right, Rows left, Rows right, int64_t rows, REAL *sums, int64_t stride) {
    vec totals[LEFT * RIGHT + LANES];
    const int n = n_left * n_right;
    for (int i = 0; i < n; i++) totals[i] = (vec){0};
    for (int64_t r = 0; r < rows; r += LANES) {
        vec a[LEFT], b[RIGHT];
        for (int j = 0; j < n_left; j++) a[j] = load(left.at + j * left.stride + r);
        for (int i = 0; i < n_right; i++) b[i] = load(right.at + i * right.stride + r);
        for (int j = 0; j < n_left; j++)
            for (int i = 0; i < n_right; i++) totals[j * n_right + i] += a[j] * b[i];
    }
    REAL found[LEFT * RIGHT];
    if (n % LANES == 0)
        for (int i = 0; i < n; i += LANES) store(found + i, lane_sums(totals + i));
    else
        for (int i = 0; i < n; i++) found[i] = sum_of(totals[i]);
    for (int j = 0; j < n_left; j++)
        for (int i = 0; i < n_right; i++) sums[j * stride + i] += found[j * n_right + i];
}

INLINE void outer_row(int n_left, Rows left, Rows right, int64_t from, int64_t n_right, int64_t rows, REAL *sums) {
    int64_t i = from;
    for (; i + RIGHT <= n_right; i += RIGHT)
        outer_of(n_left, RIGHT, left, (Rows){right.at + i * right.stride, right.stride}, rows, sums + i, n_right);
    for (; i < n_right; i++)
        outer_of(n_left, 1, left, (Rows){right.at + i * right.stride, right.stride}, rows, sums + i, n_right);
}

/* sums[j][i] += sum over rows of left[j] right[i]; of a symmetric one, the upper triangle and perhaps some more */
static void outer(Rows left, int64_t n_left, Rows right, int64_t n_right, int64_t rows, REAL *sums, int symmetric) {
    for (int64_t j = 0; j < n_left;) {
        const int64_t from = symmetric ? j : 0;
        Rows mine = {left.at + j * left.stride, left.stride};
        if (j + LEFT <= n_left) {
            outer_row(LEFT, mine, right, from, n_right, rows, sums + j * n_right);
            j += LEFT;
        } else {
            outer_row(1, mine, right, from, n_right, rows, sums + j * n_right);
            j++;
        }
    }
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* The exponential function, to a few units in the last place, of numbers that are kept from over- and underflow. */
INLINE vec exponential(vec x) {
    const REAL most = DOUBLE ? 708 : 87, shift = DOUBLE ? 6755399441055744.0 : 12582912.0; /* rounds to whole numbers */
    x = choose(x > most, all(most), x);
    x = choose(x < -most, all(-most), x);
    vec n = x * (REAL)1.4426950408889634 + shift - shift, r, p; /* x = n log 2 + r */
#if DOUBLE
    r = x - n * 6.93147180369123816490e-01 - n * 1.90821492927058770002e-10;
    p = all(1.0 / 6227020800);
    static const double taylor[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
                                    1.0 / 720,       1.0 / 120,      1.0 / 24,      1.0 / 6,      1.0 / 2,     1, 1};
#else
    r = x - n * 0.693359375f + n * 2.12194440e-4f;
    p = all(1.0f / 5040);
    static const float taylor[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 1.0f / 2, 1, 1};
#endif
    for (unsigned i = 0; i < sizeof taylor / sizeof *taylor; i++) p = p * r + taylor[i];
    return (vec)((whole)p + ((whole)(n + shift) << MANTISSA)); /* times two to the power of n */
}

/* In single precision by a quotient of polynomials, fitted to an error of 1e-8 up to 8, where tanh is 1 - 2e-7. */
INLINE vec hyperbolic_tangent(vec x) {
#if DOUBLE
    return 1 - 2 / (1 + exponential(2 * x));
#else
    x = choose(x > 8, all(8), x);
    x = choose(x < -8, all(-8), x);
    vec t = x * x;
    vec above = (((1.506169217e-8f * t + 2.177316320e-5f) * t + 3.564151164e-3f) * t + 1.343818697e-1f) * t + 0.9999999700f;
    vec below = (((8.453614433e-7f * t + 3.399171241e-4f) * t + 2.613599685e-2f) * t + 4.677150775e-1f) * t + 1.0f;
    return x * above / below;
#endif
}

/* Replaces values by their activation; where its slope does not follow from that, it is kept. */
static void activate(REAL *values, REAL *slopes, int64_t rows, int64_t activation) {
    for (int64_t r = 0; r < rows; r += LANES) {
        vec a = load(values + r);
        if (activation == TANH) {
            store(values + r, hyperbolic_tangent(a));
        } else if (activation == SILU) {
            vec s = 1 / (1 + exponential(-a));
            store(values + r, a * s);
            store(slopes + r, s * (1 + a * (1 - s)));
        } else {
            store(values + r, choose(a < 0, all(0), a));
        }
    }
}
