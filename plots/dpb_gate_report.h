/* dpb_gate_report.h: what a gate decided, for people and for CI systems. Worst first everywhere. */
#ifndef DPB_GATE_REPORT_H
#define DPB_GATE_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "dpb_gate_compare.h"
#include "dpb_status.h"
#include "dpb_str.h"
#include "dpb_targets.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Either may be NULL: no baseline was compared with, or no targets were set. All borrowed. */
struct dpb_gate_outcome {
    const struct dpb_gate_report *report;
    const struct dpb_evidence_table *evidence;
    enum dpb_verdict verdict; /* over both, after --inconclusive */
    bool inconclusive_fails;  /* --inconclusive fail: CI systems are shown what ends the gate */
};

#define DPB_GATE_VALUE_BYTES 64
/* A metric's value with its unit as reports show it: "12.3 ms", "4.5 MiB", "0.93"; "-" for NaN. */
void dpb_gate_value_text(double value, const char *unit, char text[DPB_GATE_VALUE_BYTES]);

/* Tables and notes for a terminal; `width` 0: the terminal's. */
dpb_status dpb_gate_print(const struct dpb_gate_outcome *outcome, FILE *out, int width);

#define DPB_GATE_MARKDOWN_BYTES 65536 /* what a comment on GitHub may have */
/* Markdown of at most `most_bytes`; rows that do not fit are counted. */
dpb_status dpb_gate_markdown(const struct dpb_gate_outcome *outcome, size_t most_bytes,
                             struct dpb_str *out);

/* JUnit XML: a test case per cell and metric, and per target and cell. FAIL is <failure>, ERROR and
 * REFUSED are <error>, INCONCLUSIVE is <skipped>, or <failure> where it fails the gate; advisory
 * ones never fail. */
dpb_status dpb_gate_junit(const struct dpb_gate_outcome *outcome, struct dpb_str *out);

/* GitHub's workflow commands: at most 10 ::error and 10 ::warning lines, the last of either says
 * how many more there are. */
dpb_status dpb_gate_github(const struct dpb_gate_outcome *outcome, struct dpb_str *out);

/* Prometheus' text exposition format. */
dpb_status dpb_gate_prometheus(const struct dpb_gate_outcome *outcome, struct dpb_str *out);

#ifdef __cplusplus
}
#endif
#endif
