/* machine_private.h: what the files of machine profiles share. */
#ifndef DPB_MACHINE_PRIVATE_H
#define DPB_MACHINE_PRIVATE_H

#include "dpb_machine.h"
#include "dpb_units.h"

enum figure_unit {
    UNIT_SIZE,
    UNIT_RATE,
    UNIT_FLOPS,
    UNIT_TIME,
    UNIT_SHARE,
    UNIT_SHARE0, /* a share that may be 0 */
    UNIT_COUNT,
    UNIT_WATT,
    UNIT_PRICE
};

struct figure_row {
    const char *key;
    enum figure_unit unit;
    double least, most; /* inclusive */
    const char *help;
};

extern const struct figure_row figure_rows[DPB_FIGURE_COUNT];

/* A number with its unit, in SI units. DPB_ERR_USAGE with the reason. */
dpb_status machine_parse_number(enum figure_unit unit, const char *text, double *value,
                                char why[DPB_WHY_BYTES]);

/* What accelerators are known to have: the dense peak of bf16 (V100: fp16) and the memory. False
 * for one that is not known. */
struct known_accelerator {
    const char *name;
    double dense_flops, memory_bytes;
};
const struct known_accelerator *machine_known_accelerator(const char *name);

#endif
