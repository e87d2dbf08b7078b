/* The best question for all leaves of one level of a tree, by histograms: see vpboost.core.trees. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* bins: n_columns x n; leaf: n; gradient: n x n_outputs; curvature: n; seen: which columns may be asked about.
 * Finds the column and the bin after which to cut for the largest sum, over leaves and the sides of the cut, of
 * |sum of gradients|^2 / (sum of curvatures + penalty). found: column and bin, -1 if there is nothing to cut.
 * Returns 0, or 1 without memory. Sums are taken row by row. */
int64_t vpboost_best_cut(int64_t n, int64_t n_columns, int64_t n_bins, int64_t n_leaves, int64_t n_outputs,
                         double penalty, const uint8_t *bins, const uint8_t *leaf, const double *gradient,
                         const double *curvature, const uint8_t *seen, int64_t *found, double *best) {
    int64_t width = n_outputs + 1, cells = n_leaves * n_bins * width;
    double *sums = malloc(sizeof(double) * (size_t)(cells + n_bins + 2 * width));
    if (!sums)
        return 1;
    double *gain = sums + cells, *left = gain + n_bins, *all = left + width;
    found[0] = found[1] = -1;
    *best = -1;
    for (int64_t column = 0; column < n_columns; column++) {
        if (!seen[column])
            continue;
        const uint8_t *bin = bins + column * n;
        int64_t last = 0;
        memset(sums, 0, sizeof(double) * (size_t)(cells + n_bins));
        for (int64_t i = 0; i < n; i++) {
            double *cell = sums + ((int64_t)leaf[i] * n_bins + bin[i]) * width;
            cell[0] += curvature[i];
            for (int64_t k = 0; k < n_outputs; k++)
                cell[k + 1] += gradient[i * n_outputs + k];
            last = bin[i] > last ? bin[i] : last;
        }
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
