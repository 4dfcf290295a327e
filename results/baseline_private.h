/* baseline_private.h: between one baseline's file and the store. */
#ifndef BASELINE_PRIVATE_H
#define BASELINE_PRIVATE_H

#include "dpb_baseline.h"

dpb_json *baseline_content(const struct dpb_gate_set *set, const struct dpb_baseline_about *about);
dpb_status baseline_hash(const dpb_json *content, char sha256[DPB_SHA256_TEXT_BYTES]);
/* Parse a file and check its schema and hash; logged. Caller owns `root`. */
dpb_status baseline_load(const char *path, dpb_json **root);
void baseline_about(const dpb_json *root, struct dpb_baseline_about *about);
double baseline_age_days(const char *date);

/* Where `path` is an anchor of a store with decisions, it must be what the last one made it. */
dpb_status baseline_check_anchor(const char *path, const struct dpb_baseline_about *about);

#endif
