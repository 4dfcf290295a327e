/* Do the tables of workloads and strategies keep what their interfaces promise? */
#include <stdio.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_strategy.h"
#include "dpb_workload.h"

_Static_assert(DPB_OP_COUNT <= 64, "a set of operators is 64 bits: DPB_OPERATOR()");

struct member {
    const char *name;
    bool there;
};

static dpb_status check_table(const char *kind, const char *name, const char *summary, int version,
                              int version_needed, const struct member *members, size_t count)
{
    if (!name || !name[0]) {
        dpb_error("%s: a table without a name", kind);
        return DPB_ERR_INTERNAL;
    }
    if (version != version_needed) {
        dpb_error("%s \"%s\": its table has version %d, this program needs %d", kind, name, version,
                  version_needed);
        return DPB_ERR_INTERNAL;
    }
    if (!summary || !summary[0]) {
        dpb_error("%s \"%s\": the summary is missing", kind, name);
        return DPB_ERR_INTERNAL;
    }
    for (size_t i = 0; i < count; i++) {
        if (!members[i].there) {
            dpb_error("%s \"%s\": the member \"%s\" is missing", kind, name, members[i].name);
            return DPB_ERR_INTERNAL;
        }
    }
    return DPB_OK;
}

static dpb_status check_options(const char *kind, const char *name,
                                const struct dpb_option_table *options)
{
    const struct dpb_option_table *const tables[] = {options};
    const struct dpb_option_set set = {.tables = tables, .table_count = 1};

    if (!options)
        return DPB_OK;
    if (!options->kind || strcmp(options->kind, kind) != 0 || !options->owner ||
        strcmp(options->owner, name) != 0) {
        dpb_error("%s \"%s\": its options belong to another part", kind, name);
        return DPB_ERR_INTERNAL;
    }
    return dpb_option_table_check(options, &set);
}

dpb_status dpb_strategy_ops_check(const struct dpb_strategy_ops *ops)
{
    if (!ops) {
        dpb_error("strategy: there is no table");
        return DPB_ERR_INTERNAL;
    }

    const struct member members[] = {
            {"open", ops->open != NULL},
            {"close", ops->close != NULL},
            {"plan", ops->plan != NULL},
            {"grad_ready", ops->grad_ready != NULL},
            {"before_optimizer", ops->before_optimizer != NULL},
            {"messages", ops->messages != NULL},
            {"take_params", ops->take_params || !(ops->flags & DPB_STRATEGY_SHARDS_PARAMETERS)},
            {"give_params", ops->give_params || !(ops->flags & DPB_STRATEGY_SHARDS_PARAMETERS)},
            {"in_sync", ops->in_sync || !(ops->flags & DPB_STRATEGY_REPLICAS_DIFFER)},
    };
    DPB_TRY(check_table("strategy", ops->name, ops->summary, ops->version, DPB_STRATEGY_OPS_VERSION,
                        members, sizeof(members) / sizeof(members[0])));
    return check_options("strategy", ops->name, ops->options);
}

dpb_status dpb_workload_ops_check(const struct dpb_workload_ops *ops)
{
    if (!ops) {
        dpb_error("workload: there is no table");
        return DPB_ERR_INTERNAL;
    }

    const struct member members[] = {
            {"model", ops->model != NULL},
            {"open", ops->open != NULL},
            {"close", ops->close != NULL},
            {"bind", ops->bind != NULL},
            {"init_params", ops->init_params != NULL},
            {"forward", ops->forward != NULL},
            {"read_result", ops->read_result != NULL},
            {"backward", ops->backward != NULL},
            {"activation_bytes", ops->activation_bytes != NULL},
    };
    DPB_TRY(check_table("workload", ops->name, ops->summary, ops->version, DPB_WORKLOAD_OPS_VERSION,
                        members, sizeof(members) / sizeof(members[0])));
    return check_options("workload", ops->name, ops->options);
}

/* What the device says of a precision that it has not: "bf16_reason" beside "bf16": null. */
static void say_lacking(dpb_device *device, enum dpb_op op, enum dpb_dtype precision,
                        const char *workload, char *why, size_t why_bytes)
{
    const struct dpb_device_ops *ops = dpb_device_get_ops(device);
    dpb_json *said = ops->describe(device);
    const char *isa = dpb_json_as_string(dpb_json_get(said, "isa"), "");
    char key[32];
    const char *reason;

    snprintf(key, sizeof(key), "%s_reason", dpb_dtype_text(precision));
    reason = dpb_json_as_string(dpb_json_get(said, key), "");
    snprintf(why, why_bytes,
             "workload \"%s\": device \"%s\"%s%s%s has no operator \"%s\" in %s%s%s", workload,
             ops->name, isa[0] ? " (" : "", isa, isa[0] ? ")" : "", dpb_op_text(op),
             dpb_dtype_text(precision), reason[0] ? ": " : "", reason);
    dpb_json_free(said);
}

dpb_status dpb_workload_can_run(const char *workload, uint64_t operators, enum dpb_dtype precision,
                                dpb_device *device, char *why, size_t why_bytes)
{
    for (int op = 0; op < DPB_OP_COUNT; op++) {
        if (!(operators & DPB_OPERATOR(op)) ||
            dpb_device_get_ops(device)->op_supported(device, (enum dpb_op)op, precision))
            continue;
        say_lacking(device, (enum dpb_op)op, precision, workload, why, why_bytes);
        return DPB_ERR_UNSUPPORTED;
    }
    return DPB_OK;
}

dpb_status dpb_workload_check_operators(const char *workload, uint64_t operators,
                                        enum dpb_dtype precision, dpb_device *device)
{
    char why[512];

    if (dpb_workload_can_run(workload, operators, precision, device, why, sizeof(why)) == DPB_OK)
        return DPB_OK;
    dpb_error("%s", why);
    dpb_log_hint(precision == DPB_F32 ? "use another --device"
                                      : "use --precision fp32, or another --device");
    return DPB_ERR_UNSUPPORTED;
}

unsigned dpb_strategy_flags(const struct dpb_strategy_ops *ops, const void *options)
{
    return ops->flags_of ? ops->flags_of(options) : ops->flags;
}

int64_t dpb_sync_message_times(unsigned flags, int64_t micro_batches,
                               const struct dpb_sync_message *message)
{
    return flags & DPB_STRATEGY_SYNCS_MICRO_BATCHES && message->when != DPB_SYNC_AFTER_OPTIMIZER
                   ? micro_batches
                   : 1;
}

int64_t dpb_model_param_elements(const struct dpb_model *model)
{
    int64_t elements = 0;

    for (int p = 0; p < model->param_count; p++)
        elements += model->params[p].numel;
    return elements;
}

int64_t dpb_model_fwd_macs_per_sample(const struct dpb_model *model)
{
    int64_t macs = 0;

    for (int l = 0; l < model->layer_count; l++)
        macs += model->layers[l].fwd_macs_per_sample;
    return macs;
}

int64_t dpb_model_own_table_elements(const struct dpb_model *model)
{
    int64_t rows = 0;

    for (int p = 0; p < model->param_count; p++)
        if (model->params[p].table)
            return 0;
    for (int t = 0; t < model->tables; t++)
        rows += model->table_rows[t];
    return rows * model->table_columns;
}

bool dpb_model_has_tables(const struct dpb_model *model)
{
    if (model->tables > 0)
        return true;
    for (int p = 0; p < model->param_count; p++)
        if (model->params[p].table)
            return true;
    return false;
}

dpb_status dpb_forward_and_read(const struct dpb_workload_ops *ops,
                                const struct dpb_launcher *launcher, dpb_workload *workload,
                                const struct dpb_batch *batch, bool training,
                                struct dpb_forward_result *result)
{
    DPB_TRY(ops->forward(workload, batch, training, 0));
    DPB_TRY(dpb_device_get_ops(launcher->device)->stream_sync(launcher->stream));
    return ops->read_result(workload, 0, result);
}
