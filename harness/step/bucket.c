/* The greedy rule by which PyTorch's DistributedDataParallel fills buckets. */
#include "dpb_bucket.h"

#include <stdlib.h>

#include "dpb_log.h"

/* The bucket that a dtype is filling, and where that dtype stands in the list of limits. */
struct accumulator {
    int bucket; /* number given when it was opened, -1: none is open */
    int64_t bytes;
    int cursor;
};

/* Buckets while they are made: numbered in the order of opening, listed in the order of closing. */
struct filling {
    int *bucket_of;       /* by position: opening number */
    int *label_min;       /* by opening number: smallest label */
    int64_t *limit_bytes; /* by opening number */
    int *emitted;         /* opening numbers, in the order of the result */
    int opened, emitted_count;
};

static int label_at(const struct dpb_bucket_input *input, int position)
{
    return input->labels ? input->labels[position] : position;
}

static dpb_status check_input(const struct dpb_bucket_input *input)
{
    if (input->count < 0 || input->limit_count < 1) {
        dpb_error("bucket plan: %d tensors and %d limits: at least one limit is needed",
                  input->count, input->limit_count);
        return DPB_ERR_INTERNAL;
    }
    int64_t total_bytes = 0;

    for (int i = 0; i < input->count; i++) {
        const int label = label_at(input, i);
        int64_t bytes;

        if (label < 0 || label >= input->count) {
            dpb_error("bucket plan: label %d of tensor %d is outside [0, %d)", label, i,
                      input->count);
            return DPB_ERR_INTERNAL;
        }
        if ((unsigned)input->dtype[i] >= DPB_DTYPE_COUNT || input->numel[i] < 0 ||
            __builtin_mul_overflow(input->numel[i], (int64_t)dpb_dtype_bytes(input->dtype[i]),
                                   &bytes) ||
            __builtin_add_overflow(total_bytes, bytes, &total_bytes)) {
            dpb_error("bucket plan: tensor %d has %lld elements of type number %d", i,
                      (long long)input->numel[i], (int)input->dtype[i]);
            return DPB_ERR_INTERNAL;
        }
    }
    return DPB_OK;
}

static void filling_release(struct filling *filling)
{
    free(filling->bucket_of);
    free(filling->label_min);
    free(filling->limit_bytes);
    free(filling->emitted);
}

static dpb_status filling_init(struct filling *filling, int count)
{
    const size_t n = (size_t)count + 1; /* never a request for 0 bytes */

    *filling = (struct filling){
            .bucket_of = calloc(n, sizeof(int)),
            .label_min = calloc(n, sizeof(int)),
            .limit_bytes = calloc(n, sizeof(int64_t)),
            .emitted = calloc(n, sizeof(int)),
    };
    if (filling->bucket_of && filling->label_min && filling->limit_bytes && filling->emitted)
        return DPB_OK;
    filling_release(filling);
    dpb_error("bucket plan: out of memory for %d tensors", count);
    return DPB_ERR_NO_MEMORY;
}

static int filling_open(struct filling *filling, int label)
{
    const int bucket = filling->opened++;

    filling->label_min[bucket] = label;
    return bucket;
}

static void filling_add(struct filling *filling, int bucket, int position, int label)
{
    filling->bucket_of[position] = bucket;
    if (label < filling->label_min[bucket])
        filling->label_min[bucket] = label;
}

static void filling_emit(struct filling *filling, int bucket, int64_t limit_bytes)
{
    filling->limit_bytes[bucket] = limit_bytes;
    filling->emitted[filling->emitted_count++] = bucket;
}

static void fill(const struct dpb_bucket_input *input, struct filling *filling)
{
    struct accumulator open_by_dtype[DPB_DTYPE_COUNT];

    for (int d = 0; d < DPB_DTYPE_COUNT; d++)
        open_by_dtype[d] = (struct accumulator){.bucket = -1};

    for (int i = 0; i < input->count; i++) {
        const int label = label_at(input, i);
        struct accumulator *acc = &open_by_dtype[input->dtype[i]];
        const int64_t limit = input->limits_bytes[acc->cursor];

        if (input->expect_sparse && input->expect_sparse[label]) {
            const int bucket = filling_open(filling, label);

            filling_add(filling, bucket, i, label);
            filling_emit(filling, bucket, 0);
            continue;
        }
        if (acc->bucket < 0)
            acc->bucket = filling_open(filling, label);
        filling_add(filling, acc->bucket, i, label);
        acc->bytes += input->numel[i] * (int64_t)dpb_dtype_bytes(input->dtype[i]);
        if (acc->bytes >= limit) {
            filling_emit(filling, acc->bucket, limit);
            acc->bucket = -1;
            acc->bytes = 0;
            if (acc->cursor + 1 < input->limit_count)
                acc->cursor++;
        }
    }

    /* What is still open, in the order of opening (PyTorch: in the order of a hash table). */
    for (;;) {
        struct accumulator *next = NULL;

        for (int d = 0; d < DPB_DTYPE_COUNT; d++) {
            struct accumulator *acc = &open_by_dtype[d];

            if (acc->bucket >= 0 && (!next || acc->bucket < next->bucket))
                next = acc;
        }
        if (!next)
            return;
        filling_emit(filling, next->bucket, input->limits_bytes[next->cursor]);
        next->bucket = -1;
    }
}

static int compare_by_label_min(const void *a, const void *b, void *label_min)
{
    const int x = ((const int *)label_min)[*(const int *)a];
    const int y = ((const int *)label_min)[*(const int *)b];

    return (x > y) - (x < y);
}

dpb_status dpb_bucket_assign(const struct dpb_bucket_input *input,
                             struct dpb_bucket_assignment *assignment)
{
    struct dpb_bucket_assignment result = {0};
    struct filling filling;

    DPB_TRY(check_input(input));
    DPB_TRY(filling_init(&filling, input->count));
    fill(input, &filling);
    if (!input->labels)
        qsort_r(filling.emitted, (size_t)filling.emitted_count, sizeof(int), compare_by_label_min,
                filling.label_min);

    result.bucket_count = filling.emitted_count;
    result.first = calloc((size_t)result.bucket_count + 1, sizeof(int));
    result.label = calloc((size_t)input->count + 1, sizeof(int));
    result.limit_bytes = calloc((size_t)result.bucket_count + 1, sizeof(int64_t));
    int *rank_of = calloc((size_t)filling.opened + 1, sizeof(int));
    int *next = calloc((size_t)result.bucket_count + 1, sizeof(int));
    dpb_status st = DPB_OK;

    if (!result.first || !result.label || !result.limit_bytes || !rank_of || !next) {
        dpb_error("bucket plan: out of memory for %d tensors", input->count);
        dpb_bucket_assignment_release(&result);
        st = DPB_ERR_NO_MEMORY;
        goto out;
    }

    for (int b = 0; b < result.bucket_count; b++) {
        rank_of[filling.emitted[b]] = b;
        result.limit_bytes[b] = filling.limit_bytes[filling.emitted[b]];
    }
    for (int i = 0; i < input->count; i++)
        result.first[rank_of[filling.bucket_of[i]] + 1]++;
    for (int b = 0; b < result.bucket_count; b++) {
        result.first[b + 1] += result.first[b];
        next[b] = result.first[b];
    }
    for (int i = 0; i < input->count; i++)
        result.label[next[rank_of[filling.bucket_of[i]]]++] = label_at(input, i);
    *assignment = result;

out:
    free(next);
    free(rank_of);
    filling_release(&filling);
    return st;
}

void dpb_bucket_assignment_release(struct dpb_bucket_assignment *assignment)
{
    free(assignment->first);
    free(assignment->label);
    free(assignment->limit_bytes);
    *assignment = (struct dpb_bucket_assignment){0};
}
