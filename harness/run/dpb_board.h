/* dpb_board.h: where every rank is right now: a line each, in memory that the ranks and the
 * launcher share; a rank on another host has one of its own, and sends it with every beat.
 *
 * A rank writes its line without locks; the launcher reads it to see progress, and to say which
 * step a rank was in when it died or hangs. */
#ifndef DPB_BOARD_H
#define DPB_BOARD_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "dpb_step.h"

struct dpb_board_line {
    _Alignas(64) _Atomic int64_t beat_ns; /* dpb_clock_now_ns() of the last change; 0: not begun */
    _Atomic int64_t step;                 /* 0 before the first */
    _Atomic int32_t phase;                /* enum dpb_phase */
    _Atomic int32_t bucket;               /* -1 where it means nothing */
};

/* Write this rank's line. */
void dpb_board_write(struct dpb_board_line *line, int64_t step, enum dpb_phase phase, int bucket);

/* "step 17 (backward, bucket 2)"; "setup". */
void dpb_board_text(const struct dpb_board_line *line, char *text, size_t text_bytes);

#endif
