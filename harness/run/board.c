#include "dpb_board.h"

#include <inttypes.h>
#include <stdio.h>

#include "dpb_clock.h"

void dpb_board_write(struct dpb_board_line *line, int64_t step, enum dpb_phase phase, int bucket)
{
    atomic_store_explicit(&line->step, step, memory_order_relaxed);
    atomic_store_explicit(&line->phase, phase, memory_order_relaxed);
    atomic_store_explicit(&line->bucket, bucket, memory_order_relaxed);
    atomic_store_explicit(&line->beat_ns, dpb_clock_now_ns(), memory_order_release);
}

void dpb_board_text(const struct dpb_board_line *line, char *text, size_t text_bytes)
{
    if (atomic_load_explicit(&line->beat_ns, memory_order_acquire) == 0) {
        snprintf(text, text_bytes, "start-up");
        return;
    }
    int64_t step = atomic_load_explicit(&line->step, memory_order_relaxed);
    enum dpb_phase phase = (enum dpb_phase)atomic_load_explicit(&line->phase, memory_order_relaxed);
    int bucket = atomic_load_explicit(&line->bucket, memory_order_relaxed);
    if (step == 0)
        snprintf(text, text_bytes, "%s, before the first step", dpb_phase_text(phase));
    else if (bucket < 0)
        snprintf(text, text_bytes, "step %" PRId64 " (%s)", step, dpb_phase_text(phase));
    else
        snprintf(text, text_bytes, "step %" PRId64 " (%s, bucket %d)", step, dpb_phase_text(phase),
                 bucket);
}
