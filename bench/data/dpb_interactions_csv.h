/* dpb_interactions_csv.h: files of interactions made up by seed. */
#ifndef DPB_INTERACTIONS_CSV_H
#define DPB_INTERACTIONS_CSV_H

#include <stdint.h>

#include "dpb_dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the first line of a file begins that says that its rows are made up. */
#define DPB_INTERACTIONS_SYNTHETIC "# synthetic"

/* Write `rows` synthetic interactions for a model, as --data interactions reads them: a label that
 * can be learnt, numbers rounded to six decimals, Zipf-distributed integers (0 the most frequent).
 * The first line says that they are synthetic, and so does every record of a run on them or on
 * shards packed from them. Refused (DPB_ERR_USAGE): a model of other samples, a file that is there.
 * Nothing is left behind on failure. */
dpb_status dpb_interactions_csv_write(const struct dpb_model *model, uint64_t seed, int64_t rows,
                                      const char *path);

#ifdef __cplusplus
}
#endif
#endif
