/* stats_bootstrap.c: how sure a statistic of correlated values is, from blocks of neighbours. */
#include "dpb_stats.h"

#include <math.h>
#include <stdlib.h>

#include "dpb_rng.h"

#define RHO_MOST 0.95 /* the length has no bound at 1 */

size_t dpb_stats_block_length(double rho, size_t count)
{
    if (!(rho > 0))
        return 1;
    rho = fmin(rho, RHO_MOST);
    const double length = pow(sqrt(6) * rho / (1 - rho * rho), 2.0 / 3) * cbrt((double)count);
    return (size_t)fmax(1, round(length));
}

void dpb_stats_resample_blocks(const double *values, size_t count, size_t block,
                               const size_t *starts, double *resample)
{
    for (size_t i = 0; i < count; i++)
        resample[i] = values[(starts[i / block] + i % block) % count];
}

/* `room` has `count` values and `resamples` more. */
static struct dpb_bootstrap of_resamples(const double *values, size_t count, size_t block,
                                         double (*statistic)(const double *, size_t),
                                         size_t resamples, uint64_t seed, double *room,
                                         size_t *starts)
{
    const size_t blocks = (count + block - 1) / block;
    double *found = room + count;
    struct dpb_rng rng;

    dpb_rng_init(&rng, seed, 0);
    for (size_t r = 0; r < resamples; r++) {
        for (size_t b = 0; b < blocks; b++)
            starts[b] = (size_t)dpb_rng_below(&rng, count);
        dpb_stats_resample_blocks(values, count, block, starts, room);
        found[r] = statistic(room, count);
    }
    return (struct dpb_bootstrap){.se = dpb_stats_stdev(found, resamples),
                                  .low90 = dpb_stats_quantile(found, resamples, 0.05),
                                  .high90 = dpb_stats_quantile(found, resamples, 0.95)};
}

struct dpb_bootstrap dpb_stats_block_bootstrap(const double *values, size_t count, size_t block,
                                               double (*statistic)(const double *, size_t),
                                               size_t resamples, uint64_t seed)
{
    struct dpb_bootstrap bootstrap = {NAN, NAN, NAN};
    double *room = malloc((count + resamples) * sizeof(*room));
    size_t *starts = malloc((count + 1) * sizeof(*starts));

    if (room && starts && count >= 2 && block >= 1 && resamples >= 2)
        bootstrap = of_resamples(values, count, block, statistic, resamples, seed, room, starts);
    free(room);
    free(starts);
    return bootstrap;
}
