#include "cpu_device.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hwloc.h>

#include "dpb_log.h"

struct dpb_cpu_binding_state {
    hwloc_topology_t topology;
    hwloc_bitmap_t before; /* CPUs of the calling thread before */
    hwloc_bitmap_t *cpu;   /* one for each thread */
    int threads;
    atomic_int failed_errno; /* of any thread */
};

static void bind_thread(void *ctx, int64_t begin, int64_t end)
{
    struct dpb_cpu_binding_state *state = ctx;

    for (int64_t i = begin; i < end; i++)
        if (hwloc_set_cpubind(state->topology, state->cpu[i], HWLOC_CPUBIND_THREAD) != 0)
            state->failed_errno = errno;
}

static void unbind_thread(void *ctx, int64_t begin, int64_t end)
{
    struct dpb_cpu_binding_state *state = ctx;

    (void)begin;
    (void)end;
    hwloc_set_cpubind(state->topology, state->before, HWLOC_CPUBIND_THREAD);
}

static void state_free(struct dpb_cpu_binding_state *state)
{
    if (!state)
        return;
    for (int i = 0; state->cpu && i < state->threads; i++)
        hwloc_bitmap_free(state->cpu[i]);
    free(state->cpu);
    hwloc_bitmap_free(state->before);
    if (state->topology)
        hwloc_topology_destroy(state->topology);
    free(state);
}

static dpb_status no_memory(void)
{
    dpb_error("out of memory while binding to cores");
    return DPB_ERR_NO_MEMORY;
}

/* The topology, and the CPUs this thread may use now. */
static dpb_status state_new(int threads, struct dpb_cpu_binding_state **made)
{
    struct dpb_cpu_binding_state *state = calloc(1, sizeof(*state));

    if (!state)
        return no_memory();
    state->threads = threads;
    state->before = hwloc_bitmap_alloc();
    state->cpu = calloc((size_t)threads, sizeof(state->cpu[0]));
    if (!state->before || !state->cpu || hwloc_topology_init(&state->topology) != 0) {
        state_free(state);
        return no_memory();
    }
    *made = state;
    return DPB_OK;
}

/* One CPU of each core that this process may use, by core; fills the first `capacity`. */
static int usable_cores(const struct dpb_cpu_binding_state *state, int *pu, int capacity)
{
    hwloc_bitmap_t usable = hwloc_bitmap_alloc();
    hwloc_obj_t core = NULL;
    int count = 0;

    /* A machine without core information (some containers) still has PUs. */
    hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(state->topology, HWLOC_OBJ_CORE) > 0
                                    ? HWLOC_OBJ_CORE
                                    : HWLOC_OBJ_PU;

    while (usable && (core = hwloc_get_next_obj_by_type(state->topology, type, core)) != NULL) {
        hwloc_bitmap_and(usable, core->cpuset, state->before);
        hwloc_bitmap_and(usable, usable, hwloc_topology_get_allowed_cpuset(state->topology));
        if (hwloc_bitmap_iszero(usable))
            continue;
        if (count < capacity)
            pu[count] = hwloc_bitmap_first(usable);
        count++;
    }
    hwloc_bitmap_free(usable);
    return count;
}

static int numa_node_of(const struct dpb_cpu_binding_state *state, int pu)
{
    hwloc_obj_t obj = hwloc_get_pu_obj_by_os_index(state->topology, (unsigned)pu);

    if (!obj || !obj->nodeset || hwloc_bitmap_weight(obj->nodeset) != 1)
        return -1;
    return hwloc_bitmap_first(obj->nodeset);
}

static dpb_status unbound(struct dpb_cpu_binding *binding, struct dpb_cpu_binding_state *state,
                          const char *why)
{
    snprintf(binding->reason, sizeof(binding->reason), "%s", why);
    dpb_warn("threads are not bound to cores: %s; step times will vary more", why);
    state_free(state);
    return DPB_OK;
}

dpb_status dpb_cpu_binding_open(struct dpb_cpu_binding *binding,
                                const struct dpb_device_config *config)
{
    struct dpb_cpu_binding_state *state;
    int threads = config->threads, cores, *pu = NULL;

    *binding = (struct dpb_cpu_binding){.numa_node = -1};
    if (!config->bind) {
        snprintf(binding->reason, sizeof(binding->reason), "binding is off");
        return DPB_OK;
    }
    DPB_TRY(state_new(threads, &state));
    if (hwloc_topology_load(state->topology) != 0)
        return unbound(binding, state, "hwloc cannot read the machine's topology");
    if (hwloc_get_cpubind(state->topology, state->before, HWLOC_CPUBIND_THREAD) != 0)
        hwloc_bitmap_copy(state->before, hwloc_topology_get_allowed_cpuset(state->topology));
    cores = usable_cores(state, NULL, 0);
    if (cores < 1)
        return unbound(binding, state, "hwloc finds no core that this process may use");

    pu = calloc((size_t)(cores > threads ? cores : threads), sizeof(*pu));
    if (!pu)
        goto err_memory;
    usable_cores(state, pu, cores);
    binding->pu = calloc((size_t)threads, sizeof(binding->pu[0]));
    if (!binding->pu)
        goto err_memory;
    for (int i = 0; i < threads; i++) {
        int64_t slot = (int64_t)config->local_rank * threads + i;

        binding->pu[i] = pu[slot % cores];
        state->cpu[i] = hwloc_bitmap_alloc();
        if (!state->cpu[i])
            goto err_memory;
        hwloc_bitmap_only(state->cpu[i], (unsigned)binding->pu[i]);
    }
    free(pu);
    dpb_cpu_each_thread(threads, bind_thread, state);
    if (state->failed_errno) {
        dpb_cpu_each_thread(threads, unbind_thread, state);
        free(binding->pu);
        binding->pu = NULL;
        return unbound(binding, state, strerror(state->failed_errno));
    }
    binding->count = threads;
    binding->cores = cores;
    binding->numa_node = numa_node_of(state, binding->pu[0]);
    binding->shared = (int64_t)config->local_size * threads > cores;
    binding->state = state;
    return DPB_OK;

err_memory:
    free(pu);
    free(binding->pu);
    binding->pu = NULL;
    state_free(state);
    return no_memory();
}

void dpb_cpu_binding_close(struct dpb_cpu_binding *binding)
{
    if (binding->state)
        dpb_cpu_each_thread(binding->state->threads, unbind_thread, binding->state);
    state_free(binding->state);
    free(binding->pu);
    *binding = (struct dpb_cpu_binding){.numa_node = -1};
}
