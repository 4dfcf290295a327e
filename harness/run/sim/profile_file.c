/* Profiles as files. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_log.h"
#include "dpb_profile.h"

/* ---- writing ---- */

static dpb_json *array_of(const struct dpb_profile *profile, const double *values)
{
    return dpb_json_reals(values, (size_t)profile->batch_count);
}

static dpb_json *fit_json(const struct dpb_profile *profile, const double *ns)
{
    dpb_json *json = dpb_json_object();
    double a_ns, b_ns;

    dpb_profile_fit(profile, ns, &a_ns, &b_ns);
    dpb_json_set_real(json, "a_ns", a_ns);
    dpb_json_set_real(json, "b_ns", b_ns);
    return json;
}

static void put_layers(const struct dpb_profile *profile, dpb_json *json)
{
    dpb_json *layers = dpb_json_array(), *fit = dpb_json_array();

    for (int l = 0; l < profile->layer_count; l++) {
        const struct dpb_profile_layer *layer = &profile->layers[l];
        dpb_json *entry = dpb_json_object(), *fitted = dpb_json_object();

        dpb_json_set_string(entry, "name", layer->name);
        dpb_json_set(entry, "forward_ns", array_of(profile, layer->ns[DPB_PASS_FORWARD]));
        dpb_json_set(entry, "backward_ns", array_of(profile, layer->ns[DPB_PASS_BACKWARD]));
        dpb_json_append(layers, entry);
        dpb_json_set_string(fitted, "name", layer->name);
        dpb_json_set(fitted, "forward", fit_json(profile, layer->ns[DPB_PASS_FORWARD]));
        dpb_json_set(fitted, "backward", fit_json(profile, layer->ns[DPB_PASS_BACKWARD]));
        dpb_json_append(fit, fitted);
    }
    dpb_json_set(json, "layers", layers);
    if (profile->batch_count > 1) {
        dpb_json_set(json, "fit", fit);
    } else {
        dpb_json_free(fit);
        dpb_json_set_absent(json, "fit", "one batch: other batches are taken in proportion");
    }
}

dpb_json *dpb_profile_to_json(const struct dpb_profile *profile, const dpb_json *more)
{
    dpb_json *json = dpb_json_object();
    dpb_json *unmapped = dpb_json_array();
    const char *key;
    const dpb_json *value;
    dpb_json_walk walk = {0};

    dpb_json_set_string(json, "schema", DPB_PROFILE_SCHEMA);
    dpb_json_set_string(json, "workload", profile->workload);
    dpb_json_set_string(json, "device_name", profile->device ? profile->device : "");
    dpb_json_set_bool(json, "is_cpu", profile->is_cpu);
    dpb_json_set_string(json, "precision", dpb_dtype_text(profile->precision));
    dpb_json_set_string(json, "optimizer", profile->optimizer ? profile->optimizer : "");
    while ((value = dpb_json_next(more, &walk, &key)))
        dpb_json_set(json, key, dpb_json_copy(value));
    dpb_json_set_int(json, "steps", profile->steps);
    dpb_json_set(json, "batches", dpb_json_ints(profile->batch, (size_t)profile->batch_count));
    dpb_json_set(json, "step_ns", array_of(profile, profile->step_ns));
    dpb_json_set(json, "data_ns", array_of(profile, profile->data_ns));
    dpb_json_set(json, "optimizer_ns", array_of(profile, profile->optimizer_ns));
    dpb_json_set(json, "rest_ns", array_of(profile, profile->rest_ns));
    dpb_json_set(json, "trace_overhead", array_of(profile, profile->trace_overhead));
    put_layers(profile, json);
    for (int u = 0; u < profile->unmapped_count; u++)
        dpb_json_append(unmapped, dpb_json_string(profile->unmapped[u]));
    dpb_json_set(json, "unmapped", unmapped);
    return json;
}

/* ---- reading ---- */

struct reading {
    const char *path;
    struct dpb_profile *profile;
};

static dpb_status corrupt(const struct reading *reading, const char *what)
{
    dpb_error("%s: is no profile: %s", reading->path, what);
    dpb_log_hint("`dpbench profile -o FILE` writes one (schema \"%s\")", DPB_PROFILE_SCHEMA);
    return DPB_ERR_CORRUPT;
}

static dpb_status read_times(const struct reading *reading, const dpb_json *json, const char *key,
                             bool may_be_negative, double *ns)
{
    const dpb_json *array = dpb_json_get(json, key);

    if (dpb_json_size(array) != (size_t)reading->profile->batch_count)
        return corrupt(reading, key);
    for (int b = 0; b < reading->profile->batch_count; b++) {
        ns[b] = dpb_json_as_real(dpb_json_at(array, (size_t)b), NAN);
        if (!isfinite(ns[b]) || (ns[b] < 0 && !may_be_negative))
            return corrupt(reading, key);
    }
    return DPB_OK;
}

static dpb_status read_batches(const struct reading *reading, const dpb_json *json)
{
    struct dpb_profile *profile = reading->profile;
    const dpb_json *batches = dpb_json_get(json, "batches");

    if (dpb_json_size(batches) < 1 || dpb_json_size(batches) > DPB_PROFILE_BATCHES_MAX)
        return corrupt(reading, "batches");
    for (size_t b = 0; b < dpb_json_size(batches); b++) {
        profile->batch[b] = dpb_json_as_int(dpb_json_at(batches, b), 0);
        if (profile->batch[b] < 1 || (b > 0 && profile->batch[b] <= profile->batch[b - 1]))
            return corrupt(reading, "batches");
        profile->batch_count++;
    }
    return DPB_OK;
}

static dpb_status read_layers(const struct reading *reading, const dpb_json *json)
{
    struct dpb_profile *profile = reading->profile;
    const dpb_json *layers = dpb_json_get(json, "layers");

    profile->layers = calloc(dpb_json_size(layers) + 1, sizeof(*profile->layers));
    if (!profile->layers)
        return DPB_ERR_NO_MEMORY;
    for (size_t l = 0; l < dpb_json_size(layers); l++) {
        struct dpb_profile_layer *layer = &profile->layers[l];
        const dpb_json *entry = dpb_json_at(layers, l);
        const char *name = dpb_json_as_string(dpb_json_get(entry, "name"), NULL);

        if (!name)
            return corrupt(reading, "layers without a name");
        layer->name = strdup(name);
        profile->layer_count++;
        DPB_TRY(read_times(reading, entry, "forward_ns", false, layer->ns[DPB_PASS_FORWARD]));
        DPB_TRY(read_times(reading, entry, "backward_ns", false, layer->ns[DPB_PASS_BACKWARD]));
    }
    return profile->layer_count > 0 ? DPB_OK : corrupt(reading, "layers");
}

static dpb_status read_precision(const struct reading *reading, const dpb_json *json)
{
    const char *text = dpb_json_as_string(dpb_json_get(json, "precision"), "");

    for (int type = 0; type < DPB_DTYPE_COUNT; type++) {
        if (strcmp(text, dpb_dtype_text((enum dpb_dtype)type)) == 0) {
            reading->profile->precision = (enum dpb_dtype)type;
            return DPB_OK;
        }
    }
    return corrupt(reading, "precision");
}

static dpb_status read_json(const struct reading *reading, const dpb_json *json)
{
    struct dpb_profile *profile = reading->profile;

    if (strcmp(dpb_json_as_string(dpb_json_get(json, "schema"), ""), DPB_PROFILE_SCHEMA) != 0)
        return corrupt(reading, "its schema");
    profile->workload = strdup(dpb_json_as_string(dpb_json_get(json, "workload"), ""));
    profile->device = strdup(dpb_json_as_string(dpb_json_get(json, "device_name"), ""));
    profile->optimizer = strdup(dpb_json_as_string(dpb_json_get(json, "optimizer"), ""));
    profile->is_cpu = dpb_json_as_bool(dpb_json_get(json, "is_cpu"), false);
    profile->steps = (int)dpb_json_as_int(dpb_json_get(json, "steps"), 0);
    DPB_TRY(read_precision(reading, json));
    DPB_TRY(read_batches(reading, json));
    DPB_TRY(read_times(reading, json, "step_ns", false, profile->step_ns));
    DPB_TRY(read_times(reading, json, "data_ns", false, profile->data_ns));
    DPB_TRY(read_times(reading, json, "optimizer_ns", false, profile->optimizer_ns));
    DPB_TRY(read_times(reading, json, "rest_ns", true, profile->rest_ns));
    return read_layers(reading, json);
}

dpb_status dpb_profile_read(const char *path, struct dpb_profile *profile)
{
    const struct reading reading = {path, profile};
    dpb_json *json = NULL;
    dpb_status st;

    *profile = (struct dpb_profile){0};
    DPB_TRY(dpb_json_read_file(path, &json));
    st = read_json(&reading, json);
    dpb_json_free(json);
    if (st < 0)
        dpb_profile_release(profile);
    return st;
}
