/* dpb_sweep_file.h: the sweep file (YAML 1.2), read strictly. libfyaml stays private to base.
 *
 *   version: 1
 *   name: resnet50-ddp-8x32
 *   base:    {workload: resnet50, strategy: ddp}
 *   axes:    {ranks: [1, 2, 4, 8], bucket: [1MiB, 25MiB]}
 *   exclude: [{ranks: 1, overlap: off}, {bucket: [1MiB, 5MiB], overlap: off}]
 *   targets: {efficiency: ">= 0.90"}
 *
 * Every mistake is an error "file:line:column: ..." with the reason and, for unknown keys, the
 * nearest known one: unknown or repeated keys, wrong kinds of node, values the option's row
 * refuses, an empty file, another version, a key in both base and axes, an axis of an option that
 * cannot be one. YAML scalars keep their text: on/off/true/false are read by the option's row. */
#ifndef DPB_SWEEP_FILE_H
#define DPB_SWEEP_FILE_H

#include "dpb_options.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_sweep_target {
    char *metric; /* "efficiency" */
    char *rule;   /* ">= 0.90", not interpreted here */
    char *origin;
};

struct dpb_sweep_file {
    char *name;               /* of the file when it gives none; letters, digits, '.', '_', '-' */
    struct dpb_settings base; /* one value each */
    struct dpb_settings axes; /* one or more values each, file order */
    struct dpb_settings *excludes; /* a cell that matches all settings of one entry is left out;
                                      a setting matches when the cell has one of its values */
    size_t exclude_count;
    struct dpb_sweep_target *targets;
    size_t target_count;
};

/* Parse `text` (`count` bytes); `file_name` is for messages. All mistakes that can be found are
 * logged, then DPB_ERR_USAGE. `sweep` needs dpb_sweep_file_release() after success. */
dpb_status dpb_sweep_file_parse(const char *text, size_t count, const char *file_name,
                                const struct dpb_option_set *set, struct dpb_sweep_file *sweep);

/* Read and parse a file. A file that cannot be read is DPB_ERR_NOT_FOUND or DPB_ERR_IO, logged. */
dpb_status dpb_sweep_file_read(const char *path, const struct dpb_option_set *set,
                               struct dpb_sweep_file *sweep);

void dpb_sweep_file_release(struct dpb_sweep_file *sweep);

#ifdef __cplusplus
}
#endif
#endif
