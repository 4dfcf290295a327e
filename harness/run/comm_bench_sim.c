/* comm_bench_sim.c: times of collectives on machine profiles. */
#include "comm_bench_sim.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm_bench_levels.h"
#include "dpb_coll_cost.h"
#include "dpb_log.h"

/* clang-format off */
static const struct dpb_option rows[] = {
    {.name = "machine", .type = DPB_OPT_TEXT, .offset = offsetof(struct comm_sim_options, machine), .default_text = "", .category = "Collectives",
     .help = "machine profile: a name of `dpbench list machines`, or a file"},
    {.name = "set", .type = DPB_OPT_TEXT, .offset = offsetof(struct comm_sim_options, set), .default_text = "", .category = "Collectives", .flags = DPB_OPT_NO_AXIS,
     .help = "figures of the machine to replace, such as inside.rate=600GB/s,between.latency=5us"},
};
/* clang-format on */

const struct dpb_option_table comm_sim_option_table = {
        "device", "sim", rows, sizeof(rows) / sizeof(rows[0]), sizeof(struct comm_sim_options)};

bool comm_sim_is_device(const char *device)
{
    return strcmp(device, "sim") == 0;
}

bool comm_sim_heeds(const char *option)
{
    static const char *const of_processes[] = {"call",       "ranks-per-node", "bind",
                                               "iterations", "warmup",         "shuffle",
                                               "timeout",    "stall-timeout"};

    for (size_t i = 0; i < sizeof(of_processes) / sizeof(of_processes[0]); i++)
        if (strcmp(option, of_processes[i]) == 0)
            return false;
    return true;
}

/* ---- machines ---- */

static dpb_status keep(struct comm_sim *sim, const struct comm_sim_machine *machine)
{
    struct comm_sim_machine *grown = realloc(sim->items, (sim->count + 1) * sizeof(*grown));

    if (!grown)
        return DPB_ERR_NO_MEMORY;
    sim->items = grown;
    sim->items[sim->count++] = *machine;
    return DPB_OK;
}

static void close_machine(const struct comm_sim *sim, struct comm_sim_machine *machine)
{
    for (size_t i = 0; i < machine->without_count; i++) {
        if (machine->without[i].network)
            sim->machines->close(machine->without[i].machine);
        free(machine->without[i].figure);
    }
    free(machine->without);
    if (machine->network)
        sim->machines->close(machine->machine);
    free(machine->name);
}

/* `set` without its part from `from` of `length`. */
static char *set_without(const char *set, size_t from, size_t length)
{
    const char *rest = set + from + length + (set[from + length] == ',');
    const int before = (int)(from > 0 && !*rest ? from - 1 : from);
    char *text;

    return asprintf(&text, "%.*s%s", before, set, rest) < 0 ? NULL : text;
}

static dpb_status open_without(const struct comm_sim *sim, const char *set, size_t from,
                               size_t length, struct comm_sim_machine *machine)
{
    struct comm_sim_without *without = &machine->without[machine->without_count++];
    char *others = set_without(set, from, length);

    *without = (struct comm_sim_without){.figure = strndup(set + from, length)};
    const dpb_status st = without->figure && others
                                  ? sim->machines->open(machine->name, others, &without->machine,
                                                        &without->network)
                                  : DPB_ERR_NO_MEMORY;
    free(others);
    return st;
}

static dpb_status open_machine(const struct comm_sim *sim, const struct comm_sim_options *options,
                               struct comm_sim_machine *machine)
{
    const char *set = options->set;

    *machine = (struct comm_sim_machine){.name = strdup(options->machine)};
    machine->without = calloc(strlen(set) + 1, sizeof(*machine->without));
    if (!machine->name || !machine->without)
        return DPB_ERR_NO_MEMORY;
    DPB_TRY(sim->machines->open(machine->name, set, &machine->machine, &machine->network));
    for (size_t from = 0; set[from];) {
        const size_t length = strcspn(set + from, ",");

        DPB_TRY(open_without(sim, set, from, length, machine));
        from += length + (set[from + length] == ',');
    }
    return DPB_OK;
}

dpb_status comm_sim_open(struct comm_sim *sim, const struct comm_sim_options *options,
                         const struct comm_sim_machine **machine)
{
    const char *name = options->machine;
    struct comm_sim_machine opened;
    dpb_status st;

    for (size_t i = 0; i < sim->count; i++) {
        *machine = &sim->items[i];
        if (strcmp(sim->items[i].name, name) == 0)
            return DPB_OK;
    }
    if (!name[0]) {
        dpb_error("device \"sim\" needs a machine to say how long collectives take");
        dpb_log_hint("give --machine NAME, one of `dpbench list machines`, or a file");
        return DPB_ERR_USAGE;
    }
    if (!sim->machines) {
        dpb_error("device \"sim\": no machine profiles are known here");
        return DPB_ERR_INTERNAL;
    }
    st = open_machine(sim, options, &opened);
    if (st == DPB_OK)
        st = keep(sim, &opened);
    if (st < 0) {
        close_machine(sim, &opened);
        return st;
    }
    *machine = &sim->items[sim->count - 1];
    return DPB_OK;
}

void comm_sim_release(struct comm_sim *sim)
{
    for (size_t i = 0; i < sim->count; i++)
        close_machine(sim, &sim->items[i]);
    free(sim->items);
}

dpb_status comm_sim_check(const struct comm_sim_machine *machine, int64_t ranks)
{
    struct dpb_network_time time;

    return dpb_network_time(machine->network, DPB_COLL_ALL_REDUCE, (int)ranks, 1, &time);
}

/* ---- what a reader should be warned of ---- */

static void warn(dpb_json *warnings, const char *text)
{
    dpb_json_append(warnings, dpb_json_string(text));
}

/* Per accelerator and direction, of the slowest link that a ring crosses. */
static double wire_rate(const struct dpb_network *network, int nodes)
{
    const double inside = network->inside.bytes_per_s > 0 ? network->inside.bytes_per_s : INFINITY;

    return nodes > 1 ? fmin(inside, network->between.nics * network->between.bytes_per_s) : inside;
}

static void warn_of_busbw(const struct dpb_network *network, const struct comm_row *row, int ranks,
                          int nodes, double busbw, dpb_json *warnings)
{
    const double wire = wire_rate(network, nodes);
    const bool has_nvls = nodes == 1 && row->kind == DPB_COLL_ALL_REDUCE &&
                          network->nvls_from_ranks > 0 && ranks >= network->nvls_from_ranks;
    char text[384];

    if (!(busbw > wire))
        return;
    snprintf(text, sizeof(text),
             "busbw is above the %.0f GB/s of the link: it is a wire rate for rings only; %s",
             wire / 1e9,
             has_nvls
                     ? "with NVLink SHARP the switch adds up, and a rank sends (n+1)/n of the "
                       "buffer instead of 2 (n-1)/n"
                     : "trees, hierarchies and adding in switches send less over the slowest link");
    warn(warnings, text);
}

static void warn_of_nodes(const struct dpb_network_time *time, int nodes, dpb_json *warnings)
{
    if (time->curve_nodes == 2 && nodes > 2)
        warn(warnings,
             "measured with 2 nodes, used for more: 2 nodes say little of many (AWS p4d: busbw 57 "
             "GB/s with 2 nodes, 30 with 4); measure 4");
}

static bool has_link(const struct dpb_network *network, int ranks)
{
    return ranks > network->ranks_per_node
                   ? network->between.bytes_per_s > 0 && network->between.nics > 0
                   : network->inside.bytes_per_s > 0;
}

/* At this size, at one that latencies alone decide, or at one that rates do. */
static bool changes_times(const struct dpb_network *a, const struct dpb_network *b,
                          enum dpb_coll_kind kind, int ranks, double bytes)
{
    const double sizes[] = {bytes, 1, 0x1p40};

    if (!has_link(a, ranks) || !has_link(b, ranks))
        return true;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct dpb_network_time time_a, time_b;

        if (dpb_network_time(a, kind, ranks, sizes[i], &time_a) < 0 ||
            dpb_network_time(b, kind, ranks, sizes[i], &time_b) < 0 || time_a.ns != time_b.ns)
            return true;
    }
    return false;
}

static void warn_of_figures(const struct comm_sim_machine *machine, const struct comm_row *row,
                            int ranks, double bytes, const struct dpb_network_time *time,
                            dpb_json *warnings)
{
    for (size_t i = 0; i < machine->without_count; i++) {
        const struct comm_sim_without *without = &machine->without[i];
        char text[384];

        if (changes_times(machine->network, without->network, row->kind, ranks, bytes))
            continue;
        snprintf(text, sizeof(text), "--set %.96s changes nothing here: %s %.160s", without->figure,
                 time->curve_nodes > 0 ? "times are of a measured curve, from"
                                       : "it has no part in the closed form,",
                 time->source);
        warn(warnings, text);
    }
}

/* ---- records ---- */

static void put_rate(dpb_json *record, const char *key, double value)
{
    if (isfinite(value))
        dpb_json_set_real(record, key, value);
    else
        dpb_json_set_absent(record, key, "one rank has no bus");
}

static void put_times(const struct dpb_network_time *time, double bytes, double factor,
                      dpb_json *record)
{
    static const char *const spread[] = {"min", "p50", "p99"};
    dpb_json *times = dpb_json_object();
    const double algbw = time->ns > 0 ? bytes / time->ns * 1e9 : NAN;

    dpb_json_set_real(times, "mean", time->ns);
    for (size_t i = 0; i < sizeof(spread) / sizeof(spread[0]); i++)
        dpb_json_set_absent(times, spread[i], "simulated: there is one time");
    dpb_json_set(record, "time_ns", times);
    put_rate(record, "algbw_bytes_per_s", algbw);
    put_rate(record, "busbw_factor", factor > 0 ? factor : NAN);
    put_rate(record, "busbw_bytes_per_s", algbw * factor);
    dpb_json_set_absent(record, "busbw_p50_bytes_per_s", "simulated: there is one time");
    dpb_json_set_absent(record, "samples_ns", "simulated: there is one time");
    dpb_json_set_absent(record, "wrong", "simulated: nothing was moved");
    dpb_json_set_absent(record, "iterations", "simulated: nothing was moved");
}

static void put_origin(const struct dpb_network_time *time, dpb_json *record)
{
    const bool is_extrapolated = time->origin == DPB_ORIGIN_EXTRAPOLATED;

    dpb_json_set_string(record, "origin", dpb_network_origin_text(time->origin));
    if (is_extrapolated && time->by > 1)
        dpb_json_set_real(record, "extrapolated_by", time->by);
    else
        dpb_json_set_absent(record, "extrapolated_by", "it is not beyond what was measured");
    if (is_extrapolated && time->below > 1)
        dpb_json_set_real(record, "extrapolated_below", time->below);
    else
        dpb_json_set_absent(record, "extrapolated_below", "it is not below what was measured");
    dpb_json_set_string(record, "source", time->source);
    if (time->curve_nodes > 0)
        dpb_json_set_int(record, "curve_nodes", time->curve_nodes);
    else
        dpb_json_set_absent(record, "curve_nodes", "from a closed form");
}

/* No ranks that send to each other take less: all of them inside a node, whole nodes between nodes.
 * Reduce-scatter and all-gather are half of an all-reduce. */
static void put_least(const struct dpb_network *network, enum dpb_coll_kind kind, int ranks,
                      int nodes, double bytes, dpb_json *record)
{
    const bool is_half = kind == DPB_COLL_REDUCE_SCATTER || kind == DPB_COLL_ALL_GATHER;
    const double rate = nodes > 1 ? network->between.nics * network->between.bytes_per_s
                                  : network->inside.bytes_per_s;
    const double least_s = dpb_cost_lower_bound(nodes > 1 ? nodes : ranks, bytes, rate);

    if (kind != DPB_COLL_ALL_REDUCE && !is_half)
        dpb_json_set_absent(record, "least_time_ns",
                            "known for all-reduce, reduce-scatter and all-gather");
    else if (!(rate > 0))
        dpb_json_set_absent(record, "least_time_ns", "the machine does not tell the link's rate");
    else
        dpb_json_set_real(record, "least_time_ns", 1e9 * least_s / (is_half ? 2 : 1));
}

static dpb_json *part_json(const struct comm_sim_machine *machine)
{
    dpb_json *json = dpb_json_object();

    dpb_json_set_string(json, "name", "sim");
    dpb_json_set_bool(json, "simulated", true);
    dpb_json_set_string(json, "machine", machine->network->name);
    return json;
}

dpb_status comm_sim_put(const struct comm_sim_machine *machine, const struct comm_row *row,
                        int64_t ranks, dpb_json *record)
{
    const struct dpb_network *network = machine->network;
    const int per_node = network->ranks_per_node;
    const int nodes = ((int)ranks + per_node - 1) / per_node;
    const double bytes = (double)row->count * (double)dpb_dtype_bytes(row->dtype);
    const double factor = dpb_coll_busbw_factor(row->kind, (int)ranks);
    dpb_json *warnings = dpb_json_array();
    struct dpb_network_time time;
    struct comm_levels levels;

    DPB_TRY(dpb_network_time(network, row->kind, (int)ranks, bytes, &time));
    dpb_json_set(record, "comm", part_json(machine));
    dpb_json_set(record, "device", part_json(machine));
    comm_levels_simulated(row, (int)ranks, per_node, time.source, &levels);
    comm_levels_put(&levels, time.ns, record);
    put_times(&time, bytes, factor, record);
    put_least(network, row->kind, (int)ranks, nodes, bytes, record);
    put_origin(&time, record);
    warn_of_nodes(&time, nodes, warnings);
    warn_of_busbw(network, row, (int)ranks, nodes, time.busbw_bytes_per_s, warnings);
    warn_of_figures(machine, row, (int)ranks, bytes, &time, warnings);
    dpb_json_set(record, "warnings", warnings);
    return DPB_OK;
}
