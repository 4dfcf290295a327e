/* dpb_changepoint.h: where a series of values changed its level, one value per commit.
 *
 * E-divisive (Matteson and James 2014): the split of a stretch, between its beginning and any later
 * end, with the largest energy distance
 *   Q = mn/(m+n) (2/(mn) sum |x - y| - 2/(m(m-1)) sum |x - x'| - 2/(n(n-1)) sum |y - y'|)
 * is a change when few random orders of the stretch have a larger one: p = (b + 1) / (B + 1). When
 * what is left after the split is autocorrelated (lag 1 above 0.2), blocks of neighbours are
 * permuted instead of single values. Points that are found are tested again between their
 * neighbours, the weakest first, by permutation and by Welch's t (with n - 1). A stretch of so few
 * values that their orders cannot make p small enough is decided by Student's t, times the number
 * of splits. Windows keep the work linear in the number of values. The seed is the caller's, and
 * told: the same seed, the same answer, bit by bit. */
#ifndef DPB_CHANGEPOINT_H
#define DPB_CHANGEPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_changepoint_options {
    double p;            /* largest of a change, 0.01 */
    double least_change; /* smaller relative changes of the mean are left out, 0 */
    int permutations;    /* B, 999 */
    size_t window;       /* values that are looked at together, 100; at least 10 */
    size_t confirm;      /* values from the change on that confirm it, itself not counted: 3 */
    uint64_t seed;
};
#define DPB_CHANGEPOINT_OPTIONS_DEFAULT                                                            \
    {                                                                                              \
        .p = 0.01, .permutations = 999, .window = 100, .confirm = 3, .seed = 1                     \
    }

struct dpb_changepoint {
    size_t index;         /* of the first value after the change */
    double before, after; /* means up to the neighbouring changes */
    double change;        /* after / before - 1; NaN when `before` is 0 */
    double p;             /* by permutation */
    size_t block;         /* length of the blocks that were permuted; 1: single values */
    bool is_confirmed;    /* enough values follow */
};

/* The changes of `values` in order; `points` is the caller's to free and NULL when there is none.
 * Values must be finite: DPB_ERR_CORRUPT with `values` as they are. DPB_ERR_NO_MEMORY. */
dpb_status dpb_changepoints_find(const double *values, size_t count,
                                 const struct dpb_changepoint_options *options,
                                 struct dpb_changepoint **points, size_t *point_count);

#ifdef __cplusplus
}
#endif
#endif
