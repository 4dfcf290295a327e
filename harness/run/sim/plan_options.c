#include "plan_options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_experiment.h"
#include "dpb_log.h"
#include "dpb_units.h"

#define AT(member) offsetof(struct plan_options, member)
#define COUNT(a)   (sizeof(a) / sizeof((a)[0]))

/* clang-format off */
static const struct dpb_option rows[] = {
    {.name = "machine", .type = DPB_OPT_TEXT, .offset = AT(machine), .default_text = "", .category = "Machines",
     .help = "machines to choose among: names that `dpbench plan` knows, or files"},
    {.name = "price", .type = DPB_OPT_TEXT, .offset = AT(price), .default_text = "", .category = "Machines",
     .help = "of an accelerator, [MACHINE=]2.95USD/h@2026-11-30; over the profile's"},
    {.name = "throughput", .type = DPB_OPT_TEXT, .offset = AT(throughput), .default_text = "", .category = "Machines",
     .help = "samples per second that one accelerator was measured to train, [MACHINE=]2500, at the largest batch per accelerator of the plan; instead of the roofline's"},
    {.name = "tf32", .type = DPB_OPT_BOOL, .offset = AT(tf32), .default_text = "off", .category = "Machines", .flags = DPB_OPT_NO_AXIS,
     .help = "fp32 products run at the peak of TF32"},
    {.name = "reserve", .type = DPB_OPT_SIZE, .offset = AT(reserve_bytes), .default_text = "auto", .min = 0, .max = INT64_C(1) << 40, .category = "Machines", .flags = DPB_OPT_AUTO | DPB_OPT_NO_AXIS,
     .help = "memory of an accelerator that is not training's; auto: 0.9 GiB of CUDA and 1.5 GiB of NCCL, nothing on CPUs"},

    {.name = "samples", .type = DPB_OPT_INT, .offset = AT(samples), .default_text = "auto", .min = 1, .max = 9e15, .category = "Training", .unit = "samples", .flags = DPB_OPT_AUTO | DPB_OPT_NO_AXIS,
     .help = "of the data set; with --epochs"},
    {.name = "epochs", .type = DPB_OPT_FLOAT, .offset = AT(epochs), .default_text = "auto", .min = 1e-6, .max = 1e6, .category = "Training", .flags = DPB_OPT_AUTO | DPB_OPT_NO_AXIS,
     .help = "passes over the data set"},
    {.name = "samples-to-quality", .type = DPB_OPT_INT, .offset = AT(samples_to_quality), .default_text = "auto", .min = 1, .max = 9e15, .category = "Training", .unit = "samples", .flags = DPB_OPT_AUTO | DPB_OPT_NO_AXIS,
     .help = "to train on until the quality is there, with a small batch; instead of --samples and --epochs"},
    {.name = "critical-batch", .type = DPB_OPT_FLOAT, .offset = AT(critical_batch), .default_text = "auto", .min = 1, .max = 1e12, .category = "Training", .unit = "samples", .flags = DPB_OPT_AUTO | DPB_OPT_NO_AXIS,
     .help = "B of samples (1 + batch / B) to the same quality; auto: the batch does not matter"},

    {.name = "deadline", .type = DPB_OPT_TEXT, .offset = AT(deadline), .default_text = "", .category = "Targets", .flags = DPB_OPT_NO_AXIS,
     .help = "training time at most, 36h, 3d or 2w, or until a date, 2026-12-24"},
    {.name = "budget", .type = DPB_OPT_TEXT, .offset = AT(budget), .default_text = "", .category = "Targets", .flags = DPB_OPT_NO_AXIS,
     .help = "cost at most, 5000USD"},
    {.name = "efficiency", .type = DPB_OPT_RATIO, .offset = AT(efficiency), .default_text = "auto", .min = 1e-3, .max = 1, .category = "Targets", .flags = DPB_OPT_AUTO | DPB_OPT_NO_AXIS,
     .help = "scaling efficiency at least, against one accelerator alone"},
    {.name = "step-p99", .type = DPB_OPT_DURATION, .offset = AT(step_p99_ns), .default_text = "auto", .min = 1, .max = 9e18, .category = "Targets", .flags = DPB_OPT_AUTO | DPB_OPT_NO_AXIS,
     .help = "99th percentile of the step time at most"},
    {.name = "quality", .type = DPB_OPT_TEXT, .offset = AT(quality), .default_text = "", .category = "Targets", .flags = DPB_OPT_NO_AXIS,
     .help = "what --samples-to-quality is for, in words; the report repeats it"},

    {.name = "checkpoint", .type = DPB_OPT_DURATION, .offset = AT(checkpoint_ns), .default_text = "auto", .min = 0, .max = 9e17, .category = "Failures", .flags = DPB_OPT_AUTO | DPB_OPT_NO_AXIS,
     .help = "time that training stands still for a checkpoint; auto: its size at --checkpoint-rate"},
    {.name = "checkpoint-size", .type = DPB_OPT_SIZE, .offset = AT(checkpoint_bytes), .default_text = "auto", .min = 1, .max = 9e18, .category = "Failures", .flags = DPB_OPT_AUTO | DPB_OPT_NO_AXIS,
     .help = "of a checkpoint; auto: parameters and the optimizer's state"},
    {.name = "checkpoint-rate", .type = DPB_OPT_RATE, .offset = AT(checkpoint_bytes_per_s), .default_text = "1GB/s", .min = 1e3, .max = 1e15, .category = "Failures", .flags = DPB_OPT_NO_AXIS,
     .help = "at which it is written, all ranks together"},
    {.name = "restart", .type = DPB_OPT_DURATION, .offset = AT(restart_ns), .default_text = "10min", .min = 0, .max = 9e17, .category = "Failures", .flags = DPB_OPT_NO_AXIS,
     .help = "from a failure until training goes on"},
    {.name = "mtbf", .type = DPB_OPT_DURATION, .offset = AT(mtbf_ns), .default_text = "auto", .min = 1e9, .max = 9e18, .category = "Failures", .flags = DPB_OPT_AUTO | DPB_OPT_NO_AXIS,
     .help = "mean time between failures of a node; auto: the profile's"},
};
/* clang-format on */

static const struct dpb_option_table own_table = {"experiment", "", rows, COUNT(rows),
                                                  sizeof(struct plan_options)};

bool plan_option_is_own(const char *name)
{
    for (size_t r = 0; r < COUNT(rows); r++)
        if (strcmp(rows[r].name, name) == 0)
            return true;
    return false;
}

/* ---- the set ---- */

/* Options of an experiment that simulated steps depend on. */
static bool is_simulated(const char *name)
{
    static const char *const names[] = {"workload",       "strategy",     "precision",
                                        "optimizer",      "ranks",        "seed",
                                        "batch-per-rank", "global-batch", "accumulate"};

    for (size_t i = 0; i < COUNT(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static bool is_simulated_kind(const char *kind)
{
    return strcmp(kind, "workload") == 0 || strcmp(kind, "strategy") == 0;
}

#define ROWS_MAX   16
#define TABLES_MAX 64
#define PARTS_MAX  128

const struct dpb_option_set *dpb_capacity_option_set(const struct dpb_registry *registry)
{
    static struct dpb_option kept[ROWS_MAX];
    static struct dpb_option_table core;
    static const struct dpb_option_table *tables[TABLES_MAX];
    static struct dpb_part_name parts[PARTS_MAX];
    static struct dpb_option_set set;
    const struct dpb_option_set *all = registry->options;

    if (set.table_count > 0)
        return &set;
    core = dpb_experiment_table;
    core.rows = kept;
    core.row_count = 0;
    for (size_t r = 0; r < dpb_experiment_table.row_count && core.row_count < ROWS_MAX; r++)
        if (is_simulated(dpb_experiment_table.rows[r].name))
            kept[core.row_count++] = dpb_experiment_table.rows[r];
    tables[set.table_count++] = &own_table;
    tables[set.table_count++] = &core;
    for (size_t i = 0; i < all->part_count && set.part_count < PARTS_MAX; i++)
        if (is_simulated_kind(all->parts[i].kind))
            parts[set.part_count++] = all->parts[i];
    for (size_t i = 0; i < all->table_count && set.table_count < TABLES_MAX; i++)
        if (is_simulated_kind(all->tables[i]->kind))
            tables[set.table_count++] = all->tables[i];
    set.tables = tables;
    set.parts = parts;
    return &set;
}

/* ---- the registry of cells ---- */

static bool is_place(const char *kind)
{
    return strcmp(kind, "device") == 0 || strcmp(kind, "comm") == 0;
}

const struct dpb_registry *plan_registry(const struct dpb_registry *registry)
{
    static const struct dpb_device_ops *devices[1];
    static const struct dpb_comm_ops *comms[1];
    static const struct dpb_option_table *tables[TABLES_MAX];
    static struct dpb_part_name parts[PARTS_MAX];
    static struct dpb_option_set set;
    static struct dpb_registry made;
    const struct dpb_option_set *all = registry->options;

    if (set.table_count > 0)
        return &made;
    for (size_t i = 0; i < all->part_count && set.part_count + 2 < PARTS_MAX; i++)
        if (!is_place(all->parts[i].kind) ||
            strcmp(all->parts[i].name, registry->sim_device->name) != 0)
            parts[set.part_count++] = all->parts[i];
    for (size_t i = 0; i < all->table_count && set.table_count < TABLES_MAX; i++)
        if (!is_place(all->tables[i]->kind))
            tables[set.table_count++] = all->tables[i];
    devices[0] = registry->sim_device;
    comms[0] = registry->sim_comm;
    parts[set.part_count++] =
            (struct dpb_part_name){"device", devices[0]->name, devices[0]->summary, NULL};
    parts[set.part_count++] =
            (struct dpb_part_name){"comm", comms[0]->name, comms[0]->summary, devices[0]->name};
    set.tables = tables;
    set.parts = parts;
    made = (struct dpb_registry){
            .workloads = registry->workloads,
            .workload_count = registry->workload_count,
            .devices = devices,
            .device_count = 1,
            .comms = comms,
            .comm_count = 1,
            .strategies = registry->strategies,
            .strategy_count = registry->strategy_count,
            .recorders = registry->recorders,
            .recorder_count = registry->recorder_count,
            .sim_device = registry->sim_device,
            .sim_comm = registry->sim_comm,
            .options = &set,
    };
    return &made;
}

static bool is_list(const char *name)
{
    return strcmp(name, "machine") == 0 || strcmp(name, "price") == 0 ||
           strcmp(name, "throughput") == 0;
}

dpb_status plan_options_read(const struct dpb_settings *settings, dpb_config **config,
                             const struct plan_options **options)
{
    static const struct dpb_option_table *const tables[] = {&own_table};
    static const struct dpb_option_set set = {tables, 1, NULL, 0};
    struct dpb_assignment given[COUNT(rows)];
    size_t count = 0;

    for (size_t i = 0; i < settings->count; i++) {
        const struct dpb_setting *setting = &settings->items[i];

        if (plan_option_is_own(setting->name) && !is_list(setting->name))
            given[count++] =
                    (struct dpb_assignment){setting->name, setting->values[0], setting->origin};
    }
    DPB_TRY(dpb_config_new(&set, given, count, false, config));
    *options = dpb_config_struct(*config, "experiment");
    return DPB_OK;
}

/* ---- dates ---- */

/* Days since 1970 of a date of the Gregorian calendar (Howard Hinnant, "chrono-compatible low-level
 * date algorithms"). */
static int64_t days_of(int64_t year, int month, int day)
{
    const int64_t y = month <= 2 ? year - 1 : year;
    const int64_t era = y / 400, of_era = y - era * 400;
    const int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* "2026-12-24", and nothing else. */
static bool parse_date(const char *text, int64_t *days)
{
    static const int most[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day, length = 0;

    if (strlen(text) != 10 || sscanf(text, "%4d-%2d-%2d%n", &year, &month, &day, &length) != 3 ||
        length != 10 || year < 1970 || month < 1 || month > 12 || day < 1)
        return false;
    const bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (day > most[month - 1] + (month == 2 && is_leap))
        return false;
    *days = days_of(year, month, day);
    return true;
}

/* ---- targets ---- */

static dpb_status no_deadline(const char *text)
{
    dpb_error("--deadline \"%s\" is neither a time nor a date", text);
    dpb_log_hint("give 36h, 3d or 2w, or a date such as 2026-12-24");
    return DPB_ERR_USAGE;
}

dpb_status plan_deadline_parse(const char *text, int64_t now_s, double *seconds)
{
    const size_t length = strlen(text);
    char number[32], why[DPB_WHY_BYTES];
    int64_t days, ns;
    double count;

    if (parse_date(text, &days)) {
        *seconds = (double)(days * 86400 - now_s);
    } else if (length > 1 && length < sizeof(number) && strchr("dw", text[length - 1])) {
        snprintf(number, sizeof(number), "%.*s", (int)length - 1, text);
        if (dpb_parse_f64(number, &count, why) != DPB_OK)
            return no_deadline(text);
        *seconds = count * (text[length - 1] == 'd' ? 86400 : 7 * 86400);
    } else if (dpb_parse_duration(text, &ns, why) == DPB_OK) {
        *seconds = (double)ns / 1e9;
    } else {
        return no_deadline(text);
    }
    if (*seconds > 0)
        return DPB_OK;
    dpb_error("--deadline \"%s\" is not in the future", text);
    dpb_log_hint("give a date after today, or the time that training may take, such as 3d");
    return DPB_ERR_USAGE;
}

/* A number before `unit` and nothing behind it. */
static bool parse_amount(const char *text, size_t length, const char *unit, double *amount)
{
    const size_t unit_length = strlen(unit);
    char number[64], why[DPB_WHY_BYTES];

    if (length <= unit_length || length - unit_length >= sizeof(number) ||
        strncmp(text + length - unit_length, unit, unit_length) != 0)
        return false;
    length -= unit_length;
    while (length > 0 && text[length - 1] == ' ')
        length--;
    snprintf(number, sizeof(number), "%.*s", (int)length, text);
    return dpb_parse_f64(number, amount, why) == DPB_OK;
}

dpb_status plan_budget_parse(const char *text, double *amount)
{
    if (parse_amount(text, strlen(text), "USD", amount) && *amount > 0)
        return DPB_OK;
    dpb_error("--budget \"%s\" is no amount of money above 0", text);
    dpb_log_hint("give it as 5000USD, the currency of the prices");
    return DPB_ERR_USAGE;
}

dpb_status plan_price_parse(const char *text, double *per_hour, const char **date)
{
    const char *at = strchr(text, '@');
    const size_t length = at ? (size_t)(at - text) : strlen(text);
    int64_t days;

    *date = at ? at + 1 : NULL;
    if (parse_amount(text, length, "USD/h", per_hour) && *per_hour >= 0 && *per_hour <= 1e4 &&
        (!at || parse_date(at + 1, &days)))
        return DPB_OK;
    dpb_error("--price \"%s\" is no price of an accelerator for an hour", text);
    dpb_log_hint("give it with its date, as 2.95USD/h@2026-11-30, or MACHINE=2.95USD/h@2026-11-30");
    return DPB_ERR_USAGE;
}

bool plan_is_for(const char *text, const char *machine, const char **value)
{
    const char *equals = strchr(text, '=');

    *value = equals ? equals + 1 : text;
    return !equals || (strlen(machine) == (size_t)(equals - text) &&
                       strncmp(text, machine, (size_t)(equals - text)) == 0);
}
