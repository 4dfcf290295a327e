/* explain_notes.h (private): what a user of an explanation should know. */
#ifndef DPB_EXPLAIN_NOTES_H
#define DPB_EXPLAIN_NOTES_H

#include "dpb_explain.h"

struct explain_subject {
    const struct dpb_registry *registry;
    const dpb_config *config;
    const struct dpb_step_shape *shape;
    struct dpb_explanation *explanation; /* complete but for its notes */
};

/* Append to the explanation's notes. */
void explain_notes(const struct explain_subject *subject);

#endif
