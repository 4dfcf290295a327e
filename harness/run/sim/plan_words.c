/* What a plan says: the answer, and what to be wary of. */
#include <math.h>
#include <string.h>

#include "dpb_experiment.h"
#include "dpb_units.h"
#include "plan_run.h"

void plan_option_name(const struct dpb_capacity_option *option, struct dpb_str *out)
{
    dpb_str_appendf(out, "%d accelerator%s in %d node%s of %s", option->accelerators,
                    option->accelerators == 1 ? "" : "s", option->nodes,
                    option->nodes == 1 ? "" : "s", option->machine);
}

static void append_time(double seconds, struct dpb_str *out)
{
    if (seconds >= 2 * 86400)
        dpb_str_appendf(out, "%.3g days", seconds / 86400);
    else if (seconds >= 2 * 3600)
        dpb_str_appendf(out, "%.3g hours", seconds / 3600);
    else if (seconds >= 60)
        dpb_str_appendf(out, "%.3g minutes", seconds / 60);
    else
        dpb_str_appendf(out, "%.3g seconds", seconds);
}

static void append_value(enum dpb_capacity_target target, double value, struct dpb_str *out)
{
    char text[DPB_UNIT_TEXT_BYTES];

    if (isnan(value)) {
        dpb_str_append(out, "what is not known");
        return;
    }
    switch (target) {
    case DPB_TARGET_DEADLINE:
        append_time(value, out);
        return;
    case DPB_TARGET_BUDGET:
        dpb_str_appendf(out, value < 100 ? "%.2f USD" : "%.0f USD", value);
        return;
    case DPB_TARGET_EFFICIENCY:
        dpb_str_appendf(out, "%.1f %%", 100 * value);
        return;
    default:
        dpb_human_duration(value, 3, text, sizeof(text));
        dpb_str_append(out, text);
    }
}

static void append_size(double bytes, struct dpb_str *out)
{
    char text[DPB_UNIT_TEXT_BYTES];

    dpb_human_size(bytes, 3, text, sizeof(text));
    dpb_str_append(out, text);
}

static void append_strategy(const struct dpb_capacity_option *option, struct dpb_str *out)
{
    dpb_str_append(out, option->strategy);
    if (option->bucket[0])
        dpb_str_appendf(out, " with buckets of %s", option->bucket);
    if (option->settings[0])
        dpb_str_appendf(out, ", %s", option->settings);
}

/* "64 accelerators in 8 nodes of dgx-a100, strategy ddp with buckets of 25MiB: 2.31 days, ..." */
static void append_option(const struct dpb_capacity_option *option, struct dpb_str *out)
{
    plan_option_name(option, out);
    dpb_str_append(out, ", strategy ");
    append_strategy(option, out);
    dpb_str_appendf(out, ", batch %lld per accelerator: ", (long long)option->batch_per_rank);
    append_time(option->wall_s, out);
    dpb_str_appendf(out, ", efficiency %.1f %%", 100 * option->efficiency);
    if (isnan(option->cost))
        dpb_str_append(out, ", no cost, since no price is known");
    else {
        dpb_str_append(out, ", ");
        append_value(DPB_TARGET_BUDGET, option->cost, out);
    }
    if (!isnan(option->energy_kwh))
        dpb_str_appendf(out, ", %.4g kWh", option->energy_kwh);
    dpb_str_append(out, ".");
}

static void add_sentence(dpb_json *list, struct dpb_str *text)
{
    dpb_json_append(list, dpb_json_string(text->failed ? "" : text->text));
    dpb_str_release(text);
}

/* ---- memory ---- */

static void say_fit(const struct dpb_capacity_option *option, dpb_json *sentences)
{
    struct dpb_str text = {0};

    if (isnan(option->memory_bytes))
        return;
    dpb_str_append(&text, "It fits in memory: ");
    append_size(option->needed_bytes, &text);
    dpb_str_append(&text, " of ");
    append_size(option->memory_bytes, &text);
    if (isfinite(option->largest_batch))
        dpb_str_appendf(&text, "; up to %.0f samples per accelerator do.", option->largest_batch);
    else
        dpb_str_append(&text, ".");
    add_sentence(sentences, &text);
}

static bool is_sharded(const struct plan_run *run, const char *strategy)
{
    const struct dpb_strategy_ops *ops = dpb_registry_strategy(run->question.registry, strategy);

    return ops && (ops->updates != NULL || ops->flags & DPB_STRATEGY_SHARDS_PARAMETERS);
}

/* The cell of the most usual whole-replica strategy with so many accelerators, if it was asked
 * about and does not fit where something else does. */
static int whole_that_does_not_fit(const struct plan_run *run,
                                   const struct dpb_capacity_option *option)
{
    const int cells = (int)run->question.cell_count;

    for (int c = 0; c < cells; c++) {
        const struct dpb_experiment *e = dpb_config_struct(plan_config(run, c), "experiment");
        const struct plan_found *found = &run->found[option->machine_index * cells + c];

        if (e->ranks == option->accelerators && found->is_there &&
            found->memory.fit.margin_bytes < 0 && !is_sharded(run, e->strategy))
            return c;
    }
    return -1;
}

static void say_sharding(const struct plan_run *run, const struct dpb_capacity_option *option,
                         dpb_json *sentences)
{
    const int cells = (int)run->question.cell_count;
    const int cell = whole_that_does_not_fit(run, option);
    struct dpb_str text = {0};

    if (cell < 0)
        return;
    const struct dpb_experiment *e = dpb_config_struct(plan_config(run, cell), "experiment");
    const struct dpb_memory_fit *fit = &run->found[option->machine_index * cells + cell].memory.fit;
    dpb_str_appendf(&text, "Pure data parallel does not fit: %s needs ", e->strategy);
    append_size(fit->needed_bytes, &text);
    dpb_str_appendf(&text, " with %lld samples per accelerator; %s ", (long long)e->batch_per_rank,
                    option->strategy);
    dpb_str_append(&text, is_sharded(run, option->strategy) ? "divides what it would hold "
                                                              "several times, and does."
                                                            : "needs less, and does.");
    if (fit->largest_batch >= 1)
        dpb_str_appendf(&text, " %s fits with at most %.0f samples.", e->strategy,
                        fit->largest_batch);
    add_sentence(sentences, &text);
}

/* Sharding strategies of this build that nobody asked about, on the option's accelerators. */
static dpb_status say_other_sharding(const struct plan_run *run,
                                     const struct dpb_capacity_option *option, int cell,
                                     dpb_json *sentences)
{
    static const char *const names[] = {"zero1", "zero2", "fsdp"};
    const struct plan_machine *machine = &run->question.machines[option->machine_index];
    struct dpb_str text = {0};
    bool is_any = false;

    dpb_str_append(&text, "With the same batch, sharding needs: ");
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
        struct plan_memory memory;

        if (!dpb_registry_strategy(run->question.registry, names[n]))
            continue;
        DPB_TRY(plan_memory_of(&run->question, machine, plan_config(run, cell), names[n], &memory));
        dpb_str_appendf(&text, "%s%s ", is_any ? ", " : "", names[n]);
        append_size(memory.fit.needed_bytes, &text);
        dpb_str_append(&text, memory.fit.margin_bytes >= 0 ? " (fits)" : " (does not fit)");
        is_any = true;
    }
    dpb_str_append(&text, ".");
    if (is_any)
        add_sentence(sentences, &text);
    else
        dpb_str_release(&text);
    return DPB_OK;
}

static dpb_status say_nothing_fits(const struct plan_run *run, dpb_json *sentences)
{
    int least = 0;
    struct dpb_str text = {0};

    for (int i = 1; i < run->option_count; i++)
        if (run->options[i].needed_bytes - run->options[i].memory_bytes <
            run->options[least].needed_bytes - run->options[least].memory_bytes)
            least = i;
    const struct dpb_capacity_option *option = &run->options[least];
    dpb_str_append(&text, "Nearest: ");
    plan_option_name(option, &text);
    dpb_str_appendf(&text, ", where %s needs ", option->strategy);
    append_size(option->needed_bytes, &text);
    dpb_str_append(&text, " of ");
    append_size(option->memory_bytes, &text);
    if (option->largest_batch >= 1)
        dpb_str_appendf(&text,
                        " with %lld samples per accelerator; at most %.0f fit: give a smaller "
                        "--batch-per-rank, with --accumulate for the same global batch.",
                        (long long)option->batch_per_rank, option->largest_batch);
    else
        dpb_str_append(&text, ", and not one sample fits: shard more (zero2, fsdp), take more "
                              "accelerators to shard over, or another machine.");
    add_sentence(sentences, &text);
    return say_other_sharding(run, option, run->cell_of[least], sentences);
}

/* ---- targets ---- */

static void say_missed(const struct plan_run *run, enum dpb_capacity_target target,
                       dpb_json *sentences)
{
    const struct dpb_capacity_answer *answer = &run->answer;
    const double wanted = run->question.target[target];
    struct dpb_str text = {0};

    if (isnan(answer->missed[target]) || answer->missed[target] == 0)
        return;
    dpb_str_appendf(&text, "It misses the target for the %s by ", dpb_capacity_target_text(target));
    if (isfinite(answer->missed[target]))
        dpb_str_appendf(&text, answer->missed[target] < 0.1 ? "%.1f %%: " : "%.0f %%: ",
                        100 * answer->missed[target]);
    else
        dpb_str_append(&text, "an unknown share: ");
    append_value(target, dpb_capacity_value(&run->options[answer->option], target), &text);
    dpb_str_append(&text, " instead of ");
    append_value(target, wanted, &text);
    dpb_str_append(&text, ". ");
    const int best = answer->best_for[target];
    if (best >= 0) {
        const struct dpb_capacity_option *option = &run->options[best];

        dpb_str_append(&text, dpb_capacity_missed(option, target, wanted) > 0
                                      ? "Nothing asked about meets it; the best, "
                                      : "It alone would be met, best of all by ");
        plan_option_name(option, &text);
        dpb_str_append(&text, ", at ");
        append_value(target, dpb_capacity_value(option, target), &text);
        dpb_str_append(&text, ".");
    }
    add_sentence(sentences, &text);
}

/* Targets that the nearest option would meet. */
static void say_what_would(const struct plan_run *run, dpb_json *sentences)
{
    const struct dpb_capacity_answer *answer = &run->answer;
    struct dpb_str text = {0};
    const char *comma = "";

    dpb_str_append(&text, "It would do with ");
    for (int t = 0; t < DPB_TARGET_COUNT; t++) {
        if (!isfinite(answer->missed[t]) || answer->missed[t] == 0)
            continue;
        dpb_str_appendf(&text, "%s%s ", comma, dpb_capacity_target_key(t));
        append_value(t, dpb_capacity_value(&run->options[answer->option], t), &text);
        comma = " and ";
    }
    dpb_str_append(&text, ".");
    if (comma[0])
        add_sentence(sentences, &text);
    else
        dpb_str_release(&text); /* only unknown figures miss their targets */
}

static void say_strain(const struct plan_run *run, dpb_json *sentences)
{
    const struct dpb_capacity_answer *answer = &run->answer;
    const struct dpb_capacity_option *option = &run->options[answer->strain.option];
    struct dpb_str text = {0};

    if (!answer->strain.is_limit) {
        dpb_str_appendf(&text,
                        "Up to the %d accelerators asked about every target that it meets "
                        "stays met; the largest loss there is %s",
                        option->accelerators, answer->strain.what);
    } else {
        dpb_str_appendf(&text, "With more accelerators %s gives way first, at %d",
                        answer->strain.what, option->accelerators);
    }
    if (!isnan(answer->strain.share))
        dpb_str_appendf(&text, ", %.3g %% of a step", 100 * answer->strain.share);
    dpb_str_append(&text, ".");
    add_sentence(sentences, &text);
}

static dpb_status say_all(const struct plan_run *run, dpb_json *sentences)
{
    const struct dpb_capacity_option *option = &run->options[run->answer.option];

    for (int t = 0; t < DPB_TARGET_COUNT; t++)
        say_missed(run, t, sentences);
    if (!run->answer.is_met)
        say_what_would(run, sentences);
    say_fit(option, sentences);
    say_sharding(run, option, sentences);
    say_strain(run, sentences);
    return DPB_OK;
}

dpb_status plan_answer_json(struct plan_run *run, dpb_json **made)
{
    const struct dpb_capacity_answer *answer = &run->answer;
    dpb_json *json = dpb_json_object(), *sentences = dpb_json_array(), *strain = dpb_json_object();
    struct dpb_str text = {0};
    dpb_status st;

    if (answer->option < 0) {
        dpb_str_append(&text, "Nothing that was asked about fits in memory.");
    } else {
        if (!answer->is_met)
            dpb_str_append(&text, "Nothing that was asked about meets all targets. Nearest: ");
        append_option(&run->options[answer->option], &text);
    }
    dpb_json_set_bool(json, "met", answer->is_met);
    dpb_json_set_bool(json, "fits", answer->option >= 0);
    if (answer->option >= 0)
        dpb_json_set_int(json, "option", answer->option);
    else
        dpb_json_set_absent(json, "option", "nothing fits in memory");
    dpb_json_set_string(json, "text", text.failed ? "" : text.text);
    dpb_str_release(&text);
    st = answer->option < 0 ? say_nothing_fits(run, sentences) : say_all(run, sentences);
    dpb_json_set(json, "sentences", sentences);
    dpb_json_set_string(strain, "what", answer->strain.what);
    dpb_json_set_int(strain, "accelerators",
                     answer->strain.option >= 0 ? run->options[answer->strain.option].accelerators
                                                : 0);
    if (isnan(answer->strain.share))
        dpb_json_set_absent(strain, "share", "not a share of a step");
    else
        dpb_json_set_real(strain, "share", answer->strain.share);
    dpb_json_set_bool(strain, "is_limit", answer->strain.is_limit);
    dpb_json_set(json, "breaks_first", strain);
    if (st == DPB_OK)
        *made = json;
    else
        dpb_json_free(json);
    return st;
}

/* ---- warnings ---- */

static const struct dpb_machine_curve *curve_of(const struct dpb_machine *machine, int ranks)
{
    for (int c = 0; c < machine->curve_count; c++)
        if (machine->curves[c].ranks == ranks &&
            strcmp(machine->curves[c].collective, "all-reduce") == 0)
            return &machine->curves[c];
    return NULL;
}

static int most_nodes_measured(const struct dpb_machine *machine)
{
    int most = 0;

    for (int c = 0; c < machine->curve_count; c++)
        if (machine->curves[c].nodes > most)
            most = machine->curves[c].nodes;
    return most;
}

static void warn_of_counts(const struct plan_run *run, int m)
{
    const struct plan_machine *machine = &run->question.machines[m];
    const int most = most_nodes_measured(&machine->machine);
    struct dpb_str counts = {0};
    double beyond = 1, below = 1;

    for (int i = 0; i < run->option_count; i++) {
        const struct dpb_capacity_option *option = &run->options[i];

        if (option->machine_index != m || option->accelerators < 2)
            continue;
        beyond = fmax(beyond, option->extrapolated_by);
        below = fmax(below, option->extrapolated_below);
        if (!curve_of(&machine->machine, option->accelerators))
            dpb_str_appendf(&counts, "%s%d", counts.length ? ", " : "", option->accelerators);
    }
    if (counts.length && !counts.failed)
        plan_warn(&run->question,
                  "%s: no all-reduce was measured with %s accelerators; their times are %s.",
                  machine->machine.name, counts.text,
                  most > 1   ? "taken from other numbers of nodes"
                  : most > 0 ? "closed forms with assumed shares, where there are several nodes"
                             : "closed forms with assumed shares");
    if (beyond > 1)
        plan_warn(&run->question,
                  "%s: network times are extrapolated, up to x%.3g beyond what was "
                  "measured.",
                  machine->machine.name, beyond);
    if (below > 1)
        plan_warn(&run->question,
                  "%s: messages are as small as 1/%.0f of the smallest size that was measured; "
                  "their times lie between the shortest of a collective and that size's.",
                  machine->machine.name, below);
    dpb_str_release(&counts);
}

/* Rate of the links at the largest size that a curve has. */
static double busbw_of(const struct dpb_machine_curve *curve)
{
    const int last = curve->count - 1;

    return curve->bytes[last] / curve->seconds[last] * 2 * (curve->ranks - 1) / curve->ranks;
}

static const struct dpb_machine_curve *nodes_curve(const struct dpb_machine *machine, int nodes)
{
    return curve_of(machine, nodes * machine->accelerators_per_node);
}

/* Two nodes can be fast where four are not (NVIDIA/nccl#527). */
static void warn_of_two_nodes(const struct plan_run *run, int m)
{
    const struct plan_machine *machine = &run->question.machines[m];
    const struct dpb_machine_curve *two = nodes_curve(&machine->machine, 2);
    const int most = most_nodes_measured(&machine->machine);
    bool is_beyond = false;

    for (int i = 0; i < run->option_count; i++)
        is_beyond = is_beyond || (run->options[i].machine_index == m && run->options[i].nodes > 2);
    if (!two || !is_beyond)
        return;
    if (most == 2) {
        plan_warn(&run->question,
                  "%s: what was measured with 2 nodes is used for more. Two nodes say little of "
                  "more of them: a cluster has reached 57 GB/s with 2 and 30 with 4.",
                  machine->machine.name);
        return;
    }
    const struct dpb_machine_curve *more = nodes_curve(&machine->machine, most);
    if (more && busbw_of(more) < 0.75 * busbw_of(two))
        plan_warn(&run->question,
                  "%s: 2 nodes look fine and %d do not: all-reduce reaches %.3g GB/s with 2 nodes "
                  "and %.3g GB/s with %d. Do not judge this machine by 2 nodes.",
                  machine->machine.name, most, busbw_of(two) / 1e9, busbw_of(more) / 1e9, most);
}

static void warn_of_nvls(const struct plan_run *run, int m)
{
    const struct plan_machine *machine = &run->question.machines[m];
    const int from = machine->model.network.nvls_from_ranks;
    bool is_below = false, is_above = false;

    for (int i = 0; i < run->option_count; i++) {
        const struct dpb_capacity_option *option = &run->options[i];

        if (option->machine_index != m || option->nodes > 1 || option->accelerators < 2)
            continue;
        is_below = is_below || option->accelerators < from;
        is_above = is_above || option->accelerators >= from;
    }
    if (from > 0 && is_below && is_above)
        plan_warn(&run->question,
                  "%s: inside a node, all-reduce of %d and more accelerators goes by NVLink SHARP "
                  "and of fewer does not; the table does not continue across that line.",
                  machine->machine.name, from);
}

static void warn_of_batches(const struct plan_run *run)
{
    struct dpb_str text = {0};

    for (int i = 0; i < run->option_count; i++) {
        const struct dpb_capacity_option *option = &run->options[i];

        if (option->loss_ns[DPB_LOSS_SMALL_BATCH] < 0.1 * option->step_ns)
            continue;
        dpb_str_append(&text, text.length ? ", " : "");
        plan_option_name(option, &text);
        dpb_str_appendf(&text, " (%lld)", (long long)option->batch_per_rank);
    }
    if (text.length && !text.failed)
        plan_warn(&run->question,
                  "The batch per accelerator is so small that more than 10 %% of a step is lost to "
                  "it: %s.",
                  text.text);
    dpb_str_release(&text);
}

/* What the slowest of many adds by itself, were nothing else between a rank and the next step. */
static double share_of_delays(const struct dpb_timeline_noise *noise, double ranks)
{
    return noise->rank_sd * dpb_capacity_normal_max(ranks) +
           noise->tail_mean * dpb_capacity_tail_max(ranks, noise->tail_share);
}

#define FAR_RANKS 4096 /* where tails decide that hardly show at 8 */

static void warn_of_delays(const struct plan_run *run, int m)
{
    const struct plan_machine *machine = &run->question.machines[m];
    const struct dpb_timeline_noise *noise = &machine->model.noise;
    struct dpb_str tail = {0};
    int most = 0;

    for (int i = 0; i < run->option_count; i++)
        if (run->options[i].machine_index == m && run->options[i].accelerators > most)
            most = (int)run->options[i].accelerators;
    if (most < 2 || !(share_of_delays(noise, most) > 0))
        return;
    if (noise->tail_share > 0 && noise->tail_mean > 0)
        dpb_str_appendf(&tail, ", and %.2g %% of their steps take on average %.2g %% longer",
                        100 * noise->tail_share, 100 * noise->tail_mean);
    plan_warn(&run->question,
              "%s: the slowest of %d accelerators makes a step about %.1f %% longer by itself, of "
              "%d %.1f %%: ranks differ by %.2g %%%s. What delays a whole job at once is not in "
              "this, and does not grow.",
              machine->machine.name, most, 100 * share_of_delays(noise, most), FAR_RANKS,
              100 * share_of_delays(noise, FAR_RANKS), 100 * noise->rank_sd,
              tail.text ? tail.text : "");
    dpb_str_release(&tail);
}

void plan_warn_of_options(const struct plan_run *run)
{
    for (int m = 0; m < run->question.machine_count; m++) {
        warn_of_counts(run, m);
        warn_of_two_nodes(run, m);
        warn_of_nvls(run, m);
        warn_of_delays(run, m);
    }
    warn_of_batches(run);
    if (!run->question.workload->activation_bytes_for)
        plan_warn(&run->question, "This workload does not tell its activations beforehand, so that "
                                  "memory is without them.");
}
