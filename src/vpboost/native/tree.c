/* The best question for all leaves of one level of a tree, by histograms: see vpboost.core.trees. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Bits that say in which bins of a leaf there is a row. */
enum { WORDS = 4 };

#define INLINE static inline __attribute__((always_inline))

typedef double two __attribute__((vector_size(16), aligned(8), may_alias));

/* n rows: the leaf that each is in; its curvature, then its gradients, are so many numbers. */
typedef struct {
    int64_t n, width;
    const uint8_t *leaf;
    const double *numbers;
} Rows;

/* Sums of curvatures and gradients by leaf and bin; those without a row are zero, and most are where rows are few. */
typedef struct {
    int64_t n_bins, n_leaves, width;
    double *sums;
    uint64_t *filled; /* n_leaves x WORDS */
} Cells;

static double *cell(const Cells *cells, int64_t leaf, int64_t bin) {
    return cells->sums + (leaf * cells->n_bins + bin) * cells->width;
}

static void mark(const Cells *cells, int64_t leaf, int64_t bin) {
    cells->filled[leaf * WORDS + (bin >> 6)] |= (uint64_t)1 << (bin & 63);
}

/* Returns the first bin of a leaf from this one on that has a row, n_bins if there is none. */
static int64_t next_filled(const Cells *cells, int64_t leaf, int64_t bin) {
    const uint64_t *filled = cells->filled + leaf * WORDS;
    for (; bin < cells->n_bins; bin = (bin | 63) + 1) {
        const uint64_t word = filled[bin >> 6] >> (bin & 63);
        if (word)
            return bin + __builtin_ctzll(word);
    }
    return cells->n_bins;
}

INLINE void add_row(const Rows *rows, int64_t i, double *sums) {
    if (rows->width == 2) { /* the usual case, which need not be a loop */
        *(two *)sums += *(const two *)(rows->numbers + 2 * i);
        return;
    }
    for (int64_t k = 0; k < rows->width; k++)
        sums[k] += rows->numbers[i * rows->width + k];
}

/* Rows of a column: all of them, or those that are not in the bin that most are in. */
typedef struct {
    int64_t n;
    const int32_t *places; /* NULL: all */
} Listed;

/* Adds rows to the sums of their leaves and bins, of which the last with a row is known. */
static void add_rows(const Rows *rows, Listed listed, const uint8_t *bin, int64_t last, const Cells *cells) {
    const int few = listed.n < cells->n_leaves * (last + 1);
    for (int64_t k = 0; k < listed.n; k++) {
        const int64_t i = listed.places ? listed.places[k] : k;
        add_row(rows, i, cell(cells, rows->leaf[i], bin[i]));
        if (few)
            mark(cells, rows->leaf[i], bin[i]);
    }
    for (int64_t leaf = 0; leaf < cells->n_leaves && !few; leaf++) /* most bins have rows: all count as having some */
        for (int64_t b = 0; b <= last; b++)
            mark(cells, leaf, b);
}

/* Gives the bin that most rows are in the rest of each leaf's sum. */
static void add_rest(const Cells *cells, int64_t common, int64_t last, const double *of_leaf) {
    for (int64_t leaf = 0; leaf < cells->n_leaves; leaf++) {
        double *rest = cell(cells, leaf, common);
        for (int64_t k = 0; k < cells->width; k++)
            rest[k] = of_leaf[leaf * cells->width + k];
        for (int64_t b = next_filled(cells, leaf, 0); b <= last; b = next_filled(cells, leaf, b + 1))
            for (int64_t k = 0; k < cells->width && b != common; k++)
                rest[k] -= cell(cells, leaf, b)[k];
        mark(cells, leaf, common);
    }
}

/* Adds to gain[b], for each bin before the last, what a leaf gains by a cut after it; empties the leaf's cells.
 * left and all are space for sums. */
static void add_gains(const Cells *cells, int64_t leaf, int64_t last, double penalty, double *gain, double *left,
                      double *all) {
    const int64_t width = cells->width, first = next_filled(cells, leaf, 0);
    if (first == cells->n_bins)
        return;
    memset(left, 0, sizeof(double) * (size_t)width);
    memset(all, 0, sizeof(double) * (size_t)width);
    for (int64_t b = first; b <= last; b = next_filled(cells, leaf, b + 1))
        for (int64_t k = 0; k < width; k++)
            all[k] += cell(cells, leaf, b)[k];
    for (int64_t b = first, next; b <= last; b = next) {
        double *here = cell(cells, leaf, b), squares = 0, others = 0;
        next = next_filled(cells, leaf, b + 1);
        for (int64_t k = 0; k < width; k++) {
            left[k] += here[k];
            here[k] = 0;
        }
        for (int64_t k = 1; k < width; k++) {
            squares += left[k] * left[k];
            others += (all[k] - left[k]) * (all[k] - left[k]);
        }
        const double gained = squares / (left[0] + penalty) + others / (all[0] - left[0] + penalty);
        for (int64_t same = b; same < (next < last ? next : last); same++) /* empty bins change nothing */
            gain[same] += gained;
    }
    /* before the first row, all is on one side */
    double squares = 0;
    for (int64_t k = 1; k < width; k++)
        squares += all[k] * all[k];
    for (int64_t b = 0; b < (first < last ? first : last); b++)
        gain[b] += squares / (all[0] + penalty);
    memset(cells->filled + leaf * WORDS, 0, sizeof(uint64_t) * WORDS);
}

/* Columns of which those may be cut whose last bin is not the first. */
typedef struct {
    int64_t n;
    const uint8_t *bins;   /* n x rows */
    const int16_t *common; /* the bin that most rows are in, -1 if there is none */
    int16_t *last;         /* the last bin with a row */
    Listed *listed;
} Columns;

/* Finds the column and the bin after which to cut for the largest sum, over leaves and the sides of the cut, of
 * |sum of gradients|^2 / (sum of curvatures + penalty). found: column and bin, -1 if there is nothing to cut. */
static void best_cut(const Rows *rows, const Columns *columns, const Cells *cells, double penalty, double *space,
                     int64_t *found, double *best) {
    const int64_t width = cells->width;
    double *left = space, *all = left + width, *gain = all + width, *of_leaf = gain + cells->n_bins;
    memset(of_leaf, 0, sizeof(double) * (size_t)(cells->n_leaves * width));
    for (int64_t i = 0; i < rows->n; i++)
        add_row(rows, i, of_leaf + rows->leaf[i] * width);
    found[0] = found[1] = -1;
    *best = -1;
    for (int64_t column = 0; column < columns->n; column++) {
        const int64_t last = columns->last[column], common = columns->common[column];
        if (last < 1)
            continue;
        add_rows(rows, columns->listed[column], columns->bins + column * rows->n, last, cells);
        if (common >= 0)
            add_rest(cells, common, last, of_leaf);
        memset(gain, 0, sizeof(double) * (size_t)cells->n_bins);
        for (int64_t leaf = 0; leaf < cells->n_leaves; leaf++)
            add_gains(cells, leaf, last, penalty, gain, left, all);
        for (int64_t b = 0; b < last; b++)
            if (gain[b] > *best) {
                *best = gain[b];
                found[0] = column;
                found[1] = b;
            }
    }
}

/* Puts the numbers of each row side by side. */
static void arrange(int64_t n, int64_t n_outputs, const double *gradient, const double *curvature, double *numbers) {
    for (int64_t i = 0; i < n; i++, numbers += n_outputs + 1) {
        numbers[0] = curvature[i];
        memcpy(numbers + 1, gradient + i * n_outputs, sizeof(double) * (size_t)n_outputs);
    }
}

/* Finds what best_cut wants to know of the columns that are seen; returns the places that are listed, or NULL. */
static int32_t *look_at(const Rows *rows, Columns *columns, const uint8_t *seen) {
    int64_t n_listed = 0;
    for (int64_t column = 0; column < columns->n; column++) {
        const uint8_t *bin = columns->bins + column * rows->n;
        const int16_t common = columns->common[column];
        int64_t others = 0;
        uint8_t most = 0;
        for (int64_t i = 0; i < rows->n && seen[column]; i++) {
            most = bin[i] > most ? bin[i] : most;
            others += bin[i] != common;
        }
        columns->last[column] = seen[column] && common > most ? common : most;
        columns->listed[column] = (Listed){others, NULL};
        n_listed += common < 0 ? 0 : others;
    }
    int32_t *places = malloc(sizeof(int32_t) * (size_t)(n_listed + 1)), *at = places;
    for (int64_t column = 0; column < columns->n && places; column++) {
        const uint8_t *bin = columns->bins + column * rows->n;
        if (columns->common[column] < 0 || !seen[column])
            continue;
        columns->listed[column].places = at;
        for (int64_t i = 0; i < rows->n; i++) { /* without a jump: which rows these are is not to be guessed */
            *at = (int32_t)i;
            at += bin[i] != columns->common[column];
        }
    }
    return places;
}

/* Finds the cuts of a tree level by level, each the best for all leaves that those before have made.
 * bins: n_columns x n, at most 256 of them; leaf: n, the leaf of n_leaves that each row is in, changed by the cuts;
 * gradient: n x n_outputs; curvature: n; seen: which columns may be asked about; common: the bin of a column that most
 * rows are in, -1 if there is none; found: depth x 2, best: depth, as by best_cut; none follow one that is not found.
 * Returns 0, or 1 without memory. */
int64_t vpboost_best_cuts(int64_t n, int64_t n_columns, int64_t n_bins, int64_t n_leaves, int64_t n_outputs,
                          int64_t depth, double penalty, const uint8_t *bins, uint8_t *leaf, const double *gradient,
                          const double *curvature, const uint8_t *seen, const int16_t *common, int64_t *found,
                          double *best) {
    const int64_t width = n_outputs + 1, most_leaves = n_leaves << (depth - 1), n_cells = most_leaves * n_bins * width;
    double *sums = calloc((size_t)(n_cells + n_bins + (2 + most_leaves) * width), sizeof(double));
    uint64_t *filled = calloc((size_t)(most_leaves * WORDS), sizeof(uint64_t));
    double *numbers = malloc(sizeof(double) * (size_t)(n * width + 1));
    int16_t *last = malloc(sizeof(int16_t) * (size_t)(n_columns + 1));
    Listed *listed = malloc(sizeof(Listed) * (size_t)(n_columns + 1));
    int32_t *places = NULL;
    const Rows rows = {n, width, leaf, numbers};
    Columns columns = {n_columns, bins, common, last, listed};
    if (sums && filled && numbers && last && listed) {
        arrange(n, n_outputs, gradient, curvature, numbers);
        places = look_at(&rows, &columns, seen);
    }
    for (int64_t level = 0; level < depth && places; level++) {
        const Cells cells = {n_bins, n_leaves << level, width, sums, filled};
        best_cut(&rows, &columns, &cells, penalty, sums + n_cells, found + 2 * level, best + level);
        if (found[2 * level] < 0)
            break;
        const uint8_t *bin = bins + found[2 * level] * n;
        for (int64_t i = 0; i < n; i++)
            if (bin[i] > found[2 * level + 1])
                leaf[i] += (uint8_t)cells.n_leaves;
    }
    const int without = !places;
    free(sums);
    free(filled);
    free(numbers);
    free(last);
    free(listed);
    free(places);
    return without;
}
