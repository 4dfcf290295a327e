/* comm_bench_sim.h: collectives on device "sim": their times on the network of a machine profile.
 * Nothing is run. */
#ifndef COMM_BENCH_SIM_H
#define COMM_BENCH_SIM_H

#include <stdint.h>

#include "comm_bench_rank.h"
#include "dpb_comm_bench.h"
#include "dpb_network.h"

#define COMM_SIM_RANKS_MAX 65536

/* The option table of device "sim" in this command, and its struct. */
struct comm_sim_options {
    char machine[DPB_OPTION_TEXT_BYTES];
    char set[DPB_OPTION_TEXT_BYTES]; /* figures of all machines that are replaced */
};
extern const struct dpb_option_table comm_sim_option_table;

/* The machines of all launches, each opened once. Zero-initialise but for `machines`. */
struct comm_sim {
    const struct dpb_comm_bench_machines *machines;
    struct comm_sim_machine {
        char *name;
        void *machine;
        const struct dpb_network *network;
        /* Of every figure that is set, the machine as it would be without that. */
        struct comm_sim_without {
            char *figure; /* "inside.rate=600GB/s" */
            void *machine;
            const struct dpb_network *network;
        } * without;
        size_t without_count;
    } * items;
    size_t count;
};

bool comm_sim_is_device(const char *device);
/* Of the options that every launch has: does a launch on device "sim" heed it? */
bool comm_sim_heeds(const char *option);

/* DPB_ERR_USAGE, logged: no machine given, or none of that name, or mistakes in its file or in what
 * is set. */
dpb_status comm_sim_open(struct comm_sim *sim, const struct comm_sim_options *options,
                         const struct comm_sim_machine **machine);
void comm_sim_release(struct comm_sim *sim);

/* Are there links for so many ranks? DPB_ERR_USAGE, logged. */
dpb_status comm_sim_check(const struct comm_sim_machine *machine, int64_t ranks);

/* Time, rates, origin and warnings of a row into its record. */
dpb_status comm_sim_put(const struct comm_sim_machine *machine, const struct comm_row *row,
                        int64_t ranks, dpb_json *record);

#endif
