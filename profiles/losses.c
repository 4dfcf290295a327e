#include "dpb_losses.h"

#include <inttypes.h>
#include <stdio.h>

#include "dpb_str.h"

/* member, how those of two ranks become one */
#define MEMBER_MAP(X)                                                                              \
    X(kernels, add)                                                                                \
    X(dropped, add)                                                                                \
    X(zero_time, add)                                                                              \
    X(unmatched, add)                                                                              \
    X(damaged_buffers, add)                                                                        \
    X(repeated, add)                                                                               \
    X(kernels_per_step_min, smaller)                                                               \
    X(kernels_per_step_max, larger)                                                                \
    X(clock_bound_ns, larger)                                                                      \
    X(sync_wait_ns, add)                                                                           \
    X(overhead_ns, add)

static int64_t add(int64_t a, int64_t b)
{
    return a + b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* 0 is no step that has a kernel. */
static int64_t smaller(int64_t a, int64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

dpb_json *dpb_losses_to_json(const struct dpb_losses *losses)
{
    dpb_json *json = dpb_json_object();

#define MEMBER_SET(member, unite) dpb_json_set_int(json, #member, losses->member);
    MEMBER_MAP(MEMBER_SET)
#undef MEMBER_SET
    if (losses->untraced[0])
        dpb_json_set_string(json, "untraced", losses->untraced);
    else
        dpb_json_set(json, "untraced", dpb_json_null());
    return json;
}

void dpb_losses_add_json(struct dpb_losses *sum, const dpb_json *json)
{
    const char *untraced = dpb_json_as_string(dpb_json_get(json, "untraced"), "");

#define MEMBER_ADD(member, unite)                                                                  \
    sum->member = unite(sum->member, dpb_json_as_int(dpb_json_get(json, #member), 0));
    MEMBER_MAP(MEMBER_ADD)
#undef MEMBER_ADD
    if (!sum->untraced[0])
        snprintf(sum->untraced, sizeof(sum->untraced), "%s", untraced);
}

bool dpb_losses_are_small(const struct dpb_losses *losses, char *why, size_t why_bytes)
{
    const int64_t lost = losses->dropped + losses->zero_time + losses->unmatched;

    if (losses->untraced[0]) {
        snprintf(why, why_bytes, "the device was not traced: %s", losses->untraced);
        return false;
    }
    if (losses->kernels == 0) {
        snprintf(why, why_bytes, "the tracer recorded no kernel");
        return false;
    }
    if (losses->damaged_buffers > 0) {
        snprintf(why, why_bytes, "%" PRId64 " buffers of the tracer hold what it cannot read",
                 losses->damaged_buffers);
        return false;
    }
    if (lost > losses->kernels / DPB_LOSSES_PER_KERNELS) {
        snprintf(why, why_bytes,
                 "the trace lacks too much: of %" PRId64 " kernels, %" PRId64
                 " records dropped, %" PRId64 " without times, %" PRId64
                 " without a launch; at most 1 in %d may be",
                 losses->kernels, losses->dropped, losses->zero_time, losses->unmatched,
                 DPB_LOSSES_PER_KERNELS);
        return false;
    }
    return true;
}
