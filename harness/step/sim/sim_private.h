/* sim_private.h: what the files of the simulated step share. */
#ifndef DPB_SIM_PRIVATE_H
#define DPB_SIM_PRIVATE_H

#include "dpb_sim_comm.h"
#include "dpb_sim_device.h"
#include "dpb_sim_step.h"
#include "optimizer.h"

#define SIM_BUFFERS_MAX 16
#define SIM_HANDLES_MAX 1024

struct sim_handle {
    dpb_request *request; /* NULL: this handle is free */
    const char *name;
    int unit;
    int64_t bytes;
};

/* tick() on virtual time. */
struct sim_ticker {
    bool is_active, is_inside;
    double now_ns;  /* inside: what time it is for tick() */
    double next_ns; /* when it wants to be called */
    dpb_status status;
};

struct dpb_sim_step {
    struct dpb_sim_step_config config;
    dpb_timeline *timeline;
    struct dpb_device_sim_options device_options;
    struct dpb_comm_sim_options comm_options;
    dpb_device *device;
    dpb_comm *comm;
    struct dpb_launcher launcher;
    dpb_recorder *recorder_none;
    dpb_strategy *strategy;
    unsigned strategy_flags;

    /* Addresses; there is nothing behind them. */
    float *params, *micro_gradients, *state;
    char *gradients;
    float **param, **grad; /* where they are now */
    void *buffer[SIM_BUFFERS_MAX];
    int buffer_count;
    bool is_placing;

    struct dpb_unit_plan plans[2];
    int current;
    bool is_rebuilt; /* the strategy has planned anew */
    struct dpb_update *update;
    int update_count; /* -1: every parameter, whole */

    struct sim_handle handle[SIM_HANDLES_MAX];
    int under_way;
    struct sim_ticker ticker;
    int64_t steps_done;
    int64_t micro_batch;
    int *unit_ready;
    int64_t wire_bytes, collectives; /* so far */
};

struct dpb_sync_services sim_services(struct dpb_sim_step *sim);
dpb_status sim_place(struct dpb_sim_step *sim);
void sim_free_buffers(struct dpb_sim_step *sim);

/* What time it is for the code that runs: inside tick() the ticker's, else the watched rank's. */
double sim_now_ns(void *ctx);
void sim_wait_until(void *ctx, double until_ns);

/* Ticks from now on; those that are due by `until_ns`; no more. */
void sim_ticks_begin(struct dpb_sim_step *sim);
dpb_status sim_ticks_run(struct dpb_sim_step *sim, double until_ns);
dpb_status sim_ticks_end(struct dpb_sim_step *sim);

#endif
