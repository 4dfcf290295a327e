#include "dpb_log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "c_locale.h"
#include "utf8.h"

/* A line with its newline stays within PIPE_BUF, so that lines of several processes that share a
 * pipe do not mix. */
#define LINE_BYTES   4096
#define PREFIX_BYTES 32

static atomic_int highest_level = DPB_LOG_INFO;

/* Guards the prefix and the sink, and keeps a sink's calls one after the other. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char log_prefix[PREFIX_BYTES];
static dpb_log_sink log_sink;
static void *log_sink_ctx;

static void take_lock(void)
{
    pthread_mutex_lock(&lock);
}

static void give_lock(void)
{
    pthread_mutex_unlock(&lock);
}

/* Ranks are forked: a child must not inherit the lock from a thread that it does not have. */
__attribute__((constructor)) static void guard_forks(void)
{
    (void)pthread_atfork(take_lock, give_lock, give_lock); /* fails for lack of memory only */
}

static struct dpb_log_functions forward_to;

/* A hint belongs to the message before it in the same thread: same level, and silent with it. */
static _Thread_local enum dpb_log_level last_level = DPB_LOG_ERROR;

void dpb_log_set_level(enum dpb_log_level level)
{
    atomic_store(&highest_level, (int)level);
}

void dpb_log_set_prefix(const char *prefix)
{
    pthread_mutex_lock(&lock);
    snprintf(log_prefix, sizeof(log_prefix), "%s", prefix ? prefix : "");
    pthread_mutex_unlock(&lock);
}

void dpb_log_set_sink(dpb_log_sink sink, void *ctx)
{
    pthread_mutex_lock(&lock);
    log_sink = sink;
    log_sink_ctx = ctx;
    pthread_mutex_unlock(&lock);
}

dpb_log_sink dpb_log_get_sink(void **ctx)
{
    pthread_mutex_lock(&lock);
    const dpb_log_sink sink = log_sink;
    *ctx = log_sink_ctx;
    pthread_mutex_unlock(&lock);
    return sink;
}

static const char *level_word(enum dpb_log_level level)
{
    switch (level) {
    case DPB_LOG_ERROR:
        return "error: ";
    case DPB_LOG_WARN:
        return "warning: ";
    case DPB_LOG_INFO:
        return "";
    case DPB_LOG_DEBUG:
        return "debug: ";
    }
    return "";
}

static size_t append(char *line, size_t used, const char *text)
{
    size_t count = strlen(text);

    memcpy(line + used, text, count);
    return used + count;
}

/* Bytes of the character at `text`, and whether it can be shown: no control character, of which
 * there are some above 0x7f that terminals obey, and no byte that is no UTF-8. */
static size_t read_character(const char *text, bool *shown)
{
    const unsigned char *bytes = (const unsigned char *)text;
    const size_t count = dpb_utf8_length(text, SIZE_MAX);
    const bool control =
            bytes[0] < 0x20 || bytes[0] == 0x7f || (bytes[0] == 0xc2 && bytes[1] < 0xa0);

    *shown = count > 0 && !control;
    return count > 0 ? count : 1;
}

/* Copy `text` with what a terminal would not show, or obey, made visible; cut with "..." where the
 * line is full, never inside a character. */
static size_t append_visible(char *line, size_t used, const char *text)
{
    static const char hex[] = "0123456789abcdef";
    const size_t limit = LINE_BYTES - 4; /* "..." and the newline */

    while (*text) {
        bool shown;
        const size_t count = read_character(text, &shown);

        if (used + (shown ? count : 4 * count) > limit)
            return append(line, used, "...");
        for (size_t i = 0; i < count; i++, text++) {
            const unsigned char c = (unsigned char)*text;

            if (shown) {
                line[used++] = *text;
                continue;
            }
            line[used++] = '\\';
            line[used++] = 'x';
            line[used++] = hex[c >> 4];
            line[used++] = hex[c & 15];
        }
    }
    return used;
}

static void write_all(const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t done = write(STDERR_FILENO, bytes, count);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return; /* nowhere is left to say so */
        bytes += done;
        count -= (size_t)done;
    }
}

static void format_message(char message[LINE_BYTES], const char *format, va_list args)
{
    int saved_errno = errno;
    locale_t before = dpb_c_locale_enter();

    if (vsnprintf(message, LINE_BYTES, format, args) < 0)
        snprintf(message, LINE_BYTES, "(message that cannot be formatted) %s", format);
    dpb_c_locale_leave(before);
    errno = saved_errno;
}

static void emit(enum dpb_log_level level, const char *word, const char *format, va_list args)
{
    char message[LINE_BYTES];
    char line[LINE_BYTES];
    size_t used = 0;
    int saved_errno = errno;

    format_message(message, format, args);

    pthread_mutex_lock(&lock);
    used = append(line, used, "dpbench: ");
    if (log_prefix[0]) {
        used = append_visible(line, used, log_prefix);
        used = append(line, used, ": ");
    }
    used = append(line, used, word);
    used = append_visible(line, used, message);
    if (log_sink) {
        line[used] = '\0';
        log_sink(log_sink_ctx, level, line);
    } else {
        line[used++] = '\n';
        write_all(line, used);
    }
    pthread_mutex_unlock(&lock);
    errno = saved_errno;
}

void dpb_log_forward(const struct dpb_log_functions *to)
{
    forward_to = *to;
}

void dpb_log(enum dpb_log_level level, const char *format, ...)
{
    va_list args;

    if (forward_to.log) {
        char message[LINE_BYTES];

        va_start(args, format);
        format_message(message, format, args);
        va_end(args);
        forward_to.log(level, "%s", message);
        return;
    }
    last_level = level;
    if ((int)level > atomic_load(&highest_level))
        return;
    va_start(args, format);
    emit(level, level_word(level), format, args);
    va_end(args);
}

void dpb_log_hint(const char *format, ...)
{
    va_list args;

    if (forward_to.hint) {
        char message[LINE_BYTES];

        va_start(args, format);
        format_message(message, format, args);
        va_end(args);
        forward_to.hint("%s", message);
        return;
    }
    if ((int)last_level > atomic_load(&highest_level))
        return;
    va_start(args, format);
    emit(last_level, "hint: ", format, args);
    va_end(args);
}
