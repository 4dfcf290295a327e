/* A document as one HTML file that needs nothing else: style and plots are inside, no scripts. */
#include "document.h"

#include <stdlib.h>
#include <string.h>

#include "report_style.h"
#include "svg_inline.h"

#define SHORT_TEXT 40

static void append_escaped(struct dpb_str *out, const char *text)
{
    const char *p;

    for (p = text; *p; p++) {
        switch (*p) {
        case '&':
            dpb_str_append(out, "&amp;");
            break;
        case '<':
            dpb_str_append(out, "&lt;");
            break;
        case '>':
            dpb_str_append(out, "&gt;");
            break;
        case '"':
            dpb_str_append(out, "&quot;");
            break;
        case '\'':
            dpb_str_append(out, "&#39;");
            break;
        default:
            dpb_str_append_bytes(out, (unsigned char)*p < 0x20 || *p == 0x7f ? " " : p, 1);
        }
    }
}

static void append_element(struct dpb_str *out, const char *open, const char *text,
                           const char *close)
{
    dpb_str_append(out, open);
    append_escaped(out, text);
    dpb_str_append(out, close);
}

static void append_table(struct dpb_str *out, const struct dpb_block *block)
{
    size_t columns = block->column_count, c;

    dpb_str_append(out, "<div class=\"scroll\"><table>\n");
    for (c = 0; c < block->cell_count; c++) {
        bool is_text = c % columns < block->text_columns;
        /* a short text stays on one line, so that rows stay low */
        const char *class = !is_text                                                ? " class=\"n\""
                            : c >= columns && strlen(block->cells[c]) <= SHORT_TEXT ? " class=\"s\""
                                                                                    : "";
        const char *tag = c < columns ? "th" : "td";

        if (c == 0)
            dpb_str_append(out, "<thead>");
        if (c == columns)
            dpb_str_append(out, "<tbody>\n");
        if (c % columns == 0)
            dpb_str_append(out, "<tr>");
        dpb_str_appendf(out, "<%s%s>", tag, class);
        append_escaped(out, block->cells[c]);
        dpb_str_appendf(out, "</%s>", tag);
        if ((c + 1) % columns == 0)
            dpb_str_append(out, "</tr>\n");
        if (c + 1 == columns)
            dpb_str_append(out, "</thead>\n");
    }
    dpb_str_append(out,
                   block->cell_count > columns ? "</tbody></table></div>\n" : "</table></div>\n");
}

static dpb_status append_figure(struct dpb_str *out, const struct dpb_block *block,
                                const char *folder, int number)
{
    char *path = dpb_path_join(folder, block->target);
    struct dpb_str svg = {0};
    dpb_status st = path ? dpb_file_read(path, &svg) : DPB_ERR_NO_MEMORY;

    if (st == DPB_OK) {
        dpb_str_append(out, "<figure>\n");
        dpb_svg_inline(svg.text, number, out);
        append_element(out, "<figcaption>", block->text, "</figcaption>\n</figure>\n");
    }
    dpb_str_release(&svg);
    free(path);
    return st;
}

static dpb_status append_block(struct dpb_str *out, const struct dpb_block *block,
                               const char *folder, int number)
{
    size_t c;

    switch (block->kind) {
    case DPB_BLOCK_HEADING:
        dpb_str_appendf(out, "<h%d>", block->level);
        append_escaped(out, block->text);
        dpb_str_appendf(out, "</h%d>\n", block->level);
        break;
    case DPB_BLOCK_LEAD:
        append_element(out, "<p class=\"lead\">", block->text, "</p>\n");
        break;
    case DPB_BLOCK_PARAGRAPH:
        append_element(out, "<p>", block->text, "</p>\n");
        break;
    case DPB_BLOCK_LIST:
        dpb_str_append(out, "<ul>\n");
        for (c = 0; c < block->cell_count; c++)
            append_element(out, "<li>", block->cells[c], "</li>\n");
        dpb_str_append(out, "</ul>\n");
        break;
    case DPB_BLOCK_TABLE:
        append_table(out, block);
        break;
    case DPB_BLOCK_CODE:
        dpb_str_append(out, "<pre>");
        for (c = 0; c < block->cell_count; c++)
            append_element(out, "", block->cells[c], "\n");
        dpb_str_append(out, "</pre>\n");
        break;
    case DPB_BLOCK_FIGURE:
        return append_figure(out, block, folder, number);
    case DPB_BLOCK_LINK:
        append_element(out, "<p><a href=\"", block->target, "\">");
        append_element(out, "", block->text, "</a></p>\n");
        break;
    }
    return DPB_OK;
}

dpb_status dpb_document_html(const struct dpb_document *document, const char *title,
                             const char *folder, struct dpb_str *out)
{
    size_t i;

    dpb_str_append(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                        "<meta name=\"color-scheme\" content=\"light dark\">\n");
    append_element(out, "<title>", title, "</title>\n");
    dpb_str_appendf(out, "<style>\n%s</style>\n</head>\n<body>\n<main>\n", dpb_report_style);
    for (i = 0; i < document->count; i++)
        DPB_TRY(append_block(out, &document->blocks[i], folder, (int)i));
    dpb_str_append(out, "</main>\n</body>\n</html>\n");
    return out->failed ? DPB_ERR_NO_MEMORY : DPB_OK;
}
