#include "plan_question.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpb_experiment.h"
#include "dpb_host.h"
#include "dpb_log.h"
#include "dpb_units.h"

#define RANKS_DEFAULT      "8,16,32,64,128,256,512"
#define STRATEGIES_DEFAULT "ddp,zero1,zero2,fsdp,horovod"
#define BUCKETS_DEFAULT    "1MiB,5MiB,25MiB,100MiB"

void plan_warn(const struct plan_question *question, const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    dpb_json_append(question->warnings, dpb_json_string(text));
}

static dpb_status no_memory(void)
{
    dpb_error("plan: out of memory");
    return DPB_ERR_NO_MEMORY;
}

/* ---- settings of the file and of the flags ---- */

static dpb_status take_settings(const struct dpb_option_set *set, const struct dpb_settings *from,
                                struct dpb_settings *to)
{
    for (size_t i = 0; i < from->count; i++)
        DPB_TRY(dpb_settings_add_list(to, set, from->items[i].name,
                                      (const char *const *)from->items[i].values,
                                      from->items[i].value_count, from->items[i].origin));
    return DPB_OK;
}

/* "<= 3d" of what may be so much at most, ">= 50%" of what must be so much at least; without an
 * operator it is that, too. NULL: another one. */
static const char *limit_of(const char *rule, bool at_least)
{
    if (rule[0] != '<' && rule[0] != '>')
        return rule;
    if (rule[1] != '=' || at_least != (rule[0] == '>'))
        return NULL;
    return rule + 2 + strspn(rule + 2, " ");
}

static dpb_status take_target(const struct dpb_option_set *set,
                              const struct dpb_sweep_target *target, struct dpb_settings *to)
{
    const char *names[DPB_TARGET_COUNT + 1];

    for (int t = 0; t < DPB_TARGET_COUNT; t++)
        names[t] = dpb_capacity_target_key(t);
    names[DPB_TARGET_COUNT] = "quality";
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
        const bool at_least = n == DPB_TARGET_EFFICIENCY || n == DPB_TARGET_COUNT;
        const char *limit = limit_of(target->rule, at_least);

        if (strcmp(names[n], target->metric) != 0)
            continue;
        if (limit)
            return dpb_settings_add(to, set, target->metric, limit, target->origin);
        dpb_error("%s: target %s: \"%s\": a plan can only be asked for %s", target->origin,
                  target->metric, target->rule, at_least ? "so much at least" : "so much at most");
        dpb_log_hint("write %s, or the value alone", at_least ? ">=" : "<=");
        return DPB_ERR_USAGE;
    }
    const char *near = dpb_suggest(target->metric, names, sizeof(names) / sizeof(names[0]));
    dpb_error("%s: a plan has no target \"%s\"", target->origin, target->metric);
    dpb_log_hint("%s%s%stargets are deadline, budget, efficiency, step-p99 and quality",
                 near ? "did you mean \"" : "", near ? near : "", near ? "\"? " : "");
    return DPB_ERR_USAGE;
}

static dpb_status take_file(const struct dpb_option_set *set, const struct dpb_sweep_file *file,
                            struct dpb_settings *settings)
{
    if (file->exclude_count > 0) {
        dpb_error("%s: a plan has no exclude", file->name);
        dpb_log_hint("remove it: the report compares everything that is asked about");
        return DPB_ERR_USAGE;
    }
    DPB_TRY(take_settings(set, &file->base, settings));
    DPB_TRY(take_settings(set, &file->axes, settings));
    for (size_t t = 0; t < file->target_count; t++)
        DPB_TRY(take_target(set, &file->targets[t], settings));
    return DPB_OK;
}

/* ---- the cells ---- */

static dpb_status add_default(const struct dpb_option_set *set, const char *name, const char *text,
                              struct dpb_settings *settings)
{
    if (dpb_settings_find(settings, name))
        return DPB_OK;
    return dpb_settings_add(settings, set, name, text, "default of plan");
}

/* Has the strategy an option of that name? */
static bool has_option(const struct dpb_registry *registry, const char *strategy, const char *name)
{
    const struct dpb_strategy_ops *ops = dpb_registry_strategy(registry, strategy);

    for (size_t r = 0; ops && ops->options && r < ops->options->row_count; r++)
        if (strcmp(ops->options->rows[r].name, name) == 0)
            return true;
    return false;
}

static bool any_has_option(const struct dpb_registry *registry,
                           const struct dpb_setting *strategies, const char *name)
{
    for (size_t s = 0; s < strategies->value_count; s++)
        if (has_option(registry, strategies->values[s], name))
            return true;
    return false;
}

/* The options of cells, and what is taken where nobody says anything. */
static dpb_status cell_settings(const struct plan_question *question, struct dpb_settings *settings)
{
    const struct dpb_option_set *set = question->registry->options;

    for (size_t i = 0; i < question->settings.count; i++) {
        const struct dpb_setting *setting = &question->settings.items[i];

        if (!plan_option_is_own(setting->name))
            DPB_TRY(dpb_settings_add_list(settings, set, setting->name,
                                          (const char *const *)setting->values,
                                          setting->value_count, setting->origin));
    }
    DPB_TRY(add_default(set, "ranks", RANKS_DEFAULT, settings));
    DPB_TRY(add_default(set, "strategy", STRATEGIES_DEFAULT, settings));
    if (any_has_option(question->registry, dpb_settings_find(settings, "strategy"), "bucket"))
        DPB_TRY(add_default(set, "bucket", BUCKETS_DEFAULT, settings));
    return add_default(set, "device", question->registry->sim_device->name, settings);
}

/* Of all settings those that act with one strategy. What acts with none of those that are asked
 * about stays, and is refused. */
static dpb_status settings_of(const struct plan_question *question, const struct dpb_settings *all,
                              const char *strategy, struct dpb_settings *settings)
{
    const struct dpb_registry *registry = question->registry;
    const struct dpb_setting *strategies = dpb_settings_find(all, "strategy");

    for (size_t i = 0; i < all->count; i++) {
        const struct dpb_setting *setting = &all->items[i];
        const bool is_strategy = setting == strategies;
        const char *const *values = is_strategy ? &strategy : (const char *const *)setting->values;

        if (!has_option(registry, strategy, setting->name) &&
            any_has_option(registry, strategies, setting->name))
            continue;
        DPB_TRY(dpb_settings_add_list(settings, registry->options, setting->name, values,
                                      is_strategy ? 1 : setting->value_count, setting->origin));
    }
    return DPB_OK;
}

static dpb_status build_plan(struct plan_question *question, const struct dpb_settings *all,
                             const char *strategy)
{
    struct dpb_settings settings = {0};
    const struct dpb_plan_input input = {
            .registry = question->registry,
            .flags = &settings,
            .sweep = true,
            .cores = dpb_host_cores(),
            .name = question->name,
    };
    dpb_status st = settings_of(question, all, strategy, &settings);

    if (st == DPB_OK)
        st = dpb_plan_build(&input, &question->plans[question->plan_count]);
    question->plan_count += st == DPB_OK;
    dpb_settings_release(&settings);
    return st;
}

static dpb_status gather_cells(struct plan_question *question)
{
    size_t count = 0;

    for (size_t p = 0; p < question->plan_count; p++)
        count += question->plans[p].cell_count;
    question->cells = calloc(count, sizeof(*question->cells));
    if (!question->cells)
        return no_memory();
    for (size_t p = 0; p < question->plan_count; p++)
        for (size_t c = 0; c < question->plans[p].cell_count; c++)
            question->cells[question->cell_count++] = question->plans[p].cells[c].config;
    return DPB_OK;
}

/* Strategy by strategy: lists of options that act with one of them are not multiplied by those of
 * the others. */
static dpb_status make_cells(struct plan_question *question)
{
    struct dpb_settings settings = {0};
    dpb_status st = cell_settings(question, &settings);
    const struct dpb_setting *strategies = dpb_settings_find(&settings, "strategy");

    if (st == DPB_OK) {
        question->plans = calloc(strategies->value_count, sizeof(*question->plans));
        st = question->plans ? DPB_OK : no_memory();
    }
    for (size_t s = 0; st == DPB_OK && s < strategies->value_count; s++)
        st = build_plan(question, &settings, strategies->values[s]);
    if (st == DPB_OK)
        st = gather_cells(question);
    dpb_settings_release(&settings);
    return st;
}

static void warn_of_replicas(const struct plan_question *question)
{
    for (size_t p = 0; p < question->plan_count; p++) {
        const dpb_config *config = question->plans[p].cells[0].config;
        const struct dpb_experiment *e = dpb_config_struct(config, "experiment");
        const struct dpb_strategy_ops *ops = dpb_registry_strategy(question->registry, e->strategy);

        if (dpb_strategy_flags(ops, dpb_config_struct(config, "strategy")) &
            DPB_STRATEGY_REPLICAS_DIFFER)
            plan_warn(question,
                      "Strategy %s lets replicas differ between synchronisations: what it reaches "
                      "with as many samples is not what the others reach.",
                      ops->name);
    }
}

static dpb_status look_at_cells(struct plan_question *question)
{
    const struct dpb_experiment *first = dpb_config_struct(question->cells[0], "experiment");

    question->workload = dpb_registry_workload(question->registry, first->workload);
    question->model = question->workload->model(dpb_config_struct(question->cells[0], "workload"));
    for (size_t c = 0; c < question->cell_count; c++) {
        const struct dpb_experiment *e = dpb_config_struct(question->cells[c], "experiment");

        if (strcmp(e->workload, first->workload) != 0 || e->precision != first->precision) {
            dpb_error("a plan is about one workload and precision, and this asks about more");
            dpb_log_hint("make a plan for each");
            return DPB_ERR_USAGE;
        }
        if (e->batch_per_rank > question->largest_batch)
            question->largest_batch = e->batch_per_rank;
    }
    if (dpb_model_own_table_elements(question->model) == 0)
        return DPB_OK;
    dpb_error("workload \"%s\" exchanges rows of its embedding tables itself, which is not "
              "simulated",
              first->workload);
    dpb_log_hint("take --embedding-gradients dense, or another workload");
    return DPB_ERR_USAGE;
}

/* ---- machines ---- */

static dpb_status find_price(const struct plan_question *question, struct plan_machine *machine)
{
    const struct dpb_figure *figure = &machine->machine.figure[DPB_FIGURE_PRICE];
    const struct dpb_setting *given = dpb_settings_find(&question->settings, "price");
    const char *text;

    machine->price = figure->value;
    machine->price_date = figure->date;
    machine->price_source = figure->source;
    for (size_t v = 0; given && v < given->value_count; v++) {
        if (!plan_is_for(given->values[v], machine->machine.name, &text))
            continue;
        DPB_TRY(plan_price_parse(text, &machine->price, &machine->price_date));
        machine->price_source = "--price";
    }
    if (!isnan(machine->price) && !machine->price_date)
        plan_warn(question,
                  "%s: the price of %.4g USD/h has no date. Prices of the same accelerator differ "
                  "several times between offers and change within months.",
                  machine->machine.name, machine->price);
    if (isnan(machine->price))
        plan_warn(question, "%s: no price is known, so it has no cost; give one with --price.",
                  machine->machine.name);
    return DPB_OK;
}

static dpb_status find_throughput(const struct plan_question *question,
                                  struct plan_machine *machine)
{
    const struct dpb_setting *given = dpb_settings_find(&question->settings, "throughput");
    const char *text;
    char why[DPB_WHY_BYTES];

    machine->throughput = NAN;
    for (size_t v = 0; given && v < given->value_count; v++) {
        if (!plan_is_for(given->values[v], machine->machine.name, &text))
            continue;
        if (dpb_parse_f64(text, &machine->throughput, why) == DPB_OK && machine->throughput > 0)
            continue;
        dpb_error("--throughput \"%s\" is no number of samples per second above 0",
                  given->values[v]);
        dpb_log_hint("give what one accelerator reaches alone, as 2500 or MACHINE=2500");
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

static dpb_status open_machine(const struct plan_question *question, const char *name,
                               struct plan_machine *machine)
{
    const struct plan_options *o = question->options;

    DPB_TRY(dpb_machine_find(name, &machine->machine));
    DPB_TRY(dpb_machine_model_init(&machine->machine, o->tf32, &machine->model));
    machine->power_w = dpb_machine_value(&machine->machine, DPB_FIGURE_POWER, NAN);
    machine->mtbf_s = o->mtbf_ns == DPB_AUTO
                              ? dpb_machine_value(&machine->machine, DPB_FIGURE_MTBF, NAN)
                              : (double)o->mtbf_ns / 1e9;
    if (!dpb_machine_has(&machine->machine, DPB_FIGURE_MEMORY))
        plan_warn(question, "%s: its memory is not known, so everything is taken to fit.", name);
    DPB_TRY(find_price(question, machine));
    return find_throughput(question, machine);
}

static dpb_status no_machine(void)
{
    struct dpb_str names = {0};

    for (size_t i = 0; i < dpb_machine_builtin_count(); i++)
        dpb_str_appendf(&names, "%s%s", i ? ", " : "", dpb_machine_builtin_name(i));
    dpb_error("no machine is given to plan for");
    dpb_log_hint("give --machine a file, or one or several of: %s",
                 names.failed ? "the list in docs/machines.md" : names.text);
    dpb_str_release(&names);
    return DPB_ERR_USAGE;
}

static dpb_status open_machines(struct plan_question *question)
{
    const struct dpb_setting *names = dpb_settings_find(&question->settings, "machine");

    if (!names)
        return no_machine();
    question->machines = calloc(names->value_count, sizeof(*question->machines));
    if (!question->machines)
        return no_memory();
    for (size_t m = 0; m < names->value_count; m++)
        DPB_TRY(open_machine(question, names->values[m],
                             &question->machines[question->machine_count++]));
    return DPB_OK;
}

/* A price or a throughput for a machine that is not asked about is a slip. */
static dpb_status check_named(const struct plan_question *question, const char *option)
{
    const struct dpb_setting *given = dpb_settings_find(&question->settings, option);
    const char *text;

    for (size_t v = 0; given && v < given->value_count; v++) {
        bool is_used = false;

        for (int m = 0; m < question->machine_count; m++)
            is_used = is_used ||
                      plan_is_for(given->values[v], question->machines[m].machine.name, &text);
        if (is_used)
            continue;
        dpb_error("--%s \"%s\": no machine of that name is asked about", option, given->values[v]);
        dpb_log_hint("write one of the names given with --machine before the '='");
        return DPB_ERR_USAGE;
    }
    return DPB_OK;
}

/* ---- targets and training ---- */

static dpb_status read_targets(struct plan_question *question, int64_t now_s)
{
    const struct plan_options *o = question->options;
    double *target = question->target;
    bool is_any = false;

    for (int t = 0; t < DPB_TARGET_COUNT; t++)
        target[t] = NAN;
    if (o->deadline[0])
        DPB_TRY(plan_deadline_parse(o->deadline, now_s, &target[DPB_TARGET_DEADLINE]));
    if (o->budget[0])
        DPB_TRY(plan_budget_parse(o->budget, &target[DPB_TARGET_BUDGET]));
    target[DPB_TARGET_EFFICIENCY] = o->efficiency;
    if (o->step_p99_ns != DPB_AUTO)
        target[DPB_TARGET_STEP_P99] = (double)o->step_p99_ns;
    for (int t = 0; t < DPB_TARGET_COUNT; t++)
        is_any = is_any || !isnan(target[t]);
    if (is_any)
        return DPB_OK;
    dpb_error("no target is given, so every number of accelerators is as good as any other");
    dpb_log_hint("give one or several of --deadline, --budget, --efficiency, --step-p99%s",
                 o->quality[0] ? " (--quality alone chooses nothing)" : "");
    return DPB_ERR_USAGE;
}

static dpb_status check_training(const struct plan_question *question)
{
    const struct plan_options *o = question->options;
    const bool to_quality = o->samples_to_quality != DPB_AUTO;
    const bool by_epochs = o->samples != DPB_AUTO && !isnan(o->epochs);

    if (to_quality && (o->samples != DPB_AUTO || !isnan(o->epochs))) {
        dpb_error("--samples-to-quality and --samples with --epochs both say how long to train");
        dpb_log_hint("give one of the two");
        return DPB_ERR_USAGE;
    }
    if (!to_quality && !by_epochs) {
        dpb_error("how long to train is not given");
        dpb_log_hint("give --samples and --epochs, or --samples-to-quality");
        return DPB_ERR_USAGE;
    }
    if (!to_quality && (!isnan(o->critical_batch) || o->quality[0])) {
        dpb_error("--%s cannot take effect without --samples-to-quality",
                  o->quality[0] ? "quality" : "critical-batch");
        dpb_log_hint("epochs are epochs whatever the batch: give --samples-to-quality, or leave it "
                     "out");
        return DPB_ERR_USAGE;
    }
    if (to_quality && isnan(o->critical_batch))
        plan_warn(question, "Without --critical-batch, training to the quality is taken to need as "
                            "many samples with a large batch as with a small one.");
    if (!to_quality)
        plan_warn(question, "Epochs are taken to be as many at every batch size; a larger global "
                            "batch may need more of them for the same quality.");
    return DPB_OK;
}

/* What was asked for and moves nothing is told. */
static dpb_status check_use(const struct plan_question *question)
{
    static const char *const names[] = {"checkpoint", "checkpoint-size", "checkpoint-rate",
                                        "restart"};
    const struct dpb_settings *settings = &question->settings;
    bool has_mtbf = false, has_price = false;

    for (int m = 0; m < question->machine_count; m++) {
        has_mtbf = has_mtbf || !isnan(question->machines[m].mtbf_s);
        has_price = has_price || !isnan(question->machines[m].price);
    }
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
        if (!has_mtbf && dpb_settings_find(settings, names[n]))
            plan_warn(question,
                      "--%s takes no effect: no mean time between failures is known; give --mtbf.",
                      names[n]);
    for (size_t n = 1; n < 3; n++)
        if (dpb_settings_find(settings, "checkpoint") && dpb_settings_find(settings, names[n]))
            plan_warn(question, "--%s takes no effect beside --checkpoint.", names[n]);
    if (!has_mtbf)
        plan_warn(question, "No mean time between failures is known: nothing is lost to failures "
                            "and checkpoints here.");
    if (has_price || isnan(question->target[DPB_TARGET_BUDGET]))
        return DPB_OK;
    dpb_error("--budget cannot be judged: none of the machines has a price");
    dpb_log_hint("give one, as --price 2.95USD/h@2026-11-30");
    return DPB_ERR_USAGE;
}

/* ---- all of it ---- */

dpb_status plan_question_make(const struct dpb_capacity_input *input,
                              struct plan_question *question)
{
    const struct dpb_option_set *set = dpb_capacity_option_set(input->registry);

    *question = (struct plan_question){.registry = plan_registry(input->registry),
                                       .warnings = dpb_json_array()};
    question->name = input->file ? input->file->name : input->name;
    if (input->file)
        DPB_TRY(take_file(set, input->file, &question->settings));
    DPB_TRY(dpb_settings_override(&question->settings, input->flags));
    DPB_TRY(plan_options_read(&question->settings, &question->config, &question->options));
    DPB_TRY(read_targets(question, input->now_s));
    DPB_TRY(check_training(question));
    DPB_TRY(open_machines(question));
    DPB_TRY(check_named(question, "price"));
    DPB_TRY(check_named(question, "throughput"));
    DPB_TRY(check_use(question));
    DPB_TRY(make_cells(question));
    warn_of_replicas(question);
    return look_at_cells(question);
}

void plan_question_release(struct plan_question *question)
{
    for (int m = 0; m < question->machine_count; m++) {
        dpb_machine_model_release(&question->machines[m].model);
        dpb_machine_release(&question->machines[m].machine);
    }
    free(question->machines);
    for (size_t p = 0; p < question->plan_count; p++)
        dpb_plan_release(&question->plans[p]);
    free(question->plans);
    free(question->cells);
    dpb_config_free(question->config);
    dpb_settings_release(&question->settings);
    dpb_json_free(question->warnings);
    *question = (struct plan_question){0};
}
