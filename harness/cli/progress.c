#include "dpb_cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "dpb_log.h"
#include "dpb_units.h"

static bool line_is_drawn;

static int terminal_width(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20)
        return size.ws_col;
    return 80;
}

void dpb_progress_end(void)
{
    if (line_is_drawn)
        fputs("\r\033[K", stderr);
    line_is_drawn = false;
}

/* "1:05", "2:03:04". */
static void clock_text(int64_t ns, char *text, size_t text_bytes)
{
    int64_t s = ns / 1000000000;
    if (s >= 3600)
        snprintf(text, text_bytes, "%" PRId64 ":%02" PRId64 ":%02" PRId64, s / 3600, s / 60 % 60,
                 s % 60);
    else
        snprintf(text, text_bytes, "%" PRId64 ":%02" PRId64, s / 60, s % 60);
}

static void draw(const struct dpb_progress *p, const char *label)
{
    char text[512], eta[32] = "";
    int width = terminal_width() - 1;
    if (p->eta_ns >= 0) {
        char left[24];
        clock_text(p->eta_ns, left, sizeof(left));
        snprintf(eta, sizeof(eta), "  %s left", left);
    }
    int length = snprintf(text, sizeof(text), "[%zu/%zu]%s  %s", p->done + 1, p->total, eta, label);
    if (p->step > 0 && length < (int)sizeof(text))
        length +=
                snprintf(text + length, sizeof(text) - (size_t)length, "  step %" PRId64, p->step);
    fprintf(stderr, "\r%.*s\033[K", width, text);
    fflush(stderr);
    line_is_drawn = true;
}

static void ended(const struct dpb_progress *p, const char *label)
{
    char step[DPB_UNIT_TEXT_BYTES] = "";
    if (p->status == DPB_OK) {
        dpb_human_duration(p->median_step_ns, 3, step, sizeof(step));
        if (isnan(p->availability))
            dpb_info("[%zu/%zu] %s: %s per step, simulated", p->done, p->total, label, step);
        else
            dpb_info("[%zu/%zu] %s: %s per step, %.0f %% of the cores available", p->done, p->total,
                     label, step, 100 * p->availability);
    } else if (p->skipped) {
        dpb_info("[%zu/%zu] %s: skipped, %s", p->done, p->total, label,
                 p->status == DPB_ERR_UNSUPPORTED ? "the device cannot compute it"
                                                  : "it does not fit into memory");
    } else {
        dpb_info("[%zu/%zu] %s: %s", p->done, p->total, label, dpb_status_text(p->status));
    }
}

void dpb_progress_show(void *ctx, const struct dpb_progress *p)
{
    (void)ctx;
    char label[256];
    snprintf(label, sizeof(label), "%s%srepeat %d", p->label, p->label[0] ? " " : "",
             p->repeat + 1);
    bool terminal = isatty(STDERR_FILENO);
    if (p->repeats_for_noise) {
        dpb_progress_end();
        dpb_info("[%zu/%zu] %s: only %.0f %% of a core was available, running it again",
                 p->done + 1, p->total, label, 100 * p->availability);
    } else if (p->step == -1) {
        dpb_progress_end();
        ended(p, label);
    } else if (terminal) {
        draw(p, label);
    }
}
