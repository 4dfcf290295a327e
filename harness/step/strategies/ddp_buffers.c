#include "ddp_buffers.h"

#include <stdlib.h>

#include "dpb_log.h"

#define PACK_BYTES  (INT64_C(250) << 20) /* broadcast_bucket_size */
#define ALIGN_BYTES 64
#define NAME        "broadcast-buffers"

/* ---- packs ---- */

static dpb_status pack(const struct dpb_model *model, struct dpb_bucket_assignment *packed)
{
    const int64_t limit_bytes = PACK_BYTES;
    enum dpb_dtype *dtype = calloc((size_t)model->buffer_count, sizeof(*dtype));
    dpb_status st;

    if (!dtype) {
        dpb_error("strategy \"ddp\": out of memory for %d buffers", model->buffer_count);
        return DPB_ERR_NO_MEMORY;
    }
    for (int i = 0; i < model->buffer_count; i++)
        dtype[i] = DPB_F32;

    const struct dpb_bucket_input input = {
            .numel = model->buffer_numel,
            .dtype = dtype,
            .count = model->buffer_count,
            .limits_bytes = &limit_bytes,
            .limit_count = 1,
    };
    st = dpb_bucket_assign(&input, packed);
    free(dtype);
    return st;
}

dpb_status ddp_buffers_plan(struct ddp_buffers *buffers, const struct dpb_model *model)
{
    struct ddp_buffers made = {.model = model};

    if (model->buffer_count == 0)
        return DPB_OK;
    DPB_TRY(pack(model, &made.packed));
    made.elements = calloc((size_t)made.packed.bucket_count, sizeof(*made.elements));
    if (!made.elements) {
        dpb_error("strategy \"ddp\": out of memory for %d buffers", model->buffer_count);
        dpb_bucket_assignment_release(&made.packed);
        return DPB_ERR_NO_MEMORY;
    }
    for (int p = 0; p < made.packed.bucket_count; p++) {
        int64_t bytes;

        for (int i = made.packed.first[p]; i < made.packed.first[p + 1]; i++)
            made.elements[p] += model->buffer_numel[made.packed.label[i]];
        bytes = (made.elements[p] * (int64_t)sizeof(float) + ALIGN_BYTES - 1) / ALIGN_BYTES *
                ALIGN_BYTES;
        made.slot_bytes = bytes > made.slot_bytes ? bytes : made.slot_bytes;
    }
    ddp_buffers_release(buffers);
    *buffers = made;
    return DPB_OK;
}

void ddp_buffers_release(struct ddp_buffers *buffers)
{
    if (buffers->model)
        dpb_bucket_assignment_release(&buffers->packed);
    free(buffers->elements);
    *buffers = (struct ddp_buffers){0};
}

static int slot_count(const struct ddp_buffers *buffers)
{
    const int packs = buffers->packed.bucket_count;

    return packs < DDP_BUFFERS_UNDER_WAY ? packs : DDP_BUFFERS_UNDER_WAY;
}

int64_t ddp_buffers_bytes(const struct ddp_buffers *buffers)
{
    return buffers->model ? slot_count(buffers) * buffers->slot_bytes : 0;
}

dpb_status ddp_buffers_place(struct ddp_buffers *buffers, const struct dpb_sync_services *services)
{
    void *memory;

    if (!buffers->model)
        return DPB_OK;
    DPB_TRY(services->shared_alloc(services->ctx, (size_t)ddp_buffers_bytes(buffers), &memory));
    buffers->slots = memory;
    return DPB_OK;
}

int ddp_buffers_messages(const struct ddp_buffers *buffers, struct dpb_sync_message *messages)
{
    const int packs = buffers->model ? buffers->packed.bucket_count : 0;

    for (int p = 0; messages && p < packs; p++)
        messages[p] = (struct dpb_sync_message){
                .kind = DPB_COLL_BROADCAST,
                .dtype = DPB_F32,
                .count = buffers->elements[p],
                .when = DPB_SYNC_BEFORE_FORWARD,
                .param = -1,
                .unit = -1,
                .name = NAME,
        };
    return packs;
}

/* ---- the broadcast ---- */

static float *slot_of(const struct ddp_buffers *buffers, int pack)
{
    return (float *)(void *)(buffers->slots + (pack % DDP_BUFFERS_UNDER_WAY) * buffers->slot_bytes);
}

/* Between the buffers of a pack and its slot. */
static dpb_status copy_pack(const struct ddp_buffers *buffers,
                            const struct dpb_sync_services *services, int pack, bool is_in)
{
    const struct dpb_launcher *launcher = services->launcher;
    float *at = slot_of(buffers, pack);

    for (int i = buffers->packed.first[pack]; i < buffers->packed.first[pack + 1]; i++) {
        const int64_t numel = buffers->model->buffer_numel[buffers->packed.label[i]];
        struct dpb_workload_state state;

        if (!services->state(services->ctx, buffers->packed.label[i], &state) ||
            state.numel != numel) {
            dpb_error("strategy \"ddp\": buffer %d of the workload is not the one of its model",
                      buffers->packed.label[i]);
            return DPB_ERR_INTERNAL;
        }
        DPB_TRY(dpb_device_get_ops(launcher->device)
                        ->copy(launcher->device, is_in ? at : state.data, is_in ? state.data : at,
                               (size_t)numel * sizeof(float), launcher->stream));
        at += numel;
    }
    return DPB_OK;
}

static dpb_status start(const struct ddp_buffers *buffers, const struct dpb_sync_services *services,
                        int rank, int pack, int *handle)
{
    const struct dpb_sync_coll broadcast = {
            .kind = DPB_COLL_BROADCAST,
            .dtype = DPB_F32,
            .buffer = slot_of(buffers, pack),
            .count = buffers->elements[pack],
            .scale = 1.0f,
            .unit = -1,
            .name = NAME,
    };

    if (rank == 0)
        DPB_TRY(copy_pack(buffers, services, pack, true));
    return services->start(services->ctx, &broadcast, handle);
}

static dpb_status finish(const struct ddp_buffers *buffers,
                         const struct dpb_sync_services *services, int rank, int pack, int handle)
{
    DPB_TRY(services->wait(services->ctx, handle));
    return rank == 0 ? DPB_OK : copy_pack(buffers, services, pack, false);
}

dpb_status ddp_buffers_broadcast(struct ddp_buffers *buffers,
                                 const struct dpb_sync_services *services, int rank)
{
    const int packs = buffers->model ? buffers->packed.bucket_count : 0;
    int handle[DDP_BUFFERS_UNDER_WAY];

    for (int p = 0; p < packs + DDP_BUFFERS_UNDER_WAY; p++) {
        const int oldest = p - DDP_BUFFERS_UNDER_WAY;

        if (oldest >= 0 && oldest < packs)
            DPB_TRY(finish(buffers, services, rank, oldest,
                           handle[oldest % DDP_BUFFERS_UNDER_WAY]));
        if (p < packs)
            DPB_TRY(start(buffers, services, rank, p, &handle[p % DDP_BUFFERS_UNDER_WAY]));
    }
    return DPB_OK;
}
