#include "kernel_name.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A part of a name; not terminated. */
struct part {
    const char *text;
    size_t length;
};

static bool contains(const char *name, const char *word)
{
    const size_t length = strlen(word);

    for (; *name; name++) {
        if (strncasecmp(name, word, length) == 0)
            return true;
    }
    return false;
}

bool kernel_name_is_comm(const char *name)
{
    /* NCCL and its kernel of a single rank, RCCL, and those that frameworks write themselves. */
    static const char *const words[] = {"nccl", "rccl", "oneRankReduce", "cross_device_reduce",
                                        "multimem_all_reduce"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (contains(name, words[i]))
            return true;
    }
    return false;
}

static bool is_wrapper(const struct part *part)
{
    static const char *const wrappers[] = {"Kernel", "Kernel2", "device_kernel"};

    for (size_t i = 0; i < sizeof(wrappers) / sizeof(wrappers[0]); i++) {
        if (strlen(wrappers[i]) == part->length &&
            memcmp(wrappers[i], part->text, part->length) == 0)
            return true;
    }
    return false;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

/* <source-name>: its length in decimal, then its bytes. What follows it; NULL: it is none. */
static const char *source_name(const char *at, struct part *part)
{
    size_t length = 0;

    if (!isdigit((unsigned char)*at))
        return NULL;
    for (; isdigit((unsigned char)*at); at++) {
        length = length * 10 + (size_t)(*at - '0');
        if (length > 4096)
            return NULL;
    }
    if (strnlen(at, length) < length)
        return NULL;
    *part = (struct part){at, length};
    return at + length;
}

/* The last name of <nested-name> or <unscoped-name> before its template arguments, with `argument`
 * the first name among them. What a full demangler would say of substitutions does not matter. */
static bool find_mangled(const char *name, struct part *own, struct part *argument)
{
    const char *at = name + 2;
    const char *after;

    *own = *argument = (struct part){NULL, 0};
    while (*at && strchr("NLKVr", *at))
        at++;
    if (at[0] == 'S' && at[1] == 't')
        at += 2;
    while ((after = source_name(at, own)) != NULL) {
        at = after;
        while (*at == 'L') /* internal linkage of the next one */
            at++;
    }
    if (*at == 'I') {
        at++;
        while (*at && strchr("NLKV", *at))
            at++;
        while ((after = source_name(at, argument)) != NULL)
            at = after;
    }
    return own->text != NULL;
}

/* In "void a::b<c, d>(e)": b, with `argument` c. Not in brackets, back from the first "(" or the
 * end; operators of a class have no place among kernels. */
static bool find_demangled(const char *name, struct part *own, struct part *argument)
{
    const char *begin = name;
    const char *end = NULL;
    int depth = 0;

    *argument = (struct part){NULL, 0};
    for (const char *at = name; *at; at++) {
        if (*at == '<' && depth++ == 0) {
            end = at;
            *argument = (struct part){at + 1, strcspn(at + 1, "<>,( ")};
        } else if (*at == '>' && depth > 0) {
            depth--;
        } else if (depth == 0 && *at == '(') {
            if (strncmp(at, "(anonymous namespace)", 21) != 0) {
                end = end ? end : at;
                break;
            }
            at += 20;
        } else if (depth == 0 && (*at == ' ' || (at[0] == ':' && at[1] == ':'))) {
            begin = *at == ':' ? at + 2 : at + 1;
            at = begin - 1;
            end = NULL;
            *argument = (struct part){NULL, 0};
        }
    }
    if (!end)
        end = begin + strlen(begin);
    *own = (struct part){begin, (size_t)(end - begin)};
    for (size_t i = 0; i < own->length; i++) {
        if (!is_word(begin[i]))
            return false;
    }
    return own->length > 0;
}

/* "a::b::c": c. */
static void last_of_path(struct part *part)
{
    for (size_t i = part->length; i > 0; i--) {
        if (part->text[i - 1] == ':') {
            part->text += i;
            part->length -= i;
            return;
        }
    }
}

void kernel_name_shorten(const char *name, char *text, size_t bytes)
{
    struct part own, argument;
    const bool found = strncmp(name, "_Z", 2) == 0 ? find_mangled(name, &own, &argument)
                                                   : find_demangled(name, &own, &argument);

    if (!found) {
        snprintf(text, bytes, "%s", name);
        return;
    }
    if (is_wrapper(&own) && argument.length > 0) {
        own = argument;
        last_of_path(&own);
    }
    snprintf(text, bytes, "%.*s", (int)own.length, own.text);
}
