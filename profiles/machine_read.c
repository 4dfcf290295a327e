/* Reading machine profiles: all mistakes at once, each with its place. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_yaml.h"
#include "machine_private.h"

struct reading {
    const char *file;
    struct dpb_machine *machine;
    dpb_status status; /* of the first mistake; reading goes on, to find the others */
};

__attribute__((format(printf, 3, 4))) static void
mistake(struct reading *reading, const struct dpb_yaml *at, const char *format, ...)
{
    va_list list;
    char *line = NULL;

    va_start(list, format);
    if (vasprintf(&line, format, list) < 0)
        line = NULL;
    va_end(list);
    dpb_error("%s:%d:%d: %s", reading->file, at->line, at->column, line ? line : "a mistake");
    free(line);
    if (reading->status == DPB_OK)
        reading->status = DPB_ERR_USAGE;
}

static char *copy(struct reading *reading, const char *text)
{
    char *copied = strdup(text);

    if (!copied)
        reading->status = DPB_ERR_NO_MEMORY;
    return copied;
}

/* ---- what is known ---- */

const struct known_accelerator *machine_known_accelerator(const char *name)
{
    /* Vendors' data sheets; dense, not with sparsity, which is twice that. */
    static const struct known_accelerator known[] = {
            {"K80", 0, 12e9},           {"P100", 0, 16e9},        {"V100", 125e12, 32e9},
            {"A100", 312e12, 80e9},     {"H100", 989.5e12, 80e9}, {"H200", 989.5e12, 141e9},
            {"GB200", 2500e12, 186e9},  {"B200", 2250e12, 180e9}, {"MI300X", 1307e12, 192e9},
            {"MI325X", 1307e12, 256e9},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strncmp(name, known[i].name, strlen(known[i].name)) == 0)
            return &known[i];
    return NULL;
}

/* ---- figures ---- */

static const struct dpb_yaml *scalar_of(struct reading *reading, const struct dpb_yaml *map,
                                        const char *key, bool is_needed)
{
    const struct dpb_yaml *found = dpb_yaml_get(map, key);

    if (!found && is_needed)
        mistake(reading, map, "\"%s\" is missing", key);
    if (found && found->kind != DPB_YAML_SCALAR) {
        mistake(reading, found, "\"%s\" is %s, not a single value", key,
                dpb_yaml_kind_text(found->kind));
        return NULL;
    }
    return found;
}

/* A card of 200 Gbit/s that was written down as 200 GB/s, and the like. */
static void check_bits(struct reading *reading, enum dpb_figure_id id, const struct dpb_yaml *at)
{
    if (id == DPB_FIGURE_NIC_RATE && strstr(at->text, "B/s"))
        mistake(reading, at,
                "between.rate \"%s\" is in bytes: network cards are sold in bits, write Gbps (1 "
                "GB/s is 8 Gbps)",
                at->text);
    if ((id == DPB_FIGURE_INSIDE_RATE || id == DPB_FIGURE_MEMORY_RATE) && strstr(at->text, "bps"))
        mistake(reading, at,
                "%s \"%s\" is in bits: links inside a node and memories are sold in bytes, write "
                "GB/s",
                dpb_figure_key(id), at->text);
}

static void check_sparse(struct reading *reading, enum dpb_figure_id id, double value,
                         const struct dpb_yaml *at)
{
    const struct known_accelerator *known =
            reading->machine->accelerator ? machine_known_accelerator(reading->machine->accelerator)
                                          : NULL;

    if ((id == DPB_FIGURE_BF16 || id == DPB_FIGURE_FP16) && known && known->dense_flops > 0 &&
        value > 1.5 * known->dense_flops)
        mistake(reading, at,
                "%s \"%s\" is more than a %s has: is it the peak with sparsity? Give the dense one "
                "(%g TFLOPS)",
                dpb_figure_key(id), at->text, known->name, known->dense_flops / 1e12);
}

static bool number_of(struct reading *reading, enum dpb_figure_id id, const struct dpb_yaml *at,
                      double *value)
{
    const struct figure_row *row = &figure_rows[id];
    char why[DPB_WHY_BYTES] = "";

    if (machine_parse_number(row->unit, at->text, value, why) != DPB_OK) {
        mistake(reading, at, "%s: \"%s\": %s", row->key, at->text, why);
        return false;
    }
    if (!(*value >= row->least && *value <= row->most)) {
        struct dpb_str least = {0}, most = {0};

        dpb_figure_text(id, row->least, &least);
        dpb_figure_text(id, row->most, &most);
        mistake(reading, at, "%s: \"%s\" is not between %s and %s", row->key, at->text, least.text,
                most.text);
        dpb_str_release(&least);
        dpb_str_release(&most);
        return false;
    }
    check_bits(reading, id, at);
    check_sparse(reading, id, *value, at);
    return true;
}

static void warn_of_date(const struct reading *reading, const struct dpb_figure *figure)
{
    if (figure->date)
        return;
    dpb_warn("%s:%d: the price has no date: prices of the same accelerator differ several times "
             "over, and change",
             reading->file, figure->line);
    dpb_log_hint("add date: 2026-12-01, or give today's with --price");
}

static bool is_figure_key(const char *key)
{
    static const char *const keys[] = {"value", "source", "assumed", "date"};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

static void read_figure(struct reading *reading, enum dpb_figure_id id, const struct dpb_yaml *node)
{
    struct dpb_figure *figure = &reading->machine->figure[id];

    if (node->kind != DPB_YAML_MAP) {
        mistake(reading, node,
                "%s: a figure is {value: ..., source: ...}, or {value: ..., assumed: why}",
                dpb_figure_key(id));
        return;
    }
    for (size_t i = 0; i + 1 < node->count; i += 2)
        if (!is_figure_key(node->items[i].text))
            mistake(reading, &node->items[i], "%s: unknown key \"%s\"", dpb_figure_key(id),
                    node->items[i].text);
    const struct dpb_yaml *value = scalar_of(reading, node, "value", true);
    const struct dpb_yaml *source = scalar_of(reading, node, "source", false);
    const struct dpb_yaml *assumed = scalar_of(reading, node, "assumed", false);
    const struct dpb_yaml *date = scalar_of(reading, node, "date", false);
    double number;

    if (!source == !assumed)
        mistake(reading, node, "%s: it needs a source, or assumed with the reason, and not both",
                dpb_figure_key(id));
    if (!value || !number_of(reading, id, value, &number) || !source == !assumed)
        return;
    figure->value = number;
    figure->line = value->line;
    figure->is_assumed = assumed != NULL;
    figure->source = copy(reading, (source ? source : assumed)->text);
    figure->date = date ? copy(reading, date->text) : NULL;
    if (id == DPB_FIGURE_PRICE)
        warn_of_date(reading, figure);
}

/* ---- points ---- */

static bool point(struct reading *reading, const struct dpb_yaml *node, enum figure_unit unit,
                  double *a, double *b)
{
    char why[DPB_WHY_BYTES] = "";

    if (node->kind != DPB_YAML_LIST || node->count != 2 || node->items[0].kind != DPB_YAML_SCALAR ||
        node->items[1].kind != DPB_YAML_SCALAR) {
        mistake(reading, node, "a point is a list of two: [size, value]");
        return false;
    }
    if (dpb_parse_f64(node->items[0].text, a, NULL) != DPB_OK &&
        machine_parse_number(UNIT_SIZE, node->items[0].text, a, why) != DPB_OK) {
        mistake(reading, &node->items[0], "\"%s\": %s", node->items[0].text, why);
        return false;
    }
    if (machine_parse_number(unit, node->items[1].text, b, why) != DPB_OK || !(*b > 0)) {
        mistake(reading, &node->items[1], "\"%s\": %s", node->items[1].text,
                why[0] ? why : "it must be above 0");
        return false;
    }
    return true;
}

static int read_points(struct reading *reading, const struct dpb_yaml *map, enum figure_unit unit,
                       double **a, double **b)
{
    const struct dpb_yaml *list = dpb_yaml_get(map, "points");

    if (!list || list->kind != DPB_YAML_LIST || list->count == 0) {
        mistake(reading, list ? list : map, "\"points\" is a list of points, at least one");
        return 0;
    }
    *a = calloc(list->count, sizeof(**a));
    *b = calloc(list->count, sizeof(**b));
    if (!*a || !*b) {
        reading->status = DPB_ERR_NO_MEMORY;
        return 0;
    }
    for (size_t i = 0; i < list->count; i++) {
        if (!point(reading, &list->items[i], unit, &(*a)[i], &(*b)[i]))
            return 0;
        if (!((*a)[i] > (i > 0 ? (*a)[i - 1] : 0)))
            mistake(reading, &list->items[i], "sizes ascend, \"%s\" does not",
                    list->items[i].items[0].text);
    }
    return (int)list->count;
}

static void read_share(struct reading *reading, const struct dpb_yaml *map,
                       struct dpb_machine_share *share)
{
    const struct dpb_yaml *source = scalar_of(reading, map, "source", true);

    share->source = source ? copy(reading, source->text) : NULL;
    share->count = read_points(reading, map, UNIT_SHARE, &share->size, &share->share);
}

static int count_of(struct reading *reading, const struct dpb_yaml *map, const char *key, int least)
{
    const struct dpb_yaml *node = scalar_of(reading, map, key, true);
    char why[DPB_WHY_BYTES] = "";
    int64_t value = least;

    if (!node)
        return least;
    if (dpb_parse_i64(node->text, &value, why) != DPB_OK || value < least || value > 1000000) {
        mistake(reading, node, "%s: \"%s\" is not a number from %d to 1000000", key, node->text,
                least);
        return least;
    }
    return (int)value;
}

static void check_curve_keys(struct reading *reading, const struct dpb_yaml *map)
{
    static const char *const keys[] = {"collective", "ranks", "nodes", "source", "points"};

    for (size_t i = 0; map->kind == DPB_YAML_MAP && i + 1 < map->count; i += 2) {
        bool is_known = false;

        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
            is_known = is_known || strcmp(keys[k], map->items[i].text) == 0;
        if (!is_known)
            mistake(reading, &map->items[i], "unknown key \"%s\" of a curve", map->items[i].text);
    }
}

/* A curve that no time is ever taken from is a mistake, never silence. */
static void check_curve_use(struct reading *reading, const struct dpb_yaml *map, int index)
{
    const struct dpb_machine *machine = reading->machine;
    const struct dpb_machine_curve *curve = &machine->curves[index];
    const int per_node = machine->accelerators_per_node;
    const int nodes = (curve->ranks + per_node - 1) / per_node;

    if (curve->nodes != nodes)
        mistake(reading, map,
                "a curve of %d ranks on %d nodes: with %d accelerators per node they "
                "are on %d",
                curve->ranks, curve->nodes, per_node, nodes);
    for (int c = 0; curve->collective && c < index; c++)
        if (machine->curves[c].ranks == curve->ranks && machine->curves[c].collective &&
            strcmp(machine->curves[c].collective, curve->collective) == 0)
            mistake(reading, map, "a curve of %s with %d ranks is there twice", curve->collective,
                    curve->ranks);
}

static void read_curve(struct reading *reading, const struct dpb_yaml *map,
                       struct dpb_machine_curve *curve)
{
    static const char *const kinds[] = {"all-reduce", "reduce-scatter", "all-gather",
                                        "broadcast",  "reduce",         "all-to-all"};
    const struct dpb_yaml *collective = scalar_of(reading, map, "collective", true);
    const struct dpb_yaml *source = scalar_of(reading, map, "source", true);
    bool is_known = false;

    check_curve_keys(reading, map);
    for (size_t i = 0; collective && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        is_known = is_known || strcmp(collective->text, kinds[i]) == 0;
    if (collective && !is_known)
        mistake(reading, collective, "there is no collective \"%s\"", collective->text);
    curve->collective = collective ? copy(reading, collective->text) : NULL;
    curve->source = source ? copy(reading, source->text) : NULL;
    curve->ranks = count_of(reading, map, "ranks", 2);
    curve->nodes = count_of(reading, map, "nodes", 1);
    curve->count = read_points(reading, map, UNIT_TIME, &curve->bytes, &curve->seconds);
}

static void read_curves(struct reading *reading, const struct dpb_yaml *list)
{
    struct dpb_machine *machine = reading->machine;

    if (list->kind != DPB_YAML_LIST) {
        mistake(reading, list, "\"curves\" is a list");
        return;
    }
    machine->curves = calloc(list->count + 1, sizeof(*machine->curves));
    if (!machine->curves) {
        reading->status = DPB_ERR_NO_MEMORY;
        return;
    }
    for (size_t i = 0; i < list->count; i++) {
        read_curve(reading, &list->items[i], &machine->curves[i]);
        check_curve_use(reading, &list->items[i], machine->curve_count++);
    }
}

/* ---- the file ---- */

static const char *const other_keys[] = {"version",       "name",
                                         "summary",       "accelerator",
                                         "kind",          "accelerators-per-node",
                                         "compute.curve", "memory-rate.curve",
                                         "curves"};
#define OTHER_KEYS (sizeof(other_keys) / sizeof(other_keys[0]))

static int find_figure(const char *key)
{
    for (int id = 0; id < DPB_FIGURE_COUNT; id++)
        if (strcmp(figure_rows[id].key, key) == 0)
            return id;
    return -1;
}

static void unknown_key(struct reading *reading, const struct dpb_yaml *key)
{
    const char *known[DPB_FIGURE_COUNT + OTHER_KEYS];
    size_t count = 0;

    for (int id = 0; id < DPB_FIGURE_COUNT; id++)
        known[count++] = figure_rows[id].key;
    for (size_t i = 0; i < OTHER_KEYS; i++)
        known[count++] = other_keys[i];
    const char *nearest = dpb_suggest(key->text, known, count);
    mistake(reading, key, "unknown key \"%s\"%s%s%s", key->text, nearest ? ", did you mean \"" : "",
            nearest ? nearest : "", nearest ? "\"?" : "");
}

static bool is_other_key(const char *key)
{
    for (size_t i = 0; i < OTHER_KEYS; i++)
        if (strcmp(other_keys[i], key) == 0)
            return true;
    return false;
}

static void read_entries(struct reading *reading, const struct dpb_yaml *root)
{
    for (size_t i = 0; i + 1 < root->count; i += 2) {
        const struct dpb_yaml *key = &root->items[i], *value = &root->items[i + 1];
        const int id = find_figure(key->text);

        for (size_t before = 0; before < i; before += 2)
            if (strcmp(root->items[before].text, key->text) == 0)
                mistake(reading, key, "\"%s\" is there twice", key->text);
        if (id >= 0 && reading->machine->figure[id].source == NULL)
            read_figure(reading, id, value);
        else if (id < 0 && !is_other_key(key->text))
            unknown_key(reading, key);
    }
}

static char *text_of(struct reading *reading, const struct dpb_yaml *root, const char *key)
{
    const struct dpb_yaml *node = scalar_of(reading, root, key, true);

    return copy(reading, node ? node->text : "");
}

static void read_head(struct reading *reading, const struct dpb_yaml *root)
{
    struct dpb_machine *machine = reading->machine;
    const struct dpb_yaml *version = scalar_of(reading, root, "version", true);
    const struct dpb_yaml *kind = scalar_of(reading, root, "kind", true);

    if (version && strcmp(version->text, "1") != 0)
        mistake(reading, version, "version \"%s\" of a machine profile; this program reads 1",
                version->text);
    machine->is_cpu = kind && strcmp(kind->text, "cpu") == 0;
    if (kind && !machine->is_cpu && strcmp(kind->text, "gpu") != 0)
        mistake(reading, kind, "kind \"%s\" is not gpu or cpu", kind->text);
    machine->name = text_of(reading, root, "name");
    machine->summary = text_of(reading, root, "summary");
    machine->accelerator = text_of(reading, root, "accelerator");
    machine->accelerators_per_node = count_of(reading, root, "accelerators-per-node", 1);
    if (machine->accelerator && machine->accelerator[0] && !machine->is_cpu &&
        !machine_known_accelerator(machine->accelerator)) {
        const struct dpb_yaml *accelerator = dpb_yaml_get(root, "accelerator");

        dpb_warn("%s:%d:%d: nobody here knows an accelerator \"%s\": its figures are taken as they "
                 "are",
                 reading->file, accelerator->line, accelerator->column, machine->accelerator);
        dpb_log_hint("known: K80, P100, V100, A100, H100, H200, B200, GB200, MI300X, MI325X; "
                     "figures of others are not held against their data sheets");
    }
}

/* What no plan can do without. */
static void check_needed(struct reading *reading, const struct dpb_yaml *root)
{
    static const enum dpb_figure_id needed[] = {DPB_FIGURE_MEMORY, DPB_FIGURE_MEMORY_RATE,
                                                DPB_FIGURE_FP32};
    const struct dpb_machine *machine = reading->machine;

    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
        if (!dpb_machine_has(machine, needed[i]) && !dpb_yaml_get(root, figure_rows[needed[i]].key))
            mistake(reading, root, "\"%s\" is missing: %s", figure_rows[needed[i]].key,
                    figure_rows[needed[i]].help);
    if (dpb_machine_has(machine, DPB_FIGURE_NICS) != dpb_machine_has(machine, DPB_FIGURE_NIC_RATE))
        mistake(reading, root, "\"between.nics\" and \"between.rate\" belong together");
    if (dpb_machine_has(machine, DPB_FIGURE_NVLS_RANKS) !=
        dpb_machine_has(machine, DPB_FIGURE_NVLS_SHARE))
        mistake(reading, root,
                "\"inside.nvls-from-ranks\" and \"inside.nvls-share\" belong together");
    if (machine->accelerators_per_node > 1 && !dpb_machine_has(machine, DPB_FIGURE_INSIDE_RATE))
        mistake(reading, root, "%d accelerators per node, and \"inside.rate\" is missing",
                machine->accelerators_per_node);
}

static void read_root(struct reading *reading, const struct dpb_yaml *root)
{
    const struct dpb_yaml *flops, *bytes, *curves;

    if (root->kind != DPB_YAML_MAP) {
        mistake(reading, root, "a machine profile is a map of keys and values");
        return;
    }
    read_head(reading, root);
    read_entries(reading, root);
    flops = dpb_yaml_get(root, "compute.curve");
    bytes = dpb_yaml_get(root, "memory-rate.curve");
    curves = dpb_yaml_get(root, "curves");
    if (flops)
        read_share(reading, flops, &reading->machine->flop_share);
    if (bytes)
        read_share(reading, bytes, &reading->machine->bytes_share);
    if (curves)
        read_curves(reading, curves);
    check_needed(reading, root);
}

dpb_status dpb_machine_parse(const char *text, size_t count, const char *file,
                             struct dpb_machine *machine)
{
    struct dpb_machine read = {0};
    struct reading reading = {.file = file, .machine = &read, .status = DPB_OK};
    struct dpb_yaml root = {0};

    for (int id = 0; id < DPB_FIGURE_COUNT; id++)
        read.figure[id].value = NAN;
    DPB_TRY(dpb_yaml_parse(text, count, file, &root));
    read.file = copy(&reading, file);
    read_root(&reading, &root);
    dpb_yaml_release(&root);
    if (reading.status == DPB_OK) {
        *machine = read;
        return DPB_OK;
    }
    dpb_log_hint("docs/machines.md describes the file; profiles/machines/ has examples");
    dpb_machine_release(&read);
    return reading.status;
}

dpb_status dpb_machine_read(const char *path, struct dpb_machine *machine)
{
    struct dpb_str text = {0};
    dpb_status st;

    DPB_TRY(dpb_file_read_most(path, (size_t)4 << 20, &text));
    st = dpb_machine_parse(text.text, text.length, path, machine);
    dpb_str_release(&text);
    return st;
}
