/* The sweep file: a tree of texts -> settings, targets, exclusions. */
#include "dpb_sweep_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "option_private.h"
#include "dpb_yaml.h"

#define NAME_BYTES 64

#define SWEEP_FILE_BYTES_MOST ((size_t)1 << 20) /* of a text that people write */

struct reading {
    const char *file_name;
    const struct dpb_option_set *set;
    struct dpb_sweep_file sweep;
    bool has_version;
    dpb_status status; /* of the first mistake; reading goes on, to find the others */
};

/* Keep the first failure, and go on reading. */
static void mistake(struct reading *reading, dpb_status st)
{
    DPB_KEEP(reading->status, st);
}

__attribute__((format(printf, 4, 5))) static void refuse(struct reading *reading,
                                                         const struct dpb_yaml *node,
                                                         const char *hint, const char *format, ...)
{
    va_list args;
    char text[512];

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    dpb_error("%s:%d:%d: %s", reading->file_name, node->line, node->column, text);
    dpb_log_hint("%s", hint);
    mistake(reading, DPB_ERR_USAGE);
}

static bool is_kind(struct reading *reading, const struct dpb_yaml *node, enum dpb_yaml_kind kind,
                    const char *what, const char *hint)
{
    if (node->kind == kind)
        return true;
    refuse(reading, node, hint, "%s must be %s, and is %s", what, dpb_yaml_kind_text(kind),
           node->kind == DPB_YAML_SCALAR && !node->text[0] ? "empty"
                                                           : dpb_yaml_kind_text(node->kind));
    return false;
}

/* "quick.yaml:5:20" in `text`; freed by the caller's dpb_str_release. */
static const char *place(const struct reading *reading, const struct dpb_yaml *node,
                         struct dpb_str *text)
{
    dpb_str_appendf(text, "%s:%d:%d", reading->file_name, node->line, node->column);
    return text->failed ? reading->file_name : text->text;
}

/* Add one option's scalar or list to `settings`. */
static void read_setting(struct reading *reading, const struct dpb_yaml *key,
                         const struct dpb_yaml *value, struct dpb_settings *settings)
{
    const struct dpb_yaml *items = value->kind == DPB_YAML_LIST ? value->items : value;
    size_t count = value->kind == DPB_YAML_LIST ? value->count : 1, i;
    struct dpb_str origin = {0};
    struct dpb_str *places = NULL;
    const char **texts = NULL, **origins = NULL;

    /* Unknown and repeated names are blamed on the key, values on themselves. */
    if (!dpb_option_find(reading->set, key->text, NULL) || dpb_settings_find(settings, key->text)) {
        mistake(reading, dpb_settings_add_list(settings, reading->set, key->text, NULL, 0,
                                               place(reading, key, &origin)));
        goto done;
    }
    if (value->kind == DPB_YAML_MAP) {
        refuse(reading, value, "write a value, or a list of values in [brackets]",
               "%s must be a value or a list, and is %s", key->text,
               dpb_yaml_kind_text(value->kind));
        goto done;
    }
    texts = calloc(count + 1, sizeof(*texts));
    origins = calloc(count + 1, sizeof(*origins));
    places = calloc(count + 1, sizeof(*places));
    if (!texts || !origins || !places) {
        mistake(reading, dpb_option_log_no_memory());
        goto done;
    }
    for (i = 0; i < count; i++) {
        if (!is_kind(reading, &items[i], DPB_YAML_SCALAR, "an element of a list",
                     "write single values in the list"))
            goto done;
        texts[i] = items[i].text;
        origins[i] = place(reading, &items[i], &places[i]);
    }
    mistake(reading, dpb_settings_add_values(settings, reading->set, key->text, texts, origins,
                                             count, place(reading, value, &origin)));

done:
    for (i = 0; places && i < count; i++)
        dpb_str_release(&places[i]);
    free(places);
    free(origins);
    free(texts);
    dpb_str_release(&origin);
}

static void read_base(struct reading *reading, const struct dpb_yaml *node)
{
    size_t i;

    if (!is_kind(reading, node, DPB_YAML_MAP, "base", "write base: {ranks: 4}"))
        return;
    for (i = 0; i < node->count; i += 2) {
        const struct dpb_yaml *key = &node->items[i], *value = &node->items[i + 1];

        const struct dpb_option *row = dpb_option_find(reading->set, key->text, NULL);
        const bool is_range =
                value->kind == DPB_YAML_SCALAR && row && dpb_option_is_range(row, value->text);

        if (value->kind == DPB_YAML_LIST || is_range)
            refuse(reading, value, "a list of values belongs under axes",
                   "%s: base takes one value, and this is a %s", key->text,
                   is_range ? "range" : "list");
        else
            read_setting(reading, key, value, &reading->sweep.base);
    }
}

static void read_axes(struct reading *reading, const struct dpb_yaml *node)
{
    size_t i;

    if (!is_kind(reading, node, DPB_YAML_MAP, "axes", "write axes: {ranks: [1, 2, 4]}"))
        return;
    for (i = 0; i < node->count; i += 2) {
        const struct dpb_yaml *key = &node->items[i];
        const struct dpb_option *row = dpb_option_find(reading->set, key->text, NULL);

        if (row && (row->flags & DPB_OPT_NO_AXIS))
            refuse(reading, key, "give it one value under base", "%s cannot be an axis", key->text);
        else
            read_setting(reading, key, &node->items[i + 1], &reading->sweep.axes);
    }
}

/* An option is fixed or varied, not both. Needs base and axes, in whichever order they came. */
static void check_base_against_axes(struct reading *reading)
{
    size_t i;

    for (i = 0; i < reading->sweep.axes.count; i++) {
        const struct dpb_setting *axis = &reading->sweep.axes.items[i];
        const struct dpb_setting *base = dpb_settings_find(&reading->sweep.base, axis->name);

        if (!base)
            continue;
        dpb_error("%s: %s is an axis, and has one value in base at %s", axis->origin, axis->name,
                  base->origin);
        dpb_log_hint("keep one of the two");
        mistake(reading, DPB_ERR_USAGE);
    }
}

static void read_excludes(struct reading *reading, const struct dpb_yaml *node)
{
    struct dpb_sweep_file *sweep = &reading->sweep;
    size_t i, j;

    if (!is_kind(reading, node, DPB_YAML_LIST, "exclude",
                 "write exclude: [{ranks: 1, overlap: off}]"))
        return;
    sweep->excludes = calloc(node->count + 1, sizeof(*sweep->excludes));
    if (!sweep->excludes) {
        mistake(reading, dpb_option_log_no_memory());
        return;
    }
    for (i = 0; i < node->count; i++) {
        const struct dpb_yaml *entry = &node->items[i];

        if (!is_kind(reading, entry, DPB_YAML_MAP, "an exclusion",
                     "write {option: value, ...}: a cell that has all of them is left out"))
            continue;
        if (entry->count == 0)
            refuse(reading, entry, "name the options of the cells to leave out",
                   "an empty exclusion would leave out every cell");
        for (j = 0; j < entry->count; j += 2)
            read_setting(reading, &entry->items[j], &entry->items[j + 1],
                         &sweep->excludes[sweep->exclude_count]);
        sweep->exclude_count++;
    }
}

static void add_target(struct reading *reading, const struct dpb_yaml *key,
                       const struct dpb_yaml *value)
{
    struct dpb_sweep_file *sweep = &reading->sweep;
    struct dpb_sweep_target *target = &sweep->targets[sweep->target_count];
    struct dpb_str origin = {0};
    size_t i;

    for (i = 0; i < sweep->target_count; i++) {
        if (strcmp(sweep->targets[i].metric, key->text) == 0) {
            refuse(reading, key, "give one rule for each metric",
                   "target \"%s\" is given already at %s", key->text, sweep->targets[i].origin);
            return;
        }
    }
    if (!is_kind(reading, value, DPB_YAML_SCALAR, "a target", "write {efficiency: \">= 0.90\"}"))
        return;
    if (!key->text[0] || !value->text[0]) {
        refuse(reading, key, "write {efficiency: \">= 0.90\"}", "target \"%s\" has no %s",
               key->text, key->text[0] ? "rule" : "metric");
        return;
    }
    target->metric = strdup(key->text);
    target->rule = strdup(value->text);
    target->origin = strdup(place(reading, value, &origin));
    sweep->target_count++;
    if (!target->metric || !target->rule || !target->origin)
        mistake(reading, dpb_option_log_no_memory());
    dpb_str_release(&origin);
}

static void read_targets(struct reading *reading, const struct dpb_yaml *node)
{
    size_t i;

    if (!is_kind(reading, node, DPB_YAML_MAP, "targets",
                 "write targets: {efficiency: \">= 0.90\"}"))
        return;
    reading->sweep.targets = calloc(node->count / 2 + 1, sizeof(*reading->sweep.targets));
    if (!reading->sweep.targets) {
        mistake(reading, dpb_option_log_no_memory());
        return;
    }
    for (i = 0; i < node->count && reading->status != DPB_ERR_NO_MEMORY; i += 2)
        add_target(reading, &node->items[i], &node->items[i + 1]);
}

/* ---- name and version ---- */

static const char name_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                   "._-";

static void read_name(struct reading *reading, const struct dpb_yaml *node)
{
    static const char hint[] =
            "use 1 to 63 letters, digits, '.', '_' and '-'; a folder gets the name";

    if (!is_kind(reading, node, DPB_YAML_SCALAR, "name", hint))
        return;
    if (!node->text[0] || node->text[0] == '.' || node->text[0] == '-' ||
        strlen(node->text) >= NAME_BYTES ||
        strspn(node->text, name_letters) != strlen(node->text)) {
        refuse(reading, node, hint, "name: \"%.80s\" cannot be the name of a sweep", node->text);
        return;
    }
    reading->sweep.name = strdup(node->text);
    if (!reading->sweep.name)
        mistake(reading, dpb_option_log_no_memory());
}

/* "quick" for "bench/sweeps/quick.yaml": the name of a sweep that gives none. */
static dpb_status name_by_file(struct reading *reading)
{
    const char *slash = strrchr(reading->file_name, '/');
    const char *base = slash ? slash + 1 : reading->file_name;
    size_t length = strcspn(base, "."), i;
    char *name;

    if (length >= NAME_BYTES)
        length = NAME_BYTES - 1;
    name = length > 0 ? strndup(base, length) : strdup("sweep");
    if (!name)
        return dpb_option_log_no_memory();
    for (i = 0; name[i]; i++) {
        if (!strchr(name_letters, name[i]))
            name[i] = '_';
    }
    if (name[0] == '-')
        name[0] = '_';
    reading->sweep.name = name;
    return DPB_OK;
}

static void read_version(struct reading *reading, const struct dpb_yaml *node)
{
    reading->has_version = true;
    if (!is_kind(reading, node, DPB_YAML_SCALAR, "version", "write version: 1"))
        return;
    if (strcmp(node->text, "1") != 0)
        refuse(reading, node, "this dpbench reads version: 1",
               "version \"%.40s\" of the sweep format is not known", node->text);
}

static const struct {
    const char *key;
    void (*read)(struct reading *reading, const struct dpb_yaml *node);
} sections[] = {
        {"version", read_version}, {"name", read_name},        {"base", read_base},
        {"axes", read_axes},       {"exclude", read_excludes}, {"targets", read_targets},
};

#define SECTION_COUNT (sizeof(sections) / sizeof(sections[0]))

static void refuse_key(struct reading *reading, const struct dpb_yaml *key)
{
    const char *names[SECTION_COUNT];
    const char *near;
    char hint[160];
    size_t i;

    for (i = 0; i < SECTION_COUNT; i++)
        names[i] = sections[i].key;
    near = dpb_suggest(key->text, names, SECTION_COUNT);
    if (near)
        snprintf(hint, sizeof(hint), "did you mean \"%s\"?", near);
    else if (dpb_option_find(reading->set, key->text, NULL))
        snprintf(hint, sizeof(hint), "put the options under base or axes");
    else
        snprintf(hint, sizeof(hint), "the keys are version, name, base, axes, exclude, targets");
    refuse(reading, key, hint, "unknown key \"%.80s\"", key->text);
}

static void read_root(struct reading *reading, const struct dpb_yaml *root)
{
    const struct dpb_yaml *seen[SECTION_COUNT] = {NULL};
    size_t i, section;

    if (!is_kind(reading, root, DPB_YAML_MAP, "a sweep file", "begin with \"version: 1\""))
        return;
    for (i = 0; i < root->count; i += 2) {
        const struct dpb_yaml *key = &root->items[i];

        for (section = 0; section < SECTION_COUNT; section++) {
            if (strcmp(sections[section].key, key->text) == 0)
                break;
        }
        if (section == SECTION_COUNT) {
            refuse_key(reading, key);
        } else if (seen[section]) {
            refuse(reading, key, "write each key once", "key \"%s\" is given already at line %d",
                   key->text, seen[section]->line);
        } else {
            seen[section] = key;
            sections[section].read(reading, &root->items[i + 1]);
        }
    }
    check_base_against_axes(reading);
    if (!reading->has_version)
        refuse(reading, root, "write version: 1 in the first line", "version is missing");
}

void dpb_sweep_file_release(struct dpb_sweep_file *sweep)
{
    size_t i;

    free(sweep->name);
    dpb_settings_release(&sweep->base);
    dpb_settings_release(&sweep->axes);
    for (i = 0; i < sweep->exclude_count; i++)
        dpb_settings_release(&sweep->excludes[i]);
    free(sweep->excludes);
    for (i = 0; i < sweep->target_count; i++) {
        free(sweep->targets[i].metric);
        free(sweep->targets[i].rule);
        free(sweep->targets[i].origin);
    }
    free(sweep->targets);
    *sweep = (struct dpb_sweep_file){0};
}

dpb_status dpb_sweep_file_parse(const char *text, size_t count, const char *file_name,
                                const struct dpb_option_set *set, struct dpb_sweep_file *sweep)
{
    struct reading reading = {.file_name = file_name, .set = set};
    struct dpb_yaml root = {0};

    DPB_TRY(dpb_yaml_parse(text, count, file_name, &root));
    read_root(&reading, &root);
    dpb_yaml_release(&root);
    if (reading.status == DPB_OK && !reading.sweep.name)
        reading.status = name_by_file(&reading);
    if (reading.status == DPB_OK)
        *sweep = reading.sweep;
    else
        dpb_sweep_file_release(&reading.sweep);
    return reading.status;
}

dpb_status dpb_sweep_file_read(const char *path, const struct dpb_option_set *set,
                               struct dpb_sweep_file *sweep)
{
    struct dpb_str text = {0};
    dpb_status st;

    DPB_TRY(dpb_file_read_most(path, SWEEP_FILE_BYTES_MOST, &text));
    st = dpb_sweep_file_parse(text.text, text.length, path, set, sweep);
    dpb_str_release(&text);
    return st;
}
