#include "kept_values.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

/* ---- in a rank ---- */

/* One tensor to leave. */
struct kept {
    const char *name, *what;
    const float *data;
    int64_t elements;
};

/* Number `index` of what this rank leaves, from 0; false when there is none. */
static bool kept_at(const dpb_step_engine *engine, int rank, int index, struct kept *kept)
{
    const struct dpb_model *model = dpb_step_model(engine);
    const int params = rank == 0 ? model->param_count : 0;
    struct dpb_workload_state state;
    if (index < params) {
        const struct dpb_param_info *param = &model->params[index];
        *kept = (struct kept){param->name, "parameter", dpb_step_param(engine, index),
                              param->numel};
        return true;
    }
    int skip = index - params;
    for (int i = 0; dpb_step_state(engine, i, &state); i++) {
        bool leave = state.kind == DPB_STATE_SHARDED ||
                     (state.kind == DPB_STATE_REPLICATED && rank == 0);
        if (leave && skip-- == 0) {
            *kept = (struct kept){state.name, "state", state.data, state.numel};
            return true;
        }
    }
    return false;
}

/* Piece by piece, through memory that the host can read. */
static dpb_status put(const dpb_step_engine *engine, worker_link *link, const struct kept *kept,
                      int64_t first)
{
    static char piece[65536];
    const size_t bytes = (size_t)kept->elements * sizeof(float);
    const int64_t at = first * (int64_t)sizeof(float);
    for (size_t done = 0; done < bytes;) {
        const size_t now = bytes - done < sizeof(piece) ? bytes - done : sizeof(piece);
        DPB_TRY(dpb_step_read(engine, piece, (const char *)kept->data + done, now));
        if (worker_link_put(link, piece, now, at + (int64_t)done) != DPB_OK) {
            dpb_error("cannot hand over \"%s\", %lld values: %s", kept->name,
                      (long long)kept->elements, strerror(errno));
            return DPB_ERR_IO;
        }
        done += now;
    }
    return DPB_OK;
}

/* Where this rank's values begin, behind those of the ranks before it, and where all end. */
static dpb_status find_place(const dpb_step_engine *engine, dpb_comm *comm, int64_t *used,
                             int64_t *first)
{
    const struct dpb_comm_base *base = dpb_comm_get_base(comm);
    int64_t mine = 0, *all = calloc((size_t)base->size, sizeof(*all));
    struct kept kept;
    if (!all)
        return DPB_ERR_NO_MEMORY;
    for (int i = 0; kept_at(engine, base->rank, i, &kept); i++)
        mine += kept.elements;
    dpb_status st = base->ops->exchange(comm, &mine, sizeof(mine), all);
    for (int r = 0; r < base->size && st == DPB_OK; r++) {
        if (r == base->rank)
            *first = *used;
        *used += all[r];
    }
    free(all);
    return st;
}

static dpb_status put_all(dpb_step_engine *engine, dpb_comm *comm, worker_link *link, int64_t *used,
                          dpb_json *list)
{
    const int rank = dpb_comm_get_base(comm)->rank;
    struct kept kept;
    int64_t first = 0;
    DPB_TRY(find_place(engine, comm, used, &first));
    for (int i = 0; kept_at(engine, rank, i, &kept); i++) {
        DPB_TRY(put(engine, link, &kept, first));
        dpb_json *entry = dpb_json_object();
        dpb_json_set_string(entry, "name", kept.name);
        dpb_json_set_string(entry, "what", kept.what);
        dpb_json_set_int(entry, "step", dpb_step_count(engine));
        dpb_json_set_int(entry, "first", first);
        dpb_json_set_int(entry, "elements", kept.elements);
        dpb_json_append(list, entry);
        first += kept.elements;
    }
    return DPB_OK;
}

dpb_status kept_values_write(dpb_step_engine *engine, dpb_comm *comm, worker_link *link,
                             int64_t *used, dpb_json *list)
{
    dpb_status st;
    DPB_TRY(dpb_step_params_begin(engine));
    st = put_all(engine, comm, link, used, list);
    dpb_step_params_end(engine);
    return st;
}

/* ---- in the launcher ---- */

static const char *text_of(const dpb_json *entry, const char *key)
{
    return dpb_json_as_string(dpb_json_get(entry, key), "");
}

static int64_t number_of(const dpb_json *entry, const char *key)
{
    return dpb_json_as_int(dpb_json_get(entry, key), 0);
}

/* The values of an entry; NULL when there are none of that size. */
static const float *values_of(const struct dpb_launch_result *result, const dpb_json *entry)
{
    const int64_t floats = (int64_t)(result->bulk_bytes / sizeof(float));
    const int64_t first = number_of(entry, "first"), elements = number_of(entry, "elements");
    if (!result->bulk || first < 0 || elements < 0 || first > floats - elements)
        return NULL;
    return (const float *)result->bulk + first;
}

/* The values of the same name and size, whichever rank left them. */
static const float *find(const struct dpb_launch_result *result, const dpb_json *like)
{
    for (int r = 0; r < result->rank_count; r++) {
        const dpb_json *list = dpb_json_get(result->ranks[r], "kept");
        for (size_t i = 0; i < dpb_json_size(list); i++) {
            const dpb_json *entry = dpb_json_at(list, i);
            if (strcmp(text_of(entry, "name"), text_of(like, "name")) == 0 &&
                strcmp(text_of(entry, "what"), text_of(like, "what")) == 0 &&
                number_of(entry, "step") == number_of(like, "step") &&
                number_of(entry, "elements") == number_of(like, "elements"))
                return values_of(result, entry);
        }
    }
    return NULL;
}

static void compare_values(const float *a, const float *b, const dpb_json *entry,
                           const struct kept_bounds *bounds, struct kept_difference *sum)
{
    const int64_t elements = number_of(entry, "elements");
    sum->tensors++;
    sum->elements += (size_t)elements;
    for (int64_t i = 0; i < elements; i++) {
        double apart = fabs((double)a[i] - (double)b[i]);
        sum->differing += memcmp(&a[i], &b[i], sizeof(float)) != 0;
        sum->outside += !(apart <= bounds->atol + bounds->rtol * fabs((double)b[i]));
        if (apart > sum->largest || isnan(apart)) {
            sum->largest = apart;
            sum->where = text_of(entry, "name");
        }
    }
}

struct kept_difference kept_values_compare(const struct dpb_launch_result *a,
                                           const struct dpb_launch_result *b, const char *what,
                                           int64_t step, const struct kept_bounds *bounds)
{
    struct kept_difference sum = {.where = ""};
    for (int r = 0; r < b->rank_count; r++) {
        const dpb_json *list = dpb_json_get(b->ranks[r], "kept");
        for (size_t i = 0; i < dpb_json_size(list); i++) {
            const dpb_json *entry = dpb_json_at(list, i);
            if (strcmp(text_of(entry, "what"), what) != 0 || number_of(entry, "step") != step)
                continue;
            const float *theirs = find(a, entry), *ours = values_of(b, entry);
            if (theirs && ours)
                compare_values(theirs, ours, entry, bounds, &sum);
            else
                sum.missing = text_of(entry, "name");
        }
    }
    return sum;
}
