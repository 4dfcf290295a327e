/* Command lines: words, programs and what they say of themselves. */
#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crew_private.h"
#include "dpb_clock.h"
#include "dpb_log.h"

#define VERSION_NS 15000000000ll /* for a program to say which it is: it may hang */
#define POLL_MS    50

void crew_words_add(struct crew_words *words, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    const int length = vasprintf(&text, format, args);
    va_end(args);
    char **grown = realloc(words->items, (words->count + 2) * sizeof(*grown));
    if (grown)
        words->items = grown;
    if (length < 0 || !grown) {
        if (length >= 0)
            free(text);
        words->failed = true;
        return;
    }
    words->items[words->count++] = text;
    words->items[words->count] = NULL;
}

void crew_words_release(struct crew_words *words)
{
    crew_strings_free(words->items);
    *words = (struct crew_words){0};
}

bool crew_words_have(const struct crew_words *words, const char *beginning)
{
    for (size_t i = 0; i < words->count; i++)
        if (strncmp(words->items[i], beginning, strlen(beginning)) == 0)
            return true;
    return false;
}

/* One word; `at` moves behind it. A quote that is not closed leaves `at` at NULL. */
static void read_word(const char **at, struct dpb_str *word)
{
    char quote = '\0';
    const char *c = *at;
    dpb_str_append(word, "");
    for (; *c && (quote || !isspace((unsigned char)*c)); c++) {
        if (quote ? *c == quote : *c == '\'' || *c == '"') {
            quote = quote ? '\0' : *c;
            continue;
        }
        if (*c == '\\' && quote != '\'' && c[1])
            c++;
        dpb_str_append_bytes(word, c, 1);
    }
    *at = quote ? NULL : c;
}

dpb_status crew_words_split(const char *text, struct crew_words *words)
{
    for (const char *at = text; at;) {
        struct dpb_str word = {0};
        while (isspace((unsigned char)*at))
            at++;
        if (!*at)
            return words->failed ? DPB_ERR_NO_MEMORY : DPB_OK;
        read_word(&at, &word);
        words->failed |= word.failed;
        if (at && !word.failed)
            crew_words_add(words, "%s", word.text);
        dpb_str_release(&word);
    }
    dpb_error("--launcher-args: a quote is not closed in: %s", text);
    dpb_log_hint("words are split as a shell does it");
    return DPB_ERR_USAGE;
}

static bool is_program(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

dpb_status crew_find_program(const char *name, const char *hint, char *path, size_t path_bytes)
{
    const char *folders = getenv("PATH");
    for (const char *at = folders; at && *at;) {
        const int length = (int)strcspn(at, ":");
        const int used = snprintf(path, path_bytes, "%.*s/%s", length, at, name);
        if (length > 0 && used > 0 && (size_t)used < path_bytes && is_program(path))
            return DPB_OK;
        at += length + (at[length] == ':');
    }
    dpb_error("--launcher %s: there is no %s in PATH", name, name);
    dpb_log_hint("%s", hint);
    return DPB_ERR_UNAVAILABLE;
}

/* All that comes until its end, as far as there is room and time. */
static size_t read_for(int fd, int64_t ns, char *text, size_t room)
{
    const int64_t deadline_ns = dpb_clock_now_ns() + ns;
    size_t got = 0;
    while (got < room && dpb_clock_now_ns() < deadline_ns) {
        struct pollfd news = {.fd = fd, .events = POLLIN};
        (void)poll(&news, 1, POLL_MS);
        const ssize_t count = read(fd, text + got, room - got);
        if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR))
            break;
        got += count > 0 ? (size_t)count : 0;
    }
    return got;
}

dpb_status crew_program_version(const char *path, char *text, size_t text_bytes)
{
    char program[4096], option[] = "--version";
    struct crew_child child;
    snprintf(program, sizeof(program), "%s", path);
    DPB_TRY(crew_child_start(&child, path, (char *[]){program, option, NULL}, environ, true));
    const size_t got = read_for(child.output_fd, VERSION_NS, text, text_bytes - 1);
    text[got] = '\0';
    close(child.output_fd); /* nothing of it is passed on */
    child.output_fd = -1;
    crew_child_stop(&child);
    if (got > 0)
        return DPB_OK;
    dpb_error("\"%s --version\" says nothing", path);
    dpb_log_hint("is it a working launcher? Try it by hand");
    return DPB_ERR_UNAVAILABLE;
}

dpb_status crew_own_path(char *path, size_t path_bytes)
{
    const ssize_t got = readlink("/proc/self/exe", path, path_bytes - 1);
    if (got <= 0) {
        dpb_error("cannot read \"/proc/self/exe\": %s", strerror(errno));
        return DPB_ERR_UNAVAILABLE;
    }
    path[got] = '\0';
    return DPB_OK;
}
