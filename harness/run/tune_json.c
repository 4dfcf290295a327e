/* What tuning found, as JSON. */
#include <math.h>

#include "dpb_experiment.h"
#include "dpb_str.h"
#include "dpb_tune.h"

static const char *const verdict_texts[] = {
        [DPB_TUNE_NOT_COMPARED] = "not compared",
        [DPB_TUNE_BETTER] = "better",
        [DPB_TUNE_NO_DIFFERENCE] = "no difference shown",
        [DPB_TUNE_WORSE] = "worse",
};

static void set_text(dpb_json *json, const char *key, const dpb_config *config, const char *name)
{
    struct dpb_str text = {0};

    if (dpb_config_text(config, name, &text) == DPB_OK && !text.failed)
        dpb_json_set_string(json, key, text.text);
    dpb_str_release(&text);
}

static void set_measured(dpb_json *json, const char *key, double value)
{
    if (isfinite(value))
        dpb_json_set_real(json, key, value);
    else
        dpb_json_set_absent(json, key, "no launch of it is ok");
}

static dpb_json *candidate_json(const struct dpb_tune *tune, size_t cell)
{
    const struct dpb_tune_candidate *candidate = &tune->candidates[cell];
    const dpb_config *config = tune->plan.cells[cell].config;
    dpb_json *json = dpb_json_object();
    struct dpb_str repro = {0};

    dpb_json_set_int(json, "cell", (int64_t)cell);
    dpb_json_set_bool(json, "is_default", cell == 0);
    for (size_t k = 0; k < tune->knob_count; k++)
        set_text(json, tune->knobs[k], config, tune->knobs[k]);
    if (candidate->first_bucket_bytes > 0)
        dpb_json_set_int(json, "first_bucket_bytes", candidate->first_bucket_bytes);
    else
        dpb_json_set_absent(json, "first_bucket_bytes", "the strategy has no first bucket");
    dpb_json_set_int(json, "rounds", candidate->rounds);
    dpb_json_set_int(json, "launches", candidate->launches);
    set_measured(json, "step_ns", candidate->step_ns);
    set_measured(json, "rounds_step_ns", candidate->score_ns);
    set_measured(json, "rounds_default_over_this", candidate->default_ratio);
    dpb_str_append(&repro, "dpbench run");
    if (dpb_config_repro(config, &repro) == DPB_OK && !repro.failed)
        dpb_json_set_string(json, "repro", repro.text);
    dpb_str_release(&repro);
    return json;
}

static dpb_json *comparison_json(const struct dpb_tune *tune)
{
    const struct dpb_tune_comparison *comparison = &tune->comparison;
    dpb_json *json = dpb_json_object();

    dpb_json_set_int(json, "cell", tune->winner);
    dpb_json_set_int(json, "pairs", comparison->pairs);
    dpb_json_set_real(json, "default_over_winner", comparison->ratio);
    dpb_json_set_real(json, "low95", comparison->ci95.low);
    dpb_json_set_real(json, "high95", comparison->ci95.high);
    dpb_json_set_string(json, "verdict", verdict_texts[comparison->verdict]);
    return json;
}

dpb_json *dpb_tune_json(const struct dpb_tune *tune)
{
    const dpb_config *config = tune->plan.cells[0].config;
    const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
    dpb_json *json = dpb_json_object(), *knobs = dpb_json_array(), *cells = dpb_json_array();

    dpb_json_set_string(json, "schema", "dpb.tune/1");
    set_text(json, "workload", config, "workload");
    set_text(json, "strategy", config, "strategy");
    dpb_json_set_int(json, "ranks", e->ranks);
    dpb_json_set_int(json, "batch_per_rank", e->batch_per_rank);
    set_text(json, "link", config, "link");
    dpb_json_set_bool(json, "emulated", tune->emulated);
    for (size_t k = 0; k < tune->knob_count; k++)
        dpb_json_append(knobs, dpb_json_string(tune->knobs[k]));
    dpb_json_set(json, "knobs", knobs);
    dpb_json_set_int(json, "rounds", tune->rounds);
    dpb_json_set_int(json, "launches", (int64_t)tune->plan.launch_count);
    dpb_json_set_int(json, "flagged_launches", (int64_t)tune->flagged);
    dpb_json_set_int(json, "combinations_with_the_same_messages", (int64_t)tune->same);
    dpb_json_set_int(json, "candidates_beyond_the_budget", (int64_t)tune->left_out);
    for (size_t c = 0; c < tune->plan.cell_count; c++)
        dpb_json_append(cells, candidate_json(tune, c));
    dpb_json_set(json, "candidates", cells);
    if (tune->comparison.verdict == DPB_TUNE_NOT_COMPARED)
        dpb_json_set_absent(json, "comparison", "no winner was compared with the default");
    else
        dpb_json_set(json, "comparison", comparison_json(tune));
    return json;
}
