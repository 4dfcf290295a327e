#include "sample_sweep.h"

#include <stdio.h>
#include <stdlib.h>

#define STEPS 24

void sample_add(struct dpb_records *records, const struct sample_record *sample)
{
    dpb_json **items = realloc(records->items, (records->count + 1) * sizeof(*items));

    if (!items)
        abort();
    records->items = items;
    records->items[records->count++] = sample_record_make(sample);
}

/* Lasts as long as the test: samples point into it. */
static double *spread(double step_ms, int64_t seed)
{
    static double pool[4096][STEPS];
    static size_t used;
    double *own = pool[used++ % 4096];
    int i;

    for (i = 0; i < STEPS; i++)
        own[i] = 1e6 * step_ms * (1 + 0.004 * (double)((i * 7 + seed * 5) % 9 - 4));
    return own;
}

struct sample_record sample_cell(int64_t cell, int ranks, double step_ms)
{
    static char texts[64][12];
    char *text = texts[ranks % 64];
    struct sample_record sample = sample_record_default;

    snprintf(text, sizeof(texts[0]), "%d", ranks);
    sample.cell = cell;
    sample.ranks = ranks;
    sample.global_batch = ranks * sample.batch_per_rank;
    sample.axes[0] = (struct sample_axis){"ranks", text};
    sample.samples_ns = spread(step_ms, 4);
    sample.sample_count = STEPS;
    return sample;
}

static void add_repeats(struct dpb_records *records, struct sample_record *sample, double step_ms)
{
    int64_t repeat;

    for (repeat = 0; repeat < 3; repeat++) {
        sample->repeat = repeat;
        sample->samples_ns =
                spread(step_ms * (1 + 0.01 * (double)(repeat - 1)), repeat + sample->cell);
        sample_add(records, sample);
    }
}

void sample_sweep(struct dpb_records *records, const int *ranks)
{
    static const struct {
        const char *text;
        double chunks; /* how much of the communication can overlap */
    } buckets[] = {{"64KiB", 0.55}, {"256KiB", 0.8}, {"1MiB", 0.7}, {"4MiB", 0.2}};
    static char series[64][80];
    struct sample_record sample = sample_cell(0, 1, 40);
    int64_t cell = 1;
    size_t r, b, on;

    sample.series = "batch-per-rank=8 bucket=25MiB overlap=on";
    sample.axes[1] = (struct sample_axis){"bucket", "25MiB"};
    sample.axes[2] = (struct sample_axis){"overlap", "on"};
    add_repeats(records, &sample, 40);
    for (r = 0; ranks[r]; r++) {
        for (b = 0; b < sizeof(buckets) / sizeof(buckets[0]); b++) {
            for (on = 0; on < 2; on++) {
                double comm_ms = 20.0 * (ranks[r] - 1) / ranks[r];
                double exposed_ms = on ? comm_ms * (1 - buckets[b].chunks) : comm_ms;
                char *name = series[2 * b + on];

                sample = sample_cell(cell++, ranks[r], 0);
                snprintf(name, sizeof(series[0]), "batch-per-rank=8 bucket=%s overlap=%s",
                         buckets[b].text, on ? "on" : "off");
                sample.series = name;
                sample.axes[1] = (struct sample_axis){"bucket", buckets[b].text};
                sample.axes[2] = (struct sample_axis){"overlap", on ? "on" : "off"};
                sample.emulated = true;
                sample.link_bytes_per_s = 1e9;
                sample.comm_ns = 1e6 * comm_ms;
                sample.exposed_ns = 1e6 * exposed_ms;
                sample.comm_wait_ns = 0.15e6 * exposed_ms;
                sample.busbw_bytes_per_s = 0.95e9;
                add_repeats(records, &sample, 40 + exposed_ms + (on ? 1.5 : 0));
            }
        }
    }
}
