/* A document as Markdown (CommonMark with GitHub's tables). */
#include "document.h"

#include <ctype.h>
#include <string.h>

/* Text that shows as it is, on one line. An underscore inside a word is safe and stays readable. */
static void append_escaped(struct dpb_str *out, const char *text)
{
    const char *p;

    for (p = text; *p; p++) {
        unsigned char before = p > text ? (unsigned char)p[-1] : ' ';
        bool in_word = isalnum(before) && isalnum((unsigned char)p[1]);

        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            dpb_str_append(out, " ");
        else if (*p == '&')
            dpb_str_append(out, "&amp;");
        else if (*p == '<')
            dpb_str_append(out, "&lt;");
        else if (*p == '>')
            dpb_str_append(out, "&gt;");
        else if (strchr("\\`*[]|~#", *p) || (*p == '_' && !in_word))
            dpb_str_appendf(out, "\\%c", *p);
        else
            dpb_str_append_bytes(out, p, 1);
    }
}

static void append_table(struct dpb_str *out, const struct dpb_block *block)
{
    size_t columns = block->column_count, c;

    for (c = 0; c < block->cell_count; c++) {
        dpb_str_append(out, "| ");
        append_escaped(out, block->cells[c]);
        dpb_str_append(out, (c + 1) % columns == 0 ? " |\n" : " ");
        if (c + 1 == columns) {
            size_t i;

            for (i = 0; i < columns; i++)
                dpb_str_append(out, i < block->text_columns ? "|---" : "|---:");
            dpb_str_append(out, "|\n");
        }
    }
}

/* Lines of code must not end the block they are in. */
static void append_code(struct dpb_str *out, const struct dpb_block *block)
{
    size_t c;

    for (c = 0; c < block->cell_count; c++) {
        const char *p;

        dpb_str_append(out, "    ");
        for (p = block->cells[c]; *p; p++)
            dpb_str_append_bytes(out, (unsigned char)*p < 0x20 ? " " : p, 1);
        dpb_str_append(out, "\n");
    }
}

static void append_block(struct dpb_str *out, const struct dpb_block *block)
{
    size_t c;

    switch (block->kind) {
    case DPB_BLOCK_HEADING:
        dpb_str_append(out, &"###"[3 - block->level]);
        dpb_str_append(out, " ");
        append_escaped(out, block->text);
        break;
    case DPB_BLOCK_LEAD:
        dpb_str_append(out, "**");
        append_escaped(out, block->text);
        dpb_str_append(out, "**");
        break;
    case DPB_BLOCK_PARAGRAPH:
        append_escaped(out, block->text);
        break;
    case DPB_BLOCK_LIST:
        for (c = 0; c < block->cell_count; c++) {
            dpb_str_append(out, c ? "\n- " : "- ");
            append_escaped(out, block->cells[c]);
        }
        break;
    case DPB_BLOCK_TABLE:
        append_table(out, block);
        break;
    case DPB_BLOCK_CODE:
        append_code(out, block);
        break;
    case DPB_BLOCK_FIGURE:
        dpb_str_append(out, "![");
        append_escaped(out, block->text);
        dpb_str_appendf(out, "](%s)\n\n", block->target);
        append_escaped(out, block->text);
        break;
    case DPB_BLOCK_LINK:
        dpb_str_append(out, "[");
        append_escaped(out, block->text);
        dpb_str_appendf(out, "](%s)", block->target);
        break;
    }
    dpb_str_append(out, "\n\n");
}

void dpb_document_markdown(const struct dpb_document *document, struct dpb_str *out)
{
    size_t i;

    for (i = 0; i < document->count; i++)
        append_block(out, &document->blocks[i]);
    /* one newline at the end */
    if (out->length > 1 && !out->failed)
        out->text[--out->length] = '\0';
}
