#include "rank_meter.h"

#include <stdio.h>
#include <string.h>

#include "dpb_clock.h"
#include "dpb_module.h"

#define BETWEEN_NS 500000000 /* between two looks at clocks */

/* The whole table of a meter that may lie in the module. */
static const struct dpb_meter_ops *whole(const struct dpb_meter_ops *ops, char *why,
                                         size_t why_bytes)
{
    const struct dpb_module *module;

    if (ops->open)
        return ops;
    return dpb_module_open(&module, why, why_bytes) == DPB_OK ? module->meter : NULL;
}

void rank_meter_open(struct rank_meter *m, const struct dpb_registry *registry, bool accelerator,
                     const dpb_json *description, int local_rank)
{
    struct dpb_meter_config config = {
            .device = dpb_json_as_string(dpb_json_get(description, "pci_bus_id"), ""),
    };

    *m = (struct rank_meter){0};
    snprintf(m->why, sizeof(m->why), "no meter of this build reads this device");
    for (size_t i = 0; i < registry->meter_count && !m->meter; i++) {
        const struct dpb_meter_ops *ops = registry->meters[i];
        bool machine = ops->flags & DPB_METER_MACHINE;

        if (machine == accelerator)
            continue;
        if (machine && local_rank != 0) {
            snprintf(m->why, sizeof(m->why), "the machine's first rank reads it for all");
            return;
        }
        ops = whole(ops, m->why, sizeof(m->why));
        if (!ops)
            continue;
        m->ops = ops;
        if (ops->open(&config, &m->meter, m->why, sizeof(m->why)) < 0)
            m->meter = NULL;
    }
}

void rank_meter_close(struct rank_meter *m)
{
    if (m->meter)
        m->ops->close(m->meter);
    m->meter = NULL;
}

void rank_meter_begin(struct rank_meter *m)
{
    struct dpb_meter_sample sample;

    if (!m->meter)
        return;
    m->ops->read(m->meter, &sample);
    dpb_meter_span_begin(&m->span, &sample);
    m->begun = true;
}

void rank_meter_between(struct rank_meter *m)
{
    struct dpb_meter_sample sample;

    if (!m->begun || !m->ops->poll || dpb_clock_now_ns() - m->span.last.time_ns < BETWEEN_NS)
        return;
    m->ops->poll(m->meter, &sample);
    dpb_meter_span_extend(&m->span, &sample);
}

void rank_meter_end(struct rank_meter *m)
{
    struct dpb_meter_sample sample;

    if (!m->begun)
        return;
    m->ops->read(m->meter, &sample);
    dpb_meter_span_extend(&m->span, &sample);
}

dpb_json *rank_meter_json(const struct rank_meter *m)
{
    dpb_json *json;

    if (!m->begun) {
        json = dpb_json_object();
        dpb_json_set_absent(json, "meter", m->why);
        return json;
    }
    json = dpb_meter_span_json(&m->span);
    dpb_json_set_string(json, "meter", m->ops->name);
    dpb_json_set_bool(json, "machine", (m->ops->flags & DPB_METER_MACHINE) != 0);
    return json;
}

/* ---- the record ---- */

static bool has_meter(const dpb_json *rank)
{
    return dpb_json_type(dpb_json_get(rank, "meter")) == DPB_JSON_STRING;
}

/* Energy of all meters; false with the reason when one of them does not tell. */
static bool sum_energy(const dpb_json *const *ranks, int count, bool machine, int64_t *energy_mj,
                       const char **why)
{
    *energy_mj = 0;
    for (int r = 0; r < count; r++) {
        const dpb_json *value = dpb_json_get(ranks[r], "energy_mj");

        if (!has_meter(ranks[r]) && machine)
            continue;
        if (dpb_json_type(value) != DPB_JSON_INT) {
            *why = dpb_json_as_string(dpb_json_get(ranks[r], has_meter(ranks[r])
                                                                     ? "energy_mj_reason"
                                                                     : "meter_reason"),
                                      "a rank does not tell");
            return false;
        }
        *energy_mj += dpb_json_as_int(value, 0);
    }
    return true;
}

dpb_json *rank_meters_energy(const dpb_json *const *ranks, int count, int64_t steps,
                             int64_t samples, char *why, size_t why_bytes)
{
    const dpb_json *first = NULL;
    const char *reason = NULL;
    bool throttled = false, machine;
    int64_t energy_mj;

    for (int r = 0; r < count; r++) {
        first = !first && has_meter(ranks[r]) ? ranks[r] : first;
        throttled |= dpb_json_as_bool(dpb_json_get(ranks[r], "throttled"), false);
    }
    if (!first) {
        snprintf(why, why_bytes, "%s",
                 dpb_json_as_string(dpb_json_get(ranks[0], "meter_reason"), "no meter"));
        return NULL;
    }
    machine = dpb_json_as_bool(dpb_json_get(first, "machine"), false);

    dpb_json *energy = dpb_json_object(), *parts = dpb_json_array();
    dpb_json_set(energy, "meter", dpb_json_copy(dpb_json_get(first, "meter")));
    dpb_json_set_string(energy, "scope", machine ? "machine" : "device");
    if (sum_energy(ranks, count, machine, &energy_mj, &reason)) {
        dpb_json_set_int(energy, "energy_mj", energy_mj);
        dpb_json_set_real(energy, "energy_per_step_mj", (double)energy_mj / (double)steps);
        dpb_json_set_real(energy, "energy_per_sample_j",
                          (double)energy_mj / 1000 / (double)samples);
    } else {
        dpb_json_set_absent(energy, "energy_mj", reason);
        dpb_json_set_absent(energy, "energy_per_step_mj", reason);
        dpb_json_set_absent(energy, "energy_per_sample_j", reason);
    }
    dpb_json_set_bool(energy, "throttled", throttled);
    for (int r = 0; r < count; r++)
        dpb_json_append(parts, dpb_json_copy(ranks[r]));
    dpb_json_set(energy, "ranks", parts);
    return energy;
}
