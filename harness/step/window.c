/* The device's memory as the host reads and writes it, piece by piece: where it is, or, of an
 * accelerator, through a window. */
#include "step_private.h"

#include "dpb_log.h"

#define WINDOW_BYTES (INT64_C(1) << 20)
/* Where nothing is copied, pieces are for signs of life only. */
#define BEAT_BYTES (INT64_C(1) << 24)

int64_t engine_window_bytes(void)
{
    return WINDOW_BYTES;
}

dpb_status engine_window_open(struct dpb_step_engine *engine)
{
    void *memory = NULL;

    if (dpb_device_is_host(engine->config.device))
        return DPB_OK;
    DPB_TRY(dpb_device_host_alloc(engine->config.device, WINDOW_BYTES, &memory));
    engine->window = memory;
    return DPB_OK;
}

void engine_window_close(struct dpb_step_engine *engine)
{
    if (engine->window)
        dpb_device_host_free(engine->config.device, engine->window);
    engine->window = NULL;
}

static dpb_status use_piece(struct dpb_step_engine *engine, char *at, int64_t bytes, unsigned how,
                            const struct pieces *pieces, int64_t offset)
{
    char *piece = engine->window ? engine->window : at;

    if (engine->window && how & PIECES_READ)
        DPB_TRY(dpb_copy_now(&engine->launcher, piece, at, (size_t)bytes));
    pieces->use(pieces->ctx, piece, offset, bytes);
    if (engine->window && how & PIECES_WRITE)
        DPB_TRY(dpb_copy_now(&engine->launcher, at, piece, (size_t)bytes));
    return DPB_OK;
}

dpb_status engine_pieces(struct dpb_step_engine *engine, void *memory, int64_t bytes, unsigned how,
                         const struct pieces *pieces)
{
    const int64_t most = engine->window ? WINDOW_BYTES : BEAT_BYTES;

    if (how & PIECES_READ)
        DPB_TRY(dpb_device_get_ops(engine->config.device)->stream_sync(engine->launcher.stream));
    for (int64_t at = 0; at < bytes; at += most) {
        const int64_t now = bytes - at < most ? bytes - at : most;

        if (pieces->unit >= 0)
            engine_progress(engine, pieces->unit);
        DPB_TRY(use_piece(engine, (char *)memory + at, now, how, pieces, at));
    }
    return DPB_OK;
}
