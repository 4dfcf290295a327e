/* import_private.h: what the readers of other tools' files share. */
#ifndef IMPORT_PRIVATE_H
#define IMPORT_PRIVATE_H

#include "dpb_hash.h"
#include "dpb_import.h"

struct import {
    const char *text; /* terminated */
    size_t count;
    const char *file;
    bool higher_is_better;
    const dpb_json *root;               /* of JSON formats */
    char sha256[DPB_SHA256_TEXT_BYTES]; /* of the text */
    struct dpb_gate_set *set;           /* filled by the reader */
};

/* A run that is being filled. */
struct import_run {
    struct dpb_gate_cell *cell;
    size_t number;
};

/* Logs "file: <where>: <what>": DPB_ERR_CORRUPT. */
dpb_status import_bad(const struct import *in, const char *where, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* One more run of the benchmark `name`. */
dpb_status import_begin(struct import *in, const char *name, struct import_run *run);
/* Its value. Not finite or below 0: DPB_ERR_CORRUPT with `where`. */
dpb_status import_put(const struct import *in, const struct import_run *run, const char *metric,
                      double value, const char *where);
/* The runs of the cell prove nothing; the first reason stays. */
void import_trouble(const struct import_run *run, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
dpb_status import_fact(const struct import *in, const struct import_run *run, const char *key,
                       const dpb_json *value);

/* A member that must be a number, a text, an array; `where` names the object. */
dpb_status import_number(const struct import *in, const dpb_json *object, const char *where,
                         const char *key, double *number);
dpb_status import_text(const struct import *in, const dpb_json *object, const char *where,
                       const char *key, const char **text);
dpb_status import_array(const struct import *in, const dpb_json *object, const char *where,
                        const char *key, const dpb_json **array);

dpb_status import_google_benchmark(struct import *in);
dpb_status import_nccl_json(struct import *in);
dpb_status import_pytorch_ddp(struct import *in);
dpb_status import_hyperfine(struct import *in);
dpb_status import_pyperf(struct import *in);
dpb_status import_nvbench(struct import *in);
dpb_status import_nccl_text(struct import *in);
dpb_status import_csv(struct import *in);

/* One size of nccl-tests: time in microseconds and bus bandwidth in GB/s; `wrong` NaN: not checked.
 * A bandwidth of 0 is none: that of one rank, or one that two decimals do not show. */
dpb_status import_nccl_row(struct import *in, const char *name, double size_bytes, double time_us,
                           double busbw, double wrong, const char *where);

#endif
