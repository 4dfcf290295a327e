/* comm_bench.c: the options of `dpbench comm`, and its launches. */
#include "dpb_comm_bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm_bench_records.h"
#include "comm_bench_rank.h"
#include "comm_bench_sim.h"
#include "dpb_driver.h"
#include "dpb_experiment.h"
#include "dpb_launcher.h"
#include "dpb_log.h"
#include "dpb_memory.h"
#include "dpb_placement.h"
#include "dpb_run_folder.h"
#include "dpb_units.h"

#define LAUNCHES_MAX 1000
#define ROWS_MAX     10000
#define AXES_MAX     32
#define TABLES_MAX   32
#define PARTS_MAX    32

#define AT(member) offsetof(struct dpb_comm_bench_options, member)
#define WHAT       "Collectives"
#define MEAS       "Measurement"

/* clang-format off */
static const struct dpb_choice collective_choices[] = {
#define CHOICE(name, text, numerator) {text, name, "in place, over the whole buffer"},
        DPB_COLL_MAP(CHOICE)
#undef CHOICE
        {NULL, 0, NULL},
};

static const struct dpb_choice dtype_choices[] = {
#define CHOICE(name, text, bytes) {text, name, #bytes " bytes per element"},
        DPB_DTYPE_MAP(CHOICE)
#undef CHOICE
        {NULL, 0, NULL},
};

static const struct dpb_choice call_choices[] = {
        {"blocking", DPB_COMM_CALL_BLOCKING, "the rank itself does the work, and does nothing else"},
        {"background", DPB_COMM_CALL_BACKGROUND, "started, then waited for, as training steps do"},
        {NULL, 0, NULL},
};

static const struct dpb_option option_rows[] = {
    {.name = "collective", .type = DPB_OPT_ENUM, .offset = AT(collective), .default_text = "all-reduce", .choices = collective_choices, .category = WHAT,
     .help = "what to measure"},
    {.name = "sizes", .type = DPB_OPT_TEXT, .offset = AT(sizes), .default_text = "8B..256MiB:x4", .category = WHAT,
     .help = "bytes of the whole buffer: sizes and ranges, such as 64KiB,1MiB..64MiB:x4 or 1MiB..4MiB:+1MiB; a range without a step doubles"},
    {.name = "dtype", .type = DPB_OPT_ENUM, .offset = AT(dtype), .default_text = "fp32", .choices = dtype_choices, .category = WHAT,
     .help = "type of the elements"},
    {.name = "call", .type = DPB_OPT_ENUM, .offset = AT(call), .default_text = "blocking", .choices = call_choices, .category = WHAT,
     .help = "how a rank calls the collective"},
    {.name = "ranks", .type = DPB_OPT_INT, .offset = AT(ranks), .default_text = "auto", .min = 1, .max = COMM_SIM_RANKS_MAX, .category = WHAT,
     .help = "processes that communicate, at most 64; auto: one per core, at least 2, at most 4; device sim: virtual ranks, auto: of one node", .flags = DPB_OPT_AUTO},
    {.name = "ranks-per-node", .type = DPB_OPT_INT, .offset = AT(ranks_per_node), .default_text = "auto", .min = 1, .max = DPB_COMM_RANKS_MAX, .category = WHAT,
     .help = "ranks that share a node, for --algorithm hierarchical; divides --ranks; auto: all", .flags = DPB_OPT_AUTO | DPB_OPT_COMM_ONLY},
    {.name = "comm", .type = DPB_OPT_PART, .offset = AT(comm), .default_text = "auto", .flags = DPB_OPT_AUTO, .category = WHAT,
     .help = "what moves the data; `dpbench list comms`; auto: what goes with the device and the launcher"},
    {.name = "device", .type = DPB_OPT_PART, .offset = AT(device), .default_text = "cpu", .category = WHAT,
     .help = "where the data lies; `dpbench list devices`"},
    {.name = "bind", .type = DPB_OPT_BOOL, .offset = AT(bind), .default_text = "on", .category = WHAT,
     .help = "bind each rank to its core"},
    {.name = "iterations", .type = DPB_OPT_INT, .offset = AT(iterations), .default_text = "auto", .min = 1, .max = 1e6, .category = MEAS,
     .help = "timed calls of each size; auto: as many as fit into 200 ms, at least 20, at most 5000", .flags = DPB_OPT_AUTO | DPB_OPT_NO_AXIS},
    {.name = "warmup", .type = DPB_OPT_INT, .offset = AT(warmup), .default_text = "5", .min = 1, .max = 1e6, .category = MEAS,
     .help = "calls of each size before them", .flags = DPB_OPT_NO_AXIS},
    {.name = "shuffle", .type = DPB_OPT_INT, .offset = AT(shuffle), .default_text = "0", .max = 1e6, .category = MEAS,
     .help = "0: collectives, types and sizes in the order given; N: in the Nth random order", .flags = DPB_OPT_NO_AXIS},
    {.name = "timeout", .type = DPB_OPT_DURATION, .offset = AT(timeout_ns), .default_text = "10min", .min = 1e6, .max = 1e15, .category = MEAS,
     .help = "longest time for one launch", .flags = DPB_OPT_NO_AXIS | DPB_OPT_NO_RECORD},
    {.name = "stall-timeout", .type = DPB_OPT_DURATION, .offset = AT(stall_timeout_ns), .default_text = "60s", .min = 1e6, .max = 1e15, .category = MEAS,
     .help = "longest time in which the slowest rank makes no progress", .flags = DPB_OPT_NO_AXIS | DPB_OPT_NO_RECORD},
};
/* clang-format on */

const struct dpb_option_table dpb_comm_bench_table = {"experiment", "", option_rows,
                                                      sizeof(option_rows) / sizeof(option_rows[0]),
                                                      sizeof(struct dpb_comm_bench_options)};

/* The device and comm "sim" of training steps have options that collectives alone do not heed:
 * here they are others. */
static bool is_ours(const char *kind, const char *owner)
{
    return (strcmp(kind, "comm") == 0 || strcmp(kind, "device") == 0) && !comm_sim_is_device(owner);
}

struct our_options {
    const struct dpb_option_table *tables[TABLES_MAX];
    struct dpb_part_name parts[PARTS_MAX];
    struct dpb_option_set set;
};

const struct dpb_option_set *dpb_comm_bench_option_set(const struct dpb_registry *registry)
{
    static struct our_options made[2];
    struct our_options *ours = &made[registry->is_launched];
    const struct dpb_option_set *all = registry->options;
    struct dpb_option_set *set = &ours->set;
    if (set->table_count > 0)
        return set;
    ours->tables[set->table_count++] = &dpb_comm_bench_table;
    for (size_t i = 0; i < all->part_count && set->part_count < PARTS_MAX; i++)
        if (is_ours(all->parts[i].kind, all->parts[i].name))
            ours->parts[set->part_count++] = all->parts[i];
    for (size_t i = 0; i < all->table_count && set->table_count < TABLES_MAX; i++)
        if (is_ours(all->tables[i]->kind, all->tables[i]->owner))
            ours->tables[set->table_count++] = all->tables[i];
    if (set->part_count + 2 <= PARTS_MAX && set->table_count < TABLES_MAX) {
        ours->parts[set->part_count++] = (struct dpb_part_name){
                "device", "sim", "nothing is run: times on a machine profile (--machine)", NULL};
        ours->parts[set->part_count++] =
                (struct dpb_part_name){"comm", "sim", "the network of that machine", "sim"};
        ours->tables[set->table_count++] = &comm_sim_option_table;
    }
    set->tables = ours->tables;
    set->parts = ours->parts;
    return set;
}

/* ---- what to run ---- */

/* One launch: resolved options, and the text of those that differ between launches. */
struct cell {
    dpb_config *config;
    char *label;
    struct dpb_str key;
    int64_t room_bytes; /* the largest buffer of a rank for which there is memory */
};

struct bench {
    const struct dpb_comm_bench_config *config;
    const struct dpb_option_set *set;
    struct comm_row *rows;
    size_t row_count;
    struct cell *cells;
    size_t cell_count;
    /* of the options that make launches */
    const struct dpb_setting *axis[AXES_MAX];
    bool took_effect[AXES_MAX];
    size_t axis_count;
    struct comm_records records;
    struct comm_sim sim;
    int lock_fd;
};

static bool of_rows(const char *name)
{
    return strcmp(name, "collective") == 0 || strcmp(name, "dtype") == 0 ||
           strcmp(name, "sizes") == 0;
}

/* The texts of an option, its default when it is not given. */
static size_t values_of(const struct bench *b, const char *name, const char *const **values,
                        const char **origin)
{
    const struct dpb_setting *setting = dpb_settings_find(b->config->settings, name);
    const struct dpb_option *row = dpb_option_find(b->set, name, NULL);
    *origin = setting ? setting->origin : "default";
    *values = setting ? (const char *const *)setting->values : &row->default_text;
    return setting ? setting->value_count : 1;
}

/* The texts were checked when they were read. */
static int choice_value(const struct bench *b, const char *name, const char *text)
{
    const struct dpb_choice *choice = dpb_option_find(b->set, name, NULL)->choices;
    while (choice->name && strcmp(choice->name, text) != 0)
        choice++;
    return choice->value;
}

static dpb_status parse_sizes(const struct bench *b, struct dpb_comm_sizes *sizes)
{
    const char *const *values, *origin;
    size_t count = values_of(b, "sizes", &values, &origin);
    for (size_t i = 0; i < count; i++) {
        char why[DPB_WHY_BYTES];
        dpb_status st = dpb_comm_sizes_parse(values[i], sizes, why);
        if (st == DPB_ERR_USAGE) {
            dpb_error("%s: \"%s\" names no sizes: %s", origin, values[i], why);
            dpb_log_hint("write sizes and ranges, such as 8B..256MiB:x4 or 64KiB,1MiB");
        }
        DPB_TRY(st);
    }
    return DPB_OK;
}

/* Whole elements, and for all-to-all the same number for each rank: that depends on the launch, and
 * is rounded for the largest. */
static dpb_status add_row(struct bench *b, enum dpb_coll_kind kind, enum dpb_dtype dtype,
                          int64_t bytes)
{
    int64_t count = bytes / (int64_t)dpb_dtype_bytes(dtype);
    if (count == 0) {
        dpb_error("--sizes: %" PRId64 " bytes hold no element of %s", bytes, dpb_dtype_text(dtype));
        dpb_log_hint("begin with %zuB", dpb_dtype_bytes(dtype));
        return DPB_ERR_USAGE;
    }
    if (b->row_count == ROWS_MAX) {
        dpb_error("more than %d collectives, types and sizes in one launch", ROWS_MAX);
        dpb_log_hint("give fewer --sizes, or run several times");
        return DPB_ERR_USAGE;
    }
    struct comm_row *grown = realloc(b->rows, (b->row_count + 1) * sizeof(*grown));
    if (!grown)
        return DPB_ERR_NO_MEMORY;
    b->rows = grown;
    b->rows[b->row_count++] = (struct comm_row){kind, dtype, count};
    return DPB_OK;
}

static dpb_status make_rows(struct bench *b)
{
    const char *const *kinds, *const *dtypes, *origin;
    size_t kind_count = values_of(b, "collective", &kinds, &origin);
    size_t dtype_count = values_of(b, "dtype", &dtypes, &origin);
    struct dpb_comm_sizes sizes = {0};
    dpb_status st = parse_sizes(b, &sizes);
    for (size_t k = 0; k < kind_count; k++)
        for (size_t d = 0; d < dtype_count; d++)
            for (size_t s = 0; s < sizes.count && st == DPB_OK; s++)
                st = add_row(b, (enum dpb_coll_kind)choice_value(b, "collective", kinds[k]),
                             (enum dpb_dtype)choice_value(b, "dtype", dtypes[d]), sizes.bytes[s]);
    dpb_comm_sizes_release(&sizes);
    return st;
}

static int64_t auto_ranks(int cores)
{
    return cores < 2 ? 2 : cores > 4 ? 4 : cores;
}

/* The rows of a launch: an all-to-all needs as many elements for each rank. */
static dpb_status rows_of(const struct bench *b, int64_t ranks, struct comm_row **rows)
{
    struct comm_row *copy = malloc(b->row_count * sizeof(*copy));
    if (!copy)
        return DPB_ERR_NO_MEMORY;
    memcpy(copy, b->rows, b->row_count * sizeof(*copy));
    for (size_t i = 0; i < b->row_count; i++) {
        if (copy[i].kind != DPB_COLL_ALL_TO_ALL)
            continue;
        copy[i].count -= copy[i].count % ranks;
        if (copy[i].count > 0)
            continue;
        size_t least_bytes = (size_t)ranks * dpb_dtype_bytes(copy[i].dtype);
        dpb_error("--sizes: an all-to-all of %" PRId64 " ranks needs at least %zu bytes of %s",
                  ranks, least_bytes, dpb_dtype_text(copy[i].dtype));
        dpb_log_hint("begin with %zuB", least_bytes);
        free(copy);
        return DPB_ERR_USAGE;
    }
    *rows = copy;
    return DPB_OK;
}

static void cell_release(struct cell *cell)
{
    dpb_config_free(cell->config);
    free(cell->label);
    dpb_str_release(&cell->key);
}

static dpb_status set_int(dpb_config *config, const char *name, int64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, value);
    return dpb_config_set(config, name, text);
}

static bool is_sim(const dpb_config *config)
{
    const struct dpb_comm_bench_options *o = dpb_config_struct(config, "experiment");
    return comm_sim_is_device(o->device);
}

/* The machine of a launch on device "sim". */
static dpb_status machine_of(struct bench *b, const dpb_config *config,
                             const struct comm_sim_machine **machine)
{
    return comm_sim_open(&b->sim, dpb_config_struct(config, "device"), machine);
}

/* Virtual ranks: the machine says how many share a node, and whether there are links. */
static dpb_status resolve_sim(struct bench *b, dpb_config *config)
{
    const struct dpb_comm_bench_options *o = dpb_config_struct(config, "experiment");
    const struct comm_sim_machine *machine;
    if (!comm_sim_is_device(o->comm)) {
        dpb_error("--comm %s: moves data of real ranks, and device \"sim\" has none", o->comm);
        dpb_log_hint("leave --comm out");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(machine_of(b, config, &machine));
    const int per_node = machine->network->ranks_per_node;
    if (o->ranks == DPB_AUTO)
        DPB_TRY(set_int(config, "ranks", per_node));
    DPB_TRY(comm_sim_check(machine, o->ranks));
    return set_int(config, "ranks-per-node", o->ranks < per_node ? o->ranks : per_node);
}

static dpb_status check_real(const struct dpb_comm_bench_options *o)
{
    if (comm_sim_is_device(o->comm)) {
        dpb_error("--comm sim: moves nothing, and device \"%s\" is real", o->device);
        dpb_log_hint("leave --comm out, or choose --device sim");
        return DPB_ERR_USAGE;
    }
    if (o->ranks <= DPB_COMM_RANKS_MAX)
        return DPB_OK;
    dpb_error("--ranks: %" PRId64 " is more than one machine can run, %d", o->ranks,
              DPB_COMM_RANKS_MAX);
    dpb_log_hint("use at most %d, or --device sim --machine NAME for virtual ones",
                 DPB_COMM_RANKS_MAX);
    return DPB_ERR_USAGE;
}

static dpb_status resolve(struct bench *b, dpb_config *config)
{
    const struct dpb_comm_bench_options *o = dpb_config_struct(config, "experiment");
    if (is_sim(config))
        return resolve_sim(b, config);
    DPB_TRY(check_real(o));
    if (o->ranks == DPB_AUTO)
        DPB_TRY(set_int(config, "ranks", auto_ranks(b->config->cores)));
    if (o->ranks_per_node == DPB_AUTO)
        return set_int(config, "ranks-per-node", o->ranks);
    if (o->ranks % o->ranks_per_node == 0)
        return DPB_OK;
    dpb_error("--ranks-per-node %" PRId64 " does not divide the %" PRId64 " ranks",
              o->ranks_per_node, o->ranks);
    dpb_log_hint("choose a divisor of the ranks, so that every node has as many");
    return DPB_ERR_USAGE;
}

static bool acts_between_ranks(const struct bench *b, const char *name)
{
    return dpb_option_find(b->set, name, NULL)->flags & DPB_OPT_COMM_ONLY;
}

static size_t gather(const struct bench *b, const size_t *index, struct dpb_assignment *given)
{
    size_t count = 0;
    bool alone = false;
    for (size_t i = 0; i < b->axis_count; i++)
        alone |= strcmp(b->axis[i]->name, "ranks") == 0 &&
                 strcmp(b->axis[i]->values[index[i]], "1") == 0;
    for (size_t i = 0; i < b->axis_count; i++)
        if (!alone || !acts_between_ranks(b, b->axis[i]->name))
            given[count++] = (struct dpb_assignment){b->axis[i]->name, b->axis[i]->values[index[i]],
                                                     b->axis[i]->origin};
    return count;
}

static char *make_label(const struct bench *b, const dpb_config *config)
{
    struct dpb_str label = {0}, text = {0};
    for (size_t i = 0; i < b->axis_count; i++) {
        if (b->axis[i]->value_count < 2 || !dpb_config_is_explicit(config, b->axis[i]->name))
            continue;
        if (dpb_config_text(config, b->axis[i]->name, &text) == DPB_OK)
            dpb_str_appendf(&label, "%s%s=%s", label.length ? " " : "", b->axis[i]->name,
                            text.text);
        dpb_str_release(&text);
    }
    dpb_str_append(&label, "");
    return label.text; /* the string's memory is the caller's now */
}

static dpb_status keep_cell(struct bench *b, struct cell *cell)
{
    for (size_t i = 0; i < b->cell_count; i++)
        if (strcmp(b->cells[i].key.text, cell->key.text) == 0) {
            cell_release(cell);
            return DPB_OK;
        }
    if (b->cell_count == LAUNCHES_MAX) {
        dpb_error("the lists multiply to more than %d launches", LAUNCHES_MAX);
        dpb_log_hint("shorten them, or run several times");
        return DPB_ERR_USAGE;
    }
    struct cell *grown = realloc(b->cells, (b->cell_count + 1) * sizeof(*grown));
    if (!grown)
        return DPB_ERR_NO_MEMORY;
    b->cells = grown;
    b->cells[b->cell_count++] = *cell;
    return DPB_OK;
}

static dpb_status add_cell(struct bench *b, const size_t *index)
{
    struct dpb_assignment given[AXES_MAX];
    size_t count = gather(b, index, given);
    struct cell cell = {0};
    struct comm_row *rows_here = NULL;
    dpb_status st;
    DPB_TRY_GOTO(st, dpb_config_new(b->set, given, count, true, &cell.config), err);
    DPB_TRY_GOTO(st, resolve(b, cell.config), err);
    DPB_TRY_GOTO(st, dpb_config_key(cell.config, 0, NULL, 0, &cell.key), err);
    const struct dpb_comm_bench_options *o = dpb_config_struct(cell.config, "experiment");
    DPB_TRY_GOTO(st, rows_of(b, o->ranks, &rows_here), err);
    free(rows_here);
    for (size_t i = 0; i < b->axis_count; i++)
        b->took_effect[i] |= dpb_config_is_explicit(cell.config, b->axis[i]->name) &&
                             (!is_sim(cell.config) || comm_sim_heeds(b->axis[i]->name));
    cell.label = make_label(b, cell.config);
    st = cell.label ? DPB_OK : DPB_ERR_NO_MEMORY;
    DPB_TRY_GOTO(st, st, err);
    DPB_TRY_GOTO(st, keep_cell(b, &cell), err);
    return DPB_OK;
err:
    cell_release(&cell);
    return st;
}

/* What was asked for and acts nowhere is a mistake, never silence. */
static dpb_status check_effect(const struct bench *b)
{
    for (size_t i = 0; i < b->axis_count; i++) {
        const char *name = b->axis[i]->name;
        if (b->took_effect[i])
            continue;
        if (acts_between_ranks(b, name)) {
            dpb_error("%s: cannot take effect with one rank, and no launch has more",
                      b->axis[i]->origin);
            dpb_log_hint("leave %s out, or choose more ranks", name);
        } else {
            dpb_error("%s: cannot take effect: %s", b->axis[i]->origin,
                      comm_sim_heeds(name) ? "it belongs to a part that no launch uses"
                                           : "it is for processes, and device \"sim\" has none");
            dpb_log_hint("leave %s out, or choose another --comm or --device", name);
        }
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

/* The cross product, the first option slowest. */
static dpb_status make_cells(struct bench *b)
{
    const struct dpb_settings *settings = b->config->settings;
    size_t index[AXES_MAX] = {0}, total = 1;
    for (size_t i = 0; i < settings->count && b->axis_count < AXES_MAX; i++) {
        if (of_rows(settings->items[i].name))
            continue;
        b->axis[b->axis_count++] = &settings->items[i];
        total *= settings->items[i].value_count;
        if (total > LAUNCHES_MAX * 100) {
            dpb_error("the lists multiply to more than %d launches", LAUNCHES_MAX);
            dpb_log_hint("shorten them, or run several times");
            return DPB_ERR_USAGE;
        }
    }
    for (size_t n = 0; n < total; n++) {
        size_t rest = n;
        for (size_t i = b->axis_count; i-- > 0;) {
            index[i] = rest % b->axis[i]->value_count;
            rest /= b->axis[i]->value_count;
        }
        DPB_TRY(add_cell(b, index));
    }
    return check_effect(b);
}

/* 0: as hosts have slots. */
static int asked_per_node(const dpb_config *config)
{
    const struct dpb_comm_bench_options *o = dpb_config_struct(config, "experiment");
    return dpb_placement_asked(config, o->ranks_per_node);
}

static dpb_status place(const struct bench *b, dpb_config *config, int ranks)
{
    struct dpb_world world;
    dpb_status st =
            dpb_placement_find(b->config->crew, config, ranks, asked_per_node(config), &world);
    dpb_world_announce(&world);
    dpb_world_release(&world);
    return st;
}

static dpb_status check_parts(const struct bench *b, dpb_config *config)
{
    const struct dpb_comm_bench_options *o = dpb_config_struct(config, "experiment");
    const struct dpb_registry *registry = b->config->registry;
    const int ranks = (int)o->ranks;
    if (!b->config->crew) {
        DPB_TRY(dpb_crew_check_alone());
        return dpb_registry_check_parts(registry, o->device, o->comm, o->ranks);
    }
    DPB_TRY(dpb_registry_check_pair(registry, o->device, o->comm));
    DPB_TRY(dpb_crew_check_comm(b->config->crew, o->comm,
                                dpb_registry_needs_segment(dpb_registry_comm(registry, o->comm)),
                                b->cell_count, ranks, ranks));
    return place(b, config, ranks);
}

static int64_t row_bytes(const struct comm_row *row)
{
    return row->count * (int64_t)dpb_dtype_bytes(row->dtype);
}

static void say_too_large(const dpb_config *config, int64_t bytes, int64_t room_bytes, char *why,
                          size_t why_bytes)
{
    const struct dpb_comm_bench_options *o = dpb_config_struct(config, "experiment");
    char each[DPB_UNIT_TEXT_BYTES], room[DPB_UNIT_TEXT_BYTES];
    dpb_human_size((double)bytes, 3, each, sizeof(each));
    dpb_human_size((double)room_bytes, 3, room, sizeof(room));
    snprintf(why, why_bytes,
             "memory: %" PRId64 " ranks with buffers of %s do not fit: there is room for %s a rank",
             o->ranks, each, room);
}

/* How large a rank's buffer may be, in the host's memory and in that of an accelerator. */
static dpb_status find_room(const struct bench *b, struct cell *cell)
{
    const struct dpb_comm_bench_options *o = dpb_config_struct(cell->config, "experiment");
    const struct dpb_memory_device which = {o->device, dpb_config_struct(cell->config, "device"),
                                            (int)(b->config->crew ? o->ranks_per_node : o->ranks)};
    struct dpb_device_room room;
    DPB_TRY(dpb_memory_device_room(b->config->registry, &which, &room));
    cell->room_bytes = dpb_memory_available("") / o->ranks;
    if (room.free_bytes < cell->room_bytes)
        cell->room_bytes = room.free_bytes;
    return DPB_OK;
}

/* Parts that are not there, and memory in which no buffer fits, are found before anything is made.
 */
static dpb_status preflight(struct bench *b)
{
    const struct cell *too_small = NULL;
    int64_t least_bytes = INT64_MAX;
    size_t fitting = 0;
    char why[256];
    for (size_t i = 0; i < b->row_count; i++)
        if (row_bytes(&b->rows[i]) < least_bytes)
            least_bytes = row_bytes(&b->rows[i]);
    for (size_t i = 0; i < b->cell_count; i++) {
        struct cell *cell = &b->cells[i];
        cell->room_bytes = INT64_MAX;
        if (!is_sim(cell->config)) {
            DPB_TRY(check_parts(b, cell->config));
            DPB_TRY(find_room(b, cell));
        }
        fitting += least_bytes <= cell->room_bytes;
        if (least_bytes > cell->room_bytes)
            too_small = cell;
    }
    if (fitting > 0 || !too_small)
        return DPB_OK;
    say_too_large(too_small->config, least_bytes, too_small->room_bytes, why, sizeof(why));
    dpb_error("%s", why);
    dpb_log_hint("give smaller --sizes or fewer --ranks");
    return DPB_ERR_NO_MEMORY;
}

/* ---- launches ---- */

static dpb_status launch_cell(struct bench *b, struct comm_launch *what)
{
    const struct dpb_comm_bench_options *o = dpb_config_struct(what->config, "experiment");
    dpb_json *job = comm_bench_job(what->config, what->rows, what->row_count);
    struct dpb_launch_config launch = {
            .ranks = (int)o->ranks,
            .crew = b->config->crew,
            .ranks_per_node = asked_per_node(what->config),
            .job = job,
            .timeout_ns = o->timeout_ns,
            .stall_timeout_ns = o->stall_timeout_ns,
            .interrupted = b->config->interrupted,
    };
    struct dpb_launch_result result = {0};
    what->result = &result;
    dpb_status st = comm_records_add(&b->records, what, dpb_launch_run(&launch, &result));
    dpb_launch_result_release(&result);
    dpb_json_free(job);
    return st;
}

/* Rows for which there is no memory are recorded as skipped, and leave the launch. */
static dpb_status skip_too_large(struct bench *b, struct comm_launch *launch,
                                 struct comm_row *rows_here)
{
    const int64_t room_bytes = b->cells[launch->cell].room_bytes;
    size_t kept = 0;
    dpb_status st = DPB_OK;
    for (size_t i = 0; i < launch->row_count; i++) {
        char why[256];
        if (row_bytes(&rows_here[i]) <= room_bytes) {
            rows_here[kept++] = rows_here[i];
            continue;
        }
        say_too_large(launch->config, row_bytes(&rows_here[i]), room_bytes, why, sizeof(why));
        DPB_KEEP(st, comm_records_skip(&b->records, launch, &rows_here[i], why));
    }
    launch->row_count = kept;
    return st;
}

static dpb_status run_cell(struct bench *b, size_t cell)
{
    const dpb_config *config = b->cells[cell].config;
    const struct dpb_comm_bench_options *o = dpb_config_struct(config, "experiment");
    const struct comm_sim_machine *machine = NULL;
    struct comm_row *rows_here = NULL;
    if (is_sim(config))
        DPB_TRY(machine_of(b, config, &machine));
    DPB_TRY(rows_of(b, o->ranks, &rows_here));
    struct comm_launch launch = {.cell = cell,
                                 .config = config,
                                 .label = b->cells[cell].label,
                                 .rows = rows_here,
                                 .row_count = b->row_count};
    dpb_status st = skip_too_large(b, &launch, rows_here);
    if (st == DPB_OK && machine)
        st = comm_records_simulate(&b->records, &launch, machine);
    else if (st == DPB_OK && launch.row_count > 0)
        st = launch_cell(b, &launch);
    free(rows_here);
    return st;
}

static dpb_status open_folder(struct bench *b, struct dpb_comm_bench_result *result)
{
    DPB_TRY(dpb_run_folder_new(b->config->out, "comm", &result->folder));
    DPB_TRY(dpb_run_folder_lock(result->folder, &b->lock_fd));
    return comm_records_open(&b->records, result->folder);
}

static void bench_release(struct bench *b)
{
    for (size_t i = 0; i < b->cell_count; i++)
        cell_release(&b->cells[i]);
    free(b->cells);
    free(b->rows);
    comm_records_release(&b->records);
    comm_sim_release(&b->sim);
    if (b->lock_fd >= 0)
        close(b->lock_fd);
}

dpb_status dpb_comm_bench_run(const struct dpb_comm_bench_config *config,
                              struct dpb_comm_bench_result *result)
{
    struct bench b = {
            .config = config,
            .set = dpb_comm_bench_option_set(config->registry),
            .records = {.crew = config->crew, .list = dpb_json_array()},
            .sim = {.machines = config->machines},
            .lock_fd = -1,
    };
    *result = (struct dpb_comm_bench_result){.records = b.records.list};
    dpb_status st, first = DPB_OK;
    DPB_TRY_GOTO(st, make_rows(&b), out);
    DPB_TRY_GOTO(st, make_cells(&b), out);
    DPB_TRY_GOTO(st, preflight(&b), out);
    DPB_TRY_GOTO(st, open_folder(&b, result), out);
    for (size_t i = 0; i < b.cell_count; i++) {
        if (config->progress)
            config->progress(config->progress_ctx, b.cells[i].label, i, b.cell_count);
        dpb_status cell = run_cell(&b, i);
        if (first == DPB_OK)
            first = cell;
        if (cell == DPB_ERR_INTERRUPTED || cell == DPB_ERR_IO)
            break;
    }
    st = first;
    if (b.records.too_large > 0) {
        dpb_error("for %zu of the collectives there is no memory, and they are recorded as skipped",
                  b.records.too_large);
        dpb_log_hint("give smaller --sizes or fewer --ranks");
        DPB_KEEP(st, DPB_ERR_NO_MEMORY);
    }
    if (b.records.skipped > 0) {
        dpb_error("%zu of the collectives are not supported, and are recorded as skipped",
                  b.records.skipped);
        dpb_log_hint("leave out the --algorithm or --dtype that does not have them");
        DPB_KEEP(st, DPB_ERR_UNSUPPORTED);
    }
out:
    bench_release(&b);
    return st;
}
