#include "svg_inline.h"

#include <string.h>

/* What is replaced inside tags; NULL: by nothing. %d in a replacement is the plot's number. */
static const struct {
    const char *from, *to;
} replacements[] = {
        {"id='gp", "id='p%d-gp"},
        {"xlink:href='#gp", "href='#p%d-gp"},
        {"id=\"gnuplot", "id=\"p%d-gnuplot"},
        {"id='textbox'", "id='p%d-textbox'"},
        {"id='greybox'", "id='p%d-greybox'"},
        {"fill=\"#ffffff\"", "fill=\"none\""},
        {"color='#FFFFFF'", "visibility='hidden'"}, /* the blank that it puts behind error bars */
        {"fill=\"black\"", "fill=\"currentColor\""},
        {" color=\"black\"", ""},
        {"stroke='black'", "stroke='currentColor'"},
        {"stroke=\"black\"", "stroke=\"currentColor\""},
        {"xmlns:xlink=\"http://www.w3.org/1999/xlink\"", ""},
};

/* One tag, "<...>" of `length` bytes. */
static void append_tag(const char *tag, size_t length, int number, struct dpb_str *out)
{
    size_t at = 0, i;

    while (at < length) {
        for (i = 0; i < sizeof(replacements) / sizeof(replacements[0]); i++) {
            size_t from_length = strlen(replacements[i].from);

            if (from_length <= length - at &&
                strncmp(tag + at, replacements[i].from, from_length) == 0)
                break;
        }
        if (i < sizeof(replacements) / sizeof(replacements[0])) {
            const char *to = replacements[i].to;
            const char *place = strstr(to, "%d");

            if (place) {
                dpb_str_append_bytes(out, to, (size_t)(place - to));
                dpb_str_appendf(out, "%d%s", number, place + 2);
            } else {
                dpb_str_append(out, to);
            }
            at += strlen(replacements[i].from);
        } else {
            dpb_str_append_bytes(out, tag + at, 1);
            at++;
        }
    }
}

void dpb_svg_inline(const char *svg, int number, struct dpb_str *out)
{
    const char *p = strstr(svg, "<svg");

    while (p && *p) {
        const char *end = *p == '<' ? strchr(p, '>') : strchr(p, '<');

        if (*p == '<' && end) {
            append_tag(p, (size_t)(end + 1 - p), number, out);
            p = end + 1;
        } else {
            size_t length = end ? (size_t)(end - p) : strlen(p);

            dpb_str_append_bytes(out, p, length);
            p += length;
        }
    }
}
