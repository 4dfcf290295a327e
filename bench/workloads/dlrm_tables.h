/* dlrm_tables.h: embedding tables that are not parameters: a network exchanges their rows, or the
 * rows' gradients, itself, and updates the rows that a batch used.
 *
 * Sharded (Naumov et al. 2019, section 4): a table is on one rank. Ranks send the row numbers of
 * their samples to the tables' owners (all-to-all), who look the rows up and send them back
 * (all-to-all, under way while the bottom MLP computes); gradients go the same way to the owners
 * (under way while the bottom MLP goes backward).
 * Sparse: every table is on every rank, and ranks gather (number, gradient) pairs of all of them,
 * as Horovod does with sparse gradients.
 *
 * With P ranks, B = ceil(global batch / P), S table slots of a rank (sharded: ceil(tables / P);
 * sparse: all tables) and rows of D elements, a rank sends, padding included:
 *   sharded  4 (P - 1) (1 + S B) bytes of numbers forward; 4 (P - 1) S B D bytes of rows forward,
 *            and the same of gradients backward
 *   sparse   4 (P - 1) (1 + S B) bytes of numbers and 4 (P - 1) S B D of gradients backward, when
 *            an all-gather hands every rank's part round once */
#ifndef BENCH_DLRM_TABLES_H
#define BENCH_DLRM_TABLES_H

#include "dlrm_list.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_dlrm_tables;

/* What dpb_dlrm_tables_open() allocates: this rank's tables, the optimizer's state of their rows,
 * the memory of exchanges. */
int64_t dpb_dlrm_tables_bytes_for(const struct dpb_dlrm_list *list,
                                  const struct dpb_workload_sizes *sizes);

/* The same of an accelerator's host_alloc(): the numbers as the host reads and writes them. */
int64_t dpb_dlrm_tables_host_bytes_for(const struct dpb_dlrm_list *list,
                                       const struct dpb_workload_sizes *sizes);

/* Member of dpb_workload_ops. Padding is part of what travels. */
int dpb_dlrm_tables_exchanges(const struct dpb_dlrm_list *list,
                              const struct dpb_workload_sizes *sizes,
                              struct dpb_workload_exchange *exchanges);

/* `list` must outlive the tables. DPB_ERR_USAGE, logged, for an optimizer that would change rows
 * that no sample used: there are SGD without momentum, Adagrad and row-wise Adagrad, all without
 * weight decay. `name` is the workload's. */
dpb_status dpb_dlrm_tables_open(const char *name, const struct dpb_dlrm_list *list,
                                const struct dpb_workload_config *config,
                                struct dpb_dlrm_tables **tables);
void dpb_dlrm_tables_close(struct dpb_dlrm_tables *tables);
dpb_status dpb_dlrm_tables_init(struct dpb_dlrm_tables *tables, uint64_t seed);

/* Forward, with a rank's samples, of which there may be none: between the two, rows travel.
 * `embedded`: [tables, samples, D]. */
dpb_status dpb_dlrm_tables_fetch(struct dpb_dlrm_tables *tables, const struct dpb_batch *batch,
                                 float *embedded);
dpb_status dpb_dlrm_tables_fetched(struct dpb_dlrm_tables *tables, float *embedded);

/* Backward, for the batch of the last forward: between the two, gradients travel. They are those of
 * P times the mean over the global batch, as backward() gets them: the sum over all ranks is
 * divided by P. */
dpb_status dpb_dlrm_tables_send(struct dpb_dlrm_tables *tables, const float *embedded_grad);
dpb_status dpb_dlrm_tables_sent(struct dpb_dlrm_tables *tables);

/* Members of dpb_workload_ops. Gradients of a row that occurs several times are summed first, in
 * the order of ranks and samples. */
dpb_status dpb_dlrm_tables_update(struct dpb_dlrm_tables *tables,
                                  const struct dpb_optimizer_config *optimizer);
bool dpb_dlrm_tables_state(const struct dpb_dlrm_tables *tables, int index,
                           struct dpb_workload_state *state);

#ifdef __cplusplus
}
#endif
#endif
