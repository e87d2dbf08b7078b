/* The best question for all leaves of one level of a tree, by histograms: see vpboost.core.trees. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Gradients and curvatures of n rows, and the leaf that each is in. */
typedef struct {
    int64_t n, n_outputs;
    const uint8_t *leaf;
    const double *gradient, *curvature;
} Rows;

static void add_row(const Rows *rows, int64_t i, double *cell) {
    cell[0] += rows->curvature[i];
    for (int64_t k = 0; k < rows->n_outputs; k++)
        cell[k + 1] += rows->gradient[i * rows->n_outputs + k];
}

/* Adds rows to the sums of their leaves and bins; returns the last bin that one is in. */
static int64_t add_all(const Rows *rows, const uint8_t *bin, int64_t n_bins, double *sums) {
    const int64_t width = rows->n_outputs + 1;
    int64_t last = 0;
    for (int64_t i = 0; i < rows->n; i++) {
        add_row(rows, i, sums + ((int64_t)rows->leaf[i] * n_bins + bin[i]) * width);
        last = bin[i] > last ? bin[i] : last;
    }
    return last;
}

/* The same by the rows that are not in the bin that most are in, which has the rest of each leaf's sum. */
static int64_t add_uncommon(const Rows *rows, const uint8_t *bin, int64_t n_bins, double *sums, uint8_t common,
                            const double *of_leaf, int64_t n_leaves) {
    const int64_t width = rows->n_outputs + 1;
    int64_t last = common;
    uint64_t eight, eight_common;
    memset(&eight_common, common, sizeof eight_common);
    for (int64_t i = 0; i < rows->n; i++) {
        if (i + 8 <= rows->n) {
            memcpy(&eight, bin + i, sizeof eight);
            if (eight == eight_common) {
                i += 7;
                continue;
            }
        }
        if (bin[i] == common)
            continue;
        add_row(rows, i, sums + ((int64_t)rows->leaf[i] * n_bins + bin[i]) * width);
        last = bin[i] > last ? bin[i] : last;
    }
    for (int64_t one = 0; one < n_leaves; one++) {
        double *row = sums + one * n_bins * width;
        for (int64_t k = 0; k < width; k++) {
            double others = 0;
            for (int64_t b = 0; b <= last; b++)
                others += row[b * width + k];
            row[common * width + k] = of_leaf[one * width + k] - others;
        }
    }
    return last;
}

/* bins: n_columns x n; leaf: n; gradient: n x n_outputs; curvature: n; seen: which columns may be asked about; common:
 * the bin of a column that most rows are in, -1 if there is none. Finds the column and the bin after which to cut for
 * the largest sum, over leaves and the sides of the cut, of |sum of gradients|^2 / (sum of curvatures + penalty).
 * found: column and bin, -1 if there is nothing to cut. Returns 0, or 1 without memory. */
int64_t vpboost_best_cut(int64_t n, int64_t n_columns, int64_t n_bins, int64_t n_leaves, int64_t n_outputs,
                         double penalty, const uint8_t *bins, const uint8_t *leaf, const double *gradient,
                         const double *curvature, const uint8_t *seen, const int16_t *common, int64_t *found,
                         double *best) {
    int64_t width = n_outputs + 1, cells = n_leaves * n_bins * width;
    double *sums = calloc((size_t)(cells + n_bins + (2 + n_leaves) * width), sizeof(double));
    if (!sums)
        return 1;
    double *gain = sums + cells, *left = gain + n_bins, *all = left + width, *of_leaf = all + width;
    const Rows rows = {n, n_outputs, leaf, gradient, curvature};
    for (int64_t i = 0; i < n; i++)
        add_row(&rows, i, of_leaf + leaf[i] * width);
    found[0] = found[1] = -1;
    *best = -1;
    for (int64_t column = 0; column < n_columns; column++) {
        if (!seen[column])
            continue;
        const uint8_t *bin = bins + column * n;
        memset(sums, 0, sizeof(double) * (size_t)(cells + n_bins));
        const int64_t last =
            common[column] < 0
                ? add_all(&rows, bin, n_bins, sums)
                : add_uncommon(&rows, bin, n_bins, sums, (uint8_t)common[column], of_leaf, n_leaves);
        for (int64_t one = 0; one < n_leaves; one++) {
            const double *row = sums + one * n_bins * width;
            memset(left, 0, sizeof(double) * (size_t)(2 * width));
            for (int64_t b = 0; b <= last; b++)
                for (int64_t k = 0; k < width; k++)
                    all[k] += row[b * width + k];
            double gained = 0;
            for (int64_t b = 0; b < last; b++) {
                int empty = b > 0; /* then nothing changes */
                for (int64_t k = 0; k < width; k++) {
                    empty &= row[b * width + k] == 0;
                    left[k] += row[b * width + k];
                }
                if (!empty) {
                    double squares = 0, others = 0;
                    for (int64_t k = 1; k < width; k++) {
                        squares += left[k] * left[k];
                        others += (all[k] - left[k]) * (all[k] - left[k]);
                    }
                    gained = squares / (left[0] + penalty) + others / (all[0] - left[0] + penalty);
                }
                gain[b] += gained;
            }
        }
        for (int64_t b = 0; b < last; b++)
            if (gain[b] > *best) {
                *best = gain[b];
                found[0] = column;
                found[1] = b;
            }
    }
    free(sums);
    return 0;
}
