/* dpb_options.h: every knob is one row of a table, and the row serves everything.
 *
 * The same row gives the flag (--bucket 25MiB), the sweep-file key (bucket: 25MiB), the line in
 * --help, the line in docs/options.md, and the resolved value in the record. A part (a strategy, a
 * comm, ...) brings its own table; the rows of a table count only where its part is chosen.
 *
 * Life of a value: text with its origin (dpb_settings) -> one text per option for a cell
 * (dpb_config_new) -> typed member of the table's config struct -> JSON in the record, from which
 * a rank rebuilds the same config (dpb_config_from_text_json). */
#ifndef DPB_OPTIONS_H
#define DPB_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_json.h"
#include "dpb_status.h"
#include "dpb_str.h"

#ifdef __cplusplus
extern "C" {
#endif

/* type of the option -> type of the member at `offset` */
enum dpb_option_type {
    DPB_OPT_BOOL,     /* bool */
    DPB_OPT_INT,      /* int64_t */
    DPB_OPT_FLOAT,    /* double */
    DPB_OPT_SIZE,     /* int64_t, bytes */
    DPB_OPT_DURATION, /* int64_t, nanoseconds */
    DPB_OPT_RATE,     /* double, bytes per second */
    DPB_OPT_RATIO,    /* double, 1.0 = 100 % */
    DPB_OPT_ENUM,     /* int, a value of `choices` */
    DPB_OPT_TEXT,     /* char[DPB_OPTION_TEXT_BYTES] */
    DPB_OPT_PART,     /* char[DPB_OPTION_TEXT_BYTES], a name of the part kind that is the option's
                         name (workload, device, comm, strategy) */
    DPB_OPT_LINK      /* struct dpb_link; text "25Gbps,5us" or "none" */
};

#define DPB_OPTION_TEXT_BYTES 512

/* An emulated link: "25Gbps,5us". bw_bytes_per_s 0 means none. */
struct dpb_link {
    double bw_bytes_per_s;
    int64_t latency_ns;
};

/* Value of an INT, SIZE or DURATION option written "auto" (allowed by DPB_OPT_AUTO): the program
 * chooses, and writes what it chose with dpb_config_set(). A FLOAT, RATE or RATIO is then NaN. A
 * PART never is "auto" in a config: it becomes the part that is auto_for the cell's device, else
 * the first of its kind. */
#define DPB_AUTO INT64_MIN

enum dpb_option_flags {
    DPB_OPT_AUTO = 1 << 0,      /* "auto" is a value */
    DPB_OPT_NO_AXIS = 1 << 1,   /* one value only, never an axis of a sweep */
    DPB_OPT_COMM_ONLY = 1 << 2, /* takes no effect with one rank */
    DPB_OPT_NO_RECORD = 1 << 3, /* not part of what makes two cells the same experiment (timeout) */
    DPB_OPT_REAL_ONLY = 1 << 4  /* takes no effect in a simulation */
};

struct dpb_choice {
    const char *name;
    int value;
    const char *help;
};

struct dpb_option {
    const char *name; /* lower case with '-' */
    enum dpb_option_type type;
    size_t offset;
    const char *default_text;         /* as a user would write it; never NULL */
    double min, max;                  /* inclusive, in the unit of the member; both 0: no limits */
    const struct dpb_choice *choices; /* ENUM; ends with a NULL name */
    const char *category;             /* heading in --help: "Training", "Communication", ... */
    const char *unit;                 /* "bytes", "steps"; NULL where the text carries it */
    const char *help;                 /* one sentence, lower case, no full stop */
    unsigned flags;
    char short_flag; /* -o; 0 for none; command tables only */
};

struct dpb_option_table {
    const char *kind;  /* "experiment" for the core, "strategy", "comm", ..., "command" */
    const char *owner; /* name of the part or command; "" for the core */
    const struct dpb_option *rows;
    size_t row_count;
    size_t config_bytes; /* size of the config struct */
};

/* The names a DPB_OPT_PART option may take. */
struct dpb_part_name {
    const char *kind;
    const char *name;
    const char *summary;
    const char *auto_for; /* "auto" (DPB_OPT_AUTO) is this part in cells of that device; or NULL */
};

/* All tables and part names of this build; made by the registry in harness/cli, borrowed by all. */
struct dpb_option_set {
    const struct dpb_option_table *const *tables;
    size_t table_count;
    const struct dpb_part_name *parts;
    size_t part_count;
};

/* Check what a table promises: unique lower-case names, defaults that parse and lie in range,
 * members inside the struct, ENUM with choices, help and category present. For unit tests; the
 * reason is logged. DPB_ERR_INTERNAL on a bad table. */
dpb_status dpb_option_table_check(const struct dpb_option_table *table,
                                  const struct dpb_option_set *set);

/* The first row of that name in any table of the set, or NULL. `table` may be NULL. */
const struct dpb_option *dpb_option_find(const struct dpb_option_set *set, const char *name,
                                         const struct dpb_option_table **table);

/* Appends who has an option of that name: `strategy "ddp" or "zero1"`, with `quote` around each;
 * owners of one kind. */
void dpb_option_owners(const struct dpb_option_set *set, const char *name, const char *kind,
                       const char *quote, struct dpb_str *out);

/* ---- settings: texts with their origin ---- */

struct dpb_setting {
    char *name;
    char **values; /* canonical texts ("1024KiB" -> "1MiB"), validated against the row */
    size_t value_count;
    char *origin; /* "--bucket" or "quick.yaml:5:20" */
};

struct dpb_settings {
    struct dpb_setting *items;
    size_t count;
};

/* Add `name` with `text`, which may be a list "1MiB,25MiB" (commas; a link is rate,latency and its
 * comma does not split: "25Gbps,5us,none" is two links). Unknown name (with a suggestion), bad or
 * out-of-range value, a list where the row has DPB_OPT_NO_AXIS, an empty list or element, a value
 * listed twice (also as "1MiB,1024KiB"), a name already present: DPB_ERR_USAGE, logged as
 *   error: --bucket: "10XB" is not a size: unknown unit 'XB'
 *   hint: ...
 * An element of an INT row may be a range: "8..4096:x2" is 8, 16, ... up to 4096, "8..64:+8" adds.
 * A TEXT row with DPB_OPT_NO_AXIS keeps its commas: "--hosts a,b" is one value. Where several parts
 * have an option of that name, a value is good when one of their rows takes it. */
dpb_status dpb_settings_add(struct dpb_settings *settings, const struct dpb_option_set *set,
                            const char *name, const char *text, const char *origin);
/* The same for values that already are separate texts (a YAML list). */
dpb_status dpb_settings_add_list(struct dpb_settings *settings, const struct dpb_option_set *set,
                                 const char *name, const char *const *values, size_t count,
                                 const char *origin);
const struct dpb_setting *dpb_settings_find(const struct dpb_settings *settings, const char *name);
/* Replace or add every setting of `over` in `settings` (the command line over the file). */
dpb_status dpb_settings_override(struct dpb_settings *settings, const struct dpb_settings *over);
void dpb_settings_release(struct dpb_settings *settings);

/* ---- config: one resolved cell ---- */

typedef struct dpb_config dpb_config;

/* name = text, with where it came from; all borrowed */
struct dpb_assignment {
    const char *name;
    const char *text;
    const char *origin;
};

/* Resolve a cell. Options without an assignment take their default. An assignment whose option
 * belongs to a part that is not chosen cannot take effect: DPB_ERR_USAGE with the names, logged,
 * or, with `drop_inactive`, left out (dpb_config_is_dropped() tells). Caller frees with
 * dpb_config_free(). */
dpb_status dpb_config_new(const struct dpb_option_set *set,
                          const struct dpb_assignment *assignments, size_t count,
                          bool drop_inactive, dpb_config **config);
void dpb_config_free(dpb_config *config);
dpb_status dpb_config_copy(const dpb_config *config, dpb_config **copy);

/* Was an assignment of that name left out because its part is not chosen? */
bool dpb_config_is_dropped(const dpb_config *config, const char *name);

/* The name chosen for a part kind ("strategy" -> "ddp"), or NULL when no core option chooses one.
 * Owned by the config. */
const char *dpb_config_part(const dpb_config *config, const char *kind);

/* The config struct of the core table ("experiment") or of the chosen part of a kind ("strategy");
 * NULL when that part has no table. Owned by the config. */
const void *dpb_config_struct(const dpb_config *config, const char *kind);

/* Was the option given by the user (not a default)? */
bool dpb_config_is_explicit(const dpb_config *config, const char *name);

/* Set one option to a text, for values the program decides ("auto"); keeps is_explicit as it was.
 * Same errors as dpb_settings_add; DPB_ERR_USAGE also for an option that does not count. Setting a
 * part ("device") brings that part's table, and structs got before are gone. */
dpb_status dpb_config_set(dpb_config *config, const char *name, const char *text);

/* The same for a value that the program would decide otherwise when it is given this config's
 * options alone: it counts as given by the user from here on, so that dpb_config_repro() names it.
 */
dpb_status dpb_config_pin(dpb_config *config, const char *name, const char *text);

/* The option's resolved value as exact text ("25MiB", "ddp", "on"); DPB_ERR_NOT_FOUND when no
 * active table has it. */
dpb_status dpb_config_text(const dpb_config *config, const char *name, struct dpb_str *text);

/* Every active option, resolved: {"bucket": 26214400, "overlap": true, "link": {...}, ...}. Keys of
 * options with a unit end in it as records demand: "bucket_bytes", "timeout_ns",
 * "link": {"bw_bytes_per_s":..., "latency_ns":...}; '-' becomes '_'. A value still "auto", and no
 * link, are null with "<key>_reason". NULL when out of memory. */
dpb_json *dpb_config_to_json(const dpb_config *config);

/* {"options": {"bucket": "25MiB", ...all active..., }, "explicit": ["bucket"]}: texts, for
 * dpb_config_from_text_json() in another process. */
dpb_json *dpb_config_to_text_json(const dpb_config *config);
dpb_status dpb_config_from_text_json(const struct dpb_option_set *set, const dpb_json *json,
                                     dpb_config **config);

/* One canonical line "batch-per-rank=64 bucket=1MiB ..." of the active options, sorted by name,
 * without rows that have any flag of `without_flags` and without the names in `without` (count
 * `without_count`); what two cells must share to belong to one series. Values are quoted as for a
 * shell. */
dpb_status dpb_config_key(const dpb_config *config, unsigned without_flags,
                          const char *const *without, size_t without_count, struct dpb_str *key);

/* " --bucket 1MiB --ranks 2": the options that were given, quoted for a shell, their defaults among
 * them: --bucket 25MiB does something else than no --bucket. What the program chose
 * (dpb_config_set) it will choose again. */
dpb_status dpb_config_repro(const dpb_config *config, struct dpb_str *line);

/* ---- command line ---- */

/* One verb of the program. */
struct dpb_command {
    const char *name;                     /* "sweep" */
    const char *arguments;                /* "[FILE]" for the usage line */
    const char *summary;                  /* one line */
    const char *description;              /* a paragraph for --help; may be NULL */
    const struct dpb_option_table *table; /* its own flags (kind "command"); may be NULL */
    bool takes_experiment;                /* does it accept the experiment's options? */
    size_t min_arguments, max_arguments;
};

/* Result of parsing; arguments are borrowed from argv. */
struct dpb_command_line {
    struct dpb_settings experiment; /* owned; release with dpb_settings_release */
    const char *arguments[64];
    size_t argument_count;
    bool help; /* --help was given and has been printed */
};

/* The text of --help, wrapped at `width` columns (at least 40): usage, the command's own options
 * and the experiment's, each under its category. */
dpb_status dpb_command_help(const struct dpb_command *command, const struct dpb_option_set *set,
                            size_t width, struct dpb_str *out);

/* Parse argv[1..] of a verb with glibc's argp, which takes its option array from the rows; fills
 * `command_config` (the struct of command->table, defaults first) and `line`. `--help` prints to
 * stdout, grouped by category, and sets line->help. Mistakes: DPB_ERR_USAGE, logged, with a
 * suggestion for unknown flags; repeated and abbreviated flags are mistakes. A bool of `table` is a
 * flag without value, a bool of the experiment needs one ("--overlap on"). "--" ends the options,
 * "-h" is "--help". Never exits. */
dpb_status dpb_command_line_parse(const struct dpb_command *command,
                                  const struct dpb_option_set *set, int argc, char **argv,
                                  void *command_config, struct dpb_command_line *line);

/* The reference of all options as Markdown (docs/options.md), or as JSON. */
dpb_status dpb_options_markdown(const struct dpb_option_set *set, struct dpb_str *out);
dpb_json *dpb_options_json(const struct dpb_option_set *set);

#ifdef __cplusplus
}
#endif
#endif
