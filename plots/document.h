/* document.h (private): a report as a list of blocks, so that Markdown and HTML say the same.
 *
 * Texts are plain: whoever writes the document out escapes them. Building fails only for lack of
 * memory, which sets `failed` and is checked once, at the end. */
#ifndef DPB_DOCUMENT_H
#define DPB_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "dpb_status.h"
#include "dpb_str.h"

enum dpb_block_kind {
    DPB_BLOCK_HEADING, /* text; level 1 to 3 */
    DPB_BLOCK_LEAD,    /* text: the answer, set off from the rest */
    DPB_BLOCK_PARAGRAPH,
    DPB_BLOCK_LIST,   /* one item per cell */
    DPB_BLOCK_TABLE,  /* `column_count` headers, then rows, in `cells` */
    DPB_BLOCK_CODE,   /* one line per cell */
    DPB_BLOCK_FIGURE, /* text: caption; target: the SVG's path relative to the document */
    DPB_BLOCK_LINK    /* text; target: relative path */
};

struct dpb_block {
    enum dpb_block_kind kind;
    int level;
    char *text, *target;
    char **cells;
    size_t cell_count, cell_capacity;
    size_t column_count;
    size_t text_columns; /* the first ones, left aligned; the others are numbers */
};

struct dpb_document {
    struct dpb_block *blocks;
    size_t count, capacity;
    bool failed;
};

void dpb_document_heading(struct dpb_document *document, int level, const char *text);
void dpb_document_lead(struct dpb_document *document, const char *text);
void dpb_document_paragraph(struct dpb_document *document, const char *text);
void dpb_document_figure(struct dpb_document *document, const char *target, const char *caption);
void dpb_document_link(struct dpb_document *document, const char *target, const char *text);
/* Begin a list, a block of code, or a table; then add cells, for a table headers first, row by row.
 */
void dpb_document_list(struct dpb_document *document);
void dpb_document_code(struct dpb_document *document);
void dpb_document_table(struct dpb_document *document, size_t column_count, size_t text_columns);
void dpb_document_cell(struct dpb_document *document, const char *text);
/* Take the text of `cell` as the next cell and release it. */
void dpb_document_take(struct dpb_document *document, struct dpb_str *cell);
void dpb_document_release(struct dpb_document *document);

/* Append the document; `folder` is where the SVG files of the figures are looked for. */
void dpb_document_markdown(const struct dpb_document *document, struct dpb_str *out);
dpb_status dpb_document_html(const struct dpb_document *document, const char *title,
                             const char *folder, struct dpb_str *out);

#endif
