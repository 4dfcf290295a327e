/* What the records say of the targets that were set: the evidence table. */
#include "content.h"

#include <string.h>

#include "gate_view.h"
#include "view.h"

#define HASHES_NAMED_MAX 10

static void take_hashes(const struct dpb_evidence *evidence, struct dpb_document *document)
{
    struct dpb_str text = {0};

    for (size_t i = 0; i < evidence->runs && i < HASHES_NAMED_MAX; i++)
        dpb_str_appendf(&text, "%s%.8s", i > 0 ? " " : "", evidence->hashes[i]);
    if (evidence->runs > HASHES_NAMED_MAX)
        dpb_str_appendf(&text, " and %zu more", evidence->runs - HASHES_NAMED_MAX);
    if (text.length == 0)
        dpb_str_append(&text, DPB_VIEW_ABSENT);
    dpb_document_take(document, &text);
}

static void add_row(const struct dpb_evidence *evidence, struct dpb_document *document)
{
    char found[GATE_VIEW_BYTES], bounds[GATE_VIEW_BYTES];

    dpb_gate_value_text(evidence->found, evidence->target->unit, found);
    gate_view_bounds(evidence, bounds);
    dpb_document_cell(document, dpb_verdict_text(evidence->verdict));
    dpb_document_cell(document, evidence->target->name);
    dpb_document_cell(document, evidence->target->text);
    dpb_document_cell(document, evidence->cell);
    dpb_document_cell(document, evidence->how[0] ? evidence->how : DPB_VIEW_ABSENT);
    take_hashes(evidence, document);
    dpb_document_cell(document, found);
    dpb_document_cell(document, bounds);
}

static void add_reasons(const struct dpb_evidence_table *table, struct dpb_document *document)
{
    bool any = false;

    for (size_t i = 0; i < table->count; i++) {
        const struct dpb_evidence *evidence = &table->items[i];
        struct dpb_str line = {0};

        if (!evidence->reason[0])
            continue;
        if (!any)
            dpb_document_list(document);
        any = true;
        dpb_str_appendf(&line, "%s, %s: %s: %s", evidence->cell, evidence->target->name,
                        dpb_verdict_text(evidence->verdict), evidence->reason);
        dpb_document_take(document, &line);
    }
}

void dpb_content_targets(const struct dpb_evidence_table *table, struct dpb_document *document)
{
    static const char *const columns[] = {"verdict", "target",  "limit", "cell",
                                          "how",     "records", "found", "interval"};
    struct dpb_str text = {0};

    if (!table)
        return;
    dpb_str_appendf(&text, "Targets: %s", dpb_verdict_text(table->verdict));
    dpb_document_heading(document, 2, text.failed ? "Targets" : text.text);
    dpb_str_release(&text);
    dpb_document_table(document, sizeof(columns) / sizeof(columns[0]), 6);
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
        dpb_document_cell(document, columns[i]);
    for (size_t i = 0; i < table->count; i++)
        add_row(&table->items[i], document);
    add_reasons(table, document);
    dpb_document_paragraph(document,
                           "Found is the mean over runs, the interval has one-sided bounds of it "
                           "at 95 % each: PASS when all of it keeps the limit, FAIL when all of it "
                           "breaks it, else INCONCLUSIVE. Records are named by the first digits of "
                           "the SHA-256 of their lines.");
    if (gate_view_has_efficiency(table))
        dpb_document_paragraph(document, GATE_VIEW_EFFICIENCY);
}
