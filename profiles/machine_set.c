/* Single figures of a machine, given by a user. */
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "machine_private.h"

static bool find(const char *key, enum dpb_figure_id *id)
{
    for (int i = 0; i < DPB_FIGURE_COUNT; i++) {
        if (strcmp(figure_rows[i].key, key) == 0) {
            *id = (enum dpb_figure_id)i;
            return true;
        }
    }
    return false;
}

static dpb_status refuse_key(const char *key)
{
    const char *names[DPB_FIGURE_COUNT];
    const char *near;

    for (int i = 0; i < DPB_FIGURE_COUNT; i++)
        names[i] = figure_rows[i].key;
    near = dpb_suggest(key, names, DPB_FIGURE_COUNT);
    dpb_error("\"%s\" is no figure of a machine", key);
    if (near)
        dpb_log_hint("did you mean \"%s\"? docs/machines.md names all", near);
    else
        dpb_log_hint("docs/machines.md names all");
    return DPB_ERR_USAGE;
}

static dpb_status check_range(enum dpb_figure_id id, const char *text, double value)
{
    struct dpb_str least = {0}, most = {0};

    if (value >= figure_rows[id].least && value <= figure_rows[id].most)
        return DPB_OK;
    dpb_figure_text(id, figure_rows[id].least, &least);
    dpb_figure_text(id, figure_rows[id].most, &most);
    dpb_error("%s: \"%s\" is not between %s and %s", figure_rows[id].key, text,
              least.text ? least.text : "?", most.text ? most.text : "?");
    dpb_log_hint("%s", figure_rows[id].help);
    dpb_str_release(&least);
    dpb_str_release(&most);
    return DPB_ERR_USAGE;
}

dpb_status dpb_machine_set(struct dpb_machine *machine, const char *key, const char *text,
                           const char *source)
{
    enum dpb_figure_id id;
    char why[DPB_WHY_BYTES] = "";
    double value;

    if (!find(key, &id))
        return refuse_key(key);
    if (machine_parse_number(figure_rows[id].unit, text, &value, why) < 0) {
        dpb_error("%s: \"%s\": %s", key, text, why);
        dpb_log_hint("%s", figure_rows[id].help);
        return DPB_ERR_USAGE;
    }
    DPB_TRY(check_range(id, text, value));
    struct dpb_figure *figure = &machine->figure[id];
    char *copy = strdup(source);

    if (!copy) {
        dpb_error("machine profile: out of memory");
        return DPB_ERR_NO_MEMORY;
    }
    free(figure->source);
    free(figure->date);
    *figure = (struct dpb_figure){.value = value, .source = copy, .is_assumed = true};
    return DPB_OK;
}

dpb_status dpb_machine_set_all(struct dpb_machine *machine, const char *text, const char *origin)
{
    char *copy = strdup(text), *rest = copy, *item;
    dpb_status st = copy ? DPB_OK : DPB_ERR_NO_MEMORY;

    while (st == DPB_OK && text[0] && (item = strsep(&rest, ",")) != NULL) {
        char *equals = strchr(item, '=');

        if (equals) {
            *equals = '\0';
            st = dpb_machine_set(machine, item, equals + 1, origin);
        } else {
            dpb_error("%s: \"%s\" is not figure=value", origin, item);
            dpb_log_hint("write inside.rate=600GB/s; several are separated by commas");
            st = DPB_ERR_USAGE;
        }
    }
    free(copy);
    return st;
}
