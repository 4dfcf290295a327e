/* gpu_ceiling: what the device reaches in large matrix products, which shares of a peak are taken
 * of: no step of training can be faster, and a data sheet's figure is for clocks that a card does
 * not hold.
 *
 *   gpu_ceiling [SIZE...]    square products, default 4096 8192 and 16384
 *
 * Prints one JSON object for each size and type: {"dtype": "bf16", "size": 8192, "tflops": 700.1},
 * by the fastest of several groups of products. Values are random: zeros draw less power, and are
 * faster than anything real. */
#include <stdio.h>
#include <stdlib.h>

#include "dpb_rng.h"
#include "staged_pair.h"

#define GROUPS    8
#define GROUP     6
#define SIZES_MAX 16

struct ceiling {
    const struct dpb_device_ops *ops;
    dpb_device *device;
    dpb_stream *stream;
    dpb_event_mark *from, *to;
    void *memory[3]; /* a, b, c */
};

/* bf16 and fp16 of +-[1, 2): small exponents, random signs and fractions. */
static void fill(unsigned char *bytes, size_t count, enum dpb_dtype dtype)
{
    struct dpb_rng rng;
    dpb_rng_init(&rng, 1, 0);
    for (size_t i = 0; i < count; i++) {
        uint64_t word = dpb_rng_u64(&rng);
        if (dtype == DPB_F32)
            ((uint32_t *)(void *)bytes)[i] = (uint32_t)(word & 0x807fffff) | 0x3f800000;
        else if (dtype == DPB_BF16)
            ((uint16_t *)(void *)bytes)[i] = (uint16_t)((word & 0x807f) | 0x3f80);
        else
            ((uint16_t *)(void *)bytes)[i] = (uint16_t)((word & 0x83ff) | 0x3c00);
    }
}

static struct dpb_tensor square(void *memory, int64_t size, enum dpb_dtype dtype)
{
    struct dpb_tensor tensor = dpb_tensor_2d(memory, size, size);
    tensor.dtype = dtype;
    return tensor;
}

/* The time of one product, by the fastest group. */
static dpb_status time_products(struct ceiling *c, const struct dpb_matmul_args *args, double *ns)
{
    const struct dpb_device_ops *ops = c->ops;
    *ns = 0;
    for (int group = -1; group < GROUPS; group++) { /* the first one warms up */
        int64_t took;
        DPB_TRY(ops->mark_record(c->from, c->stream));
        for (int i = 0; i < GROUP; i++)
            DPB_TRY(ops->op_launch(c->device, DPB_OP_MATMUL, args, c->stream));
        DPB_TRY(ops->mark_record(c->to, c->stream));
        DPB_TRY(ops->stream_sync(c->stream));
        DPB_TRY(ops->mark_elapsed_ns(c->from, c->to, &took));
        if (group >= 0 && (*ns == 0 || (double)took / GROUP < *ns))
            *ns = (double)took / GROUP;
    }
    return DPB_OK;
}

static dpb_status measure(struct ceiling *c, int64_t size, enum dpb_dtype dtype)
{
    const size_t count = (size_t)size * (size_t)size, bytes = count * dpb_dtype_bytes(dtype);
    unsigned char *host = malloc(bytes);
    dpb_status st = host ? DPB_OK : DPB_ERR_NO_MEMORY;
    double ns = 0;

    if (host)
        fill(host, count, dtype);
    for (int i = 0; st == DPB_OK && i < 3; i++)
        st = c->ops->alloc(c->device, bytes, &c->memory[i]);
    for (int i = 0; st == DPB_OK && i < 2; i++)
        st = c->ops->copy(c->device, c->memory[i], host, bytes, c->stream);
    if (st == DPB_OK)
        st = c->ops->stream_sync(c->stream);
    const struct dpb_matmul_args args = {.a = square(c->memory[0], size, dtype),
                                         .b = square(c->memory[1], size, dtype),
                                         .c = square(c->memory[2], size, dtype),
                                         .trans_b = true};
    if (st == DPB_OK)
        st = time_products(c, &args, &ns);
    if (st == DPB_OK)
        printf("{\"dtype\": \"%s\", \"size\": %lld, \"tflops\": %.4g}\n", dpb_dtype_text(dtype),
               (long long)size, 2.0 * (double)size * (double)size * (double)size / ns * 1e-3);
    for (int i = 0; i < 3; i++) {
        if (c->memory[i])
            c->ops->free(c->device, c->memory[i]);
        c->memory[i] = NULL;
    }
    free(host);
    return st;
}

static dpb_status measure_all(struct ceiling *c, const int64_t *size, int sizes)
{
    static const enum dpb_dtype DTYPES[] = {DPB_BF16, DPB_F16, DPB_F32};
    for (int d = 0; d < 3; d++) {
        if (!c->ops->op_supported(c->device, DPB_OP_MATMUL, DTYPES[d]))
            continue;
        for (int i = 0; i < sizes; i++) /* fp32 without TF32 is slow: the smallest says enough */
            if (DTYPES[d] != DPB_F32 || i == 0)
                DPB_TRY(measure(c, size[i], DTYPES[d]));
    }
    return DPB_OK;
}

int main(int argc, char **argv)
{
    const struct dpb_device_config config = {.local_size = 1, .threads = 1};
    struct ceiling c = {.ops = staged_pair_ops};
    int64_t size[SIZES_MAX] = {4096, 8192, 16384};
    int sizes = argc > 1 ? 0 : 3;
    char why[512];
    dpb_status st;

    for (int i = 1; i < argc && sizes < SIZES_MAX; i++)
        size[sizes++] = strtoll(argv[i], NULL, 10);
    for (int i = 0; i < sizes; i++)
        if (size[i] < 1 || size[i] > 65536)
            return 2;
    if (c.ops->probe(why, sizeof(why)) != DPB_OK) {
        printf("SKIP: %s\n", why);
        return 77;
    }
    if (c.ops->open(&config, &c.device) != DPB_OK)
        return 3;
    DPB_TRY_GOTO(st, c.ops->stream_open(c.device, &c.stream), err_stream);
    DPB_TRY_GOTO(st, c.ops->mark_open(c.device, &c.from), err_from);
    DPB_TRY_GOTO(st, c.ops->mark_open(c.device, &c.to), err_to);
    st = measure_all(&c, size, sizes);
    c.ops->mark_close(c.to);
err_to:
    c.ops->mark_close(c.from);
err_from:
    c.ops->stream_close(c.stream);
err_stream:
    c.ops->close(c.device);
    return dpb_status_exit_code(st);
}
