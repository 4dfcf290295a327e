/* Settings: texts of options with their origin, checked against the rows. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "option_private.h"

static void setting_release(struct dpb_setting *setting)
{
    size_t i;

    for (i = 0; i < setting->value_count; i++)
        free(setting->values[i]);
    free(setting->values);
    free(setting->name);
    free(setting->origin);
    *setting = (struct dpb_setting){0};
}

void dpb_settings_release(struct dpb_settings *settings)
{
    size_t i;

    for (i = 0; i < settings->count; i++)
        setting_release(&settings->items[i]);
    free(settings->items);
    *settings = (struct dpb_settings){0};
}

static struct dpb_setting *find(const struct dpb_settings *settings, const char *name)
{
    size_t i;

    for (i = 0; i < settings->count; i++) {
        if (strcmp(settings->items[i].name, name) == 0)
            return &settings->items[i];
    }
    return NULL;
}

const struct dpb_setting *dpb_settings_find(const struct dpb_settings *settings, const char *name)
{
    return find(settings, name);
}

/* Take ownership of `setting` in every case. */
static dpb_status push(struct dpb_settings *settings, struct dpb_setting *setting)
{
    struct dpb_setting *items =
            realloc(settings->items, (settings->count + 1) * sizeof(*settings->items));

    if (!items) {
        setting_release(setting);
        return dpb_option_log_no_memory();
    }
    settings->items = items;
    items[settings->count++] = *setting;
    return DPB_OK;
}

/* A copy of values that are canonical already. */
static dpb_status setting_init(struct dpb_setting *setting, const char *name, const char *origin,
                               char *const *values, size_t count)
{
    size_t i;

    *setting = (struct dpb_setting){0};
    setting->name = strdup(name);
    setting->origin = strdup(origin);
    setting->values = calloc(count, sizeof(*setting->values));
    if (!setting->name || !setting->origin || !setting->values)
        goto err_memory;
    for (i = 0; i < count; i++) {
        setting->values[i] = strdup(values[i]);
        if (!setting->values[i])
            goto err_memory;
        setting->value_count++;
    }
    return DPB_OK;

err_memory:
    setting_release(setting);
    return dpb_option_log_no_memory();
}

dpb_status dpb_settings_override(struct dpb_settings *settings, const struct dpb_settings *over)
{
    size_t i;

    for (i = 0; i < over->count; i++) {
        const struct dpb_setting *from = &over->items[i];
        struct dpb_setting *old = find(settings, from->name);
        struct dpb_setting copy;

        DPB_TRY(setting_init(&copy, from->name, from->origin, from->values, from->value_count));
        if (old) {
            setting_release(old);
            *old = copy;
        } else {
            DPB_TRY(push(settings, &copy));
        }
    }
    return DPB_OK;
}

/* The canonical text of one value, by the first row of that name that accepts it; when none does,
 * the complaint of the row that goes furthest: what is too large is too large for all of them. */
static dpb_status canonical(const struct dpb_option_set *set, const char *name, const char *text,
                            char **result, struct dpb_option_complaint *complaint)
{
    struct dpb_option_walk walk = {0};
    const struct dpb_option *row;
    double furthest = -INFINITY;

    while ((row = dpb_option_next(set, name, &walk, NULL))) {
        struct dpb_option_complaint other;
        struct dpb_option_value value;
        struct dpb_str out = {0};

        if (dpb_option_value_parse(row, set, text, &value, &other) < 0) {
            if (row->max > furthest) {
                furthest = row->max;
                *complaint = other;
            }
            continue;
        }
        dpb_option_value_format(row, &value, &out);
        dpb_str_append(&out, "");
        if (out.failed) {
            dpb_str_release(&out);
            return DPB_ERR_NO_MEMORY;
        }
        *result = out.text;
        return DPB_OK;
    }
    return DPB_ERR_USAGE;
}

__attribute__((format(printf, 4, 5))) static dpb_status refuse(const struct dpb_option *row,
                                                               const struct dpb_option_set *set,
                                                               const char *origin,
                                                               const char *format, ...)
{
    struct dpb_option_complaint complaint;
    va_list args;

    va_start(args, format);
    vsnprintf(complaint.reason, sizeof(complaint.reason), format, args);
    va_end(args);
    dpb_option_value_hint(row, set, complaint.hint, sizeof(complaint.hint));
    dpb_option_log(row->name, origin, &complaint);
    return DPB_ERR_USAGE;
}

static dpb_status check_values(const struct dpb_option *row, const struct dpb_option_set *set,
                               const char *const *values, const char *const *origins, size_t count,
                               const char *list_origin, char **canonical_values)
{
    struct dpb_option_complaint complaint;
    dpb_status result = DPB_OK;
    size_t i, j;

    for (i = 0; i < count; i++) {
        const char *origin = origins ? origins[i] : list_origin;
        dpb_status st;

        if (!values[i][0])
            return refuse(row, set, origin, "%s is empty",
                          count > 1 ? "an element of the list" : "the value");
        st = canonical(set, row->name, values[i], &canonical_values[i], &complaint);
        if (st == DPB_ERR_NO_MEMORY)
            return dpb_option_log_no_memory();
        if (st < 0) {
            dpb_option_log(row->name, origin, &complaint);
            result = st;
            continue;
        }
        for (j = 0; j < i; j++) {
            if (canonical_values[j] && strcmp(canonical_values[j], canonical_values[i]) == 0)
                return refuse(row, set, origin, "the list has \"%s\" twice", values[i]);
        }
    }
    return result;
}

/* A list whose ranges are written out. */
struct expanded {
    char **values;        /* owned */
    const char **origins; /* NULL as the list's were */
    size_t count;
};

static void expanded_release(struct expanded *expanded)
{
    for (size_t i = 0; i < expanded->count; i++)
        free(expanded->values[i]);
    free(expanded->values);
    free(expanded->origins);
}

static dpb_status expanded_push(struct expanded *expanded, const char *value, const char *origin)
{
    const size_t count = expanded->count + 1;
    char **values = realloc(expanded->values, count * sizeof(*values));

    if (values)
        expanded->values = values;
    const char **origins = realloc(expanded->origins, count * sizeof(*origins));
    if (origins)
        expanded->origins = origins;
    if (!values || !origins || !(values[count - 1] = strdup(value)))
        return dpb_option_log_no_memory();
    origins[count - 1] = origin;
    expanded->count = count;
    return DPB_OK;
}

static dpb_status expand_range(const struct dpb_option *row, const struct dpb_option_set *set,
                               const char *text, const char *origin, struct expanded *expanded)
{
    int64_t numbers[DPB_OPTION_RANGE_VALUES];
    size_t count;
    const char *why = dpb_option_range_values(text, numbers, &count);

    if (why)
        return refuse(row, set, origin, "\"%.80s\" is not a range: %s", text, why);
    for (size_t i = 0; i < count; i++) {
        char number[32];

        snprintf(number, sizeof(number), "%lld", (long long)numbers[i]);
        DPB_TRY(expanded_push(expanded, number, origin));
    }
    return DPB_OK;
}

static dpb_status expand(const struct dpb_option *row, const struct dpb_option_set *set,
                         const char *const *values, const char *const *origins, size_t count,
                         const char *list_origin, struct expanded *expanded)
{
    for (size_t i = 0; i < count; i++) {
        const char *origin = origins ? origins[i] : list_origin;

        DPB_TRY(dpb_option_is_range(row, values[i])
                        ? expand_range(row, set, values[i], origin, expanded)
                        : expanded_push(expanded, values[i], origin));
    }
    return DPB_OK;
}

static dpb_status add_values(struct dpb_settings *settings, const struct dpb_option_set *set,
                             const char *name, const char *const *values,
                             const char *const *origins, size_t count, const char *origin)
{
    const struct dpb_option *row = dpb_option_find(set, name, NULL);
    const struct dpb_setting *present = find(settings, name);
    struct dpb_setting setting;
    char **canonical_values;
    dpb_status st;
    size_t i;

    if (!row)
        return dpb_option_log_unknown(set, name, origin);
    if (present) {
        struct dpb_str subject = {0};

        dpb_option_subject(name, origin, &subject);
        dpb_error("%s: given already%s%s", subject.text ? subject.text : name,
                  strcmp(present->origin, origin) == 0 ? "" : " at ",
                  strcmp(present->origin, origin) == 0 ? "" : present->origin);
        dpb_log_hint("give it once; several values are one list, such as 1,2,4");
        dpb_str_release(&subject);
        return DPB_ERR_USAGE;
    }
    if (count == 0)
        return refuse(row, set, origin, "the list is empty");
    if (count > 1 && (row->flags & DPB_OPT_NO_AXIS))
        return refuse(row, set, origin, "a list is given, but the option takes one value only");

    canonical_values = calloc(count, sizeof(*canonical_values));
    if (!canonical_values)
        return dpb_option_log_no_memory();
    st = check_values(row, set, values, origins, count, origin, canonical_values);
    if (st == DPB_OK)
        st = setting_init(&setting, name, origin, canonical_values, count);
    if (st == DPB_OK)
        st = push(settings, &setting);
    for (i = 0; i < count; i++)
        free(canonical_values[i]);
    free(canonical_values);
    return st;
}

dpb_status dpb_settings_add_values(struct dpb_settings *settings, const struct dpb_option_set *set,
                                   const char *name, const char *const *values,
                                   const char *const *origins, size_t count, const char *origin)
{
    const struct dpb_option *row = dpb_option_find(set, name, NULL);
    struct expanded expanded = {0};
    bool has_range = false;
    dpb_status st;

    for (size_t i = 0; row && i < count; i++)
        has_range = has_range || dpb_option_is_range(row, values[i]);
    if (!has_range)
        return add_values(settings, set, name, values, origins, count, origin);
    st = expand(row, set, values, origins, count, origin, &expanded);
    if (st == DPB_OK)
        st = add_values(settings, set, name, (const char *const *)expanded.values, expanded.origins,
                        expanded.count, origin);
    expanded_release(&expanded);
    return st;
}

dpb_status dpb_settings_add_list(struct dpb_settings *settings, const struct dpb_option_set *set,
                                 const char *name, const char *const *values, size_t count,
                                 const char *origin)
{
    return dpb_settings_add_values(settings, set, name, values, NULL, count, origin);
}

/* Cut `text` (changed) at its commas into `values`, which has room for them all. A link takes two
 * comma-separated fields, unless it is "none". */
static size_t split(char *text, bool links, const char **values)
{
    size_t count = 0;
    char *part = text;

    for (;;) {
        char *comma = strchr(part, ',');

        if (links && comma && strncmp(part, "none,", strlen("none,")) != 0)
            comma = strchr(comma + 1, ',');
        values[count++] = part;
        if (!comma)
            return count;
        *comma = '\0';
        part = comma + 1;
    }
}

dpb_status dpb_settings_add(struct dpb_settings *settings, const struct dpb_option_set *set,
                            const char *name, const char *text, const char *origin)
{
    const struct dpb_option *row = dpb_option_find(set, name, NULL);
    size_t most = 1, count, i;
    const char **values;
    char *copy;
    dpb_status st;

    if (!row)
        return dpb_option_log_unknown(set, name, origin);
    /* Where one text is expected its commas are its own: --hosts a,b */
    if (!text[0] || (row->type == DPB_OPT_TEXT && (row->flags & DPB_OPT_NO_AXIS)))
        return dpb_settings_add_list(settings, set, name, &text, 1, origin);

    for (i = 0; text[i]; i++)
        most += text[i] == ',';
    copy = strdup(text);
    values = malloc(most * sizeof(*values));
    if (copy && values) {
        count = split(copy, row->type == DPB_OPT_LINK, values);
        st = dpb_settings_add_list(settings, set, name, values, count, origin);
    } else {
        st = dpb_option_log_no_memory();
    }
    free(values);
    free(copy);
    return st;
}
