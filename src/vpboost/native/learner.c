/* Trains a network of dense layers by variable projection: the loop of Algorithm 1, for the learners that most fits have.
 *
 * A step is that of vpboost.core.objective.value_and_slopes where curvatures are multiples of the identity, H_i = s_i I,
 * followed by one of Adam; tests hold both against each other. Two passes over the rows: the first computes features z
 * and adds up g = sum w z g' and H = sum w s z z', which give the linear weights W; the second adds up the slopes by theta.
 *
 * Rows lie last, in blocks of a multiple of 32. They are worked on in tiles, which stay in the cache, and tiles are dealt
 * out to shares, whose sums are added up in order: results do not depend on the number of threads.
 *
 * It is compiled for each precision and for vectors of some sizes: see dense.h.
 */
#include "dense.h"

#include <sched.h>

typedef struct {
    int64_t n_blocks, block_rows;
    int64_t n_layers, n_outputs, n_steps;
    int64_t n_batch; /* blocks of rows at every step; 0 for all of them */
    int64_t activation, n_threads;
    double reg, reg_theta, damping; /* lambda_w, lambda_theta, what Adam adds to the size of slopes */
    const int64_t *sizes;           /* of the inputs, then of each layer */
    const int64_t *chosen;          /* n_steps x n_batch numbers of blocks */
    const double *factors;          /* n_steps: one over the weight of the rows */
    const double *step_sizes;       /* n_steps, with their sign */
    const REAL *x;                  /* n_blocks x inputs x block_rows */
    const REAL *gradient;           /* n_blocks x n_outputs x block_rows: w g */
    const REAL *curvature;          /* n_blocks x block_rows: w s */
    REAL *theta;                    /* weights and biases, layer by layer: from first guess to result */
    REAL *trace;                    /* n_steps: the objective */
} Task;

/* Multiplies by the slope of the activation; returns the sum over rows. */
static REAL through_activation(REAL *by, const REAL *values, const REAL *slopes, int64_t rows, int64_t activation) {
    vec total = {0};
    for (int64_t r = 0; r < rows; r += LANES) {
        vec z = load(values + r), d = load(by + r);
        if (activation == TANH)
            d = d * (1 - z * z);
        else if (activation == SILU)
            d = d * load(slopes + r);
        else
            d = choose(z > 0, d, all(0));
        store(by + r, d);
        total += d;
    }
    return sum_of(total);
}

/* ---- the reduced problem ----------------------------------------------------------------------------------------- */

/* Factors U' U the matrix plus reg times the identity, its diagonal scaled to one; reads upper triangles, and writes one.
 * Where rounding has made it indefinite, ever more is added to the diagonal. */
static void factorise(const double *matrix, int64_t n, double reg, double *factor, double *scale) {
    const double tiny = DOUBLE ? 2.3e-308 : 1.2e-38, eps = DOUBLE ? 2.220446049250313e-16 : 1.1920929e-07;
    for (int64_t i = 0; i < n; i++) scale[i] = 1 / sqrt(fmax(matrix[i * n + i] + reg, tiny));
    int sound = 0;
    for (double jitter = 0; !sound && jitter < 1; jitter = fmax(10 * jitter, n * eps)) {
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = i; j < n; j++) factor[i * n + j] = scale[i] * scale[j] * matrix[i * n + j];
            factor[i * n + i] = scale[i] * scale[i] * (matrix[i * n + i] + reg) + jitter;
        }
        sound = 1;
        for (int64_t i = 0; i < n && sound; i++) { /* along rows, so that numbers can be worked on side by side */
            double *row = factor + i * n;
            sound = row[i] > 0;
            const double pivot = sqrt(row[i]);
            for (int64_t j = i; j < n; j++) row[j] /= pivot;
            for (int64_t k = i + 1; k < n; k++) {
                double *other = factor + k * n;
                const double share = row[k];
                for (int64_t j = k; j < n; j++) other[j] -= share * row[j];
            }
            row[i] = pivot;
        }
    }
}

/* Replaces right-hand sides by minus the solution, with what factorise has left. */
static void solve(const double *factor, const double *scale, int64_t n, int64_t n_right, double *right) {
    for (int64_t c = 0; c < n_right; c++) {
        double *x = right + c;
        for (int64_t i = 0; i < n; i++) x[i * n_right] *= -scale[i];
        for (int64_t i = 0; i < n; i++) {
            const double found = x[i * n_right] /= factor[i * n + i];
            for (int64_t k = i + 1; k < n; k++) x[k * n_right] -= factor[i * n + k] * found;
        }
        for (int64_t i = n - 1; i >= 0; i--) {
            double s = x[i * n_right];
            for (int64_t k = i + 1; k < n; k++) s -= factor[i * n + k] * x[k * n_right];
            x[i * n_right] = s / factor[i * n + i];
        }
        for (int64_t i = 0; i < n; i++) x[i * n_right] *= scale[i];
    }
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const Task *task;
    int64_t n, n_features; /* features with and without the constant one */
    int64_t n_theta, n_units, widest, n_tiles, tiles_of_block, n_shares, n_sums, n_scratch;
    REAL *values, *slopes;  /* of all units, tile by tile; then the constant feature */
    REAL *scratch, *sums;   /* of each share */
    REAL *turned;           /* theta, weights by input instead of by unit */
    REAL *first, *second;   /* Adam's moments */
    REAL *weights, *by_output; /* W, and W turned */
    double *hessian, *factor, *scale, *solution;
    double penalty, power[2];
    int64_t waiting, turn;
    pthread_mutex_t lock;
    pthread_cond_t everyone;
} Room;

typedef struct {
    int64_t rows;
    Rows x, gradient;
    const REAL *curvature;
    REAL *values, *slopes;
} Tile;

static Tile tile_of(const Room *room, int64_t step, int64_t i) {
    const Task *t = room->task;
    const int64_t of_step = i / room->tiles_of_block, from = i % room->tiles_of_block * TILE, rows = t->block_rows;
    const int64_t block = t->n_batch ? t->chosen[step * t->n_batch + of_step] : of_step;
    const int64_t place = i * room->n_units * TILE;
    return (Tile){
        .rows = rows - from < TILE ? rows - from : TILE,
        .x = {(REAL *)t->x + block * t->sizes[0] * rows + from, rows},
        .gradient = {(REAL *)t->gradient + block * t->n_outputs * rows + from, rows},
        .curvature = t->curvature + block * rows + from,
        .values = room->values + place,
        .slopes = t->activation == SILU ? room->slopes + place : room->values,
    };
}

/* Features of a share's rows, and its parts of H and g. */
static void forward(Room *room, int64_t step, int64_t share) {
    const Task *t = room->task;
    const int64_t n = room->n, K = t->n_outputs;
    REAL *sums = room->sums + share * room->n_sums;
    Rows scaled = {room->scratch + share * room->n_scratch, TILE};
    memset(sums, 0, (n * n + n * K) * sizeof(REAL));
    for (int64_t i = share * room->n_tiles / room->n_shares; i < (share + 1) * room->n_tiles / room->n_shares; i++) {
        Tile tile = tile_of(room, step, i);
        Rows in = tile.x, out = {tile.values, TILE};
        REAL *slopes = tile.slopes;
        const REAL *theta = t->theta;
        for (int64_t l = 0; l < t->n_layers; l++) {
            const int64_t a = t->sizes[l], m = t->sizes[l + 1];
            product(in, theta, theta + m * a, a, m, tile.rows, out);
            for (int64_t j = 0; j < m; j++)
                activate(out.at + j * TILE, slopes + j * TILE, tile.rows, t->activation);
            in = out, out.at += m * TILE, slopes += m * TILE, theta += m * (a + 1);
        }
        for (int64_t j = 0; j < n; j++)
            for (int64_t r = 0; r < tile.rows; r += LANES)
                store(scaled.at + j * TILE + r, load(in.at + j * TILE + r) * load(tile.curvature + r));
        outer(scaled, n, in, n, tile.rows, sums, 1);
        outer(in, n, tile.gradient, K, tile.rows, sums + n * n, 0);
    }
}

static double over_shares(const Room *room, int64_t i) {
    double total = 0;
    for (int64_t share = 0; share < room->n_shares; share++) total += room->sums[share * room->n_sums + i];
    return total;
}

/* W = -(H + reg I)^-1 g, zero if that is not finite. */
static void solve_reduced(Room *room, int64_t step) {
    const Task *t = room->task;
    const int64_t n = room->n, K = t->n_outputs;
    for (int64_t i = 0; i < n * n; i++) room->hessian[i] = t->factors[step] * over_shares(room, i);
    for (int64_t i = 0; i < n * K; i++) room->solution[i] = t->factors[step] * over_shares(room, n * n + i);
    factorise(room->hessian, n, t->reg, room->factor, room->scale);
    solve(room->factor, room->scale, n, K, room->solution);
    int finite = 1;
    for (int64_t i = 0; i < n * K; i++) finite &= isfinite((REAL)room->solution[i]) != 0;
    room->penalty = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < K; k++) {
            const double w = finite ? room->solution[i * K + k] : 0;
            room->weights[i * K + k] = room->by_output[k * n + i] = (REAL)w;
            room->penalty += t->reg * w * w;
        }
    for (int64_t l = 0, at = 0; l < t->n_layers; at += t->sizes[l + 1] * (t->sizes[l] + 1), l++)
        for (int64_t j = 0; j < t->sizes[l + 1]; j++)
            for (int64_t i = 0; i < t->sizes[l]; i++)
                room->turned[at + i * t->sizes[l + 1] + j] = t->theta[at + j * t->sizes[l] + i];
}

/* A share's parts of the slopes of Q by theta, and of Q. */
static void backward(Room *room, int64_t step, int64_t share) {
    const Task *t = room->task;
    const int64_t n = room->n, K = t->n_outputs;
    REAL *sums = room->sums + share * room->n_sums, *scratch = room->scratch + share * room->n_scratch;
    Rows u = {scratch + 2 * room->widest * TILE, TILE};
    vec value = {0};
    memset(sums, 0, (room->n_theta + 1) * sizeof(REAL));
    for (int64_t i = share * room->n_tiles / room->n_shares; i < (share + 1) * room->n_tiles / room->n_shares; i++) {
        Tile tile = tile_of(room, step, i);
        int64_t unit = room->n_units - n, end = room->n_theta;
        Rows by = {scratch, TILE}, next = {scratch + room->widest * TILE, TILE};
        product((Rows){tile.values + unit * TILE, TILE}, room->by_output, 0, n, K, tile.rows, u);
        for (int64_t k = 0; k < K; k++)
            for (int64_t r = 0; r < tile.rows; r += LANES) {
                vec g = load(tile.gradient.at + k * tile.gradient.stride + r), step_of_k = load(u.at + k * TILE + r);
                vec slope = g + load(tile.curvature + r) * step_of_k;
                value += step_of_k * (g + slope);
                store(u.at + k * TILE + r, slope);
            }
        product(u, room->weights, 0, K, room->n_features, tile.rows, by);
        for (int64_t l = t->n_layers - 1; l >= 0; l--) {
            const int64_t a = t->sizes[l], m = t->sizes[l + 1];
            end -= m * (a + 1);
            for (int64_t j = 0; j < m; j++) {
                const int64_t place = (unit + j) * TILE;
                sums[end + m * a + j] += through_activation(by.at + j * TILE, tile.values + place,
                                                            tile.slopes + place, tile.rows, t->activation);
            }
            unit -= l ? a : 0;
            Rows in = {tile.values + unit * TILE, TILE};
            outer(by, m, l ? in : tile.x, a, tile.rows, sums + end, 0);
            if (l) {
                product(by, room->turned + end, 0, m, a, tile.rows, next);
                Rows other = by;
                by = next, next = other;
            }
        }
    }
    sums[room->n_theta] = sum_of(value);
}

/* A step of Adam. */
static void move(Room *room, int64_t step) {
    const Task *t = room->task;
    const REAL decay[2] = {(REAL)0.9, (REAL)0.999}, size = (REAL)t->step_sizes[step], damping = (REAL)t->damping;
    REAL *theta = t->theta, *first = room->first, *second = room->second, *slopes = room->turned; /* done with those */
    double squares = 0;
    room->power[0] *= 0.9, room->power[1] *= 0.999;
    const REAL correct[2] = {(REAL)(1 / (1 - room->power[0])), (REAL)(1 / (1 - room->power[1]))};
    for (int64_t i = 0; i < room->n_theta && t->reg_theta > 0; i++) squares += (double)theta[i] * theta[i];
    for (int64_t i = 0; i < room->n_theta; i++)
        slopes[i] = (REAL)(t->factors[step] * over_shares(room, i) + t->reg_theta * theta[i]);
    for (int64_t i = 0; i < room->n_theta; i++) { /* simple enough for the compiler to take many at a time */
        const REAL slope = slopes[i];
        first[i] = decay[0] * first[i] + (1 - decay[0]) * slope;
        second[i] = decay[1] * second[i] + (1 - decay[1]) * (slope * slope);
        theta[i] += size * (first[i] * correct[0]) / (ROOT(second[i] * correct[1]) + damping);
    }
    const double value = t->factors[step] * over_shares(room, room->n_theta);
    t->trace[step] = (REAL)(0.5 * (value + room->penalty + t->reg_theta * squares));
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* How often a thread looks for the others before it sleeps, and at which looks it lets others work on its core. To wake
 * it may take a virtual machine a tenth of a millisecond, as long as a step. */
enum { LOOKS = 20000, GIVE_WAY = 16 };

static void look_away(int look) {
    if (look % GIVE_WAY == 0) sched_yield();
#if defined(__x86_64__)
    else __builtin_ia32_pause();
#elif defined(__aarch64__)
    else __asm__ __volatile__("yield");
#endif
}

/* Waits until all threads are here. */
static void meet(Room *room) {
    if (room->task->n_threads < 2) return;
    const int64_t turn = __atomic_load_n(&room->turn, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&room->waiting, 1, __ATOMIC_ACQ_REL) == room->task->n_threads) {
        __atomic_store_n(&room->waiting, 0, __ATOMIC_RELAXED);
        pthread_mutex_lock(&room->lock);
        __atomic_store_n(&room->turn, turn + 1, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&room->everyone);
        pthread_mutex_unlock(&room->lock);
        return;
    }
    for (int i = 0; i < LOOKS; i++) {
        if (__atomic_load_n(&room->turn, __ATOMIC_ACQUIRE) != turn) return;
        look_away(i);
    }
    pthread_mutex_lock(&room->lock);
    while (turn == __atomic_load_n(&room->turn, __ATOMIC_ACQUIRE)) pthread_cond_wait(&room->everyone, &room->lock);
    pthread_mutex_unlock(&room->lock);
}

static void work(Room *room, int64_t thread) {
    const int64_t n_threads = room->task->n_threads;
    const uint64_t before = flush_tiny();
    for (int64_t step = 0; step < room->task->n_steps; step++) {
        for (int64_t share = thread; share < room->n_shares; share += n_threads) forward(room, step, share);
        meet(room);
        if (!thread) solve_reduced(room, step);
        meet(room);
        for (int64_t share = thread; share < room->n_shares; share += n_threads) backward(room, step, share);
        meet(room);
        if (!thread) move(room, step);
        meet(room);
    }
    restore_tiny(before);
}

typedef struct {
    Room *room;
    int64_t thread;
} Worker;

static void *begin(void *given) {
    const Worker *worker = given;
    /* not before it is known how many there are */
    pthread_mutex_lock(&worker->room->lock);
    pthread_mutex_unlock(&worker->room->lock);
    work(worker->room, worker->thread);
    return 0;
}

static void work_together(Room *room, Task *task) {
    pthread_t threads[SHARES];
    Worker workers[SHARES];
    int64_t n = 1;
    pthread_mutex_init(&room->lock, 0);
    pthread_cond_init(&room->everyone, 0);
    pthread_mutex_lock(&room->lock);
    for (; n < task->n_threads && n < room->n_shares; n++) {
        workers[n] = (Worker){room, n};
        if (pthread_create(&threads[n], 0, begin, &workers[n])) break;
    }
    task->n_threads = n;
    pthread_mutex_unlock(&room->lock);
    work(room, 0);
    for (int64_t i = 1; i < n; i++) pthread_join(threads[i], 0);
    pthread_cond_destroy(&room->everyone);
    pthread_mutex_destroy(&room->lock);
}

/* ------------------------------------------------------------------------------------------------------------------ */

static REAL *take(REAL **from, int64_t n) {
    REAL *taken = *from;
    *from += (n + 15) / 16 * 16;
    return taken;
}

/* Takes the steps of a task; returns 1 if there is no memory for it. */
int64_t NAMED(train)(const Task *given) {
    Task task = *given;
    const int64_t K = task.n_outputs, L = task.n_layers, n = task.sizes[L] + 1;
    const int64_t tiles_of_block = (task.block_rows + TILE - 1) / TILE;
    const int64_t n_tiles = (task.n_batch ? task.n_batch : task.n_blocks) * tiles_of_block;
    Room room = {.task = &task, .n = n, .n_features = n - 1, .n_units = 1, .widest = n, .n_tiles = n_tiles,
                 .tiles_of_block = tiles_of_block, .n_shares = n_tiles < SHARES ? n_tiles : SHARES, .power = {1, 1}};
    for (int64_t l = 0; l < L; l++) {
        room.n_theta += task.sizes[l + 1] * (task.sizes[l] + 1);
        room.n_units += task.sizes[l + 1];
        if (task.sizes[l + 1] > room.widest) room.widest = task.sizes[l + 1];
    }
    const int64_t n_reduced = n * n + n * K, n_values = n_tiles * room.n_units * TILE, n_slopes = task.activation == SILU ? n_values : 0;
    room.n_sums = (n_reduced > room.n_theta + 1 ? n_reduced : room.n_theta + 1) + 16;
    room.n_scratch = (2 * room.widest + K) * TILE;
    const int64_t wanted = n_values + n_slopes + room.n_shares * (room.n_scratch + room.n_sums) + 3 * room.n_theta + 2 * n * K + 256;
    REAL *memory = calloc(wanted, sizeof(REAL));
    double *fine = calloc(2 * n * n + n * K + n, sizeof(double));
    if (memory && fine) {
        REAL *at = memory;
        room.values = take(&at, n_values), room.slopes = take(&at, n_slopes);
        room.scratch = take(&at, room.n_shares * room.n_scratch), room.sums = take(&at, room.n_shares * room.n_sums);
        room.turned = take(&at, room.n_theta), room.first = take(&at, room.n_theta), room.second = take(&at, room.n_theta);
        room.weights = take(&at, n * K), room.by_output = take(&at, n * K);
        room.hessian = fine, room.factor = fine + n * n, room.solution = fine + 2 * n * n, room.scale = room.solution + n * K;
        for (int64_t i = 0; i < n_tiles; i++)
            for (int64_t r = 0; r < TILE; r++) room.values[((i + 1) * room.n_units - 1) * TILE + r] = 1;
        work_together(&room, &task);
    }
    const int64_t failed = !memory || !fine;
    free(memory);
    free(fine);
    return failed;
}
