/* A config as JSON, as a key, and as a command line. */
#include <stdlib.h>
#include <string.h>

#include "config_private.h"
#include "dpb_log.h"

static int by_name(const void *a, const void *b)
{
    const struct dpb_active_row *x = a, *y = b;

    return strcmp(x->row->name, y->row->name);
}

dpb_status dpb_config_active_rows(const dpb_config *config, struct dpb_active_row **rows,
                                  size_t *count)
{
    struct dpb_active_row *made;
    size_t most = 0, kept = 0, i, row;

    for (i = 0; i < config->table_count; i++)
        most += config->tables[i].table->row_count;
    made = calloc(most + 1, sizeof(*made));
    if (!made)
        return dpb_option_log_no_memory();
    most = 0;
    for (i = 0; i < config->table_count; i++) {
        const struct dpb_active_table *active = &config->tables[i];

        for (row = 0; row < active->table->row_count; row++) {
            made[most].row = &active->table->rows[row];
            made[most].data = active->data;
            made[most].is_explicit = active->is_explicit[row];
            most++;
        }
    }
    qsort(made, most, sizeof(*made), by_name);
    for (i = 0; i < most; i++) {
        /* Rows of one name share the text they were given. */
        if (kept > 0 && strcmp(made[kept - 1].row->name, made[i].row->name) == 0)
            made[kept - 1].is_explicit |= made[i].is_explicit;
        else
            made[kept++] = made[i];
    }
    *rows = made;
    *count = kept;
    return DPB_OK;
}

static void row_text(const struct dpb_active_row *active, struct dpb_str *text)
{
    struct dpb_option_value value;

    dpb_option_value_load(active->row, active->data, &value);
    dpb_option_value_format(active->row, &value, text);
    dpb_str_append(text, "");
}

/* "batch_per_rank", "bucket_bytes": the name with the unit that the value has in a record. */
static void json_key(const struct dpb_option *row, struct dpb_str *key)
{
    const char *unit = "";
    size_t i;

    switch (row->type) {
    case DPB_OPT_SIZE:
        unit = "_bytes";
        break;
    case DPB_OPT_DURATION:
        unit = "_ns";
        break;
    case DPB_OPT_RATE:
        unit = "_bytes_per_s";
        break;
    case DPB_OPT_RATIO:
        unit = "_ratio";
        break;
    default:
        break;
    }
    dpb_str_append(key, row->name);
    for (i = 0; i < key->length; i++) {
        if (key->text[i] == '-')
            key->text[i] = '_';
    }
    dpb_str_append(key, unit);
}

static dpb_json *json_value(const struct dpb_active_row *active,
                            const struct dpb_option_value *value)
{
    struct dpb_str text = {0};
    dpb_json *json;

    switch (active->row->type) {
    case DPB_OPT_BOOL:
        return dpb_json_bool(value->i != 0);
    case DPB_OPT_INT:
    case DPB_OPT_SIZE:
    case DPB_OPT_DURATION:
        return dpb_json_int(value->i);
    case DPB_OPT_FLOAT:
    case DPB_OPT_RATE:
    case DPB_OPT_RATIO:
        return dpb_json_real(value->f);
    case DPB_OPT_LINK:
        json = dpb_json_object();
        dpb_json_set_real(json, "bw_bytes_per_s", value->link.bw_bytes_per_s);
        dpb_json_set_int(json, "latency_ns", value->link.latency_ns);
        return json;
    case DPB_OPT_ENUM:
    case DPB_OPT_TEXT:
    case DPB_OPT_PART:
        row_text(active, &text);
        json = text.failed ? NULL : dpb_json_string(text.text);
        dpb_str_release(&text);
        return json;
    }
    return NULL;
}

dpb_json *dpb_config_to_json(const dpb_config *config)
{
    struct dpb_active_row *rows = NULL;
    dpb_json *object = dpb_json_object();
    size_t count = 0, i;

    if (!object || dpb_config_active_rows(config, &rows, &count) < 0)
        goto err;
    for (i = 0; i < count; i++) {
        struct dpb_str key = {0};
        struct dpb_option_value value;

        json_key(rows[i].row, &key);
        if (key.failed) {
            dpb_str_release(&key);
            goto err;
        }
        dpb_option_value_load(rows[i].row, rows[i].data, &value);
        if (dpb_option_value_is_auto(rows[i].row, &value))
            dpb_json_set_absent(object, key.text, "auto");
        else if (rows[i].row->type == DPB_OPT_LINK && !(value.link.bw_bytes_per_s > 0))
            dpb_json_set_absent(object, key.text, "none");
        else
            dpb_json_set(object, key.text, json_value(&rows[i], &value));
        dpb_str_release(&key);
    }
    if (dpb_json_ok(object)) {
        free(rows);
        return object;
    }

err:
    free(rows);
    dpb_json_free(object);
    return NULL;
}

dpb_json *dpb_config_to_text_json(const dpb_config *config)
{
    struct dpb_active_row *rows = NULL;
    dpb_json *object = dpb_json_object();
    dpb_json *options = dpb_json_object();
    dpb_json *given = dpb_json_array();
    size_t count = 0, i;
    bool failed;

    failed = !object || !options || !given || dpb_config_active_rows(config, &rows, &count) < 0;
    for (i = 0; i < count && !failed; i++) {
        struct dpb_str text = {0};

        row_text(&rows[i], &text);
        failed = text.failed;
        dpb_json_set_string(options, rows[i].row->name, text.text);
        if (rows[i].is_explicit)
            dpb_json_append(given, dpb_json_string(rows[i].row->name));
        dpb_str_release(&text);
    }
    free(rows);
    dpb_json_set(object, "options", options);
    dpb_json_set(object, "explicit", given);
    if (!failed && dpb_json_ok(object))
        return object;
    dpb_json_free(object);
    return NULL;
}

static dpb_status corrupt_config(const char *what)
{
    dpb_error("cannot read a config from JSON: %s", what);
    dpb_log_hint("it was written by another version of dpbench; run both ends from one build");
    return DPB_ERR_CORRUPT;
}

dpb_status dpb_config_from_text_json(const struct dpb_option_set *set, const dpb_json *json,
                                     dpb_config **config)
{
    const dpb_json *options = dpb_json_get(json, "options");
    const dpb_json *given = dpb_json_get(json, "explicit");
    struct dpb_assignment *assignments;
    dpb_json_walk walk = {0};
    const dpb_json *value;
    dpb_config *made = NULL;
    const char *key;
    size_t count = 0, i, table, row;
    dpb_status st = DPB_OK;

    if (dpb_json_type(options) != DPB_JSON_OBJECT)
        return corrupt_config("\"options\" is no object");
    if (dpb_json_type(given) != DPB_JSON_ARRAY)
        return corrupt_config("\"explicit\" is no list");
    assignments = calloc(dpb_json_size(options) + 1, sizeof(*assignments));
    if (!assignments)
        return dpb_option_log_no_memory();
    while ((value = dpb_json_next(options, &walk, &key)) && st == DPB_OK) {
        assignments[count].name = key;
        assignments[count].text = dpb_json_as_string(value, NULL);
        assignments[count].origin = "(config)";
        if (!assignments[count++].text)
            st = corrupt_config("an option is no text");
    }
    if (st == DPB_OK)
        st = dpb_config_new(set, assignments, count, false, &made);
    free(assignments);
    DPB_TRY(st);
    for (table = 0; table < made->table_count; table++) {
        for (row = 0; row < made->tables[table].table->row_count; row++) {
            const char *name = made->tables[table].table->rows[row].name;
            bool found = false;

            for (i = 0; i < dpb_json_size(given) && !found; i++)
                found = strcmp(dpb_json_as_string(dpb_json_at(given, i), ""), name) == 0;
            made->tables[table].is_explicit[row] = found;
        }
    }
    *config = made;
    return DPB_OK;
}

dpb_status dpb_config_key(const dpb_config *config, unsigned without_flags,
                          const char *const *without, size_t without_count, struct dpb_str *key)
{
    struct dpb_active_row *rows = NULL;
    size_t start = key->length, count = 0, i, j;

    DPB_TRY(dpb_config_active_rows(config, &rows, &count));
    for (i = 0; i < count; i++) {
        struct dpb_str text = {0};
        bool left_out = (rows[i].row->flags & without_flags) != 0;

        for (j = 0; j < without_count && !left_out; j++)
            left_out = strcmp(without[j], rows[i].row->name) == 0;
        if (left_out)
            continue;
        row_text(&rows[i], &text);
        dpb_str_appendf(key, "%s%s=", key->length > start ? " " : "", rows[i].row->name);
        if (text.failed)
            key->failed = true;
        else
            dpb_shell_quote(text.text, key);
        dpb_str_release(&text);
    }
    dpb_str_append(key, "");
    free(rows);
    return key->failed ? dpb_option_log_no_memory() : DPB_OK;
}

dpb_status dpb_config_repro(const dpb_config *config, struct dpb_str *line)
{
    struct dpb_active_row *rows = NULL;
    size_t count = 0, i;

    DPB_TRY(dpb_config_active_rows(config, &rows, &count));
    for (i = 0; i < count; i++) {
        struct dpb_str text = {0};

        row_text(&rows[i], &text);
        if (text.failed) {
            line->failed = true;
        } else if (dpb_config_is_explicit(config, rows[i].row->name)) {
            dpb_str_appendf(line, " --%s ", rows[i].row->name);
            dpb_shell_quote(text.text, line);
        }
        dpb_str_release(&text);
    }
    dpb_str_append(line, "");
    free(rows);
    return line->failed ? dpb_option_log_no_memory() : DPB_OK;
}
