/* trace_sample FILE: write a trace with all that the format has, for check_trace.py: two ranks, one
 * of them with a device, overlap in one lane, hostile names, flows, times beyond 2^53 ns, lost and
 * negative events. */
#include <stdio.h>
#include <stdlib.h>

#include "dpb_trace.h"

#define BASE_NS INT64_C(9007199254740993) /* 2^53 + 1 */
#define STEPS   3

struct sample {
    struct dpb_event events[256];
    size_t count;
    int32_t step;
    int16_t rank;
    int64_t origin_ns; /* of the step */
};

static struct dpb_event *add(struct sample *sample, enum dpb_event_kind kind, const char *name,
                             int64_t start_ns, int64_t end_ns)
{
    struct dpb_event *event = &sample->events[sample->count++];
    int is_comm = kind == DPB_EVENT_COMM || kind == DPB_EVENT_COMM_WAIT;

    *event = (struct dpb_event){
            .start_ns = sample->origin_ns + start_ns,
            .end_ns = sample->origin_ns + end_ns,
            .name = name,
            .step = sample->step,
            .bucket = -1,
            .kind = (uint8_t)kind,
            .lane = is_comm ? DPB_LANE_COMM : DPB_LANE_HOST,
            .rank = sample->rank,
    };
    return event;
}

static void add_bucket(struct sample *sample, int32_t bucket, int64_t ready_ns, int64_t start_ns,
                       int64_t end_ns)
{
    struct dpb_event *event;

    event = add(sample, DPB_EVENT_READY, "bucket ready", ready_ns, ready_ns);
    event->bucket = bucket;
    event = add(sample, DPB_EVENT_COMM, "all-reduce", start_ns, end_ns);
    event->bucket = bucket;
    event->bytes = INT64_C(1) << (20 + bucket);
    event = add(sample, DPB_EVENT_COMM_WAIT, "wait for peers", start_ns, start_ns + 5);
    event->bucket = bucket;
}

static void add_step(struct sample *sample)
{
    add(sample, DPB_EVENT_STEP, "step", 0, 10000);
    add(sample, DPB_EVENT_DATA, "data", 0, 1000);
    add(sample, DPB_EVENT_FORWARD, "forward", 1000, 4000);
    add(sample, DPB_EVENT_COMPUTE, "conv \"1\" \\ \b\x01\x1f\x7f\n\t Größe 🚀", 1001, 2000);
    add(sample, DPB_EVENT_COMPUTE, "cut \xe2\x82", 2000, 3999);
    add(sample, DPB_EVENT_BACKWARD, "backward", 4000, 8000);
    add(sample, DPB_EVENT_COMPUTE, "", 4000, 6000);
    add_bucket(sample, 0, 5000, 5001, 7000);
    add_bucket(sample, 1, 6000, 6001, 8500); /* overlaps the first */
    add_bucket(sample, 2, 7999, 8500, 9000);
    add(sample, DPB_EVENT_SYNC, "sync", 8000, 9000);
    add(sample, DPB_EVENT_OPTIMIZER, "optimizer", 9000, 10000);
    add(sample, DPB_EVENT_COMPUTE, "no time at all", 9500, 9500);
    add(sample, DPB_EVENT_COMPUTE, "negative", 9600, 9599);
}

static void add_on_device(struct sample *sample, enum dpb_lane lane, enum dpb_event_kind kind,
                          const char *name, int64_t start_ns, int64_t end_ns)
{
    add(sample, kind, name, start_ns, end_ns)->lane = (uint8_t)lane;
}

/* What ran on rank 1's device: two kernels of one stream that overlap, a collective's, a copy; and
 * the tracer's own time, across the host's spans. */
static void add_device(struct sample *sample)
{
    add_on_device(sample, DPB_LANE_DEVICE, DPB_EVENT_COMPUTE, "conv: sm90_gemm", 1500, 2600);
    add_on_device(sample, DPB_LANE_DEVICE, DPB_EVENT_COMPUTE, "conv: sm90_epilogue", 2500, 3000);
    add_on_device(sample, DPB_LANE_DEVICE_COMM, DPB_EVENT_COMM, "ncclDevKernel", 5100, 7000);
    add_on_device(sample, DPB_LANE_COPY, DPB_EVENT_COPY, "memcpy host to device", 100, 900);
    add_on_device(sample, DPB_LANE_HOST, DPB_EVENT_OVERHEAD, "cupti: flush", 3900, 4100);
}

int main(int argc, char **argv)
{
    const struct dpb_trace_info info = {
            .title = "sample \"trace\"",
            .world_size = 2,
            .lost = 3,
            .backend = "shm",
    };
    static struct sample sample;

    if (argc != 2) {
        fprintf(stderr, "usage: trace_sample FILE\n");
        return 2;
    }
    for (int16_t rank = 0; rank < 2; rank++) {
        for (int32_t step = 0; step < STEPS; step++) {
            sample.rank = rank;
            sample.step = step;
            sample.origin_ns = BASE_NS + step * INT64_C(10000);
            add_step(&sample);
            if (rank == 1)
                add_device(&sample);
        }
    }
    return dpb_status_exit_code(dpb_trace_write(argv[1], &info, sample.events, sample.count));
}
