/* dpb_comm_shm.h: collectives through memory that the ranks of one machine share.
 *
 * Options (table owner "shm"): algorithm (direct | ring), link (none | rate,latency). */
#ifndef DPB_COMM_SHM_H
#define DPB_COMM_SHM_H

#include "dpb_comm.h"
#include "dpb_link_model.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_comm_shm_options {
    int algorithm;        /* enum dpb_algorithm */
    struct dpb_link link; /* bw_bytes_per_s 0: no emulation */
};

extern const struct dpb_comm_ops dpb_comm_shm_ops;
extern const struct dpb_option_table dpb_comm_shm_table;

#ifdef __cplusplus
}
#endif
#endif
