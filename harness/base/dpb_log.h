/* dpb_log.h: log lines on stderr. Data never goes through here.
 *
 * A message says what could not be done, the subject in quotes, the value and the reason; the hint
 * says what to do about it. Safe from several threads and processes: one write(2) per line. */
#ifndef DPB_LOG_H
#define DPB_LOG_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum dpb_log_level {
    DPB_LOG_ERROR,
    DPB_LOG_WARN,
    DPB_LOG_INFO,
    DPB_LOG_DEBUG
};

/* Highest level that is written; default DPB_LOG_INFO. */
void dpb_log_set_level(enum dpb_log_level level);

/* A prefix such as "rank 1" put before each later message of this process; NULL removes it. The
 * text is copied and cut at 31 bytes. */
void dpb_log_set_prefix(const char *prefix);

/* Where lines go instead of stderr (tests, the progress line); NULL restores stderr. `line` is the
 * whole line, "dpbench: error: ...", without newline, valid during the call only. Calls come one
 * after the other, whatever the threads; the sink must not log itself. */
typedef void (*dpb_log_sink)(void *ctx, enum dpb_log_level level, const char *line);
void dpb_log_set_sink(dpb_log_sink sink, void *ctx);
/* The one that is set, to be set again after another; NULL: stderr. */
dpb_log_sink dpb_log_get_sink(void **ctx);

/* Write one line "dpbench: [prefix: ]error: ..." (the level word is left out for INFO). Control
 * characters in the text, and bytes that are no UTF-8, are written as \xNN: other hosts' words can
 * be logged. Lines longer than 4 KiB are cut with "...". Numbers have a decimal point whatever the
 * locale; errno is left as it was. */
void dpb_log(enum dpb_log_level level, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/* The remedy of the message that this thread logged last: "dpbench: [prefix: ]hint: ...", at the
 * same level, so both are seen or neither. */
void dpb_log_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The two functions above as values: the log of another copy of this library. */
struct dpb_log_functions {
    void (*log)(enum dpb_log_level level, const char *format, ...)
            __attribute__((format(printf, 2, 3)));
    void (*hint)(const char *format, ...) __attribute__((format(printf, 1, 2)));
};

/* From now on every message of this copy goes to those functions, whose level, prefix and sink
 * count: a module that is linked with its own copy of base logs as its program does. Once, before
 * other threads log. Members that are NULL end it. */
void dpb_log_forward(const struct dpb_log_functions *to);

#define dpb_error(...) dpb_log(DPB_LOG_ERROR, __VA_ARGS__)
#define dpb_warn(...)  dpb_log(DPB_LOG_WARN, __VA_ARGS__)
#define dpb_info(...)  dpb_log(DPB_LOG_INFO, __VA_ARGS__)
#define dpb_debug(...) dpb_log(DPB_LOG_DEBUG, __VA_ARGS__)

#ifdef __cplusplus
}
#endif
#endif
