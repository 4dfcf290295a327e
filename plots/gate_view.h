/* gate_view.h (private): how a gate's numbers look everywhere. */
#ifndef DPB_GATE_VIEW_H
#define DPB_GATE_VIEW_H

#include "dpb_gate_report.h"

#define GATE_VIEW_BYTES DPB_GATE_VALUE_BYTES

struct gate_view_finding {
    const char *metric; /* "(cell)" for the cell as a whole */
    char baseline[GATE_VIEW_BYTES], candidate[GATE_VIEW_BYTES];
    char change[GATE_VIEW_BYTES];   /* "+2.3 %", of the metric as it is */
    char interval[GATE_VIEW_BYTES]; /* "[+1.1 %, +3.5 %]" */
    char margin[GATE_VIEW_BYTES];
    char p[GATE_VIEW_BYTES];   /* after correction */
    char mde[GATE_VIEW_BYTES]; /* beyond the margin */
    char runs[GATE_VIEW_BYTES];
};
void gate_view_finding(const struct dpb_gate_finding *finding, struct gate_view_finding *view);

/* Which of the two efficiencies a gate's is; whoever shows one says so. */
#define GATE_VIEW_EFFICIENCY                                                                       \
    "Efficiency here is the mean over runs, run i over run i of the cell with the fewest ranks, "  \
    "without the gate's warm-up; the report's takes all timed steps together."
bool gate_view_has_efficiency(const struct dpb_evidence_table *table);

/* "[0.91, 0.95]" of evidence, "-" when there is none */
void gate_view_bounds(const struct dpb_evidence *evidence, char text[GATE_VIEW_BYTES]);
/* "PASS", "FAIL (advisory)" */
const char *gate_view_verdict(const struct dpb_gate_finding *finding);

#endif
