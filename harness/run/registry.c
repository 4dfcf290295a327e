#include "dpb_registry.h"

#include <string.h>

/* The part kinds share the member `name` but no type. */
#define DPB_FIND(list, count, wanted)                                                              \
    do {                                                                                           \
        for (size_t i = 0; i < (count); i++)                                                       \
            if (strcmp((list)[i]->name, (wanted)) == 0)                                            \
                return (list)[i];                                                                  \
        return NULL;                                                                               \
    } while (0)

const struct dpb_workload_ops *dpb_registry_workload(const struct dpb_registry *registry,
                                                     const char *name)
{
    DPB_FIND(registry->workloads, registry->workload_count, name);
}

const struct dpb_device_ops *dpb_registry_device(const struct dpb_registry *registry,
                                                 const char *name)
{
    DPB_FIND(registry->devices, registry->device_count, name);
}

const struct dpb_comm_ops *dpb_registry_comm(const struct dpb_registry *registry, const char *name)
{
    DPB_FIND(registry->comms, registry->comm_count, name);
}

const struct dpb_strategy_ops *dpb_registry_strategy(const struct dpb_registry *registry,
                                                     const char *name)
{
    DPB_FIND(registry->strategies, registry->strategy_count, name);
}
