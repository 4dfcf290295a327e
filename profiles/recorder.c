/* What all recorders share: the texts of event kinds and the check of a recorder's table. */
#include "dpb_recorder.h"

#include <string.h>

#include "dpb_log.h"

const char *dpb_event_kind_text(enum dpb_event_kind kind)
{
    static const char *const text_of[] = {
#define DPB_EVENT_TEXT(name, text) text,
            DPB_EVENT_MAP(DPB_EVENT_TEXT)
#undef DPB_EVENT_TEXT
    };

    _Static_assert(sizeof(text_of) / sizeof(text_of[0]) == DPB_EVENT_KIND_COUNT,
                   "one text per event kind");
    return (unsigned)kind < DPB_EVENT_KIND_COUNT ? text_of[kind] : "unknown";
}

static dpb_status bad_table(const char *name, const char *what)
{
    dpb_error("recorder \"%s\": %s", name, what);
    return DPB_ERR_INTERNAL;
}

static dpb_status check_options(const struct dpb_recorder_ops *ops)
{
    const struct dpb_option_table *options = ops->options;
    const struct dpb_option_table *const tables[] = {options};
    const struct dpb_option_set set = {.tables = tables, .table_count = 1};

    if (!options)
        return DPB_OK;
    if (!options->kind || strcmp(options->kind, "recorder") != 0)
        return bad_table(ops->name, "its options are not of kind \"recorder\"");
    if (!options->owner || strcmp(options->owner, ops->name) != 0)
        return bad_table(ops->name, "its options belong to another part");
    return dpb_option_table_check(options, &set);
}

dpb_status dpb_recorder_ops_check(const struct dpb_recorder_ops *ops)
{
    if (!ops)
        return bad_table("", "there is no table");
    if (!ops->name || !ops->name[0])
        return bad_table("", "the table has no name");
    if (ops->version != DPB_RECORDER_OPS_VERSION) {
        dpb_error("recorder \"%s\": its table has version %d, this program needs %d", ops->name,
                  ops->version, DPB_RECORDER_OPS_VERSION);
        return DPB_ERR_INTERNAL;
    }
    if (!ops->summary || !ops->summary[0])
        return bad_table(ops->name, "the table has no summary");
    if (ops->steps_max < 0)
        return bad_table(ops->name, "steps_max is negative");

    const struct {
        const char *missing;
        bool there;
    } members[] = {
            {"probe is missing", ops->probe != NULL},
            {"open is missing", ops->open != NULL},
            {"range_begin is missing", ops->range_begin != NULL},
            {"range_end is missing", ops->range_end != NULL},
            {"emit is missing", ops->emit != NULL},
            {"set_step is missing", ops->set_step != NULL},
            {"drain is missing", ops->drain != NULL},
            {"close is missing", ops->close != NULL},
    };

    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        if (!members[i].there)
            return bad_table(ops->name, members[i].missing);
    }
    if (!ops->bucket_begin != !ops->bucket_end)
        return bad_table(ops->name, "bucket_begin or bucket_end is missing");
    return check_options(ops);
}
