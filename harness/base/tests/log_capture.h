/* log_capture.h: the log lines of a test, joined by newlines. */
#ifndef DPB_TEST_LOG_CAPTURE_H
#define DPB_TEST_LOG_CAPTURE_H

#include <string.h>

#include "dpb_log.h"
#include "dpb_str.h"

static struct dpb_str captured;

static inline void capture_line(void *ctx, enum dpb_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    dpb_str_append(&captured, line);
    dpb_str_append(&captured, "\n");
}

static inline void capture_start(void)
{
    dpb_str_release(&captured);
    dpb_str_append(&captured, "");
    dpb_log_set_sink(capture_line, NULL);
}

static inline void capture_stop(void)
{
    dpb_log_set_sink(NULL, NULL);
    dpb_str_release(&captured);
}

/* For assertions: says what was logged when it fails. */
#define assert_logged(part)                                                                        \
    do {                                                                                           \
        if (!strstr(captured.text, (part)))                                                        \
            fail_msg("not in the log: %s\nthe log is:\n%s", (part), captured.text);                \
    } while (0)

#endif
