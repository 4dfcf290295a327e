/* Times of a workload's layers on a device. */
#include "dpb_profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"

static dpb_status no_memory(void)
{
    dpb_error("profile: out of memory");
    return DPB_ERR_NO_MEMORY;
}

dpb_status dpb_profile_new(const struct dpb_model *model, const char *workload,
                           struct dpb_profile *profile)
{
    *profile = (struct dpb_profile){
            .workload = strdup(workload),
            .layers = calloc((size_t)model->layer_count + 1, sizeof(*profile->layers)),
    };
    if (!profile->workload || !profile->layers)
        return no_memory();
    for (int l = 0; l < model->layer_count; l++) {
        profile->layers[l].name = strdup(model->layers[l].name);
        if (!profile->layers[l].name)
            return no_memory();
        profile->layer_count++;
    }
    return DPB_OK;
}

void dpb_profile_release(struct dpb_profile *profile)
{
    for (int l = 0; l < profile->layer_count; l++)
        free(profile->layers[l].name);
    for (int u = 0; u < profile->unmapped_count; u++)
        free(profile->unmapped[u]);
    free(profile->layers);
    free(profile->unmapped);
    free(profile->workload);
    free(profile->device);
    free(profile->optimizer);
    *profile = (struct dpb_profile){0};
}

/* ---- names ---- */

static int find_layer(const struct dpb_profile *profile, const char *name, size_t length)
{
    for (int l = 0; l < profile->layer_count; l++)
        if (strncmp(profile->layers[l].name, name, length) == 0 &&
            profile->layers[l].name[length] == '\0')
            return l;
    return -1;
}

/* "layer1.0.conv1.bwd-data": up to the last point it is the layer, after it the pass, or what both
 * passes have ("add", "drop", "cast"). */
int dpb_profile_layer_of(const struct dpb_profile *profile, const char *operator_name, int *pass)
{
    const char *point = strrchr(operator_name, '.');

    *pass = -1;
    if (!point)
        return -1;
    if (strncmp(point + 1, "fwd", 3) == 0)
        *pass = DPB_PASS_FORWARD;
    else if (strncmp(point + 1, "bwd", 3) == 0)
        *pass = DPB_PASS_BACKWARD;
    return find_layer(profile, operator_name, (size_t)(point - operator_name));
}

/* ---- other batches ---- */

const char *dpb_profile_origin_text(enum dpb_profile_origin origin)
{
    static const char *const text_of[] = {"measured", "fitted", "extrapolated"};

    return text_of[origin];
}

static int index_of(const struct dpb_profile *profile, int64_t batch)
{
    for (int b = 0; b < profile->batch_count; b++)
        if (profile->batch[b] == batch)
            return b;
    return -1;
}

enum dpb_profile_origin dpb_profile_origin_of(const struct dpb_profile *profile, int64_t batch)
{
    if (index_of(profile, batch) >= 0)
        return DPB_PROFILE_MEASURED;
    return profile->batch_count > 1 && batch > profile->batch[0] &&
                           batch < profile->batch[profile->batch_count - 1]
                   ? DPB_PROFILE_FITTED
                   : DPB_PROFILE_EXTRAPOLATED;
}

void dpb_profile_fit(const struct dpb_profile *profile, const double *ns, double *a_ns,
                     double *b_ns)
{
    const int n = profile->batch_count;
    double mean_x = 0, mean_y = 0, xy = 0, xx = 0;

    for (int i = 0; i < n; i++) {
        mean_x += (double)profile->batch[i] / n;
        mean_y += ns[i] / n;
    }
    for (int i = 0; i < n; i++) {
        const double x = (double)profile->batch[i] - mean_x;

        xy += x * (ns[i] - mean_y);
        xx += x * x;
    }
    *b_ns = n > 1 ? xy / xx : mean_y / mean_x;
    *a_ns = mean_y - *b_ns * mean_x;
}

double dpb_profile_at(const struct dpb_profile *profile, const double *ns, int64_t batch)
{
    const int at = index_of(profile, batch);
    double a_ns, b_ns;

    if (at >= 0)
        return ns[at];
    dpb_profile_fit(profile, ns, &a_ns, &b_ns);
    return fmax(0, a_ns + b_ns * (double)batch);
}

/* ---- the schedule ---- */

static bool same_layers(const struct dpb_model *model, const struct dpb_profile *profile)
{
    if (model->layer_count != profile->layer_count)
        return false;
    for (int l = 0; l < model->layer_count; l++)
        if (strcmp(model->layers[l].name, profile->layers[l].name) != 0)
            return false;
    return true;
}

static void set_times(const struct dpb_profile *profile, enum dpb_pass pass, int64_t samples,
                      struct dpb_segment *segments, int count)
{
    for (int s = 0; s < count; s++) {
        const int layer = find_layer(profile, segments[s].name, strlen(segments[s].name));

        /* What takes no time is a part of a segment before it. */
        if (segments[s].alone_ns > 0)
            segments[s].alone_ns =
                    dpb_profile_at(profile, profile->layers[layer].ns[pass], samples);
    }
}

dpb_status dpb_schedule_from_profile(const struct dpb_model *model, const char *workload,
                                     const struct dpb_profile *profile, int64_t samples,
                                     struct dpb_schedule *schedule)
{
    /* Only the order of segments is the roofline's. */
    const struct dpb_sim_rates order = {
            .flop_per_s = {[DPB_F32] = 1}, .bytes_per_s = 1, .floor_ns = 1};

    if (strcmp(workload, profile->workload) != 0 || !same_layers(model, profile)) {
        dpb_error(
                "simulation: the profile is of workload \"%s\" with %d layers, and the cell trains "
                "\"%s\" with %d",
                profile->workload, profile->layer_count, workload, model->layer_count);
        dpb_log_hint("make a profile of it with `dpbench profile --workload %s`", workload);
        return DPB_ERR_USAGE;
    }
    DPB_TRY(dpb_schedule_from_model(model, &order, DPB_F32, samples, schedule));
    set_times(profile, DPB_PASS_FORWARD, samples, schedule->forward, schedule->forward_count);
    set_times(profile, DPB_PASS_BACKWARD, samples, schedule->backward, schedule->backward_count);
    schedule->data_ns = fmax(0, dpb_profile_at(profile, profile->data_ns, samples) +
                                        dpb_profile_at(profile, profile->rest_ns, samples));
    schedule->source = "measured profile";
    return DPB_OK;
}
