#include "document.h"

#include <stdlib.h>
#include <string.h>

static char *copy_text(struct dpb_document *document, const char *text)
{
    char *copy = strdup(text);

    if (!copy)
        document->failed = true;
    return copy;
}

static struct dpb_block *add_block(struct dpb_document *document, enum dpb_block_kind kind)
{
    struct dpb_block *block;

    if (document->count == document->capacity) {
        size_t capacity = document->capacity ? 2 * document->capacity : 32;
        struct dpb_block *blocks = realloc(document->blocks, capacity * sizeof(*blocks));

        if (!blocks) {
            document->failed = true;
            return NULL;
        }
        document->blocks = blocks;
        document->capacity = capacity;
    }
    block = &document->blocks[document->count++];
    *block = (struct dpb_block){.kind = kind};
    return block;
}

static struct dpb_block *add_text(struct dpb_document *document, enum dpb_block_kind kind,
                                  const char *text)
{
    struct dpb_block *block = add_block(document, kind);

    if (block)
        block->text = copy_text(document, text);
    return block;
}

void dpb_document_heading(struct dpb_document *document, int level, const char *text)
{
    struct dpb_block *block = add_text(document, DPB_BLOCK_HEADING, text);

    if (block)
        block->level = level;
}

void dpb_document_lead(struct dpb_document *document, const char *text)
{
    add_text(document, DPB_BLOCK_LEAD, text);
}

void dpb_document_paragraph(struct dpb_document *document, const char *text)
{
    add_text(document, DPB_BLOCK_PARAGRAPH, text);
}

static void add_target(struct dpb_document *document, enum dpb_block_kind kind, const char *target,
                       const char *text)
{
    struct dpb_block *block = add_text(document, kind, text);

    if (block)
        block->target = copy_text(document, target);
}

void dpb_document_figure(struct dpb_document *document, const char *target, const char *caption)
{
    add_target(document, DPB_BLOCK_FIGURE, target, caption);
}

void dpb_document_link(struct dpb_document *document, const char *target, const char *text)
{
    add_target(document, DPB_BLOCK_LINK, target, text);
}

void dpb_document_list(struct dpb_document *document)
{
    add_block(document, DPB_BLOCK_LIST);
}

void dpb_document_code(struct dpb_document *document)
{
    add_block(document, DPB_BLOCK_CODE);
}

void dpb_document_table(struct dpb_document *document, size_t column_count, size_t text_columns)
{
    struct dpb_block *block = add_block(document, DPB_BLOCK_TABLE);

    if (block) {
        block->column_count = column_count;
        block->text_columns = text_columns;
    }
}

void dpb_document_cell(struct dpb_document *document, const char *text)
{
    struct dpb_block *block;

    if (document->failed || document->count == 0)
        return;
    block = &document->blocks[document->count - 1];
    if (block->cell_count == block->cell_capacity) {
        size_t capacity = block->cell_capacity ? 2 * block->cell_capacity : 32;
        char **cells = realloc(block->cells, capacity * sizeof(*cells));

        if (!cells) {
            document->failed = true;
            return;
        }
        block->cells = cells;
        block->cell_capacity = capacity;
    }
    block->cells[block->cell_count] = copy_text(document, text);
    if (block->cells[block->cell_count])
        block->cell_count++;
}

void dpb_document_take(struct dpb_document *document, struct dpb_str *cell)
{
    if (cell->failed)
        document->failed = true;
    dpb_document_cell(document, cell->length ? cell->text : "");
    dpb_str_release(cell);
}

void dpb_document_release(struct dpb_document *document)
{
    size_t i, c;

    for (i = 0; i < document->count; i++) {
        struct dpb_block *block = &document->blocks[i];

        for (c = 0; c < block->cell_count; c++)
            free(block->cells[c]);
        free(block->cells);
        free(block->text);
        free(block->target);
    }
    free(document->blocks);
    *document = (struct dpb_document){0};
}
