#include "handover.h"

#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "workload_parts.h"

static int64_t at_least_one(int64_t slots)
{
    return slots > 0 ? slots : 1;
}

/* ---- down ---- */

int64_t dpb_handover_host_bytes(int64_t slots, size_t bytes)
{
    return at_least_one(slots) * (int64_t)bytes;
}

dpb_status dpb_handover_open(struct dpb_handover *handover, const struct dpb_launcher *launcher,
                             int64_t slots, size_t bytes)
{
    void *memory = NULL;

    if (!dpb_device_is_host(launcher->device) && bytes > 0)
        DPB_TRY(dpb_device_host_alloc(launcher->device,
                                      (size_t)dpb_handover_host_bytes(slots, bytes), &memory));
    *handover = (struct dpb_handover){.launcher = launcher, .memory = memory, .slot_bytes = bytes};
    return DPB_OK;
}

void dpb_handover_close(struct dpb_handover *handover)
{
    if (handover->memory)
        dpb_device_host_free(handover->launcher->device, handover->memory);
    handover->memory = NULL;
}

void *dpb_handover_begin(const struct dpb_handover *handover, int64_t slot, void *device)
{
    return handover->memory ? handover->memory + (size_t)slot * handover->slot_bytes : device;
}

dpb_status dpb_handover_end(const struct dpb_handover *handover, int64_t slot, void *device,
                            size_t bytes)
{
    const struct dpb_launcher *launcher = handover->launcher;

    if (!handover->memory || bytes == 0)
        return DPB_OK;
    return dpb_device_get_ops(launcher->device)
            ->copy(launcher->device, device, dpb_handover_begin(handover, slot, device), bytes,
                   launcher->stream);
}

dpb_status dpb_hand_down(const struct dpb_launcher *launcher, void *device, const void *from,
                         size_t bytes)
{
    return bytes > 0 ? dpb_copy_now(launcher, device, from, bytes) : DPB_OK;
}

/* ---- up ---- */

/* One forward pass: what it said, or where that will be when the stream has come so far. */
struct slot {
    struct dpb_said said; /* in `memory` */
    struct dpb_forward_result result;
    char *memory;
};

struct dpb_results {
    const struct dpb_launcher *launcher;
    char *memory; /* of all slots; NULL where the device's memory is the host's */
    struct slot slot[];
};

static int64_t values_bytes(int64_t count)
{
    return count * (int64_t)sizeof(float);
}

/* In the host's memory a sample's values follow those of the one before. */
static int64_t bytes_of(const struct dpb_said *said)
{
    const int64_t each = said->losses + (said->more_loss ? 1 : 0) + said->classes + 1;

    return values_bytes(said->samples * each);
}

int64_t dpb_results_host_bytes(int64_t slots, const struct dpb_said *most)
{
    return at_least_one(slots) * bytes_of(most);
}

dpb_status dpb_results_open(const struct dpb_launcher *launcher, int64_t slots,
                            const struct dpb_said *most, struct dpb_results **results)
{
    const int64_t count = at_least_one(slots), bytes = bytes_of(most);
    struct dpb_results *made = calloc(1, sizeof(*made) + (size_t)count * sizeof(struct slot));
    void *memory = NULL;
    dpb_status st;

    if (!made) {
        dpb_error("out of memory for the results of %lld forward passes", (long long)count);
        return DPB_ERR_NO_MEMORY;
    }
    made->launcher = launcher;
    if (!dpb_device_is_host(launcher->device)) {
        DPB_TRY_GOTO(st, dpb_device_host_alloc(launcher->device, (size_t)(count * bytes), &memory),
                     err);
        made->memory = memory;
        for (int64_t s = 0; s < count; s++)
            made->slot[s].memory = made->memory + s * bytes;
    }
    *results = made;
    return DPB_OK;

err:
    free(made);
    return st;
}

void dpb_results_close(struct dpb_results *results)
{
    if (!results)
        return;
    if (results->memory)
        dpb_device_host_free(results->launcher->device, results->memory);
    free(results);
}

static bool is_correct(const struct dpb_said *said, int64_t sample)
{
    const float *value = said->value + sample * said->value_stride;
    const int32_t label = said->label[sample * said->label_stride];

    if (said->classes == 1)
        return label ? value[0] > 0.0f : value[0] <= 0.0f;
    return dpb_label_wins(value, said->classes, label);
}

static struct dpb_forward_result judge(const struct dpb_said *said)
{
    struct dpb_forward_result sum = {0};

    for (int64_t i = 0; i < said->samples; i++) {
        double loss = 0.0;

        for (int64_t k = 0; k < said->losses; k++)
            loss += (double)said->loss[i * said->losses + k];
        loss /= (double)said->losses;
        if (said->more_loss)
            loss += (double)said->more_loss[i];
        sum.loss_sum += loss;
        sum.correct += is_correct(said, i);
    }
    return sum;
}

/* `count` rows of `bytes`, `stride_bytes` apart on the device, to *at, which moves behind them. */
static dpb_status fetch(const struct dpb_results *results, char **at, const void *from,
                        int64_t count, int64_t bytes, int64_t stride_bytes)
{
    const struct dpb_launcher *launcher = results->launcher;
    const bool is_dense = bytes == stride_bytes;

    for (int64_t i = 0; i < (is_dense ? 1 : count); i++) {
        const int64_t now = is_dense ? count * bytes : bytes;

        DPB_TRY(dpb_device_get_ops(launcher->device)
                        ->copy(launcher->device, *at, (const char *)from + i * stride_bytes,
                               (size_t)now, launcher->stream));
        *at += now;
    }
    return DPB_OK;
}

static dpb_status fetch_all(const struct dpb_results *results, struct slot *slot,
                            const struct dpb_said *said)
{
    const int64_t each = (int64_t)sizeof(float), samples = said->samples;
    char *at = slot->memory;

    slot->said = *said;
    slot->said.value_stride = said->classes;
    slot->said.label_stride = 1;
    slot->said.loss = (float *)(void *)at;
    DPB_TRY(fetch(results, &at, said->loss, samples, said->losses * each, said->losses * each));
    if (said->more_loss) {
        slot->said.more_loss = (float *)(void *)at;
        DPB_TRY(fetch(results, &at, said->more_loss, samples, each, each));
    }
    slot->said.value = (float *)(void *)at;
    DPB_TRY(fetch(results, &at, said->value, samples, said->classes * each,
                  said->value_stride * each));
    slot->said.label = (int32_t *)(void *)at;
    return fetch(results, &at, said->label, samples, each, said->label_stride * each);
}

dpb_status dpb_results_keep(struct dpb_results *results, int64_t number,
                            const struct dpb_said *said)
{
    struct slot *slot = &results->slot[number];

    if (said->samples == 0) {
        slot->said.samples = 0;
        slot->result = (struct dpb_forward_result){0};
        return DPB_OK;
    }
    if (slot->memory)
        return fetch_all(results, slot, said);
    DPB_TRY(dpb_device_get_ops(results->launcher->device)->stream_sync(results->launcher->stream));
    slot->result = judge(said);
    return DPB_OK;
}

dpb_status dpb_results_read(const struct dpb_results *results, int64_t number,
                            struct dpb_forward_result *result)
{
    const struct slot *slot = &results->slot[number];

    *result = slot->memory && slot->said.samples > 0 ? judge(&slot->said) : slot->result;
    return DPB_OK;
}
