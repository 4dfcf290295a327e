/* option_private.h (private): one value of an option, and what the option files share. */
#ifndef DPB_OPTION_PRIVATE_H
#define DPB_OPTION_PRIVATE_H

#include "dpb_options.h"

/* A value of any type: BOOL, INT, SIZE, DURATION and ENUM in `i`, FLOAT, RATE and RATIO in `f`. */
struct dpb_option_value {
    int64_t i;
    double f;
    struct dpb_link link;
    char text[DPB_OPTION_TEXT_BYTES];
};

/* Why a value is refused, and what to give instead. */
struct dpb_option_complaint {
    char reason[512];
    char hint[768];
};

/* Text -> value, checked against the row's range, choices, or part names. DPB_ERR_USAGE with
 * `complaint` filled; nothing is logged. `set` may be NULL: then any part name goes. */
dpb_status dpb_option_value_parse(const struct dpb_option *row, const struct dpb_option_set *set,
                                  const char *text, struct dpb_option_value *value,
                                  struct dpb_option_complaint *complaint);
/* Canonical text of a value: it parses back to the same one. */
void dpb_option_value_format(const struct dpb_option *row, const struct dpb_option_value *value,
                             struct dpb_str *out);
bool dpb_option_value_is_auto(const struct dpb_option *row, const struct dpb_option_value *value);
/* The member of a config struct. */
void dpb_option_value_store(const struct dpb_option *row, const struct dpb_option_value *value,
                            void *config_struct);
void dpb_option_value_load(const struct dpb_option *row, const void *config_struct,
                           struct dpb_option_value *value);
/* Bytes of the member. */
size_t dpb_option_member_bytes(enum dpb_option_type type);

/* Fill a config struct with the defaults of its table. A default that does not parse is a bug:
 * DPB_ERR_INTERNAL, logged. */
dpb_status dpb_option_table_defaults(const struct dpb_option_table *table,
                                     const struct dpb_option_set *set, void *config_struct);

/* "SIZE", "N": the value in a usage line. */
const char *dpb_option_metavar(const struct dpb_option *row);
/* "from 1 to 65536", "at least 0", or "" */
void dpb_option_range_text(const struct dpb_option *row, char *text, size_t text_bytes);
/* "give a size from 1KiB to 1GiB such as 25MiB, or auto" */
void dpb_option_value_hint(const struct dpb_option *row, const struct dpb_option_set *set,
                           char *text, size_t text_bytes);
/* "strategies" for "strategy": the argument of `dpbench list` */
void dpb_option_kind_plural(const char *kind, char *text, size_t text_bytes);

/* Tables of experiments are all but those of commands; NULL entries of a set are skipped. */
bool dpb_option_table_is_experiment(const struct dpb_option_table *table);

/* Walk the rows that have a name (NULL: all rows) in the experiment tables of a set. Start with a
 * zeroed walk; NULL at the end. */
struct dpb_option_walk {
    size_t table, row;
};
const struct dpb_option *dpb_option_next(const struct dpb_option_set *set, const char *name,
                                         struct dpb_option_walk *walk,
                                         const struct dpb_option_table **table);

/* "8..4096:x2" (8, 16, ... up to 4096), "8..64:+8", "1..4": a list of whole numbers, for options
 * that can be an axis. */
#define DPB_OPTION_RANGE_VALUES 1000
bool dpb_option_is_range(const struct dpb_option *row, const char *text);
/* Its values (room for DPB_OPTION_RANGE_VALUES); the last one is the largest up to the end. NULL,
 * or why the text is no range; static. */
const char *dpb_option_range_values(const char *text, int64_t *values, size_t *count);

/* dpb_settings_add_list() with a place for each value; `origins` may be NULL. */
dpb_status dpb_settings_add_values(struct dpb_settings *settings, const struct dpb_option_set *set,
                                   const char *name, const char *const *values,
                                   const char *const *origins, size_t count, const char *origin);

/* Who is to blame, for the start of a message: "--bucket" or "quick.yaml:5:20: bucket". */
void dpb_option_subject(const char *name, const char *origin, struct dpb_str *out);
/* error: <subject>: <reason>, then the hint. */
void dpb_option_log(const char *name, const char *origin,
                    const struct dpb_option_complaint *complaint);
/* The error for a name that no table has, with a suggestion. DPB_ERR_USAGE. */
dpb_status dpb_option_log_unknown(const struct dpb_option_set *set, const char *name,
                                  const char *origin);
/* error: out of memory. DPB_ERR_NO_MEMORY. */
dpb_status dpb_option_log_no_memory(void);

#endif
