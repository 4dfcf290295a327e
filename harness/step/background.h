/* background.h: where what tick() does goes: a stream of its own, so that a collective that it
 * starts waits for the gradients in it, and not for whatever else the compute stream has been given
 * by then: a host runs far ahead of its accelerator. Private to this folder. */
#ifndef DPB_STEP_BACKGROUND_H
#define DPB_STEP_BACKGROUND_H

#include <stdbool.h>

#include "dpb_workload.h"

struct dpb_step_engine;

struct background {
    struct dpb_launcher launcher; /* the compute stream's, unless is_apart */
    bool is_apart;
    dpb_event_mark **gradient; /* per parameter: the compute stream has made it */
    dpb_event_mark *joined;
};

/* After the launcher is open. A device that computes in the caller's thread, or a strategy without
 * tick(), has no use for it. */
dpb_status engine_background_open(struct dpb_step_engine *engine);
void engine_background_close(struct dpb_step_engine *engine);

/* The stream of the thread that calls: the background's in tick(). */
dpb_stream *engine_background_stream(struct dpb_step_engine *engine);

/* Services (dpb_strategy.h). */
dpb_status engine_background_note(void *ctx, int param);
dpb_status engine_background_await(void *ctx, int param);
dpb_status engine_background_join(void *ctx);

#endif
