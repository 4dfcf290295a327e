/* content.h (private): what a report says, as a document. */
#ifndef DPB_CONTENT_H
#define DPB_CONTENT_H

#include "document.h"
#include "dpb_json.h"
#include "dpb_report.h"
#include "dpb_targets.h"
#include "dpb_summary.h"
#include "plot.h"

/* Answer first, then how it was obtained, tables, plots, training, failures, notes, how to repeat
 * it, definitions, environment. */
void dpb_content_build(const struct dpb_summary *summary, const struct dpb_report_config *config,
                       const struct dpb_plot_list *plots, const dpb_json *notes,
                       struct dpb_document *document);

/* Its tables, in content_tables.c. */
void dpb_content_results(const struct dpb_summary *summary, struct dpb_document *document);
void dpb_content_overlap(const struct dpb_summary *summary, struct dpb_document *document);
/* In content_targets.c: which targets are kept, and what shows it; NULL: none were set. */
void dpb_content_targets(const struct dpb_evidence_table *table, struct dpb_document *document);
/* In content_strategies.c: strategies from the fastest to the slowest, and why. */
void dpb_content_strategies(const struct dpb_summary *summary, struct dpb_document *document);
/* In content_tuning.c: what a strategy's autotuning has tried. */
void dpb_content_tuning(const struct dpb_summary *summary, struct dpb_document *document);
/* In content_simulated.c: what simulated cells stand on, and how far off they are. */
void dpb_content_simulated(const struct dpb_summary *summary, struct dpb_document *document);
/* Appends the machine profiles that all cells stand on, up to the host they were simulated on. */
void dpb_content_simulated_machine(const struct dpb_summary *summary, struct dpb_str *out);
/* In content_nodes.c: bytes inside and between nodes, and whom the others waited for. */
void dpb_content_nodes(const struct dpb_summary *summary, struct dpb_document *document);
void dpb_content_breakdown(const struct dpb_summary *summary, struct dpb_document *document);
void dpb_content_link(const struct dpb_summary *summary, struct dpb_document *document);
void dpb_content_spread(const struct dpb_summary *summary, struct dpb_document *document);
void dpb_content_training(const struct dpb_summary *summary, struct dpb_document *document);
void dpb_content_memory(const struct dpb_summary *summary, struct dpb_document *document);
void dpb_content_failures(const struct dpb_summary *summary, struct dpb_document *document);
/* Every scalar below `value` as a row "key/key", text. */
void dpb_content_flatten(const dpb_json *value, const char *prefix, struct dpb_document *document);

#endif
