/* dpb_claim.h: what a process says about itself before it gets a place (struct dpb_world_claim). */
#ifndef DPB_CLAIM_H
#define DPB_CLAIM_H

#include "dpb_json.h"
#include "dpb_status.h"
#include "dpb_world.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of this process: rank and size as its launcher said (dpb_launched_find()), its host, machine,
 * name spaces, pid and the hash of its binary; `settings` is left empty, and so is what this system
 * does not tell. DPB_ERR_MISMATCH, logged, when launchers contradict each other. */
dpb_status dpb_claim_self(struct dpb_world_claim *claim);

dpb_json *dpb_claim_to_json(const struct dpb_world_claim *claim); /* caller owns */
/* Texts that are too long are cut, numbers that are missing are -1. */
void dpb_claim_from_json(const dpb_json *json, struct dpb_world_claim *claim);

#ifdef __cplusplus
}
#endif
#endif
