#include "dpb_str.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "c_locale.h"

/* Room for `count` more bytes and the terminator. */
static bool reserve(struct dpb_str *str, size_t count)
{
    size_t capacity = str->capacity ? str->capacity : 64;
    char *text;

    if (str->failed)
        return false;
    if (count >= SIZE_MAX / 2 - str->length) {
        str->failed = true;
        return false;
    }
    if (str->text && str->length + count + 1 <= str->capacity)
        return true;
    while (capacity < str->length + count + 1)
        capacity *= 2;
    text = realloc(str->text, capacity);
    if (!text) {
        str->failed = true;
        return false;
    }
    str->text = text;
    str->capacity = capacity;
    return true;
}

void dpb_str_append_bytes(struct dpb_str *str, const void *bytes, size_t count)
{
    if (!reserve(str, count))
        return;
    if (count > 0)
        memcpy(str->text + str->length, bytes, count);
    str->length += count;
    str->text[str->length] = '\0';
}

void dpb_str_append(struct dpb_str *str, const char *text)
{
    dpb_str_append_bytes(str, text, strlen(text));
}

void dpb_str_appendf(struct dpb_str *str, const char *format, ...)
{
    va_list args;
    int count;
    locale_t before;

    if (!reserve(str, 0))
        return;
    before = dpb_c_locale_enter();
    va_start(args, format);
    count = vsnprintf(str->text + str->length, str->capacity - str->length, format, args);
    va_end(args);
    if (count >= 0 && (size_t)count >= str->capacity - str->length && reserve(str, (size_t)count)) {
        va_start(args, format);
        count = vsnprintf(str->text + str->length, str->capacity - str->length, format, args);
        va_end(args);
    }
    dpb_c_locale_leave(before);
    if (count < 0)
        str->failed = true;
    if (str->failed)
        str->text[str->length] = '\0';
    else
        str->length += (size_t)count;
}

void dpb_str_release(struct dpb_str *str)
{
    free(str->text);
    *str = (struct dpb_str){0};
}

/* Edit distance with transpositions of neighbours (optimal string alignment), letter case apart. */
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length,
                            size_t *rows)
{
    size_t width = b_length + 1;
    size_t *before = rows, *above = rows + width, *row = rows + 2 * width;
    size_t i, j;

    for (j = 0; j <= b_length; j++)
        above[j] = j;
    for (i = 1; i <= a_length; i++) {
        size_t *oldest = before;

        row[0] = i;
        for (j = 1; j <= b_length; j++) {
            int x = tolower((unsigned char)a[i - 1]);
            int y = tolower((unsigned char)b[j - 1]);
            size_t best = above[j - 1] + (x != y);

            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]) && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            row[j] = best;
        }
        before = above;
        above = row;
        row = oldest;
    }
    return above[b_length];
}

#define BEGINNING_LEAST 3 /* letters that tell something of a word */
#define BEGINNING_OVER  4 /* "outfile" is "out" rather than "hostfile": 2 of 7 letters differ */

/* "out" of "output-folder", "batch-per-rank" of "batch": the candidate with the longest beginning
 * in common, where that is all of the candidate or all of the word; of several the shortest. */
static const char *suggest_by_beginning(const char *word, const char *const *candidates,
                                        size_t count)
{
    const size_t length = strlen(word);
    const char *best = NULL;
    size_t best_common = 0;

    for (size_t i = 0; i < count; i++) {
        const size_t other = strlen(candidates[i]);
        const size_t common = other < length ? other : length;

        if (common < BEGINNING_LEAST || strncasecmp(word, candidates[i], common) != 0)
            continue;
        if (common > best_common || (common == best_common && other < strlen(best))) {
            best = candidates[i];
            best_common = common;
        }
    }
    return best;
}

const char *dpb_suggest(const char *word, const char *const *candidates, size_t count)
{
    size_t length = strlen(word);
    size_t limit = length / 3 > 2 ? length / 3 : 2;
    size_t best_distance = SIZE_MAX;
    const char *best = NULL;
    size_t i;

    for (i = 0; i < count; i++) {
        size_t other = strlen(candidates[i]);
        size_t longer = other > length ? other : length;
        size_t distance;
        size_t *rows;

        if ((other > length ? other - length : length - other) > limit)
            continue;
        rows = malloc(3 * (other + 1) * sizeof(*rows));
        if (!rows)
            return best;
        distance = edit_distance(word, length, candidates[i], other, rows);
        free(rows);
        /* A distance of the whole length means that no letter agrees. */
        if (distance <= limit && distance < longer && distance < best_distance) {
            best_distance = distance;
            best = candidates[i];
        }
    }
    if (best && BEGINNING_OVER * best_distance <= length)
        return best;
    const char *same = suggest_by_beginning(word, candidates, count);
    return same ? same : best;
}

void dpb_shell_quote(const char *text, struct dpb_str *out)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "@%_+=:,./-";
    const char *part = text;

    if (text[0] && strspn(text, safe) == strlen(text)) {
        dpb_str_append(out, text);
        return;
    }
    dpb_str_append(out, "'");
    while (*part) {
        size_t plain = strcspn(part, "'");

        dpb_str_append_bytes(out, part, plain);
        part += plain;
        if (*part == '\'') {
            dpb_str_append(out, "'\\''");
            part++;
        }
    }
    dpb_str_append(out, "'");
}
