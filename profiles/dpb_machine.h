/* dpb_machine.h: a machine that runs are planned on, as a file of figures
 * (profiles/machines/): what a data sheet says and what was measured, each with its source or
 * the word that it is assumed. docs/machines.md describes the file.
 *
 * Every figure is in SI units here, whatever the file says: bytes, bytes per second, flops per
 * second, seconds, watts, shares. */
#ifndef DPB_MACHINE_H
#define DPB_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

#include "dpb_json.h"
#include "dpb_status.h"
#include "dpb_str.h"

#ifdef __cplusplus
extern "C" {
#endif

/* identifier, key in the file, what it is measured in, least, most, help */
#define DPB_FIGURE_MAP(X)                                                                          \
    X(MEMORY, "memory", SIZE, 1e8, 1e14, "memory of an accelerator")                               \
    X(MEMORY_RATE, "memory-rate", RATE, 1e8, 1e14, "rate of that memory")                          \
    X(FP32, "compute.fp32", FLOPS, 1e8, 1e17, "dense peak, no tensor cores")                       \
    X(TF32, "compute.tf32", FLOPS, 1e8, 1e17, "dense peak")                                        \
    X(BF16, "compute.bf16", FLOPS, 1e8, 1e17, "dense peak")                                        \
    X(FP16, "compute.fp16", FLOPS, 1e8, 1e17, "dense peak")                                        \
    X(COMPUTE_SHARE, "compute.share", SHARE, 1e-3, 1, "of the peak that large operators reach")    \
    X(MEMORY_SHARE, "memory-share", SHARE, 1e-3, 1, "of the memory's rate that they reach")        \
    X(OPERATOR, "operator", TIME, 0, 1, "what the shortest operator takes")                        \
    X(LAUNCH, "launch", TIME, 0, 1, "what the host takes to launch one")                           \
    X(INSIDE_RATE, "inside.rate", RATE, 1e6, 1e13, "link inside a node, per direction")            \
    X(INSIDE_LATENCY, "inside.latency", TIME, 0, 1, "of a step of a ring there")                   \
    X(INSIDE_SHARE, "inside.share", SHARE, 1e-3, 1.6, "of the rate that rings reach")              \
    X(INSIDE_FLOOR, "inside.floor", TIME, 0, 1, "what the shortest collective takes")              \
    X(NVLS_SHARE, "inside.nvls-share", SHARE, 1e-3, 1.6, "of the rate that NVLink SHARP reaches")  \
    X(NVLS_RANKS, "inside.nvls-from-ranks", COUNT, 2, 1e6, "all-reduces of so many ranks have it") \
    X(NICS, "between.nics", COUNT, 1, 1024, "network cards of a node")                             \
    X(NIC_RATE, "between.rate", RATE, 1e6, 2e11, "of one of them, per direction")                  \
    X(NIC_LATENCY, "between.latency", TIME, 0, 10, "of a step of a ring between nodes")            \
    X(NIC_SHARE, "between.share", SHARE, 1e-3, 1, "of the rate that rings reach")                  \
    X(NIC_FLOOR, "between.floor", TIME, 0, 10, "what the shortest collective of 2 nodes takes")    \
    X(SLOW_INSIDE, "contention.inside", SHARE0, 0, 100, "compute is slower by this beside one")    \
    X(SLOW_BETWEEN, "contention.between", SHARE0, 0, 100, "the same across nodes")                 \
    X(SLOW_COLLECTIVE, "contention.collective", SHARE0, 0, 100, "it is slower beside compute")     \
    X(NOISE_RANK, "noise.rank", SHARE0, 0, 1, "standard deviation of a rank's step")               \
    X(NOISE_COMMON, "noise.common", SHARE0, 0, 1, "of all ranks' step together")                   \
    X(TAIL_SHARE, "noise.tail-share", SHARE0, 0, 1, "of rank-steps that are delayed")              \
    X(TAIL_MEAN, "noise.tail-mean", SHARE0, 0, 100, "by so much of a step on average")             \
    X(POWER, "power", WATT, 0.1, 1e5, "of a busy accelerator")                                     \
    X(MTBF, "mtbf-node", TIME, 60, 1e10, "mean time between failures of a node")                   \
    X(PRICE, "price", PRICE, 0, 1e4, "of an accelerator, per hour")

enum dpb_figure_id {
#define DPB_FIGURE_ENUM(name, key, unit, least, most, help) DPB_FIGURE_##name,
    DPB_FIGURE_MAP(DPB_FIGURE_ENUM)
#undef DPB_FIGURE_ENUM
    DPB_FIGURE_COUNT
};

/* "inside.rate"; static storage. */
const char *dpb_figure_key(enum dpb_figure_id id);
const char *dpb_figure_help(enum dpb_figure_id id);

struct dpb_figure {
    double value; /* NaN: the file does not have it */
    char *source; /* where it is from; of an assumed one, why */
    char *date;   /* "2026-08-22"; NULL: none is given */
    bool is_assumed;
    int line; /* in the file */
};

/* Measured times of a collective, bytes ascending. */
struct dpb_machine_curve {
    char *collective; /* "all-reduce" */
    int ranks, nodes;
    char *source;
    int count;
    double *bytes, *seconds;
};

/* Shares that operators of a size reach, sizes ascending. */
struct dpb_machine_share {
    int count;
    double *size, *share;
    char *source;
};

struct dpb_machine {
    char *name, *summary, *accelerator;
    char *file; /* where it was read */
    bool is_cpu;
    int accelerators_per_node;
    struct dpb_figure figure[DPB_FIGURE_COUNT];
    struct dpb_machine_share flop_share,
            bytes_share; /* on top of `compute.share`, `memory-share` */
    struct dpb_machine_curve *curves;
    int curve_count;
};

/* Read a machine. Mistakes are all logged as "file:line:column: ..." before it fails with
 * DPB_ERR_USAGE: an unknown key (with a suggestion), a figure without source, a number without
 * unit, outside of what can be, bits that were read as bytes, a sparse peak given as a dense one.
 * Warnings: an accelerator that nobody knows, a price without date. Release after use. */
dpb_status dpb_machine_parse(const char *text, size_t count, const char *file,
                             struct dpb_machine *machine);
dpb_status dpb_machine_read(const char *path, struct dpb_machine *machine);
void dpb_machine_release(struct dpb_machine *machine);

/* The machines that come with the program: their names, and one of them. */
size_t dpb_machine_builtin_count(void);
const char *dpb_machine_builtin_name(size_t index);
/* A name of those, or a path (with a '/' or ending in ".yaml"). DPB_ERR_USAGE, logged with a
 * suggestion, for another name. */
dpb_status dpb_machine_find(const char *name_or_path, struct dpb_machine *machine);

/* A figure's value, or `otherwise` where the machine does not have it. */
double dpb_machine_value(const struct dpb_machine *machine, enum dpb_figure_id id,
                         double otherwise);
bool dpb_machine_has(const struct dpb_machine *machine, enum dpb_figure_id id);

/* Replace or add a figure: "inside.rate", "600GB/s". It counts as assumed, for the reason `source`.
 * DPB_ERR_USAGE, logged: an unknown key (with a suggestion), a value without unit or out of range.
 */
dpb_status dpb_machine_set(struct dpb_machine *machine, const char *key, const char *text,
                           const char *source);
/* The same of "key=value,key=value"; "" sets nothing. */
dpb_status dpb_machine_set_all(struct dpb_machine *machine, const char *text, const char *origin);

/* The figure as a user would write it: "300GB/s", "4us", "312TFLOPS". */
void dpb_figure_text(enum dpb_figure_id id, double value, struct dpb_str *text);

/* All figures with key, value in SI units and "unit", source, date, assumed: for provenance tables.
 * Caller owns. */
dpb_json *dpb_machine_json(const struct dpb_machine *machine);
/* The machine as a file that dpb_machine_parse() reads back to the same. */
void dpb_machine_write(const struct dpb_machine *machine, struct dpb_str *text);

#ifdef __cplusplus
}
#endif
#endif
