/* What is done with a trained learner: its features for all rows, the sums over rows that its linear weights follow
 * from, and the predictions of many of them. See vpboost.native.stage; compiled in variants (dense.h).
 *
 * Rows are worked on in tiles, which are dealt out to shares, whose sums are added up in order: results do not depend on
 * the number of threads.
 */
#include "dense.h"

/* Rows are worked on so many at a time, at the least. */
#define ROWS_TOGETHER 32

/* ---- threads ----------------------------------------------------------------------------------------------------- */

typedef struct {
    void (*of_share)(const void *given, int64_t share, int64_t n_shares, REAL *room);
    const void *given;
    REAL *room; /* of this thread */
    int64_t first, n_threads, n_shares;
} Worker;

static void *begin(void *which) {
    const Worker *w = which;
    const uint64_t before = flush_tiny();
    for (int64_t share = w->first; share < w->n_shares; share += w->n_threads)
        w->of_share(w->given, share, w->n_shares, w->room);
    restore_tiny(before);
    return 0;
}

/* Works on all shares, each thread with a room of so many numbers; returns 1 without memory. */
static int64_t deal_out(Worker all, int64_t n_room) {
    pthread_t threads[SHARES];
    Worker workers[SHARES];
    int64_t n = all.n_threads < all.n_shares ? all.n_threads : all.n_shares, started = 1;
    n = n < 1 ? 1 : n;
    all.room = malloc(sizeof(REAL) * (size_t)(n * n_room + 1));
    if (!all.room) return 1;
    for (int64_t i = 0; i < n; i++) {
        workers[i] = all;
        workers[i].first = i, workers[i].n_threads = n, workers[i].room = all.room + i * n_room;
    }
    while (started < n && !pthread_create(&threads[started], 0, begin, &workers[started])) started++;
    begin(&workers[0]);
    for (int64_t i = started; i < n; i++) begin(&workers[i]); /* there were not enough threads */
    for (int64_t i = 1; i < started; i++) pthread_join(threads[i], 0);
    free(all.room);
    return 0;
}

/* ---- features ---------------------------------------------------------------------------------------------------- */

/* A network of dense layers, perhaps with a soft tree beside it, and a constant feature. */
typedef struct {
    int64_t n_layers, depth, activation;
    const int64_t *sizes; /* of the inputs, then of each layer */
} Shape;

static int64_t widest(const Shape *s) {
    int64_t most = s->depth;
    for (int64_t l = 1; l <= s->n_layers; l++) most = s->sizes[l] > most ? s->sizes[l] : most;
    return most;
}

static int64_t n_theta(const Shape *s) {
    int64_t n = 0;
    for (int64_t l = 0; l < s->n_layers; l++) n += s->sizes[l + 1] * (s->sizes[l] + 1);
    return n;
}

/* Those of the last layer, then 2^depth leaves if there is a tree, and the constant one. */
static int64_t n_features(const Shape *s) {
    return s->sizes[s->n_layers] + (s->depth ? (int64_t)1 << s->depth : 0) + 1;
}

/* Tiles that there must be room for: the features, and what is needed on the way. */
static int64_t tiles_of_room(const Shape *s) { return n_features(s) + 1 + 2 * widest(s); }

/* Makes all leaves of a tree, of this size in all, from its questions' answers before the sigmoid. */
static void grow_leaves(const Shape *s, REAL *asked, REAL size, int64_t rows, REAL *leaves) {
    for (int64_t r = 0; r < rows; r += LANES) store(leaves + r, all(size));
    for (int64_t level = 0; level < s->depth; level++) {
        const int64_t half = TILE << level;
        REAL *gate = asked + level * TILE;
        for (int64_t r = 0; r < rows; r += LANES) store(gate + r, 1 / (1 + exponential(-load(gate + r))));
        for (REAL *leaf = leaves; leaf < leaves + half; leaf += TILE)
            for (int64_t r = 0; r < rows; r += LANES) {
                const vec before = load(leaf + r), inner = before * load(gate + r);
                store(leaf + r, before - inner);
                store(leaf + half + r, inner);
            }
    }
}

/* v.x + b of each level's question; most ask about one column. */
static void ask(const Shape *s, const REAL *questions, Rows x, int64_t rows, REAL *asked) {
    const int64_t n_inputs = s->sizes[0];
    for (int64_t level = 0; level < s->depth; level++, asked += TILE) {
        for (int64_t r = 0; r < rows; r += LANES) store(asked + r, all(questions[s->depth * n_inputs + level]));
        for (int64_t i = 0; i < n_inputs; i++) {
            const REAL v = questions[level * n_inputs + i];
            for (int64_t r = 0; r < rows && v != 0; r += LANES)
                store(asked + r, load(asked + r) + v * load(x.at + i * x.stride + r));
        }
    }
}

/* The leaves of a tree for a tile, in a room for all features. */
static void leaves_of(const Shape *s, const REAL *questions, REAL size, Rows x, int64_t rows, REAL *room) {
    REAL *spare = room + n_features(s) * TILE;
    if (!s->depth) return;
    ask(s, questions, x, rows, spare);
    grow_leaves(s, spare, size, rows, room + s->sizes[s->n_layers] * TILE);
}

/* The features of a tile, in the first tiles of a room; theta and questions as in Features. */
static void features_of(const Shape *s, const REAL *theta, const REAL *questions, REAL size, Rows x, int64_t rows, REAL *room) {
    const int64_t n = n_features(s);
    REAL *spare = room + n * TILE;
    Rows in = x;
    for (int64_t l = 0; l < s->n_layers; l++) {
        const int64_t a = s->sizes[l], m = s->sizes[l + 1];
        const Rows out = {l == s->n_layers - 1 ? room : spare + (1 + l % 2 * widest(s)) * TILE, TILE};
        product(in, theta, theta + m * a, a, m, rows, out);
        for (int64_t j = 0; j < m; j++) /* slopes are not asked for: all go to the same place */
            activate(out.at + j * TILE, spare, rows, s->activation);
        in = out, theta += m * (a + 1);
    }
    leaves_of(s, questions, size, x, rows, room);
    for (int64_t r = 0; r < rows; r += LANES) store(room + (n - 1) * TILE + r, all(1));
}

typedef struct {
    Shape shape;
    int64_t n_blocks, block_rows, n_threads;
    double size;           /* of the leaves of a tree */
    const REAL *x;         /* n_blocks x inputs x block_rows */
    const REAL *theta;     /* weights and biases, layer by layer */
    const REAL *questions; /* depth x inputs, then depth: those of a tree */
    const REAL *known;     /* what is known already: those without a tree; may be missing */
    REAL *features;        /* n x (n_blocks x block_rows) */
} Features;

static void features_of_share(const void *given, int64_t share, int64_t n_shares, REAL *room) {
    const Features *f = given;
    const int64_t per_block = (f->block_rows + TILE - 1) / TILE, n_tiles = f->n_blocks * per_block;
    const int64_t total = f->n_blocks * f->block_rows, n_inputs = f->shape.sizes[0];
    const int64_t n = n_features(&f->shape), last = f->shape.sizes[f->shape.n_layers];
    for (int64_t i = share * n_tiles / n_shares; i < (share + 1) * n_tiles / n_shares; i++) {
        const int64_t block = i / per_block, from = i % per_block * TILE;
        const int64_t rows = f->block_rows - from < TILE ? f->block_rows - from : TILE;
        const Rows x = {(REAL *)f->x + block * n_inputs * f->block_rows + from, f->block_rows};
        const int64_t place = block * f->block_rows + from;
        if (f->known)
            leaves_of(&f->shape, f->questions, (REAL)f->size, x, rows, room);
        else
            features_of(&f->shape, f->theta, f->questions, (REAL)f->size, x, rows, room);
        for (int64_t j = 0; j < n; j++) {
            const REAL *made = room + j * TILE;
            if (f->known && (j < last || j == n - 1)) made = f->known + (j < last ? j : last) * total + place;
            memcpy(f->features + j * total + place, made, sizeof(REAL) * (size_t)rows);
        }
    }
}

int64_t NAMED(features)(const Features *f) {
    const int64_t n_tiles = f->n_blocks * ((f->block_rows + TILE - 1) / TILE);
    const Worker all = {features_of_share, f, 0, 0, f->n_threads, n_tiles < SHARES ? n_tiles : SHARES};
    return deal_out(all, tiles_of_room(&f->shape) * TILE);
}

/* ---- predictions ------------------------------------------------------------------------------------------------- */

typedef struct {
    Shape shape;
    int64_t rows, n_learners, n_outputs, n_threads;
    const REAL *x;         /* rows x inputs */
    const REAL *theta;     /* of each learner, as above */
    const REAL *questions; /* of each learner */
    const REAL *leaf_size; /* of each learner */
    const REAL *weights;   /* n_learners x n_outputs x n: linear weights */
    double *predictions;   /* rows x n_outputs: from the constant to the sum of all learners */
} Ensemble;

static void predictions_of_share(const void *given, int64_t share, int64_t n_shares, REAL *room) {
    const Ensemble *e = given;
    const int64_t n_tiles = (e->rows + TILE - 1) / TILE, K = e->n_outputs, d = e->shape.sizes[0], n = n_features(&e->shape);
    const int64_t n_asked = e->shape.depth * (d + 1);
    REAL *x = room + tiles_of_room(&e->shape) * TILE, *one = x + d * TILE;
    for (int64_t i = share * n_tiles / n_shares; i < (share + 1) * n_tiles / n_shares; i++) {
        const int64_t from = i * TILE, rows = e->rows - from < TILE ? e->rows - from : TILE;
        const int64_t whole = (rows + ROWS_TOGETHER - 1) / ROWS_TOGETHER * ROWS_TOGETHER; /* what is added is not looked at */
        memset(x, 0, sizeof(REAL) * (size_t)(d * TILE));
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = 0; j < d; j++) x[j * TILE + r] = e->x[(from + r) * d + j];
        for (int64_t m = 0; m < e->n_learners; m++) {
            features_of(&e->shape, e->theta + m * n_theta(&e->shape), e->questions + m * n_asked, e->leaf_size[m],
                        (Rows){x, TILE}, whole, room);
            product((Rows){room, TILE}, e->weights + m * K * n, 0, n, K, whole, (Rows){one, TILE});
            for (int64_t r = 0; r < rows; r++)
                for (int64_t k = 0; k < K; k++) e->predictions[(from + r) * K + k] += one[k * TILE + r];
        }
    }
}

int64_t NAMED(predictions)(const Ensemble *e) {
    const int64_t n_tiles = (e->rows + TILE - 1) / TILE;
    const Worker all = {predictions_of_share, e, 0, 0, e->n_threads, n_tiles < SHARES ? n_tiles : SHARES};
    return deal_out(all, (tiles_of_room(&e->shape) + e->shape.sizes[0] + e->n_outputs) * TILE);
}

/* ---- sums over rows ---------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t rows, n, n_outputs, n_threads;
    const REAL *features;  /* n x rows */
    const REAL *gradient;  /* n_outputs x rows: w g */
    const REAL *curvature; /* rows: w s */
    REAL *parts;           /* of each share: n x n, n x n_outputs */
    double *sums;          /* the sums w s z z', all of it, and w z g' */
} Sums;

static void sums_of_share(const void *given, int64_t share, int64_t n_shares, REAL *room) {
    const Sums *s = given;
    const int64_t n = s->n, K = s->n_outputs, n_tiles = (s->rows + TILE - 1) / TILE;
    REAL *mine = s->parts + share * n * (n + K);
    const Rows plain = {room, TILE}, scaled = {room + n * TILE, TILE};
    memset(mine, 0, sizeof(REAL) * (size_t)(n * (n + K)));
    for (int64_t i = share * n_tiles / n_shares; i < (share + 1) * n_tiles / n_shares; i++) {
        const int64_t from = i * TILE, rows = s->rows - from < TILE ? s->rows - from : TILE;
        for (int64_t j = 0; j < n; j++)
            for (int64_t r = 0; r < rows; r += LANES) {
                const vec z = load(s->features + j * s->rows + from + r);
                store(plain.at + j * TILE + r, z);
                store(scaled.at + j * TILE + r, z * load(s->curvature + from + r));
            }
        outer(scaled, n, plain, n, rows, mine, 1);
        outer(plain, n, (Rows){(REAL *)s->gradient + from, s->rows}, K, rows, mine + n * n, 0);
    }
}

int64_t NAMED(sums)(const Sums *given) {
    Sums s = *given;
    const int64_t n = s.n, each = n * (n + s.n_outputs), n_tiles = (s.rows + TILE - 1) / TILE;
    const int64_t n_shares = n_tiles < SHARES ? n_tiles : SHARES;
    s.parts = malloc(sizeof(REAL) * (size_t)(n_shares * each));
    const int64_t failed = !s.parts || deal_out((Worker){sums_of_share, &s, 0, 0, s.n_threads, n_shares}, 2 * n * TILE);
    for (int64_t i = 0; i < each && !failed; i++) {
        s.sums[i] = 0;
        for (int64_t share = 0; share < n_shares; share++) s.sums[i] += s.parts[share * each + i];
    }
    for (int64_t i = 0; i < n && !failed; i++) /* only the upper triangle was added up */
        for (int64_t j = 0; j < i; j++) s.sums[i * n + j] = s.sums[j * n + i];
    free(s.parts);
    return failed;
}
