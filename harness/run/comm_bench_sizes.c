/* comm_bench_sizes.c: ranges of sizes, "8B..256MiB:x4". */
#include "dpb_comm_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_units.h"

#define SIZES_MAX 1000

struct range {
    int64_t first, last;
    int64_t factor, step; /* one of them is 0 */
};

static dpb_status append(struct dpb_comm_sizes *sizes, int64_t bytes, char *why)
{
    for (size_t i = 0; i < sizes->count; i++)
        if (sizes->bytes[i] == bytes) {
            snprintf(why, DPB_WHY_BYTES, "%lld bytes are there twice", (long long)bytes);
            return DPB_ERR_USAGE;
        }
    if (sizes->count == SIZES_MAX) {
        snprintf(why, DPB_WHY_BYTES, "more than %d sizes", SIZES_MAX);
        return DPB_ERR_USAGE;
    }
    int64_t *grown = realloc(sizes->bytes, (sizes->count + 1) * sizeof(*grown));
    if (!grown)
        return DPB_ERR_NO_MEMORY;
    sizes->bytes = grown;
    sizes->bytes[sizes->count++] = bytes;
    return DPB_OK;
}

static dpb_status parse_positive(const char *text, int64_t *bytes, char *why)
{
    DPB_TRY(dpb_parse_size(text, bytes, why));
    if (*bytes > 0)
        return DPB_OK;
    snprintf(why, DPB_WHY_BYTES, "a size is at least 1B");
    return DPB_ERR_USAGE;
}

/* What follows the colon: x4 or +1MiB. */
static dpb_status parse_step(const char *text, struct range *range, char *why)
{
    if (text[0] == '+') {
        range->factor = 0;
        return parse_positive(text + 1, &range->step, why);
    }
    if (text[0] == 'x' && dpb_parse_i64(text + 1, &range->factor, NULL) == DPB_OK &&
        range->factor >= 2)
        return DPB_OK;
    snprintf(why, DPB_WHY_BYTES,
             "after ':' stands a factor of at least 2, x4, or a step, +1MiB, not \"%s\"", text);
    return DPB_ERR_USAGE;
}

static dpb_status parse_range(char *text, struct range *range, char *why)
{
    char *dots = strstr(text, "..");
    char *colon = strchr(text, ':');
    range->factor = 2;
    range->step = 0;
    if (!dots && colon) {
        snprintf(why, DPB_WHY_BYTES, "a factor or step needs a range, 8B..1MiB%s", colon);
        return DPB_ERR_USAGE;
    }
    if (colon) {
        *colon = '\0';
        DPB_TRY(parse_step(colon + 1, range, why));
    }
    if (dots)
        *dots = '\0';
    DPB_TRY(parse_positive(text, &range->first, why));
    range->last = range->first;
    if (dots)
        DPB_TRY(parse_positive(dots + 2, &range->last, why));
    if (range->last >= range->first)
        return DPB_OK;
    snprintf(why, DPB_WHY_BYTES, "a range goes from the smaller size to the larger one");
    return DPB_ERR_USAGE;
}

dpb_status dpb_comm_sizes_parse(const char *text, struct dpb_comm_sizes *sizes, char why[256])
{
    char copy[DPB_OPTION_TEXT_BYTES], unused[DPB_WHY_BYTES];
    struct range range;
    if (!why)
        why = unused;
    if (strlen(text) >= sizeof(copy)) {
        snprintf(why, DPB_WHY_BYTES, "the text is too long");
        return DPB_ERR_USAGE;
    }
    strcpy(copy, text);
    DPB_TRY(parse_range(copy, &range, why));
    for (int64_t bytes = range.first;;) {
        DPB_TRY(append(sizes, bytes, why));
        int64_t next;
        bool too_large = range.factor ? __builtin_mul_overflow(bytes, range.factor, &next)
                                      : __builtin_add_overflow(bytes, range.step, &next);
        if (too_large || next > range.last)
            return DPB_OK;
        bytes = next;
    }
}

void dpb_comm_sizes_release(struct dpb_comm_sizes *sizes)
{
    free(sizes->bytes);
    memset(sizes, 0, sizeof(*sizes));
}
