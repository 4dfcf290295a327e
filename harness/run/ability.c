#include "dpb_ability.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dpb_experiment.h"
#include "dpb_log.h"

#define WHY_BYTES 512

/* A device sets variables for the processes of its rank (OMP_NUM_THREADS). Here they are the
 * user's, for ranks to read and for the record. The copy ends with NULL; NULL when out of memory.
 */
static char **copy_environment(void)
{
    size_t count = 0;
    while (environ && environ[count])
        count++;
    char **copy = calloc(count + 1, sizeof(*copy));
    for (size_t i = 0; copy && i < count; i++)
        copy[i] = strdup(environ[i]);
    return copy;
}

static void restore_environment(char **copy)
{
    clearenv();
    for (char **variable = copy; *variable; variable++) {
        char *value = strchr(*variable, '=');
        if (value) {
            *value = '\0';
            setenv(*variable, value + 1, 1);
        }
        free(*variable);
    }
    free(copy);
}

/* The device as a rank would open it, but for its place: no core is bound, nothing is computed. */
static dpb_status open_device(const struct dpb_device_ops *ops, const dpb_config *config,
                              dpb_device **device)
{
    const struct dpb_device_config open = {
            .local_size = 1, .threads = 1, .options = dpb_config_struct(config, "device")};
    return ops->open(&open, device);
}

dpb_status dpb_ability_check(const struct dpb_registry *registry, const dpb_config *config,
                             char *why, size_t why_bytes)
{
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    const struct dpb_workload_ops *workload = dpb_registry_workload(registry, e->workload);
    const struct dpb_device_ops *ops = dpb_registry_device(registry, e->device);
    const struct dpb_workload_sizes sizes = {
            .batch_max = e->batch_per_rank,
            .global_batch = e->global_batch,
            .ranks = (int)e->ranks,
            .precision = (enum dpb_dtype)e->precision,
            .sync_batch_statistics = e->sync_bn,
            .optimizer = dpb_experiment_optimizer(e),
    };
    dpb_device *device;
    if (!workload->operators || !ops->open || (ops->flags & DPB_DEVICE_ACCELERATOR) ||
        dpb_registry_is_virtual(registry, e->device))
        return DPB_OK;
    char **environment = copy_environment();
    if (!environment)
        return DPB_ERR_NO_MEMORY;
    dpb_status st = open_device(ops, config, &device);
    if (st == DPB_OK) {
        st = dpb_workload_can_run(
                workload->name, workload->operators(dpb_config_struct(config, "workload"), &sizes),
                sizes.precision, device, why, why_bytes);
        ops->close(device);
    }
    restore_environment(environment);
    return st;
}

dpb_status dpb_ability_check_plan(const struct dpb_registry *registry, const struct dpb_plan *plan)
{
    for (size_t i = 0; i < plan->cell_count; i++) {
        const struct dpb_experiment *e = dpb_config_struct(plan->cells[i].config, "experiment");
        char why[WHY_BYTES];
        dpb_status st = dpb_ability_check(registry, plan->cells[i].config, why, sizeof(why));
        if (st == DPB_ERR_UNSUPPORTED) {
            dpb_error("%s", why);
            dpb_log_hint(e->precision == DPB_F32 ? "use another --device"
                                                 : "use --precision fp32, or another --device");
        }
        DPB_TRY(st);
    }
    return DPB_OK;
}
